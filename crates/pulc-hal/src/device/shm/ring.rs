//! The ring of cells of one direction: one producer, one consumer, no shared index. The consumer waits for the header of
//! the next cell itself; the producer learns from credit, published in batches, what it may overwrite. Used by `pair`.
//!
//! Must never block, never allocate, and never believe the other side: a credit beyond what was sent and a header that
//! makes no sense are violations.
//!
//! The cells are reached through two small traits, so that the same code runs on shared memory and under loom.
//! Source: the slot as its own full flag is FastForward's rule (Giacomoni, Moseley, Vachharajani, PPoPP 2008).

use super::layout::{CELL_PAYLOAD, Header, cells_for, continuation};

/// Words of payload in a cell.
pub const CELL_WORDS: usize = CELL_PAYLOAD / 8;

/// The producer's view of the cells.
pub trait CellsOut {
    fn count(&self) -> u32;
    /// Stores the payload, in no particular order.
    fn fill(&self, cell: u32, words: &[u64]);
    /// Stores the header with release: pairs with the acquire of [`CellsIn::header`].
    fn publish(&self, cell: u32, header: u64);
}

/// The consumer's view of the cells.
pub trait CellsIn {
    fn count(&self) -> u32;
    /// Loads the header with acquire: pairs with the release of [`CellsOut::publish`].
    fn header(&self, cell: u32) -> u64;
    /// Loads the payload.
    fn drain(&self, cell: u32, words: &mut [u64; CELL_WORDS]);
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

    /// Puts a frame, given in parts, into the next cells. The caller has made sure that they are free.
    #[inline(always)]
    pub fn push<const N: usize>(&mut self, cells: &impl CellsOut, header: Header, parts: [&[u8]; N]) {
        debug_assert!(header.cells as u32 <= self.free(cells.count()));
        if header.cells == 1 {
            let mut block = [0u8; CELL_PAYLOAD];
            let mut at = 0;
            for part in parts {
                block[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            store(cells, self.next, &block, at);
            cells.publish(self.next, header.encode(self.produced.wrapping_add(1)));
            self.advance(cells.count(), 1);
        } else {
            self.push_long(cells, header, &parts);
        }
    }

    /// Fills the continuations first and publishes the first cell last.
    fn push_long(&mut self, cells: &impl CellsOut, header: Header, parts: &[&[u8]]) {
        let mut bytes = Gather { parts, offset: 0 };
        let (first, produced) = (self.next, self.produced);
        for i in 0..u32::from(header.cells) {
            let mut block = [0u8; CELL_PAYLOAD];
            let used = bytes.fill(&mut block);
            store(cells, self.next, &block, used);
            if i > 0 {
                cells.publish(self.next, continuation(produced.wrapping_add(i + 1)));
            }
            self.advance(cells.count(), 1);
        }
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

#[inline(always)]
fn store(cells: &impl CellsOut, cell: u32, block: &[u8; CELL_PAYLOAD], used: usize) {
    let mut words = [0u64; CELL_WORDS];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    cells.fill(cell, &words[..used.div_ceil(8)]);
}

/// Reads several parts as one run of bytes.
struct Gather<'a> {
    parts: &'a [&'a [u8]],
    offset: usize,
}

impl Gather<'_> {
    fn fill(&mut self, block: &mut [u8]) -> usize {
        let mut at = 0;
        while at < block.len()
            && let [part, rest @ ..] = self.parts
        {
            let take = (part.len() - self.offset).min(block.len() - at);
            block[at..at + take].copy_from_slice(&part[self.offset..self.offset + take]);
            at += take;
            self.offset += take;
            if self.offset == part.len() {
                self.parts = rest;
                self.offset = 0;
            }
        }
        at
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

    /// Takes the next frame out of its cells into `buffer`, which must be private and hold the longest one. `None`: nothing
    /// has come.
    #[inline(always)]
    pub fn pop(&mut self, cells: &impl CellsIn, buffer: &mut [u8]) -> Result<Option<Header>, &'static str> {
        let word = cells.header(self.next);
        if word as u32 != self.consumed.wrapping_add(1) {
            return Ok(None);
        }
        let header = Header::decode(word)?;
        let blocks = buffer[..header.cells as usize * CELL_PAYLOAD].as_chunks_mut::<CELL_PAYLOAD>().0;
        for block in blocks {
            let mut words = [0; CELL_WORDS];
            cells.drain(self.next, &mut words);
            for (bytes, word) in block.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *bytes = word.to_ne_bytes();
            }
            self.next = if self.next + 1 == cells.count() { 0 } else { self.next + 1 };
        }
        self.consumed = self.consumed.wrapping_add(header.cells.into());
        Ok(Some(header))
    }
}

/// A header for so many bytes.
#[inline(always)]
pub fn header(kind: super::layout::Kind, bytes: usize) -> Header {
    Header { kind, cells: cells_for(bytes) as u8, bytes: bytes as u16 }
}
