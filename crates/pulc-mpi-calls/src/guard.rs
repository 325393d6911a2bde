//! What every body is wrapped in: no panic crosses it, and an error goes to its error handler. Used by all bodies.

use crate::abi::Abi;
use crate::errors;
use crate::maps::Set;
pub use pulc_mpi::callback::ErrorOn as On;
use pulc_mpi::error::{Class, Error, Result};
use pulc_mpi::{trace, watch};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub const SUCCESS: c_int = 0;

/// Runs a body; errors go to the handler of `on`.
#[inline(always)]
pub fn run<A: Abi>(function: &'static &'static str, on: On, body: impl FnOnce() -> Result<()>) -> c_int {
    watch::entered(function);
    let began = trace::begin();
    let outcome = catch_unwind(AssertUnwindSafe(body));
    trace::end(began, function, on);
    match outcome {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(error)) => errors::raise::<A>(function, on, error),
        Err(_) => errors::raise::<A>(function, on, defect()),
    }
}

#[cold]
fn defect() -> Error {
    Error::new(Class::INTERN, "a defect in PULC (its words are on standard error)")
}

/// A function that is not there yet.
#[cold]
pub fn unsupported<A: Abi>(function: &'static str, on: On) -> c_int {
    errors::raise::<A>(function, on, Error::unsupported(function))
}

/// Functions of the tool interface call no error handler.
#[cold]
pub fn tool_unsupported<A: Abi>() -> c_int {
    A::constant_out(Set::ErrorClass, Class::UNSUPPORTED_OPERATION.0)
}
