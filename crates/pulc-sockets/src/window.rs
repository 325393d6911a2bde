//! Who of a process may be asleep, shown to ends of other users: the words of one slot, in memory that only that process (and its forks) can
//! write. The board that a user's processes share is nothing for strangers: each of them could keep all others from being rung.

use crate::board::{Board, WORDS};
use crate::error::Error;
use pulc_hal::os::memfd::{self, ReadMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Of the memory.
const BYTES: usize = 4096;
/// The only slot that is used of such a board.
pub const OWN_SLOT: u32 = 0;

/// A board of [`OWN_SLOT`] alone, and what others map as a [`Window`].
///
/// # Errors
/// Without memory or descriptors.
pub fn create() -> Result<(Board, OwnedFd), Error> {
    let (map, fd) = memfd::create_produced("pulc-sockets-sleepers", BYTES)?;
    Ok((Board { map }, fd))
}

/// The other end's process, seen from here.
pub struct Window {
    map: ReadMap,
}

impl Window {
    /// # Errors
    /// When it is memory that somebody else could write or shrink.
    pub fn map(fd: OwnedFd) -> Result<Window, Error> {
        Ok(Window { map: memfd::map_produced(fd, BYTES)? })
    }

    /// Whether somebody there may be asleep and must be rung for something in the set of `word`.
    #[inline]
    pub fn may_sleep(&self, word: u32) -> bool {
        // SeqCst: after the position was stored.
        let asleep = |word: u32| self.map.load_u32((word % WORDS) as usize * 4, Ordering::SeqCst);
        asleep(0) != 0 || asleep(word) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_window_shows_who_sleeps_and_nobody_else_can_write_there() {
        let (board, fd) = create().unwrap();
        assert!(memfd::map_common(fd.as_fd(), BYTES).is_err(), "a stranger could write");
        let window = Window::map(fd).unwrap();
        assert!(!window.may_sleep(0) && !window.may_sleep(3));
        board.enter(OWN_SLOT, 3);
        assert!(window.may_sleep(3) && !window.may_sleep(4));
        board.exit(OWN_SLOT, 3);
        board.enter(OWN_SLOT, 0);
        assert!(window.may_sleep(4), "who sleeps for anything else sleeps for all");
    }
}
