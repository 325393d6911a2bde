//! Fuzz target: what is in the inputs, and what must hold, says the function. Run by `cargo xtask fuzz pmi_questions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pulc_psid::fuzz::pmi_questions(bytes));
