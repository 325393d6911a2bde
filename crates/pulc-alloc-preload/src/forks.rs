//! Around a fork: the arena's account is held while the process is copied, and the child gets memory of its own with the same bytes
//! (`pulc_hal::device::shm::arena_forks`). Called by the C library in the thread that forks.

use crate::long;
use pulc_hal::device::shm::arena_forks::Forking;
use std::cell::UnsafeCell;

/// The fork under way. Only the forking thread is between `prepare` and the handlers after it: the C library runs them under one lock,
/// and the arena's account is locked as well.
struct UnderWay(UnsafeCell<Option<Forking>>);

// SAFETY: see above.
unsafe impl Sync for UnderWay {}

static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// To be called once, when the library is loaded.
pub fn watch() {
    // SAFETY: functions of this library, which is never unloaded, without arguments.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

extern "C" fn prepare() {
    if let Some(arena) = long::known() {
        let forking = Forking::prepare(arena);
        // SAFETY: the account is locked by this thread now, so no other one is here.
        unsafe { *UNDER_WAY.0.get() = Some(forking) };
    }
}

extern "C" fn in_parent() {
    // SAFETY: as in `prepare`; the lock is still held.
    if let Some(forking) = unsafe { (*UNDER_WAY.0.get()).take() } {
        forking.in_parent();
    }
}

extern "C" fn in_child() {
    long::close();
    // SAFETY: the only thread of the child.
    if let Some(forking) = unsafe { (*UNDER_WAY.0.get()).take() }
        && forking.in_child().is_err()
    {
        const TEXT: &[u8] =
            b"pulc: a forked process has no memory for its copy of long blocks; set PULC_ALLOC_MIN_BYTES higher\n";
        // SAFETY: writes a constant; nothing of this process can be relied on any more.
        unsafe {
            libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
            libc::_exit(127);
        }
    }
}
