//! The cells of a channel where they really lie: in shared memory that one side writes and the other reads. Used by `pair` and
//! `taking`; under loom the ring's own model takes their place.

use super::cell::Words;
use super::layout::{CELLS, CELLS_AT, Header, LINE};
use super::ring::{CellsIn, CellsOut};
use crate::os::memfd::{ReadMap, WriteMap};
use std::sync::atomic::Ordering;

/// Those that this process fills.
pub(super) struct Out<'a>(pub(super) &'a WriteMap);
/// Those that it empties.
pub(super) struct In<'a>(pub(super) &'a ReadMap);

impl<'a> In<'a> {
    /// Whether a frame begins in this cell, whose header then has that low half; to be asked again and again. One load.
    #[inline(always)]
    pub(super) fn awaited(self, (cell, sequence): (u32, u32)) -> impl Fn() -> bool + use<'a> {
        let In(channel) = self;
        let header = channel.watch_u64(CELLS_AT + cell as usize * LINE);
        move || header() as u32 == sequence
    }
}

impl CellsOut for Out<'_> {
    #[inline(always)]
    fn count(&self) -> u32 {
        CELLS
    }

    #[inline(always)]
    fn fill(&self, cell: u32, at: usize, bytes: &[u8]) {
        self.0.copy_in(CELLS_AT + cell as usize * LINE + 8 + at, bytes);
    }

    #[inline(always)]
    fn write(&self, cell: u32, words: &Words, header: u64) {
        let [first, a, b, c, rest @ ..] = self.0.line_at(CELLS_AT + cell as usize * LINE);
        let [word_a, word_b, word_c, words @ ..] = words;
        a.store(*word_a, Ordering::Relaxed);
        b.store(*word_b, Ordering::Relaxed);
        c.store(*word_c, Ordering::Relaxed);
        // Behind a few words stands what an earlier frame has left; nobody reads it.
        if !Header::is_few(header) {
            for (to, word) in rest.iter().zip(words) {
                to.store(*word, Ordering::Relaxed);
            }
        }
        first.store(header, Ordering::Release);
    }

    #[inline(always)]
    fn publish(&self, cell: u32, header: u64) {
        self.0.u64_at(CELLS_AT + cell as usize * LINE).store(header, Ordering::Release);
    }

    #[inline(always)]
    fn claim(&self, cell: u32) {
        self.0.claim_line(CELLS_AT + cell as usize * LINE);
    }
}

impl CellsIn for In<'_> {
    #[inline(always)]
    fn count(&self) -> u32 {
        CELLS
    }

    #[inline(always)]
    fn header(&self, cell: u32) -> u64 {
        self.0.load_u64(CELLS_AT + cell as usize * LINE, Ordering::Acquire)
    }

    #[inline(always)]
    fn read(&self, cell: u32, wanted: impl FnOnce(u64) -> bool) -> Option<(u64, Words)> {
        self.0.load_line(CELLS_AT + cell as usize * LINE, wanted, Header::is_few)
    }

    #[inline(always)]
    fn drain(&self, cell: u32, to: &mut [u8]) {
        self.0.copy_out(CELLS_AT + cell as usize * LINE + 8, to);
    }
}
