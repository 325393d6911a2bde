//! Moving blocks in the hall: each member shows what others shall have, and those take it from there. What exceeds a piece goes in several
//! turns; where only a root shows something, it runs ahead as far as there are pieces.

use super::{Hall, LINE_PAYLOAD, What};
use crate::data::Data;
use crate::error::Result;

impl Hall {
    /// From `root` to all.
    pub(super) fn bcast(&mut self, data: &Data, root: usize) -> Result<()> {
        let len = data.len();
        if len <= LINE_PAYLOAD {
            return self.bcast_line(data, root);
        }
        let step = self.shape.moved_bytes;
        for from in (0..len).step_by(step) {
            let part = step.min(len - from);
            let turn = self.enter()?;
            if root == self.me {
                let at = self.own_piece(turn)?;
                self.copy_in(at, data, from, part);
                self.show(turn, What::Bcast, &[], true);
            } else {
                self.show(turn, What::Bcast, &[], false);
                self.wait_one(turn, root)?;
                self.check(turn, root, What::Bcast)?;
                self.copy_out(self.piece(turn, root), data, from, part);
            }
        }
        Ok(())
    }

    fn bcast_line(&mut self, data: &Data, root: usize) -> Result<()> {
        let len = data.len();
        let turn = self.enter()?;
        if root == self.me {
            match data.as_flat() {
                Some(bytes) => self.show(turn, What::Bcast, bytes, true),
                None => self.show(turn, What::Bcast, &data.pack()?, true),
            }
            return Ok(());
        }
        self.show(turn, What::Bcast, &[], false);
        self.wait_one(turn, root)?;
        self.check(turn, root, What::Bcast)?;
        let mut bytes = [0; LINE_PAYLOAD];
        self.segment.take(self.line(turn, root), &mut bytes[..len]);
        data.put(0, &bytes[..len]);
        Ok(())
    }

    /// Everybody's block to `root`, or to everybody where there is none. `own` is this process's unless it lies in place; `into`
    /// gives the place of each member's block where that is wanted.
    pub(super) fn gather(
        &mut self,
        own: Option<&Data>,
        into: Option<&dyn Fn(usize) -> Result<Data>>,
        len: usize,
        root: Option<usize>,
    ) -> Result<()> {
        let what = if root.is_some() { What::Gather } else { What::Allgather };
        let in_place = match (own, into) {
            (None, Some(into)) => Some(into(self.me)?),
            _ => None,
        };
        let own_data = own.or(in_place.as_ref()).cloned().unwrap_or(Data::NONE);
        if let (Some(own), Some(into)) = (own, into) {
            own.copy_to(&into(self.me)?)?;
        }
        let step = self.shape.moved_bytes;
        for from in (0..len.max(1)).step_by(step) {
            let part = step.min(len - from);
            let turn = self.enter()?;
            let packed: Vec<u8>;
            let line = match own_data.as_flat() {
                Some(bytes) if part <= LINE_PAYLOAD && bytes.len() == len => &bytes[from..],
                _ if part <= LINE_PAYLOAD => {
                    packed = own_data.pack_part(from, part);
                    &packed
                }
                _ => {
                    let at = self.own_piece(turn)?;
                    self.copy_in(at, &own_data, from, part);
                    &[]
                }
            };
            let Some(into) = into else {
                self.show(turn, what, line, false);
                continue;
            };
            self.meet(turn, what, line)?;
            for place in others(self.members, self.me) {
                self.check(turn, place, what)?;
                let block = into(place)?;
                if part <= LINE_PAYLOAD {
                    let mut bytes = [0; LINE_PAYLOAD];
                    self.segment.take(self.line(turn, place), &mut bytes[..part]);
                    block.put(from, &bytes[..part]);
                } else {
                    self.copy_out(self.piece(turn, place), &block, from, part);
                }
            }
        }
        Ok(())
    }

    /// A block of `root`'s to each.
    pub(super) fn scatter(
        &mut self,
        out: Option<&dyn Fn(usize) -> Result<Data>>,
        own: Option<&Data>,
        len: usize,
        root: usize,
    ) -> Result<()> {
        let step = self.shape.moved_bytes / self.members;
        for from in (0..len.max(1)).step_by(step) {
            let part = step.min(len - from);
            let stride = dense(part, step);
            let turn = self.enter()?;
            if let Some(out) = out.filter(|_| root == self.me) {
                let base = self.own_piece(turn)?;
                for place in others(self.members, self.me) {
                    self.copy_in(base + place * stride, &out(place)?, from, part);
                }
                self.show(turn, What::Scatter, &[], true);
            } else {
                self.show(turn, What::Scatter, &[], false);
                self.wait_one(turn, root)?;
                self.check(turn, root, What::Scatter)?;
                if let Some(own) = own {
                    self.copy_out(self.piece(turn, root) + self.me * stride, own, from, part);
                }
            }
        }
        if let (Some(out), Some(own)) = (out, own)
            && root == self.me
        {
            out(self.me)?.copy_to(own)?;
        }
        Ok(())
    }

    /// A block of everybody's to everybody. `out` may be the same memory as `into`.
    pub(super) fn alltoall(
        &mut self,
        out: &dyn Fn(usize) -> Result<Data>,
        into: &dyn Fn(usize) -> Result<Data>,
        len: usize,
        in_place: bool,
    ) -> Result<()> {
        let step = self.shape.moved_bytes / self.members;
        let own_block = if in_place { None } else { Some((out(self.me)?, into(self.me)?)) };
        let mut own_moved = Ok(0);
        for from in (0..len.max(1)).step_by(step) {
            let part = step.min(len - from);
            let stride = dense(part, step);
            let turn = self.enter()?;
            let own = self.own_piece(turn)?;
            for place in others(self.members, self.me) {
                self.copy_in(own + place * stride, &out(place)?, from, part);
            }
            self.meet_after(turn, What::Alltoall, &[], || {
                if let Some((out, into)) = own_block.as_ref().filter(|_| from == 0) {
                    own_moved = out.copy_to(into);
                }
            })?;
            for turned in 1..self.members {
                let place = (self.me + turned) % self.members;
                self.check(turn, place, What::Alltoall)?;
                self.copy_out(self.piece(turn, place) + self.me * stride, &into(place)?, from, part);
            }
        }
        own_moved.map(|_| ())
    }
}

/// Bytes from one block of a piece to the next: short ones share lines and pages, which are dear after a switch.
fn dense(part: usize, step: usize) -> usize {
    part.next_multiple_of(8).min(step)
}

/// All places but one's own.
fn others(members: usize, me: usize) -> impl Iterator<Item = usize> {
    (0..members).filter(move |place| *place != me)
}
