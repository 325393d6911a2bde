//! How the kernel shares a core out: the scheduling policy of the calling thread. Called by benchmarks; decides nothing, and must never
//! be called on the data path.

use crate::error::HalError;
use std::io;

/// Scheduling policies of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The usual one (SCHED_OTHER).
    Usual,
    /// Never preempts whoever runs when it wakes (SCHED_BATCH).
    Batch,
    /// Real time: runs until it sleeps or yields to an equal. Needs a privilege.
    Fifo,
}

/// The lowest there is: enough to come before everything usual.
const FIFO_PRIORITY: i32 = 1;

/// Puts the calling thread under `policy`. Threads and processes that it makes afterwards are under it as well.
///
/// # Errors
/// Where the kernel or a limit does not allow it.
pub fn set_policy(policy: Policy) -> Result<(), HalError> {
    let (number, priority) = match policy {
        Policy::Usual => (libc::SCHED_OTHER, 0),
        Policy::Batch => (libc::SCHED_BATCH, 0),
        Policy::Fifo => (libc::SCHED_FIFO, FIFO_PRIORITY),
    };
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: 0 is the calling thread; the kernel reads `parameter`, which lives until the call returns, and writes nothing.
    let result = unsafe { libc::sched_setscheduler(0, number, &raw const parameter) };
    if result == 0 { Ok(()) } else { Err(HalError::system("sched_setscheduler")(io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_taken_or_refused_with_a_word() {
        std::thread::spawn(|| {
            // Sandboxes and limits differ: each is allowed, or refused with a word.
            for policy in [Policy::Batch, Policy::Fifo, Policy::Usual] {
                if let Err(error) = set_policy(policy) {
                    assert!(error.to_string().contains("sched_setscheduler"), "{error}");
                }
            }
        })
        .join()
        .unwrap();
    }
}
