//! A lock word in memory that processes share: zero, or the thread that holds it. Held for a copy and a few system calls that do not
//! sleep. A holder that has died is succeeded: what it had not published does not count.

use crate::kernel::{Kernel, errno};
use crate::memory::{AtomicU32, spin_loop, yield_now};
use std::sync::atomic::Ordering;

/// Looks between two checks whether the holder lives.
const LOOKS: u64 = if cfg!(loom) { 1 } else { 1 << 10 };
/// Looks without giving the core away.
const SPINS: u64 = 64;

/// The lock, held.
pub struct Held<'a>(&'a AtomicU32);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of `lock`.
        self.0.store(0, Ordering::Release);
    }
}

/// Waits for the lock; `None` when this thread holds it itself: a signal handler has interrupted the call that does.
#[inline]
pub fn lock<'a>(word: &'a AtomicU32, kernel: &impl Kernel) -> Option<Held<'a>> {
    lock_within(word, kernel, u64::MAX).ok()
}

/// Waits for at most so many looks: another user may say for ever that one of his threads holds the lock.
///
/// # Errors
/// `EAGAIN` when this thread holds it itself, `ECONNRESET` after all looks.
#[inline]
pub fn lock_within<'a>(word: &'a AtomicU32, kernel: &impl Kernel, looks_max: u64) -> Result<Held<'a>, i32> {
    let me = kernel.me();
    match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(Held(word)),
        Err(holder) => wait(word, me, holder, kernel, looks_max),
    }
}

#[cold]
fn wait<'a>(
    word: &'a AtomicU32,
    me: u32,
    mut holder: u32,
    kernel: &impl Kernel,
    looks_max: u64,
) -> Result<Held<'a>, i32> {
    let mut looks = 0;
    loop {
        if holder == me {
            return Err(errno::AGAIN);
        }
        if looks == looks_max {
            return Err(errno::CONNRESET);
        }
        looks += 1;
        let is_dead = u64::is_multiple_of(looks, LOOKS) && holder != 0 && !kernel.is_alive(holder);
        let expected = if is_dead { holder } else { 0 };
        match word.compare_exchange(expected, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(Held(word)),
            Err(found) => holder = found,
        }
        if looks < SPINS { spin_loop() } else { yield_now() }
    }
}
