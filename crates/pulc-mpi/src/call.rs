//! Every function of MPI under its own name in lower case. The doors call these and nothing else. Only re-exports.

pub use crate::datatype::calls::*;
pub use crate::datatype::packing::{pack, pack_external, pack_external_size, pack_size, unpack, unpack_external};
pub use crate::op::calls::*;
