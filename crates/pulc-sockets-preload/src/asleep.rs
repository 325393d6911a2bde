//! Who of this process may be asleep in the kernel, where those who send to it can see it: a slot of the broker's board, given with the
//! first channel. Until there is one, the same words are kept here, and whoever slept already when the slot came counts as asleep until
//! all of them are awake.

use pulc_sockets::Board;
use pulc_sockets::board::WORDS;
use pulc_sockets::message::{NO_BOARD, NO_SLOT};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static BOARD: OnceLock<Board> = OnceLock::new();
static SLOT: AtomicU32 = AtomicU32::new(NO_SLOT);
/// What the broker calls its board.
static NUMBER: AtomicU32 = AtomicU32::new(NO_BOARD);
/// Somebody is keeping a board, or has kept it.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// Asleep since before the slot came.
static EARLY: [AtomicU32; WORDS as usize] = [const { AtomicU32::new(0) }; WORDS as usize];
/// Whether the board's word has one for all of them.
static COUNTED: [AtomicU32; WORDS as usize] = [const { AtomicU32::new(0) }; WORDS as usize];

pub fn slot() -> u32 {
    SLOT.load(Ordering::SeqCst)
}

pub fn board() -> Option<&'static Board> {
    BOARD.get()
}

/// The broker's number of the board that the slot is of.
pub fn number() -> u32 {
    if slot() == NO_SLOT { NO_BOARD } else { NUMBER.load(Ordering::SeqCst) }
}

/// The broker has given this process (and the forks that it will have) a slot. The first one stays. Nobody waits here: whoever is about
/// to keep another one may be a thread that a signal handler, which is where we are, has interrupted.
pub fn settle(board: Board, number: u32, slot: u32) {
    if IS_TAKEN.swap(true, Ordering::SeqCst) || BOARD.set(board).is_err() {
        return;
    }
    let Some(board) = BOARD.get() else { return };
    NUMBER.store(number, Ordering::SeqCst);
    SLOT.store(slot, Ordering::SeqCst);
    for word in 0..WORDS {
        let early = &EARLY[word as usize];
        if early.load(Ordering::SeqCst) != 0 {
            board.word(slot, word).fetch_add(1, Ordering::SeqCst);
            COUNTED[word as usize].store(1, Ordering::SeqCst);
            if early.load(Ordering::SeqCst) == 0 {
                uncount(word);
            }
        }
    }
}

fn uncount(word: u32) {
    if COUNTED[word as usize].swap(0, Ordering::SeqCst) == 1
        && let Some(board) = BOARD.get()
    {
        board.word(slot(), word).fetch_sub(1, Ordering::SeqCst);
    }
}

/// A thread that may be asleep: what comes for its set is rung for as long as this lives.
pub struct Asleep {
    word: u32,
    on_board: bool,
}

impl Asleep {
    #[inline]
    pub fn enter(word: u32) -> Asleep {
        loop {
            let slot = slot();
            if slot != NO_SLOT
                && let Some(board) = BOARD.get()
            {
                board.enter(slot, word);
                return Asleep { word, on_board: true };
            }
            EARLY[word as usize].fetch_add(1, Ordering::SeqCst);
            let asleep = Asleep { word, on_board: false };
            // Counted first and looked again then: who gives the slot sees the count, or this sees the slot.
            if self::slot() == NO_SLOT {
                return asleep;
            }
        }
    }
}

impl Drop for Asleep {
    #[inline]
    fn drop(&mut self) {
        if self.on_board {
            if let Some(board) = BOARD.get() {
                board.exit(slot(), self.word);
            }
        } else if EARLY[self.word as usize].fetch_sub(1, Ordering::SeqCst) == 1 {
            uncount(self.word);
        }
    }
}
