//! Sleep on and wake through a 32-bit word, also between processes (the word lies in shared memory that both may write:
//! the kernel refuses read-only mappings). Called by the board; never decides anything.

use crate::error::HalError;
use rustix::io::Errno;
use rustix::thread::futex;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why [`wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Someone called [`wake`], or the kernel woke us for no reason (it may).
    Woken,
    /// The word no longer held the expected value.
    Changed,
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Sleeps while `word` holds `expected`, at most for `timeout`.
///
/// # Blocks
/// Until woken, the time is over or a signal arrives.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Wait, HalError> {
    let timeout = timeout.map(|t| futex::Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => Ok(Wait::Woken),
        Err(Errno::AGAIN) => Ok(Wait::Changed),
        Err(Errno::TIMEDOUT) => Ok(Wait::TimedOut),
        Err(Errno::INTR) => Ok(Wait::Interrupted),
        Err(errno) => Err(HalError::System { doing: "futex wait", source: errno.into() }),
    }
}

/// Wakes at most `count` sleepers of `word`; returns how many.
pub fn wake(word: &AtomicU32, count: u32) -> Result<usize, HalError> {
    futex::wake(word, futex::Flags::empty(), count).map_err(HalError::system("futex wake"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn waiting_on_a_word_that_already_changed_returns_at_once() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None).unwrap(), Wait::Changed);
    }

    #[test]
    fn a_wait_ends_by_time_and_by_wake() {
        let word = AtomicU32::new(0);
        assert_eq!(wait(&word, 0, Some(Duration::from_millis(1))).unwrap(), Wait::TimedOut);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                word.store(1, Ordering::SeqCst);
                wake(&word, 1).unwrap();
            });
            while word.load(Ordering::SeqCst) == 0 {
                wait(&word, 0, Some(Duration::from_secs(120))).unwrap();
            }
        });
    }
}
