//! Who of this process may be asleep in the kernel, where those who send to it can see it: a slot of the broker's board, given with the
//! first channel. Until there is one, the same words are kept here, and whoever slept already when the slot came counts as asleep until
//! all of them are awake (`pulc_sockets::Sleepers`). Ends of other users see the same in memory of this process alone, made for the first
//! connection with such an end.

use pulc_sockets::board::WORDS;
use pulc_sockets::message::{NO_BOARD, NO_SLOT};
use pulc_sockets::window::OWN_SLOT;
use pulc_sockets::{Board, Sleepers};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static BOARD: OnceLock<Board> = OnceLock::new();
static SLEEPERS: Sleepers<{ WORDS as usize }> = Sleepers::new();
/// What the broker calls its board.
static NUMBER: AtomicU32 = AtomicU32::new(NO_BOARD);
/// Somebody is keeping a board, or has kept it.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The same, as other users see it.
static SHOWN: OnceLock<Board> = OnceLock::new();
static SHOWN_SLEEPERS: Sleepers<{ WORDS as usize }> = Sleepers::new();
/// What the system's broker calls the memory, and itself.
static SHOWN_SLOT: AtomicU32 = AtomicU32::new(NO_SLOT);
static SHOWN_NUMBER: AtomicU32 = AtomicU32::new(NO_BOARD);
static SHOWN_IS_TAKEN: AtomicBool = AtomicBool::new(false);

pub fn slot() -> u32 {
    SLEEPERS.slot()
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
    SLEEPERS.settle(board, slot);
}

/// What an end hands to the sender of bytes: the board that its user's ends share, or any where it has none, because all of its channels are
/// with ends of other users.
pub fn any_board() -> Option<&'static Board> {
    BOARD.get().or_else(|| SHOWN.get())
}

fn shown() -> Option<&'static Board> {
    SHOWN.get()
}

/// What the system's broker calls what this process shows, and itself.
pub fn shown_as() -> (u32, u32) {
    match SHOWN_SLOT.load(Ordering::SeqCst) {
        NO_SLOT => (NO_SLOT, NO_BOARD),
        slot => (slot, SHOWN_NUMBER.load(Ordering::SeqCst)),
    }
}

/// Whether the caller is the one who makes what is shown. Who could not calls [`shows_nothing`].
pub fn will_show() -> bool {
    !SHOWN_IS_TAKEN.swap(true, Ordering::SeqCst)
}

pub fn shows_nothing() {
    SHOWN_IS_TAKEN.store(false, Ordering::SeqCst);
}

/// Called by whom [`will_show`] has chosen, once the system's broker knows `board`.
pub fn show(board: Board, number: u32, slot: u32) {
    let board = SHOWN.get_or_init(|| board);
    SHOWN_SLEEPERS.settle(board, OWN_SLOT);
    SHOWN_NUMBER.store(number, Ordering::SeqCst);
    SHOWN_SLOT.store(slot, Ordering::SeqCst);
}

/// A thread that may be asleep: what comes for its set is rung for as long as this lives.
pub struct Asleep {
    word: u32,
    on_board: bool,
    is_shown: bool,
}

impl Asleep {
    #[inline]
    pub fn enter(word: u32) -> Asleep {
        Asleep { word, on_board: SLEEPERS.enter(word, board), is_shown: SHOWN_SLEEPERS.enter(word, shown) }
    }
}

impl Drop for Asleep {
    #[inline]
    fn drop(&mut self) {
        SLEEPERS.exit(self.word, self.on_board, board);
        SHOWN_SLEEPERS.exit(self.word, self.is_shown, shown);
    }
}
