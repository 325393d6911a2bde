//! What happens to an error: the core asks the handler of the object it was raised on. Called by `guard` alone, with no lock held.
//! Source: MPI-5.0, 9.3.

use crate::abi::Abi;
use crate::guard::On;
use crate::maps::Set;
use pulc_mpi::error::Error;
use std::ffi::c_int;

/// Hands `error` to the handler of `on`; the code that the call returns if the program goes on.
#[cold]
pub fn raise<A: Abi>(function: &'static str, on: On, error: Error) -> c_int {
    A::constant_out(Set::ErrorClass, pulc_mpi::errors::raise(on, function, error))
}
