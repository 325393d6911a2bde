#![doc = include_str!("../README.md")]

pub mod am;
mod groups;
pub mod guard;
mod machine;
mod memory;
mod ports;
mod raw;
pub mod requests;
pub mod table;
mod waits;
