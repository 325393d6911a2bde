//! Fuzz target: what is in the inputs, and what must hold, says the function. Run by `cargo xtask fuzz state_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pulc_psid::fuzz::state_files(bytes));
