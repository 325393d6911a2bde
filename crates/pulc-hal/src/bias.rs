//! The two halves of taking a lock that leans towards one thread: its owner *says that it is inside, and looks whether its
//! right was revoked*; another thread *revokes it, and looks whether the owner is inside*. At least one of the two sees what the
//! other did. The fence between saying and looking costs the owner nothing, because the other side pays for both. Used by
//! `os::biased`; apart from it so that loom can try every order.

use crate::sync::{Word, barrier_of_all_threads, compiler_barrier};
use std::sync::atomic::Ordering;

const NO: u32 = 0;
const YES: u32 = 1;

/// The owner's way in; false when it must take the way of all others.
#[inline(always)]
pub fn enter(inside: &impl Word, revoked: &impl Word) -> bool {
    inside.store(YES, Ordering::Relaxed);
    // Pairs with the barrier of `revoke`.
    compiler_barrier();
    // Acquire: pairs with the release of `revoke`.
    if revoked.load(Ordering::Acquire) == NO {
        return true;
    }
    leave(inside);
    false
}

/// The owner's way out.
#[inline(always)]
pub fn leave(inside: &impl Word) {
    // Release: pairs with the acquire of `is_inside`.
    inside.store(NO, Ordering::Release);
}

/// Takes the owner's right away, for ever. Once the owner is not inside after this, it does not come in any more.
pub fn revoke(revoked: &impl Word) {
    revoked.store(YES, Ordering::Release);
    // Pairs with the compiler barrier of `enter`.
    barrier_of_all_threads();
}

#[inline(always)]
pub fn is_revoked(revoked: &impl Word) -> bool {
    revoked.load(Ordering::Relaxed) != NO
}

pub fn is_inside(inside: &impl Word) -> bool {
    // Acquire: pairs with the release of `leave`; what the owner did inside is seen.
    inside.load(Ordering::Acquire) != NO
}
