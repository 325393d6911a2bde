//! Who may be asleep: one page-cached memory for all processes that one broker serves. A slot is a process (and its forks), a word of a
//! slot counts the threads that may sleep in one set of descriptors; word 0 counts those that sleep in anything else. A sender rings
//! only if a word says that somebody may be asleep.
//!
//! Everyone may write everywhere here, so a wrong count is possible: one too high costs bells. Counts only go up before a sleep and
//! down after it, also in a slot that an earlier process has left.

use crate::memory::{AtomicU32, Memory};
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use {
    crate::error::Error,
    pulc_hal::os::memfd,
    std::os::fd::{BorrowedFd, OwnedFd},
};

pub const SLOTS: u32 = 4096;
/// Words of a slot.
pub const WORDS: u32 = 16;
const SLOT_BYTES: usize = 64;
/// In the word of a set: its sleeper has been rung for already.
const RUNG: u32 = 1 << 31;
#[cfg(not(loom))]
const BYTES: usize = SLOTS as usize * SLOT_BYTES;

pub struct Board {
    pub(crate) map: Memory,
}

impl Board {
    /// Made by the broker.
    #[cfg(not(loom))]
    pub fn create() -> Result<(Board, OwnedFd), Error> {
        let (map, fd) = memfd::create_common("pulc-sockets-board", BYTES)?;
        Ok((Board { map }, fd))
    }

    /// Mapped by everybody else.
    #[cfg(not(loom))]
    pub fn map(fd: BorrowedFd<'_>) -> Result<Board, Error> {
        Ok(Board { map: memfd::map_common(fd, BYTES)? })
    }

    /// Numbers from elsewhere are brought into range: a wrong one wakes the wrong process.
    #[inline]
    pub fn word(&self, slot: u32, word: u32) -> &AtomicU32 {
        self.map.u32_at((slot % SLOTS) as usize * SLOT_BYTES + (word % WORDS) as usize * 4)
    }

    /// Says that one more may be asleep. Whoever calls looks at its rings after this and before it sleeps.
    #[inline]
    pub fn enter(&self, slot: u32, word: u32) {
        let word = self.word(slot, word);
        word.fetch_and(!RUNG, Ordering::SeqCst);
        word.fetch_add(1, Ordering::SeqCst);
    }

    /// Says that it is awake again.
    #[inline]
    pub fn exit(&self, slot: u32, word: u32) {
        let word = self.word(slot, word);
        word.fetch_sub(1, Ordering::SeqCst);
        word.fetch_and(!RUNG, Ordering::SeqCst);
    }

    /// Whether somebody of `slot` may be asleep and must be rung for something in the set of `word`.
    #[inline]
    pub fn may_sleep(&self, slot: u32, word: u32) -> bool {
        // SeqCst: after the position was stored.
        let in_set = self.word(slot, word).load(Ordering::SeqCst);
        self.word(slot, 0).load(Ordering::SeqCst) != 0 || in_set & !RUNG != 0
    }

    /// Whether the one bell that is needed has been rung already by somebody else: the only sleeper in a set of descriptors looks at all
    /// of its rings when it wakes. Otherwise the caller is the one who rings.
    pub fn is_rung(&self, slot: u32, word: u32) -> bool {
        let (others, in_set) = (self.word(slot, 0), self.word(slot, word));
        !word.is_multiple_of(WORDS)
            && others.load(Ordering::SeqCst) == 0
            && in_set.load(Ordering::SeqCst) & !RUNG == 1
            && in_set.fetch_or(RUNG, Ordering::SeqCst) & RUNG != 0
    }

    /// The bell could not be rung.
    pub fn unring(&self, slot: u32, word: u32) {
        self.word(slot, word).fetch_and(!RUNG, Ordering::SeqCst);
    }
}
