//! The ring of cells of one direction: one producer, one consumer, no shared index. The consumer waits for the header of
//! the next cell itself; the producer learns from credit, published in batches, what it may overwrite. Used by `pair`.
//!
//! Must never block, never allocate, and never believe the other side: a credit beyond what was sent and a header that
//! makes no sense are violations.
//!
//! The cells are reached through two small traits, so that the same code runs on shared memory and under loom.
//! Source: the slot as its own full flag is FastForward's rule (Giacomoni, Moseley, Vachharajani, PPoPP 2008).

use super::cell::{self, Words};
use super::layout::{CELL_PAYLOAD, Header, cells_for, continuation};

/// How far ahead a producer claims cells: near enough to be used soon, and too far for a consumer that waits for the next one.
const CLAIM_AHEAD: u32 = 3;

/// The producer's view of the cells.
pub trait CellsOut {
    fn count(&self) -> u32;
    /// Stores bytes into the payload from offset `at` on, in no particular order.
    fn fill(&self, cell: u32, at: usize, bytes: &[u8]);
    /// Stores the whole payload and then the header, as `publish` does.
    fn write(&self, cell: u32, words: &Words, header: u64);
    /// Stores the header with release: pairs with the acquire of [`CellsIn::header`].
    fn publish(&self, cell: u32, header: u64);
    /// A cell that is written soon; a hint.
    fn claim(&self, cell: u32);
}

/// The consumer's view of the cells.
pub trait CellsIn {
    fn count(&self) -> u32;
    /// Loads the header with acquire: pairs with the release of [`CellsOut::publish`].
    fn header(&self, cell: u32) -> u64;
    /// Loads the header, as `header` does, and if it is `wanted` the whole payload.
    fn read(&self, cell: u32, wanted: impl FnOnce(u64) -> bool) -> Option<(u64, Words)>;
    /// Loads the first bytes of the payload.
    fn drain(&self, cell: u32, to: &mut [u8]);
}

/// What the consumer gives back, in one word: cells and references, each as many as ever (wrapping).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Credit {
    pub cells: u32,
    pub references: u32,
}

impl Credit {
    #[inline(always)]
    pub fn word(self) -> u64 {
        u64::from(self.cells) | u64::from(self.references) << 32
    }

    #[inline(always)]
    pub fn of_word(word: u64) -> Credit {
        Credit { cells: word as u32, references: (word >> 32) as u32 }
    }
}

/// Where the producer is.
#[derive(Default)]
pub struct Producer {
    /// Cells ever produced (wrapping) and the index of the next.
    produced: u32,
    next: u32,
    /// Cells the consumer has given back (wrapping).
    credited: u32,
}

impl Producer {
    /// Cells that may be filled as far as is known.
    #[inline(always)]
    pub fn free(&self, count: u32) -> u32 {
        count - self.produced.wrapping_sub(self.credited)
    }

    /// Takes the consumer's word for what it has consumed.
    #[inline(always)]
    pub fn credit(&mut self, consumed: u32) -> Result<(), &'static str> {
        if consumed.wrapping_sub(self.credited) > self.produced.wrapping_sub(self.credited) {
            return Err("credit for cells that were never sent");
        }
        self.credited = consumed;
        Ok(())
    }

    /// Asks for the next cell.
    #[inline(always)]
    pub fn claim_next(&self, cells: &impl CellsOut) {
        cells.claim(self.next);
    }

    /// Puts a frame, given in parts, into the next cells. The caller has made sure that they are free.
    #[inline(always)]
    pub fn push<const N: usize>(&mut self, cells: &impl CellsOut, header: Header, parts: [&[u8]; N]) {
        debug_assert!(header.cells as u32 <= self.free(cells.count()));
        if header.cells == 1 {
            self.push_cell(cells, header, &cell::gather(parts), false);
        } else {
            self.push_long(cells, header, &parts);
        }
    }

    /// Puts a frame of one cell into the next one. The caller has made sure that it is free.
    #[inline(always)]
    pub fn push_cell(&mut self, cells: &impl CellsOut, header: Header, words: &Words, claims: bool) {
        debug_assert!(header.cells == 1 && self.free(cells.count()) > 0);
        cells.write(self.next, words, header.encode(self.produced.wrapping_add(1)));
        self.advance(cells.count(), 1);
        if claims {
            let ahead = self.next + CLAIM_AHEAD;
            cells.claim(if ahead >= cells.count() { ahead - cells.count() } else { ahead });
        }
    }

    /// Fills the continuations and publishes the first cell last.
    fn push_long(&mut self, cells: &impl CellsOut, header: Header, parts: &[&[u8]]) {
        let (first, produced) = (self.next, self.produced);
        let mut at = 0;
        for part in parts {
            let mut part = *part;
            while !part.is_empty() {
                if at == CELL_PAYLOAD {
                    self.advance(cells.count(), 1);
                    cells.publish(self.next, continuation(self.produced.wrapping_add(1)));
                    at = 0;
                }
                let (now, later) = part.split_at(part.len().min(CELL_PAYLOAD - at));
                cells.fill(self.next, at, now);
                at += now.len();
                part = later;
            }
        }
        self.advance(cells.count(), 1);
        debug_assert_eq!(self.produced, produced.wrapping_add(header.cells.into()));
        cells.publish(first, header.encode(produced.wrapping_add(1)));
    }

    #[inline(always)]
    fn advance(&mut self, count: u32, cells: u32) {
        self.produced = self.produced.wrapping_add(cells);
        self.next += cells;
        if self.next >= count {
            self.next -= count;
        }
    }
}

/// Where the consumer is.
#[derive(Default)]
pub struct Consumer {
    /// Cells ever consumed (wrapping) and the index of the next.
    consumed: u32,
    next: u32,
}

impl Consumer {
    /// Cells ever consumed (wrapping): what is published as credit.
    #[inline(always)]
    pub fn consumed(&self) -> u32 {
        self.consumed
    }

    /// Whether a frame has come.
    #[inline(always)]
    pub fn waits(&self, cells: &impl CellsIn) -> bool {
        cells.header(self.next) as u32 == self.consumed.wrapping_add(1)
    }

    /// The cell that the next frame begins in, and the low half of its header once it is full.
    #[inline(always)]
    pub fn next(&self) -> (u32, u32) {
        (self.next, self.consumed.wrapping_add(1))
    }

    /// Takes the next frame if it is a short one of one cell: most are. Anything else is left to [`Consumer::pop`].
    #[inline(always)]
    pub fn pop_cell(&mut self, cells: &impl CellsIn) -> Option<(usize, Words)> {
        let sequence = self.consumed.wrapping_add(1);
        let wanted = |word| word as u32 == sequence && Header::is_short_cell(word);
        let (word, words) = cells.read(self.next, wanted)?;
        self.advance(cells.count());
        self.consumed = sequence;
        Some((Header::bytes_of_short_cell(word), words))
    }

    /// Takes the next frame if it is a short one of one cell and `take` has taken its bytes; else it stays where it is.
    #[inline(always)]
    pub fn pop_cell_if(&mut self, cells: &impl CellsIn, take: impl FnOnce(usize, &Words) -> bool) -> bool {
        let sequence = self.consumed.wrapping_add(1);
        let wanted = |word| word as u32 == sequence && Header::is_short_cell(word);
        let Some((word, words)) = cells.read(self.next, wanted) else { return false };
        if !take(Header::bytes_of_short_cell(word), &words) {
            return false;
        }
        self.advance(cells.count());
        self.consumed = sequence;
        true
    }

    /// Takes the next frame out of its cells into `buffer`, which must be private and hold the longest one. `None`: nothing
    /// has come.
    #[inline(always)]
    pub fn pop(&mut self, cells: &impl CellsIn, buffer: &mut [u8]) -> Result<Option<Header>, &'static str> {
        let word = cells.header(self.next);
        if word as u32 != self.consumed.wrapping_add(1) {
            return Ok(None);
        }
        let header = Header::decode(word)?;
        let buffer = &mut buffer[..header.bytes as usize];
        if header.cells == 1 {
            cells.drain(self.next, buffer);
            self.advance(cells.count());
        } else {
            for block in buffer.chunks_mut(CELL_PAYLOAD) {
                cells.drain(self.next, block);
                self.advance(cells.count());
            }
        }
        self.consumed = self.consumed.wrapping_add(header.cells.into());
        Ok(Some(header))
    }

    #[inline(always)]
    fn advance(&mut self, count: u32) {
        self.next = if self.next + 1 == count { 0 } else { self.next + 1 };
    }
}

/// A header for so many bytes.
#[inline(always)]
pub fn header(kind: super::layout::Kind, bytes: usize) -> Header {
    Header { kind, cells: cells_for(bytes) as u8, bytes: bytes as u16 }
}
