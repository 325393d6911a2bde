//! Many short frames in one go: each costs a cell and a few instructions, the look at the peer's doorbell is shared by all of them. Called by
//! the handler. Must never take a frame out of its cell that its caller has not taken, nor ask for one that there is no room for.

use super::cell::Words;
use super::cells::In;
use super::layout::CREDIT_BATCH;
use super::pair::{Home, Pair, Taken, one_cell};
use super::{CELL_PAYLOAD, HOT_POLLS_MAX, Shm};
use crate::board::Board;
use crate::device::Peer;

impl Shm {
    /// Sends frames as [`Shm::send_cell`] does, as long as there is room and `next` gives one; the peer is told once, behind them. How
    /// many. `next` is asked only when there is room, so nothing that it gives is lost.
    ///
    /// # Panics
    /// When one is longer than [`CELL_PAYLOAD`].
    #[inline(always)]
    pub fn send_cells(&mut self, to: Peer, mut next: impl FnMut() -> Option<(usize, Words)>) -> usize {
        let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return 0 };
        let sent = pair.send_cells(&self.board, &mut self.home, || {
            let (bytes, words) = next()?;
            assert!(bytes <= CELL_PAYLOAD, "{bytes} bytes do not fit a cell of {CELL_PAYLOAD}");
            Some((bytes, words))
        });
        self.counters.frames_sent += sent.frames as u64;
        self.counters.bytes_sent += sent.bytes;
        sent.frames
    }

    /// Takes short frames of one cell from this peer, each of them only if `take`, which is given length and payload, has taken it; how
    /// many. What stands behind the length in the payload means nothing.
    #[inline(always)]
    pub fn take_cells(&mut self, from: Peer, take: impl FnMut(usize, &Words) -> bool) -> usize {
        let Some(Some(pair)) = self.pairs.get_mut(from.0 as usize) else { return 0 };
        let taken = pair.take_cells(&self.board, take);
        if taken.frames > 0 {
            self.hot = from.0 as usize;
            // The next poll looks at the others.
            self.hot_polls = HOT_POLLS_MAX;
            self.counters.frames_received += taken.frames as u64;
            self.counters.bytes_received += taken.bytes;
        }
        taken.frames
    }
}

impl Pair {
    /// Sends frames of one cell as long as there is room and `next` gives one, and rings once behind them; how many, and their bytes.
    #[inline(always)]
    pub fn send_cells(
        &mut self,
        board: &Board,
        home: &mut Home,
        mut next: impl FnMut() -> Option<(usize, Words)>,
    ) -> Taken {
        let mut sent = Taken::default();
        while self.make_room(one_cell(0), home).is_ok()
            && let Some((bytes, words)) = next()
        {
            self.put_cell(bytes, &words);
            sent.frames += 1;
            sent.bytes += bytes as u64;
        }
        if sent.frames > 0 {
            self.ring(board);
        }
        sent
    }

    /// Takes short frames of one cell, each of them only if `take` has taken its bytes; how many, and their bytes.
    #[inline(always)]
    pub fn take_cells(&mut self, board: &Board, mut take: impl FnMut(usize, &Words) -> bool) -> Taken {
        let mut taken = Taken::default();
        if self.fault.is_some() {
            return taken;
        }
        while let Some(incoming) = &self.incoming {
            let is_taken = self.consumer.pop_cell_if(&In(&incoming.channel), |bytes, words| {
                let is_taken = take(bytes, words);
                taken.bytes += if is_taken { bytes as u64 } else { 0 };
                is_taken
            });
            if !is_taken {
                break;
            }
            taken.frames += 1;
            if self.consumer.consumed().wrapping_sub(self.published as u32) >= CREDIT_BATCH {
                self.publish_credit(board);
            }
        }
        if taken.frames > 0 {
            self.sent_in_a_row = 0;
        }
        taken
    }
}
