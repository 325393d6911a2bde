//! What happens to an error: the handler of the object it was raised on decides. Called by `guard` alone, with no lock held.
//! Source: MPI-5.0, 9.3.

use crate::abi::Abi;
use crate::guard::On;
use crate::maps::Set;
use pulc_mpi::error::Error;
use std::ffi::c_int;

/// Hands `error` to the handler of `on`; the code that the call returns if the program goes on.
#[cold]
pub fn raise<A: Abi>(function: &'static str, on: On, error: Error) -> c_int {
    // Errors of files return; all others are fatal as long as programs can't choose another handler.
    if !matches!(on, On::File(_)) {
        end(function, on, &error);
    }
    A::constant_out(Set::ErrorClass, error.class.0)
}

/// Says what failed and ends the job.
fn end(function: &str, on: On, error: &Error) -> ! {
    eprintln!("{function}{}: {}", describe(on), error.text);
    std::process::exit(error.class.0.clamp(1, 255))
}

fn describe(on: On) -> String {
    match on {
        On::Comm(comm) => format!(" on communicator {:#x}", comm.0),
        On::Win(win) => format!(" on window {:#x}", win.0),
        On::File(file) => format!(" on file {:#x}", file.0),
        On::Session(session) => format!(" on session {:#x}", session.0),
        On::None => String::new(),
    }
}
