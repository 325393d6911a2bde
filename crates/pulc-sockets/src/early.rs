//! Who sleeps before there is a board: the words of a slot, kept in the process until the broker has given it one, and how those who
//! sleep just then get there. Used by the library in front of the C library. Must never lose a sleeper: what nobody counts nobody rings.

use crate::board::Board;
use crate::memory::AtomicU32;
use crate::message::NO_SLOT;
use std::sync::atomic::Ordering;

/// The sleepers of one process, by the words of its slot.
pub struct Sleepers<const WORDS: usize> {
    slot: AtomicU32,
    /// Asleep since before the slot came.
    early: [AtomicU32; WORDS],
    /// Whether the board's word has one for all of them.
    counted: [AtomicU32; WORDS],
}

#[cfg(not(loom))]
impl<const WORDS: usize> Sleepers<WORDS> {
    /// Without a slot.
    pub const fn new() -> Sleepers<WORDS> {
        Sleepers {
            slot: AtomicU32::new(NO_SLOT),
            early: [const { AtomicU32::new(0) }; WORDS],
            counted: [const { AtomicU32::new(0) }; WORDS],
        }
    }
}

#[cfg(not(loom))]
impl<const WORDS: usize> Default for Sleepers<WORDS> {
    fn default() -> Self {
        Sleepers::new()
    }
}

#[cfg(loom)]
impl<const WORDS: usize> Default for Sleepers<WORDS> {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Sleepers { slot: AtomicU32::new(NO_SLOT), early: zeros(), counted: zeros() }
    }
}

impl<const WORDS: usize> Sleepers<WORDS> {
    #[inline]
    pub fn slot(&self) -> u32 {
        self.slot.load(Ordering::SeqCst)
    }

    /// The process has got a slot, once. Whoever calls has put the board where `enter` and `exit` are given it.
    pub fn settle(&self, board: &Board, slot: u32) {
        self.slot.store(slot, Ordering::SeqCst);
        for (word, early) in self.early.iter().enumerate() {
            if early.load(Ordering::SeqCst) != 0 {
                board.word(slot, word as u32).fetch_add(1, Ordering::SeqCst);
                // An exchange, as all that happens to this word: loom lets a store be overtaken by an exchange that has not seen it.
                self.counted[word].swap(1, Ordering::SeqCst);
                // The last of them may have woken and found nothing to take back.
                if early.load(Ordering::SeqCst) == 0 {
                    self.uncount(word as u32, || Some(board));
                }
            }
        }
    }

    /// A thread may be asleep from now on; it looks after this and before it sleeps. Whether that is on the board.
    #[inline]
    pub fn enter<'a>(&self, word: u32, board: impl Fn() -> Option<&'a Board>) -> bool {
        loop {
            let slot = self.slot();
            if slot != NO_SLOT
                && let Some(board) = board()
            {
                board.enter(slot, word);
                return true;
            }
            self.early[word as usize].fetch_add(1, Ordering::SeqCst);
            // Counted first and looked again then: who gives the slot sees the count, or this sees the slot.
            if self.slot() == NO_SLOT {
                return false;
            }
            self.exit(word, false, &board);
        }
    }

    /// It is awake; `on_board` as it was told.
    #[inline]
    pub fn exit<'a>(&self, word: u32, on_board: bool, board: impl Fn() -> Option<&'a Board>) {
        if on_board {
            if let Some(board) = board() {
                board.exit(self.slot(), word);
            }
        } else if self.early[word as usize].fetch_sub(1, Ordering::SeqCst) == 1 {
            self.uncount(word, board);
        }
    }

    /// Takes back what was counted for those who slept early: whoever finds it does, once. The board is asked for behind that: it was
    /// there before anything was counted, but need not have been when the last of them woke.
    fn uncount<'a>(&self, word: u32, board: impl Fn() -> Option<&'a Board>) {
        if self.counted[word as usize].swap(0, Ordering::SeqCst) == 1
            && let Some(board) = board()
        {
            board.word(self.slot(), word).fetch_sub(1, Ordering::SeqCst);
        }
    }
}
