//! Reductions in the hall whose result differs from member to member: over all lower ranks, and dealt out. Combined in the order of places, as
//! in `fold`. What is short everybody reads for himself; of what is long everybody combines one share for all.

use super::fold::Sum;
use super::{BLOCK_BYTES, Hall, LINE_PAYLOAD, What};
use crate::error::Result;
use crate::memory::{Addr, Room};
use std::ops::Range;

impl Hall {
    /// Combines the input of all lower places, and of this one unless `is_exclusive`. The first place's result is then left alone.
    pub(super) fn scan(&mut self, sum: &Sum<'_>, output: Addr, is_exclusive: bool) -> Result<()> {
        let (bytes, what) = (sum.bytes(), if is_exclusive { What::Exscan } else { What::Scan });
        let places = 0..self.me + usize::from(!is_exclusive);
        if bytes <= LINE_PAYLOAD {
            return self.scan_lines(sum, output, what, places);
        }
        if self.choice.everybody_reads(self.members, bytes) {
            return self.scan_pieces(sum, output, what, places);
        }
        self.scan_shares(sum, output, what, places)
    }

    fn scan_lines(&mut self, sum: &Sum<'_>, output: Addr, what: What, places: Range<usize>) -> Result<()> {
        let bytes = sum.bytes();
        let turn = self.enter()?;
        self.show_upwards(turn, what, sum.input.bytes(bytes));
        if !places.is_empty() {
            self.wait_below(turn)?;
            self.combine_lines(sum, turn, what, places)?.copy_to(output, bytes);
        }
        Ok(())
    }

    /// Shows this process's line to those above, of whom any may sleep until just this one is there.
    fn show_upwards(&mut self, turn: u64, what: What, bytes: &[u8]) {
        if self.enter_line(turn, what, bytes) {
            self.tell_last(turn, what, &[]);
        } else {
            self.process.wake(self.slots[self.me + 1..].iter().copied());
        }
    }

    /// Waits for all lower places. The others may be turns behind, so that the lower ones run ahead and are not switched to for each scan.
    fn wait_below(&mut self, turn: u64) -> Result<()> {
        for place in (0..self.me).rev() {
            if !self.is_in(turn, place) {
                self.wait_one(turn, place)?;
            }
        }
        Ok(())
    }

    fn scan_pieces(&mut self, sum: &Sum<'_>, output: Addr, what: What, places: Range<usize>) -> Result<()> {
        self.in_parts(sum, what, |hall, (turn, from, len)| {
            if places.is_empty() {
                return Ok(());
            }
            hall.wait_below(turn)?;
            let input = (turn, sum.input.offset(from as i64));
            let put = |_: &mut Hall, at: usize, bytes: &[u8]| output.write((from + at) as i64, bytes);
            hall.combine_all(sum, input, 0..len, what, places.clone(), put)
        })
    }

    /// Shows the whole input part by part, and calls `work` for each part once the next one has been shown, so that nobody waits for
    /// the others' combining.
    fn in_parts(
        &mut self,
        sum: &Sum<'_>,
        what: What,
        mut work: impl FnMut(&mut Hall, (u64, usize, usize)) -> Result<()>,
    ) -> Result<()> {
        let part = self.shape.moved_bytes / sum.size * sum.size;
        let mut shown: Option<(u64, usize, usize)> = None;
        for from in (0..sum.bytes()).step_by(part) {
            let len = part.min(sum.bytes() - from);
            let turn = self.enter()?;
            let own = self.own_piece(turn)?;
            self.copy_in(own, &sum.data(sum.input), from, len);
            match what {
                What::ReduceScatter => self.show(turn, what, &[], false),
                _ => self.show_upwards(turn, what, &[]),
            }
            if let Some(before) = shown.replace((turn, from, len)) {
                work(self, before)?;
            }
        }
        shown.map_or(Ok(()), |last| work(self, last))
    }

    /// Everybody combines one share of each part and shows what it is up to each place; the turn that shows these shows the next part as
    /// well.
    fn scan_shares(&mut self, sum: &Sum<'_>, output: Addr, what: What, places: Range<usize>) -> Result<()> {
        let members = self.members;
        // Of a piece: what is to be combined; the rest has what a share makes for every member.
        let scanned = self.shape.moved_bytes / 2;
        // Shares of a whole part are equal, so that together they leave room for everybody's results.
        let part = scanned / sum.size / members * members * sum.size;
        let parts = sum.bytes().div_ceil(part);
        let length = |index: usize| part.min(sum.bytes() - index * part);
        let share = |index: usize, place: usize| length(index) / sum.size * place / members * sum.size;
        for index in 0..=parts {
            let turn = self.enter()?;
            let own = self.own_piece(turn)?;
            if index < parts {
                self.copy_in(own, &sum.data(sum.input), index * part, length(index));
            }
            if let Some(before) = index.checked_sub(1) {
                let range = share(before, self.me)..share(before, self.me + 1);
                let input = sum.input.offset((before * part) as i64);
                self.combine_up_to_each(sum, (turn - 1, input), range, what, own + scanned)?;
            }
            self.show(turn, what, &[], false);
            if index == parts && places.is_empty() {
                break;
            }
            self.wait_all(turn)?;
            let Some(before) = index.checked_sub(1).filter(|_| !places.is_empty()) else { continue };
            for place in 0..members {
                let (from, to) = (share(before, place), share(before, place + 1));
                let at = self.piece(turn, place) + scanned + (places.end - 1) * (to - from);
                self.copy_out(at, &sum.data(output), before * part + from, to - from);
            }
        }
        Ok(())
    }

    /// Combines bytes `range` of all pieces of a turn; what it is up to each place goes to `into` in this process's piece, one behind the other.
    fn combine_up_to_each(
        &mut self,
        sum: &Sum<'_>,
        (turn, input): (u64, Addr),
        range: Range<usize>,
        what: What,
        into: usize,
    ) -> Result<()> {
        let (len, step) = (range.len(), BLOCK_BYTES / sum.size * sum.size);
        for place in 0..self.members {
            self.check(turn, place, what)?;
        }
        let [first, second] = self.scratch.each_mut().map(|room| room.addr());
        for at in (0..len).step_by(step) {
            let bytes = step.min(len - at);
            let (mut own, mut other) = (first, second);
            for place in 0..self.members {
                self.take_part(other, (turn, input), place, range.start + at, bytes);
                if place > 0 {
                    sum.combine(own, other, bytes);
                }
                (own, other) = (other, own);
                self.segment.write(into + place * len + at, own.bytes(bytes));
            }
        }
        Ok(())
    }

    /// Combines everybody's input, of which this process gets the bytes of `own` at `output`.
    pub(super) fn deal(&mut self, sum: &Sum<'_>, own: Range<usize>, output: Addr) -> Result<()> {
        let what = What::ReduceScatter;
        if sum.bytes() <= LINE_PAYLOAD {
            let mut whole = Room::new(LINE_PAYLOAD);
            let whole = whole.addr();
            self.reduce_lines(sum, whole, what, !own.is_empty())?;
            whole.offset(own.start as i64).copy_to(output, own.len());
            return Ok(());
        }
        let places = 0..self.members;
        self.in_parts(sum, what, |hall, (turn, from, len)| {
            let (first, end) = (own.start.max(from), own.end.min(from + len));
            if first >= end {
                return Ok(());
            }
            hall.wait_all(turn)?;
            let input = (turn, sum.input.offset(from as i64));
            let at = (first - own.start) as i64;
            let put = |_: &mut Hall, behind: usize, bytes: &[u8]| output.write(at + behind as i64, bytes);
            hall.combine_all(sum, input, first - from..end - from, what, places.clone(), put)
        })
    }
}
