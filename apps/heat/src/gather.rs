//! The whole field on its way to rank 0 while the computation goes on. At a gather step every rank copies its cells; in the
//! following steps it sends them piece by piece, between its inner cells and its rim, so that nobody waits for the gather and
//! edges are never stuck behind a megabyte. Rank 0 takes a piece one step after it was sent, when it has long arrived.

use crate::decomposition::{Decomposition, Tile};
use crate::error::HeatError;
use crate::exchange::{Exchange, ExchangeError, Purpose, recv_long, send_long, tag, unpack};
use crate::solver::Solver;
use std::ops::Range;

/// A gathered field: the cells of all tiles in rank order, little-endian.
#[derive(Debug)]
pub struct Frame {
    pub step: u64,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub fn new(cut: &Decomposition) -> Result<Frame, HeatError> {
        let len = 8 * cut.grid.cells();
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| HeatError::NoMemory { what: "the gathered field", bytes: len })?;
        bytes.resize(len, 0);
        Ok(Frame { step: 0, bytes })
    }

    /// Puts the tiles in their places: the field row by row.
    pub fn assemble(&self, cut: &Decomposition, field: &mut [f64]) {
        for rank in 0..cut.ranks() {
            let Tile { first_row, first_column, columns, .. } = cut.tile(rank);
            let tile = &self.bytes[place(cut, rank)];
            for (row, bytes) in tile.chunks_exact(8 * columns).enumerate() {
                let first = (first_row + row) * cut.grid.columns + first_column;
                unpack(bytes, &mut field[first..][..columns]);
            }
        }
    }
}

/// Where a rank's cells lie in a frame.
pub fn place(cut: &Decomposition, rank: usize) -> Range<usize> {
    let before: usize = (0..rank).map(|earlier| cut.tile(earlier).cells()).sum();
    8 * before..8 * (before + cut.tile(rank).cells())
}

/// The gather as one rank sees it.
pub struct Gather {
    rank: usize,
    every: u64,
    /// Where each rank's cells go in a frame.
    places: Vec<Range<usize>>,
    /// Other ranks: own cells at the last gather step. Rank 0 uses the frame instead.
    snapshot: Vec<u8>,
    frame: Option<Frame>,
    /// The gather step in progress and how many pieces of it this rank has handled.
    step: u64,
    handled: u64,
    active: bool,
}

impl Gather {
    /// `every` steps a gather; 0 means never.
    pub fn new(cut: &Decomposition, rank: usize, every: u64) -> Result<Gather, HeatError> {
        let places: Vec<_> = (0..cut.ranks()).map(|rank| place(cut, rank)).collect();
        let len = if rank == 0 || every == 0 { 0 } else { places[rank].len() };
        let mut snapshot = Vec::new();
        snapshot.try_reserve_exact(len).map_err(|_| HeatError::NoMemory { what: "the snapshot", bytes: len })?;
        snapshot.resize(len, 0);
        Ok(Gather { rank, every, places, snapshot, frame: None, step: 0, handled: 0, active: false })
    }

    /// Whether the field after `step` steps is to be gathered.
    pub fn due(&self, step: u64) -> bool {
        self.every > 0 && step.is_multiple_of(self.every)
    }

    /// Copies this rank's cells. Rank 0 brings the frame to fill.
    pub fn begin(&mut self, step: u64, solver: &Solver, frame: Option<Frame>) {
        self.step = step;
        self.handled = 0;
        self.active = true;
        self.frame = frame;
        match &mut self.frame {
            Some(frame) => {
                frame.step = step;
                solver.snapshot(&mut frame.bytes[self.places[0].clone()]);
            }
            None => solver.snapshot(&mut self.snapshot),
        }
    }

    /// To be called in every step: moves the pieces that this step is to move. Rank 0 gets the frame once it is complete.
    pub fn advance(&mut self, exchange: &mut dyn Exchange, step: u64) -> Result<Option<Frame>, ExchangeError> {
        if !self.active {
            return Ok(None);
        }
        // Rank 0 lags one step behind the senders where the period leaves room for it.
        let lag = u64::from(self.rank == 0 && self.every > 1);
        let upto = (step - self.step).saturating_sub(lag).min(self.pieces());
        self.move_pieces(exchange, upto)
    }

    /// Moves all pieces that are left.
    pub fn finish(&mut self, exchange: &mut dyn Exchange) -> Result<Option<Frame>, ExchangeError> {
        if !self.active {
            return Ok(None);
        }
        self.move_pieces(exchange, self.pieces())
    }

    fn pieces(&self) -> u64 {
        self.every.saturating_sub(1).max(1)
    }

    fn move_pieces(&mut self, exchange: &mut dyn Exchange, upto: u64) -> Result<Option<Frame>, ExchangeError> {
        let tag = tag(Purpose::Snapshot, self.step, 0);
        while self.handled < upto {
            let index = self.handled;
            if self.rank == 0 {
                let frame = self.frame.as_mut().expect("rank 0 brought a frame to begin()");
                for (rank, place) in self.places.iter().enumerate().skip(1) {
                    let bytes = &mut frame.bytes[place.clone()];
                    let piece = piece(bytes.len(), self.every.saturating_sub(1).max(1), index);
                    if !piece.is_empty() {
                        recv_long(exchange, rank, tag, &mut bytes[piece])?;
                    }
                }
            } else {
                let piece = piece(self.snapshot.len(), self.pieces(), index);
                send_long(exchange, 0, tag, &self.snapshot[piece])?;
            }
            self.handled += 1;
        }
        if self.handled < self.pieces() {
            return Ok(None);
        }
        self.active = false;
        Ok(self.frame.take())
    }
}

/// Smallest piece that is worth a message of its own, in bytes.
const PIECE_MIN_BYTES: usize = 8192;

/// Bytes of piece `index` when `len` bytes go out in at most `pieces` pieces; later pieces of a small field are empty.
fn piece(len: usize, pieces: u64, index: u64) -> Range<usize> {
    let each = len.div_ceil(pieces as usize).next_multiple_of(8).max(PIECE_MIN_BYTES);
    let first = each.saturating_mul(index as usize).min(len);
    first..first.saturating_add(each).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_follow_each_other_without_a_gap(cells in 0usize..100_000, pieces in 1u64..40) {
            let mut next = 0;
            for index in 0..pieces {
                let piece = piece(8 * cells, pieces, index);
                prop_assert_eq!(piece.start, next);
                next = piece.end;
            }
            prop_assert_eq!(next, 8 * cells);
        }
    }
}
