#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bodies;
pub mod constants;
pub mod exports;
pub mod functions;
pub mod headers;
pub mod kinds;
pub mod maps;
pub mod reports;

pub use constants::Constants;
pub use functions::{Body, Function, Functions};

/// The two doors; each has its own layout of handles and statuses, its own constants and its own set of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Door {
    /// `libmpi.so.12`
    Mpich,
    /// `libmpi_abi.so.1`
    Standard,
}

impl Door {
    pub const ALL: [Door; 2] = [Door::Mpich, Door::Standard];

    pub fn library(self) -> &'static str {
        match self {
            Door::Mpich => "libmpi.so.12",
            Door::Standard => "libmpi_abi.so.1",
        }
    }

    /// Whether this door exports `function`.
    pub fn has(self, function: &Function) -> bool {
        self == Door::Mpich || !function.mpich_only
    }
}
