#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

mod data;
mod descriptors;
mod leaving;
mod next;
mod options;
mod table;
mod waits;

/// Runs when the library is loaded, before the program and after the C library.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        table::start();
    }
    start
};
