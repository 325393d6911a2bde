//! Reductions in the hall, always combined in the order of places: the same from run to run, and right for operations that do not
//! commute. Short ones: everybody reads everything. Long ones of many members: everybody combines one share of a part, while the next
//! part is shown already.

use super::{BLOCK_BYTES, Hall, LINE_PAYLOAD, Shape, What};
use crate::data::Data;
use crate::error::Result;
use crate::handle::Datatype;
use crate::memory::Addr;
use crate::op::{Reduction, Source};
use pulc_hal::segment::Segment;
use pulc_hal::turns::mark;
use std::ops::Range;

/// Sources that are combined in one pass: as many streams as the processor follows well.
const SOURCES_MAX: usize = 8;

/// What is reduced: elements without gaps.
pub(super) struct Sum<'a> {
    pub op: Reduction<'a>,
    pub datatype: Datatype,
    /// Bytes of one element.
    pub size: usize,
    pub count: usize,
    pub input: Addr,
}

impl Sum<'_> {
    pub fn bytes(&self) -> usize {
        self.size * self.count
    }

    pub fn combine(&self, lower: Addr, higher: Addr, bytes: usize) {
        self.op.apply(lower, higher, bytes / self.size);
    }

    /// Combines the beginning of these sources in one pass; returns how many bytes are done, perhaps none.
    fn combine_many(&self, sources: &[Source<'_>], into: Addr, bytes: usize) -> usize {
        self.op.apply_many(sources, into, bytes / self.size) * self.size
    }

    pub fn data(&self, at: Addr) -> Data {
        Data::Flat { at, len: self.bytes() }
    }
}

impl Shape {
    /// Of a piece: what is to be combined; the rest is for the share that is.
    fn input_bytes(self) -> usize {
        self.piece_bytes / 3 * 2
    }
}

impl Hall {
    /// Combines everybody's input; `root` has the result at `output`, or everybody where there is no root.
    pub(super) fn reduce(&mut self, sum: &Sum<'_>, output: Addr, root: Option<usize>) -> Result<()> {
        let (bytes, what) = (sum.bytes(), if root.is_some() { What::Reduce } else { What::Allreduce });
        let wants = root.is_none_or(|root| root == self.me);
        if bytes <= LINE_PAYLOAD {
            return self.reduce_lines(sum, output, what, wants);
        }
        if bytes <= self.shape.input_bytes() && self.choice.everybody_reads(self.members, bytes) || self.members == 2 {
            return self.reduce_pieces(sum, output, what, wants);
        }
        self.reduce_shares(sum, output, what, wants)
    }

    pub(super) fn reduce_lines(&mut self, sum: &Sum<'_>, output: Addr, what: What, wants: bool) -> Result<()> {
        let bytes = sum.bytes();
        let turn = self.enter()?;
        if self.members == 2 && what == What::Allreduce {
            self.meet(turn, what, sum.input.bytes(bytes))?;
            let other = 1 - self.me;
            self.check(turn, other, what)?;
            let line = self.line(turn, other);
            self.combine_with(sum, output, 0, bytes, |segment, to| segment.take(line, to));
            return Ok(());
        }
        if self.enter_line(turn, what, sum.input.bytes(bytes)) {
            // Whoever is last computes for all.
            let result = self.combine_lines(sum, turn, what, 0..self.members)?;
            self.tell_last(turn, what, result.bytes(bytes));
            if wants {
                result.copy_to(output, bytes);
            }
            return Ok(());
        }
        if !wants {
            return Ok(());
        }
        self.wait_all(turn)?;
        let told = self.last_line(turn);
        if self.members > 2 && self.segment.mark(told) == mark(turn, what as u16) {
            self.segment.take(told, output.bytes_mut(bytes));
            return Ok(());
        }
        self.combine_lines(sum, turn, what, 0..self.members)?.copy_to(output, bytes);
        Ok(())
    }

    /// What the lines of these places, from the first on, make together, in a room of the hall's.
    pub(super) fn combine_lines(&mut self, sum: &Sum<'_>, turn: u64, what: What, places: Range<usize>) -> Result<Addr> {
        let bytes = sum.bytes();
        let [mut own, mut other] = self.scratch.each_mut().map(|room| room.addr());
        for place in places {
            self.check(turn, place, what)?;
            self.segment.take(self.line(turn, place), other.bytes_mut(bytes));
            if place > 0 {
                sum.combine(own, other, bytes);
            }
            (own, other) = (other, own);
        }
        Ok(own)
    }

    /// Everybody who wants the result reads all of it; the next part is shown before one is read, so that nobody waits for the other's
    /// copying.
    fn reduce_pieces(&mut self, sum: &Sum<'_>, output: Addr, what: What, wants: bool) -> Result<()> {
        let part = self.shape.input_bytes() / sum.size * sum.size;
        if sum.bytes() <= part && wants && self.members == 2 && what == What::Allreduce {
            let turn = self.enter()?;
            let own = self.own_piece(turn)?;
            self.copy_in(own, &sum.data(sum.input), 0, sum.bytes());
            self.meet(turn, what, &[])?;
            return self.combine_piece(sum, output, what, (turn, 0, sum.bytes()));
        }
        let mut shown: Option<(u64, usize, usize)> = None;
        for from in (0..sum.bytes()).step_by(part) {
            let len = part.min(sum.bytes() - from);
            let turn = self.enter()?;
            let own = self.own_piece(turn)?;
            self.copy_in(own, &sum.data(sum.input), from, len);
            self.show(turn, what, &[], false);
            if let Some(before) = shown.replace((turn, from, len)) {
                self.reduce_piece(sum, output, what, wants, before)?;
            }
        }
        shown.map_or(Ok(()), |last| self.reduce_piece(sum, output, what, wants, last))
    }

    fn reduce_piece(
        &mut self,
        sum: &Sum<'_>,
        output: Addr,
        what: What,
        wants: bool,
        (turn, from, len): (u64, usize, usize),
    ) -> Result<()> {
        if !wants {
            return Ok(());
        }
        self.wait_all(turn)?;
        if self.members == 2 {
            return self.combine_piece(sum, output, what, (turn, from, len));
        }
        let own = sum.input.offset(from as i64);
        let put = |_: &mut Hall, at: usize, bytes: &[u8]| output.write((from + at) as i64, bytes);
        self.combine_all(sum, (turn, own), 0..len, what, 0..self.members, put)
    }

    /// Of two members: the other's piece and what this process has there, block by block.
    fn combine_piece(
        &mut self,
        sum: &Sum<'_>,
        output: Addr,
        what: What,
        (turn, from, len): (u64, usize, usize),
    ) -> Result<()> {
        let other = 1 - self.me;
        self.check(turn, other, what)?;
        let piece = self.piece(turn, other);
        let step = BLOCK_BYTES / sum.size * sum.size;
        let own = Source::of(sum.input.offset(from as i64));
        let others = Source::shared(self.segment.shared(piece, len));
        let both = if self.me == 0 { [own, others] } else { [others, own] };
        let done = sum.combine_many(&both, output.offset(from as i64), len);
        for at in (done..len).step_by(step) {
            let bytes = step.min(len - at);
            self.combine_with(sum, output, from + at, bytes, |segment, to| segment.read(piece + at, to));
        }
        Ok(())
    }

    /// Combines bytes `at..at + bytes` of this process's input and what the other one of two has there, in the result's place as far as
    /// that can be. `take` brings the other's.
    #[inline]
    fn combine_with(
        &mut self,
        sum: &Sum<'_>,
        output: Addr,
        at: usize,
        bytes: usize,
        take: impl FnOnce(&Segment, &mut [u8]),
    ) {
        let (input, output) = (sum.input.offset(at as i64), output.offset(at as i64));
        let scratch = self.scratch[0].addr();
        // A function of the program works on a copy of the input: it may not change it, and some do.
        let is_apart = input != output && sum.op.is_predefined();
        let (lower, higher) = match self.me {
            0 if is_apart => (input, output),
            0 => (self.scratch[1].addr(), scratch),
            _ => (scratch, output),
        };
        let (own, others) = if self.me == 0 { (lower, higher) } else { (higher, lower) };
        take(&self.segment, others.bytes_mut(bytes));
        if own != input {
            input.copy_to(own, bytes);
        }
        sum.combine(lower, higher, bytes);
        if higher != output {
            higher.copy_to(output, bytes);
        }
    }

    /// Everybody combines one share of each part; the turn that shows these shows the next part as well.
    fn reduce_shares(&mut self, sum: &Sum<'_>, output: Addr, what: What, wants: bool) -> Result<()> {
        let (input_bytes, piece_bytes) = (self.shape.input_bytes(), self.shape.piece_bytes);
        let part = (input_bytes / sum.size).min(((piece_bytes - input_bytes) / sum.size) * self.members) * sum.size;
        let parts = sum.bytes().div_ceil(part);
        let length = |index: usize| part.min(sum.bytes() - index * part);
        let members = self.members;
        // Where a place's share of a part begins.
        let share = |index: usize, place: usize| length(index) / sum.size * place / members * sum.size;
        for index in 0..=parts {
            let turn = self.enter()?;
            let own = self.own_piece(turn)?;
            if index < parts {
                // Nobody reads the share that this process combines.
                for (from, to) in [(0, share(index, self.me)), (share(index, self.me + 1), length(index))] {
                    self.copy_in(own + from, &sum.data(sum.input), index * part + from, to - from);
                }
            }
            if let Some(before) = index.checked_sub(1) {
                let (from, to) = (share(before, self.me), share(before, self.me + 1));
                let input = sum.input.offset((before * part) as i64);
                let result = output.offset((before * part + from) as i64);
                self.combine_all(sum, (turn - 1, input), from..to, what, 0..members, |hall, at, bytes| {
                    hall.segment.write(own + input_bytes + at, bytes);
                    if wants {
                        result.write(at as i64, bytes);
                    }
                })?;
            }
            self.show(turn, what, &[], false);
            if index == parts && !wants {
                break;
            }
            self.wait_all(turn)?;
            let Some(before) = index.checked_sub(1).filter(|_| wants) else { continue };
            for place in (0..members).filter(|place| *place != self.me) {
                let (from, to) = (share(before, place), share(before, place + 1));
                let at = self.piece(turn, place) + input_bytes;
                self.copy_out(at, &sum.data(output), before * part + from, to - from);
            }
        }
        Ok(())
    }

    /// Combines bytes `range` of these places' pieces of a turn, from the first place on, block by block; `put` is told where each block lies in
    /// that range. This process's own piece is taken from where it came from, which must not have changed.
    pub(super) fn combine_all(
        &mut self,
        sum: &Sum<'_>,
        (turn, input): (u64, Addr),
        range: Range<usize>,
        what: What,
        places: Range<usize>,
        mut put: impl FnMut(&mut Hall, usize, &[u8]),
    ) -> Result<()> {
        for place in places.clone() {
            self.check(turn, place, what)?;
        }
        let (len, step) = (range.len(), BLOCK_BYTES / sum.size * sum.size);
        for at in (0..len).step_by(step) {
            let bytes = step.min(len - at);
            let combined = self.combine_block(sum, (turn, input), places.clone(), range.start + at, bytes);
            put(self, at, combined.bytes(bytes));
        }
        Ok(())
    }

    /// What these places' pieces make together in `bytes` bytes from `from` on, which fit a room of the hall's.
    fn combine_block(
        &mut self,
        sum: &Sum<'_>,
        (turn, input): (u64, Addr),
        places: Range<usize>,
        from: usize,
        bytes: usize,
    ) -> Addr {
        let [first, second] = self.scratch.each_mut().map(|room| room.addr());
        let done = self.combine_at_once(sum, (turn, input), places.clone(), (from, bytes), first);
        if done == bytes {
            return first;
        }
        // What has no loop for many, and the rest of what has one: each source in a room, one after the other.
        let rest = bytes - done;
        let (mut own, mut other) = (first.offset(done as i64), second.offset(done as i64));
        for place in places.clone() {
            self.take_part(other, (turn, input), place, from + done, rest);
            if place > places.start {
                sum.combine(own, other, rest);
            }
            (own, other) = (other, own);
        }
        if done > 0 && own != first.offset(done as i64) {
            own.copy_to(first.offset(done as i64), rest);
        }
        if done > 0 { first } else { own }
    }

    /// The beginning of a block, as far as it can be combined where it lies, at `into`; returns how many bytes.
    fn combine_at_once(
        &self,
        sum: &Sum<'_>,
        (turn, input): (u64, Addr),
        places: Range<usize>,
        (from, bytes): (usize, usize),
        into: Addr,
    ) -> usize {
        // From the second pass on the first source is what the ones before have made.
        let (mut sources, mut held, mut done) = ([Source::of(into); SOURCES_MAX], 0, 0);
        let mut places = places.peekable();
        while places.peek().is_some() {
            for (source, place) in sources[held..].iter_mut().zip(&mut places) {
                *source = match place == self.me {
                    true => Source::of(input.offset(from as i64)),
                    false => Source::shared(self.segment.shared(self.piece(turn, place) + from, bytes)),
                };
                held += 1;
            }
            done = sum.combine_many(&sources[..held], into, bytes);
            if done == 0 {
                return 0;
            }
            (sources[0], held) = (Source::of(into), 1);
        }
        done
    }

    /// Copies bytes from `from` on of a place's piece of a turn; this process's come from `input`, where it got them.
    #[inline]
    pub(super) fn take_part(&self, to: Addr, (turn, input): (u64, Addr), place: usize, from: usize, bytes: usize) {
        if place == self.me {
            input.offset(from as i64).copy_to(to, bytes);
        } else {
            self.segment.read(self.piece(turn, place) + from, to.bytes_mut(bytes));
        }
    }
}
