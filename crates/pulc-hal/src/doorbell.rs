//! The two halves of going to sleep without missing anything, after Dekker: the sleeper *says that it sleeps, fences, looks
//! once more*; the sender *makes its message visible, fences, looks whether the other sleeps*. At least one of the two sees
//! what the other did. Used by the board; apart from it so that loom can try every order.

use crate::sync::{Word, full_barrier};
use std::sync::atomic::Ordering;

pub const AWAKE: u32 = 0;

/// The sleeper's half. What it looks at afterwards is not older than this.
#[inline]
pub fn announce_sleep(word: &impl Word, how: u32) {
    word.store(how, Ordering::Relaxed);
    // Pairs with the barrier of `sleeps`.
    full_barrier();
}

/// The sender's half, after its message: whether the owner must be woken.
#[inline(always)]
pub fn sleeps(word: &impl Word) -> bool {
    // Pairs with the barrier of `announce_sleep`.
    full_barrier();
    word.load(Ordering::Relaxed) != AWAKE
}

/// The sender's second step, when [`sleeps`] said so: what the owner sleeps in, for the one sender that has to wake it; `AWAKE`
/// for all others.
pub fn claim(word: &impl Word) -> u32 {
    word.swap(AWAKE, Ordering::SeqCst)
}

/// Counts something that was put where the owner finds it.
pub fn count(word: &impl Word) {
    // Release: pairs with the acquire of `counted`.
    word.fetch_add(1, Ordering::Release);
}

/// How much was counted. Taken before looking, so that what comes later counts as not seen.
#[inline]
pub fn counted(word: &impl Word) -> u32 {
    // Acquire: pairs with the release of `count`.
    word.load(Ordering::Acquire)
}
