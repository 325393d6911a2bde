//! What a binary interface is: its types of handles, its layout of statuses, its values. Every body is generic over this trait and
//! compiled once for each interface. Implemented by `mpich` (which is the neutral one) and `standard`.

use crate::maps::{Limit, Set};
use pulc_mpi::handle;
use pulc_mpi::memory::Addr;
use pulc_mpi::status::Status;
use std::ffi::{c_int, c_void};

/// A handle in one binary interface, and the neutral one that it stands for.
pub trait Handle<Neutral>: Copy {
    fn inward(self) -> Neutral;
    fn outward(neutral: Neutral) -> Self;

    /// Whether arrays of this handle can be used as arrays of the neutral one.
    const IS_NEUTRAL: bool;
}

pub trait Abi: Sized + 'static {
    type Comm: Handle<handle::Comm>;
    type Datatype: Handle<handle::Datatype>;
    type Errhandler: Handle<handle::Errhandler>;
    type File: Handle<handle::File>;
    type Group: Handle<handle::Group>;
    type Info: Handle<handle::Info>;
    type Message: Handle<handle::Message>;
    type Op: Handle<handle::Op>;
    type Request: Handle<handle::Request>;
    type Session: Handle<handle::Session>;
    type Win: Handle<handle::Win>;
    type Status: Copy;

    /// What `MPI_Abi_get_version` says.
    const ABI_VERSION: (c_int, c_int);
    /// `MPI_ERR_LASTCODE`
    const LAST_CODE: c_int;

    /// The neutral value of a constant of this interface; numbers that are no constants stay.
    fn constant_in(set: Set, value: c_int) -> c_int;
    fn constant_out(set: Set, value: c_int) -> c_int;
    /// Bytes of a string, its terminating zero included.
    fn limit(limit: Limit) -> usize;

    /// # Safety
    /// The promise of [`Addr::new`].
    unsafe fn buffer_in(buffer: *mut c_void) -> Addr;
    fn is_in_place(buffer: *const c_void) -> bool;

    /// Whether the caller wants no status.
    fn ignores(status: *const Self::Status) -> bool;
    fn status_in(status: &Self::Status) -> Status;
    /// A status of this interface.
    fn new_status(from: &Status) -> Self::Status;
    /// Fills in `status` except for its error.
    fn fill_status(status: &mut Self::Status, from: &Status);
    fn set_error(status: &mut Self::Status, class: c_int);

    /// Writes a status unless the caller wants none; its error only where several requests are completed at once.
    ///
    /// # Safety
    /// `status` is ignored, or points to a status.
    unsafe fn status_out(from: &Status, status: *mut Self::Status, with_error: bool) {
        if Self::ignores(status) {
            return;
        }
        // SAFETY: not ignored, so it points to a status of the caller.
        let status = unsafe { &mut *status };
        Self::fill_status(status, from);
        // The empty status has an error field too: success (MPI-5.0, 3.7.3).
        if with_error || *from == Status::EMPTY {
            Self::set_error(status, Self::constant_out(Set::ErrorClass, from.error));
        }
    }
}
