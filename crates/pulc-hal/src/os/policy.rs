//! How the kernel shares a core out: the scheduling policy of the calling thread. Called by benchmarks, and by [`process`](super::process) for
//! programs that come last; decides nothing, and must never be called on the data path.

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

/// The longest share of a core that the kernel lets a thread ask for in one go. Whoever wakes with a shorter one goes first at once, also in
/// another session's group of threads, where the policy alone says nothing.
const LONGEST_SLICE_NS: u64 = 100_000_000;

/// Puts the calling thread below all that have a usual policy. Returns 0, or -1 with the reason in `errno`. May be called between clone and
/// exec: two system calls at most and no memory.
pub(super) fn lower() -> libc::c_int {
    let wanted = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_IDLE as u32,
        flags: 0,
        nice: LOWEST_NICE,
        priority: 0,
        runtime_ns: LONGEST_SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: 0 is the calling thread; the kernel reads as much of `wanted` as its first field says and writes at most that field.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if result == 0 {
        return 0;
    }
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: as in `set_policy`.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) }
}

const LOWEST_NICE: i32 = 19;

/// `struct sched_attr` in its first form. Source: sched_setattr(2).
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const _: () = assert!(size_of::<Attributes>() == 48);

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
