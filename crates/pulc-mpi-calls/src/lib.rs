#![doc = include_str!("../README.md")]

pub mod abi;
mod beside;
pub mod convert;
mod door;
pub mod errors;
pub mod guard;
mod hand;
pub mod lengths;
mod mpich;
mod standard;

/// Maps between the binary interfaces, made from `abi/mpi/constants.txt`.
mod maps {
    include!(concat!(env!("OUT_DIR"), "/maps.rs"));
}

/// Bodies made from `abi/mpi/functions.txt`.
#[allow(unused_variables, unused_unsafe, clippy::too_many_arguments, clippy::unit_arg)]
mod made {
    use crate::abi::{Abi, Handle};
    use crate::convert::*;
    use crate::guard::{self, On};
    use crate::lengths;
    use crate::maps::{Limit, Set};
    use pulc_mpi::call;
    use pulc_mpi::handle::Keyval;
    use pulc_mpi::memory::Ints;
    use std::ffi::{c_char, c_int, c_void};

    include!(concat!(env!("OUT_DIR"), "/bodies.rs"));
}

pub use abi::{Abi, Handle};
pub use beside::native_table;
pub use convert::{InInts, OutInts};
pub use hand::*;
pub use made::*;
pub use maps::{Limit, Set};
pub use mpich::Mpich;
pub use standard::Standard;
