//! Blocks of lengths that differ, in the hall. Nobody but sender and receiver knows how long a block is, so the sender's length decides
//! which way it goes, and the sender says so beside its mark: in the line itself, in its piece (now or in a later turn), or as a message.
//! A receiver follows what is said and believes no more of it than its own buffer and a piece have room for; too long a block is an error at the
//! receiver alone, as it would be as a message.
//!
//! ```text
//! gather: line     | length, or AS_MESSAGE | up to 48 bytes |     longer blocks lie at the beginning of the piece
//! others: line     | 1: another turn follows |
//!         piece    | for every place: offset << 32 | length, or AS_MESSAGE, or NOT_NOW | blocks, each at a multiple of 8 |
//! ```

use super::{Hall, LINE_PAYLOAD, What};
use crate::collective::program::Program;
use crate::collective::run_tagged;
use crate::comm::{Communicator, Form};
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::memory::Room;
use std::sync::Arc;

/// The block is too long for a piece: it comes as a message.
const AS_MESSAGE: u64 = u64::MAX;
/// It is there already, or comes in another turn.
const NOT_NOW: u64 = u64::MAX - 1;
/// Bytes of a block that fit behind its length in a line.
const IN_LINE: usize = LINE_PAYLOAD - 8;
/// Bytes of one row of the table in a piece.
const ROW: usize = 8;

/// Blocks of this process that go through its piece, in as many turns as they need.
struct Outgoing {
    /// How many places behind this process's own the next block goes to.
    next: usize,
    /// Places whose blocks go as messages.
    long: Vec<usize>,
}

impl Hall {
    /// Longest block that goes through a piece.
    fn longest(&self) -> usize {
        self.choice.block_bytes.min(self.shape.moved_bytes - ROW * self.members)
    }

    /// Everybody's block to `root`, or to everybody where there is none. `own` is this process's; `blocks` are the places of all where
    /// they are wanted. With no root nobody's block may be longer than [`Hall::takes_each`] says.
    pub(super) fn gather_each(
        &mut self,
        comm: &Arc<Communicator>,
        own: &Data,
        blocks: Option<&[Data]>,
        root: Option<usize>,
    ) -> Result<()> {
        let what = if root.is_some() { What::Gatherv } else { What::Allgatherv };
        let tag = comm.next_collective(Form::Blocking);
        let turn = self.enter()?;
        let len = own.len();
        let goes_here = len <= self.longest() || len <= IN_LINE;
        let mut line = [0; LINE_PAYLOAD];
        line[..8].copy_from_slice(&(if goes_here { len as u64 } else { AS_MESSAGE }).to_ne_bytes());
        let mut shown = 8;
        if len <= IN_LINE {
            own.get(&mut line[8..8 + len]);
            shown += len;
        } else if goes_here {
            let at = self.own_piece(turn)?;
            self.copy_in(at, own, 0, len);
        }
        let Some(blocks) = blocks else {
            self.show(turn, what, &line[..shown], false);
            let mut program = Program::new();
            if let Some(root) = root.filter(|_| !goes_here) {
                program.send(own.clone(), root as i32);
                return run_tagged(comm, program, Some(tag));
            }
            return Ok(());
        };
        self.meet(turn, what, &line[..shown])?;
        let (mut program, mut result) = (Program::new(), Ok(()));
        for turned in 1..self.members {
            let place = (self.me + turned) % self.members;
            self.check(turn, place, what)?;
            self.segment.take(self.line(turn, place), &mut line);
            let block = &blocks[place];
            match u64::from_ne_bytes(line[..8].try_into().expect("eight bytes")) {
                AS_MESSAGE if root.is_some() => program.recv(block.clone(), place as i32),
                len if len > block.len() as u64 || len > self.shape.moved_bytes as u64 => {
                    result = Err(self.too_long(place, block))
                }
                len if len as usize <= IN_LINE => block.put(0, &line[8..8 + len as usize]),
                len => self.copy_out(self.piece(turn, place), block, 0, len as usize),
            }
        }
        if !program.is_empty() {
            run_tagged(comm, program, Some(tag))?;
        }
        result
    }

    /// Whether blocks of these lengths, which everybody knows, go through the hall.
    pub(super) fn takes_each(&self, blocks: &[Data]) -> bool {
        blocks.iter().all(|block| block.len() <= self.longest())
    }

    /// A block of `root`'s to each. `out` are all blocks on the root; `own` is where this process's belongs.
    pub(super) fn scatter_each(
        &mut self,
        comm: &Arc<Communicator>,
        out: Option<&[Data]>,
        own: Option<&Data>,
        root: usize,
    ) -> Result<()> {
        let tag = comm.next_collective(Form::Blocking);
        if let Some(out) = out {
            let mut outgoing = Outgoing { next: 1, long: Vec::new() };
            loop {
                let turn = self.enter()?;
                let more = self.pack(turn, out, &mut outgoing)?;
                self.show(turn, What::Scatterv, &[u8::from(more)], true);
                if !more {
                    break;
                }
            }
            let moved = own.map_or(Ok(0), |own| out[root].copy_to(own));
            exchange(comm, tag, outgoing.long.iter().map(|place| (*place, out[*place].clone())), [])?;
            return moved.map(|_| ());
        }
        let Some(own) = own else { return Ok(()) };
        let mut is_message = false;
        let mut result = Ok(());
        loop {
            let turn = self.enter()?;
            self.show(turn, What::Scatterv, &[], false);
            self.wait_one(turn, root)?;
            self.check(turn, root, What::Scatterv)?;
            match self.unpack(turn, root, own) {
                Ok(says) => is_message |= says,
                Err(error) => result = Err(error),
            }
            if !self.has_more(turn, root) {
                break;
            }
        }
        let long = is_message.then(|| (root, own.clone()));
        exchange(comm, tag, [], long)?;
        result
    }

    /// A block of everybody's to everybody. `is_in_place`: `out` is the same memory as `into`.
    pub(super) fn alltoall_each(
        &mut self,
        comm: &Arc<Communicator>,
        out: &[Data],
        into: &[Data],
        is_in_place: bool,
    ) -> Result<()> {
        let tag = comm.next_collective(Form::Blocking);
        let (members, me, what) = (self.members, self.me, What::Alltoallv);
        let mut outgoing = Outgoing { next: 1, long: Vec::new() };
        let (mut incoming, mut result, mut moved) = (Vec::new(), Ok(()), is_in_place);
        let mut kept = Kept { blocks: Vec::new(), rooms: Vec::new() };
        loop {
            let turn = self.enter()?;
            let mut more = self.pack(turn, kept.or(out), &mut outgoing)?;
            if is_in_place && kept.blocks.is_empty() && (more || !outgoing.long.is_empty()) {
                // What comes now would overwrite what goes later.
                result = kept.keep(out);
            }
            let mut copied = Ok(0);
            self.meet_after(turn, what, &[u8::from(more)], || {
                if !std::mem::replace(&mut moved, true) {
                    copied = out[me].copy_to(&into[me]);
                }
            })?;
            result = result.and(copied.map(|_| ()));
            for turned in 1..members {
                let place = (me + members - turned) % members;
                self.check(turn, place, what)?;
                more |= self.has_more(turn, place);
                match self.unpack(turn, place, &into[place]) {
                    Ok(true) => incoming.push((place, into[place].clone())),
                    Ok(false) => {}
                    Err(error) => result = Err(error),
                }
            }
            if !more {
                break;
            }
        }
        let out = kept.or(out);
        exchange(comm, tag, outgoing.long.iter().map(|place| (*place, out[*place].clone())), incoming)?;
        result
    }

    /// Puts as many of the next blocks into this process's piece as fit; whether any are left for another turn.
    fn pack(&mut self, turn: u64, out: &[Data], outgoing: &mut Outgoing) -> Result<bool> {
        let (members, longest, base) = (self.members, self.longest(), self.own_piece(turn)?);
        let mut table = vec![NOT_NOW; members];
        let mut at = ROW * members;
        while outgoing.next < members {
            let place = (self.me + outgoing.next) % members;
            let len = out[place].len();
            if len > longest {
                table[place] = AS_MESSAGE;
                outgoing.long.push(place);
            } else if at + len <= self.shape.moved_bytes {
                self.copy_in(base + at, &out[place], 0, len);
                table[place] = (at as u64) << 32 | len as u64;
                at += len.next_multiple_of(8);
            } else {
                break;
            }
            outgoing.next += 1;
        }
        let bytes: Vec<u8> = table.iter().flat_map(|row| row.to_ne_bytes()).collect();
        self.segment.write(base, &bytes);
        Ok(outgoing.next < members)
    }

    /// Takes what `place` has for this process in a turn; whether it says that a message comes.
    fn unpack(&mut self, turn: u64, place: usize, block: &Data) -> Result<bool> {
        let base = self.piece(turn, place);
        let mut row = [0; ROW];
        self.segment.read(base + ROW * self.me, &mut row);
        let row = u64::from_ne_bytes(row);
        let (at, len) = ((row >> 32) as usize, (row & 0xffff_ffff) as usize);
        match row {
            AS_MESSAGE => return Ok(true),
            NOT_NOW => {}
            _ if len > block.len() || at + len > self.shape.moved_bytes => return Err(self.too_long(place, block)),
            _ => self.copy_out(base + at, block, 0, len),
        }
        Ok(false)
    }

    /// Whether a member says that another turn of the same collective follows.
    fn has_more(&self, turn: u64, place: usize) -> bool {
        let mut flag = [0];
        self.segment.take(self.line(turn, place), &mut flag);
        flag[0] == 1
    }

    #[cold]
    fn too_long(&self, place: usize, block: &Data) -> Error {
        let room = block.len();
        let text =
            format!("rank {} of the job sends more than the {room} bytes that it is asked for", self.ranks[place]);
        Error { on: Some(self.comm), ..Error::new(Class::TRUNCATE, text) }
    }
}

/// Copies of blocks that are to be sent from memory where others arrive.
struct Kept {
    blocks: Vec<Data>,
    rooms: Vec<Room>,
}

impl Kept {
    /// A block that cannot be copied is sent as it is, and is an error in the end: the others wait for it.
    fn keep(&mut self, out: &[Data]) -> Result<()> {
        let mut result = Ok(());
        for block in out {
            let len = block.len();
            let mut room = Room::new(len.max(1));
            let copy = Data::Flat { at: room.addr(), len };
            result = result.and(block.copy_to(&copy).map(|_| ()));
            self.blocks.push(copy);
            self.rooms.push(room);
        }
        result
    }

    fn or<'a>(&'a self, out: &'a [Data]) -> &'a [Data] {
        if self.blocks.is_empty() { out } else { &self.blocks }
    }
}

/// The blocks that are too long for the hall.
fn exchange(
    comm: &Arc<Communicator>,
    tag: i32,
    out: impl IntoIterator<Item = (usize, Data)>,
    into: impl IntoIterator<Item = (usize, Data)>,
) -> Result<()> {
    let mut program = Program::new();
    for (place, data) in into {
        program.recv(data, place as i32);
    }
    for (place, data) in out {
        program.send(data, place as i32);
    }
    if program.is_empty() { Ok(()) } else { run_tagged(comm, program, Some(tag)) }
}
