//! The place of a connection in a process's table: generation and phase, its descriptors, and the calls on their way. Used by the
//! library in front of the C library, whose tables are made of it. Must never be given back while a call uses it: no lock, so whoever
//! wants something counts first and looks again then.

use crate::memory::AtomicU32;
use std::sync::atomic::Ordering;

/// What a connection is to this process; the low byte of its word.
pub mod phase {
    pub const FREE: u32 = 0;
    /// On the kernel; how it is used is being watched.
    pub const TRACKED: u32 = 1;
    /// The broker is being asked.
    pub const JOINING: u32 = 2;
    /// It has a channel that is not used yet.
    pub const JOINED: u32 = 3;
    /// On the kernel for good, as far as this process is concerned.
    pub const LEFT: u32 = 4;
    /// Every call knows of the channel.
    pub const AWARE: u32 = 5;
    /// Being cleared.
    pub const DYING: u32 = 7;
}

const PHASE: u32 = 0xff;
/// In a count of calls: those that begin now know of the channel. Set only while no other call is on its way.
pub const AWARE: u32 = 1 << 31;

/// Generation and phase share a word, so that whoever frees a place frees what it has seen there.
#[repr(C)]
pub struct Place {
    word: AtomicU32,
    /// Descriptors of this process.
    pub fds: AtomicU32,
    /// Calls on their way, by what they do.
    pub reading: AtomicU32,
    pub writing: AtomicU32,
    pub other: AtomicU32,
}

#[cfg(not(loom))]
impl Place {
    /// A free one.
    pub const fn new() -> Place {
        Place {
            word: AtomicU32::new(0),
            fds: AtomicU32::new(0),
            reading: AtomicU32::new(0),
            writing: AtomicU32::new(0),
            other: AtomicU32::new(0),
        }
    }
}

#[cfg(not(loom))]
impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

#[cfg(loom)]
impl Default for Place {
    fn default() -> Place {
        let [word, fds, reading, writing, other] = std::array::from_fn(|_| AtomicU32::new(0));
        Place { word, fds, reading, writing, other }
    }
}

/// Enters a call in one of a place's counts, found by way of `at`, where the descriptor's place is written as `index`. Whether this
/// call knows of the channel; `None`: the place is not the descriptor's any more, and the caller leaves again.
#[inline]
pub fn enter(count: &AtomicU32, at: &AtomicU32, index: u32) -> Option<bool> {
    let before = count.fetch_add(1, Ordering::SeqCst);
    // Counted first and looked at again then: a place that is still this descriptor's is not freed while the count stands.
    if at.load(Ordering::SeqCst) != index {
        return None;
    }
    // Looked at again as well: it may have become the same descriptor's place anew in between, for another connection.
    Some(before & AWARE != 0 && count.load(Ordering::SeqCst) & AWARE != 0)
}

impl Place {
    /// A call has ended. Whether nobody may be left, see [`Place::free_if_unused`].
    #[inline]
    pub fn leave(&self, count: &AtomicU32) -> bool {
        count.fetch_sub(1, Ordering::SeqCst);
        self.fds.load(Ordering::SeqCst) == 0
    }

    /// Takes a free place for a new connection with one descriptor.
    pub fn take(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        if word & PHASE != phase::FREE || self.fds.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        // Between two looks somebody else may have taken and left it: then its generation is another one.
        let taken = word & !PHASE | phase::TRACKED;
        if self.word.compare_exchange(word, taken, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.fds.store(0, Ordering::SeqCst);
            return false;
        }
        for count in [&self.reading, &self.writing] {
            count.fetch_and(!AWARE, Ordering::SeqCst);
        }
        true
    }

    #[inline]
    pub fn phase(&self) -> u32 {
        self.word.load(Ordering::Acquire) & PHASE
    }

    /// Changes the phase if it is still `from`.
    pub fn turn(&self, from: u32, to: u32) -> bool {
        let word = self.word.load(Ordering::Acquire);
        // Release: what was prepared for the new phase is there for who sees it.
        word & PHASE == from
            && self.word.compare_exchange(word, word & !PHASE | to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Lets calls that begin now know of the channel, if the one that `own` counts is the only one on its way.
    pub fn become_aware(&self, own: &AtomicU32) -> bool {
        [&self.reading, &self.writing].into_iter().all(|count| {
            let mine = u32::from(std::ptr::eq(count, own));
            count.load(Ordering::SeqCst) & AWARE != 0
                || count.compare_exchange(mine, mine | AWARE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        })
    }

    fn calls_on_their_way(&self) -> u32 {
        [&self.reading, &self.writing, &self.other].map(|count| count.load(Ordering::SeqCst) & !AWARE).iter().sum()
    }

    /// Gives the place back if nobody uses it any more; `clear` takes away what is there.
    pub fn free_if_unused(&self, clear: impl FnOnce()) {
        let word = self.word.load(Ordering::SeqCst);
        if matches!(word & PHASE, phase::FREE | phase::DYING)
            || self.fds.load(Ordering::SeqCst) != 0
            || self.calls_on_their_way() != 0
            || self
                .word
                .compare_exchange(word, word & !PHASE | phase::DYING, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
        {
            return;
        }
        clear();
        self.word.store((word & !PHASE).wrapping_add(PHASE + 1) | phase::FREE, Ordering::SeqCst);
    }
}
