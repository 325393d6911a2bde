//! `libpulc.so` in the same process: it calls the native interface through the table of this image, so that both use one engine and one
//! wait. Called when it attaches; costs nothing before.

use crate::abi::{Abi, Handle};
use pulc_c_calls::{requests, table};
use pulc_mpi::call::Pending;
use std::ffi::c_void;

/// Where this image's table of the native interface lies; from now on its waits know the requests of this MPI.
pub fn native_table<A: Abi>() -> usize {
    requests::introduce(|place: *const c_void| {
        // SAFETY: not null (the caller has looked); the program promises that it points to an `MPI_Request` of this interface.
        let request = unsafe { place.cast::<A::Request>().read_unaligned() };
        Box::new(Pending(request.inward()))
    });
    table::own()
}
