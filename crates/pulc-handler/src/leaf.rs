//! Code of the program that runs inside of a poll, with the engine locked, because it has promised to call nothing of PULC. Called by
//! receive handlers. Whoever breaks the promise panics at the engine's lock, which he can't get; no panic unwinds through a poll.

use pulc_hal::os::life;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// What a panic was raised with.
pub type Panic = Box<dyn Any + Send>;

/// Whether this thread runs such code at the moment.
#[inline]
pub fn is_running() -> bool {
    RUNNING.with(Cell::get)
}

/// Runs it.
///
/// # Errors
/// What it panicked with, to be raised again once the engine is unlocked.
///
/// # Panics
/// In a fork's child that comes back from it: the rings and the lock around this call are the parent's.
#[inline(always)]
pub fn run<R>(code: impl FnOnce() -> R) -> Result<R, Panic> {
    RUNNING.with(|running| running.set(true));
    // What it saw half done it has shared by references that are safe to see after a panic: its interface asks for that.
    let result = catch_unwind(AssertUnwindSafe(code));
    RUNNING.with(|running| running.set(false));
    assert!(!life::is_fork_child(), "a leaf handler forked and returned in the child");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_panics_with_is_handed_back_and_the_thread_is_out_of_it() {
        life::watch_forks();
        assert!(!is_running());
        assert_eq!(run(|| (is_running(), 7)).unwrap(), (true, 7));
        let panicked = run::<()>(|| std::panic::panic_any(5_u8)).unwrap_err();
        assert_eq!(panicked.downcast_ref::<u8>(), Some(&5));
        assert!(!is_running());
    }
}
