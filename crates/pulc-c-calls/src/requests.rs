//! Requests of MPI among the things that a program waits for: only an MPI door knows what they are, and says so here when it is
//! initialised. Called by `waits`.

use crate::guard::{self, Failed};
use pulc_handler::Awaited;
use std::ffi::c_void;
use std::sync::OnceLock;

/// Reads the `MPI_Request` that the caller of a wait points to.
pub type Read = fn(*const c_void) -> Box<dyn Awaited>;

static READ: OnceLock<Read> = OnceLock::new();

/// For the MPI door whose image this is.
pub fn introduce(read: Read) {
    let _ = READ.set(read);
}

/// The request at `place`.
pub fn request_at(place: *const c_void) -> Result<Box<dyn Awaited>, Failed> {
    if place.is_null() {
        return Err(Failed::null("object"));
    }
    let text = "an MPI_Request is among the items, and MPI is not initialised in this process";
    READ.get().map(|read| read(place)).ok_or_else(|| Failed::new(guard::ARGUMENT, text))
}
