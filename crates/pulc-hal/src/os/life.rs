//! Turns in a process's life: it forks, it ends. Called by the handler; the callbacks of the system do no more than set a word
//! or call one registered function. Must never take a lock in a fork's child: a thread that is not there may hold it.
//! Source: madvise(2) on `MADV_WIPEONFORK`, pthread_atfork(3).

use rustix::mm::Advice;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

const PAGE: usize = 4096;

/// A page of its own whose word the kernel sets to zero in every child, however it was forked: also by `_Fork` and by `clone`,
/// which run no handlers.
#[repr(C, align(4096))]
struct Mark {
    is_original: AtomicU32,
    _rest: [u8; PAGE - 4],
}

const _: () = assert!(size_of::<Mark>() == PAGE);

static MARK: Mark = Mark { is_original: AtomicU32::new(0), _rest: [0; PAGE - 4] };
static WATCHED: AtomicBool = AtomicBool::new(false);
/// The last registered one is called first.
static AT_EXIT: Mutex<Vec<fn(i32)>> = Mutex::new(Vec::new());

unsafe extern "C" {
    /// As `atexit`, and the function is told the status. Of glibc.
    fn on_exit(function: extern "C" fn(status: c_int, argument: *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn forked() {
    MARK.is_original.store(0, Ordering::Relaxed);
}

extern "C" fn exiting(status: c_int, _: *mut c_void) {
    // In a fork's child a thread that is not there may hold the lock.
    let Ok(mut all) = AT_EXIT.try_lock() else { return };
    let all = std::mem::take(&mut *all);
    for last_words in all.into_iter().rev() {
        // A panic must not cross into the C library.
        let _ = std::panic::catch_unwind(|| last_words(status));
    }
}

/// From now on [`is_fork_child`] tells in every child of this process that it is one. Costs nothing until a fork.
pub fn watch_forks() {
    if WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    MARK.is_original.store(1, Ordering::Relaxed);
    // SAFETY: the advice concerns exactly the page of `MARK`, of which a child shall find zeroes. Where the kernel refuses
    // (pages of another size), the handler below does it for those children that run handlers.
    let _ = unsafe { rustix::mm::madvise(std::ptr::from_ref(&MARK).cast_mut().cast(), PAGE, Advice::LinuxWipeOnFork) };
    // SAFETY: `forked` is a function of this library without arguments that only stores to an atomic, which is allowed
    // in a fork child; the C library drops the registration when the library is unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// Whether this process is a fork of the one that called [`watch_forks`]; to be asked only after that. One load, no system
/// call, no lock.
#[inline(always)]
pub fn is_fork_child() -> bool {
    MARK.is_original.load(Ordering::Relaxed) == 0
}

/// Calls `last_words` with the exit status when the process ends by `exit` or by returning from `main`; those that were registered
/// later are called earlier.
pub fn at_exit(last_words: fn(status: i32)) {
    let mut all = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
    if all.is_empty() {
        // SAFETY: `exiting` is a function of this library that does not unwind; it is given nothing.
        unsafe { on_exit(exiting, std::ptr::null_mut()) };
    }
    all.push(last_words);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How the child of such a fork ends.
    fn status_of_child(fork: impl FnOnce() -> libc::pid_t) -> i32 {
        let child = fork();
        if child == 0 {
            // SAFETY: `_exit` is allowed in a fork child.
            unsafe { libc::_exit(if is_fork_child() { 7 } else { 0 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above; `status` outlives the call.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(waited, child);
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn only_the_child_of_a_fork_knows_that_it_is_one() {
        watch_forks();
        assert!(!is_fork_child());
        // SAFETY: the child only reads an atomic and leaves at once without running destructors.
        assert_eq!(status_of_child(|| unsafe { libc::fork() }), 7);
        assert!(!is_fork_child());
    }

    #[test]
    fn a_child_that_was_made_without_the_c_librarys_handlers_knows_it_too() {
        watch_forks();
        // SAFETY: as `fork` without its handlers; the child only reads an atomic and leaves at once.
        let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
        assert_eq!(status_of_child(clone), 7);
        assert!(!is_fork_child());
    }
}
