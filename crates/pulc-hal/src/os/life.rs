//! Turns in a process's life: it forks, it ends, it has a second thread. Called by the handler; the callbacks of the system
//! do no more than set a flag or call one registered function.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static IN_FORK_CHILD: AtomicBool = AtomicBool::new(false);
static AT_EXIT: OnceLock<fn()> = OnceLock::new();

extern "C" fn forked() {
    IN_FORK_CHILD.store(true, Ordering::Relaxed);
}

extern "C" fn exiting() {
    if let Some(last_words) = AT_EXIT.get() {
        // A panic must not cross into the C library.
        let _ = std::panic::catch_unwind(last_words);
    }
}

/// From now on [`is_fork_child`] tells in every child made by `fork` that it is one. Costs nothing until a fork.
pub fn watch_forks() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // SAFETY: `forked` is a function of this library without arguments that only stores to an atomic, which is allowed
        // in a fork child; the C library drops the registration when the library is unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// Whether this process is a fork of the one that called [`watch_forks`]. One load, no system call.
#[inline]
pub fn is_fork_child() -> bool {
    IN_FORK_CHILD.load(Ordering::Relaxed)
}

/// Calls `last_words` when the process ends by `exit` or by returning from `main`. Only the first registration counts.
pub fn at_exit(last_words: fn()) {
    if AT_EXIT.set(last_words).is_ok() {
        // SAFETY: `exiting` is a function of this library that takes nothing and does not unwind.
        unsafe { libc::atexit(exiting) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_child_of_a_fork_knows_that_it_is_one() {
        watch_forks();
        assert!(!is_fork_child());
        // SAFETY: the child only reads an atomic and leaves at once without running destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: `_exit` is allowed in a fork child.
            unsafe { libc::_exit(if is_fork_child() { 7 } else { 0 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above; `status` outlives the call.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(waited, child);
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert!(!is_fork_child());
    }
}
