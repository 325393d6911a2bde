//! What several parts of a process have to finish while others watch: an outcome that is settled once, and counts of what is open and
//! of what has failed. Used by events and groups of active messages; apart from them so that loom can try every order. Wakes nobody.

use crate::sync::Word;
use std::sync::atomic::Ordering;

pub const PENDING: u32 = 0;
const DONE: u32 = 1;
const FAILED: u32 = 2;

/// Settles an outcome; false when somebody has settled it before.
pub fn settle(state: &impl Word, went_well: bool) -> bool {
    let outcome = if went_well { DONE } else { FAILED };
    // Release: pairs with the acquire of `outcome`.
    state.compare_exchange(PENDING, outcome, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// `None` while it is pending, then whether it went well; who knows the outcome sees what was done before it was settled.
pub fn outcome(state: &impl Word) -> Option<bool> {
    // Acquire: pairs with the release of `settle`.
    match state.load(Ordering::Acquire) {
        PENDING => None,
        state => Some(state == DONE),
    }
}

/// One more is open.
pub fn begin(open: &impl Word) {
    open.fetch_add(1, Ordering::Relaxed);
}

/// One of those that are open has ended.
pub fn end(open: &impl Word, failed: &impl Word, went_well: bool) {
    if !went_well {
        failed.fetch_add(1, Ordering::Relaxed);
    }
    // Release: pairs with the acquire of `left`. All that go down form one release sequence: zero is after all of them.
    open.fetch_add(1_u32.wrapping_neg(), Ordering::Release);
}

/// How many are open; who reads zero sees all failures and what was done before each end.
pub fn left(open: &impl Word) -> u32 {
    // Acquire: pairs with the release of `end`.
    open.load(Ordering::Acquire)
}
