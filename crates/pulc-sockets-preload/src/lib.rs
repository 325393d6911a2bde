#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

mod addresses;
mod asleep;
mod connection;
mod data;
mod datagrams;
mod descriptors;
mod joining;
mod kernel;
mod leaving;
mod letters;
mod members;
mod messages;
mod moving;
mod next;
mod options;
mod outboxes;
mod polls;
mod postponed;
mod promoted;
mod sets;
mod settings;
mod table;
mod variable;
mod waits;

/// Runs when the library is loaded, before the program and after the C library.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        settings::read();
        table::start();
    }
    start
};
