//! What a collective does on this process: rounds of steps, made before anything is sent and executed as often as it is started. Making
//! one never looks at the program's data.

use super::rooms::Rooms;
use crate::comm::{Communicator, Form};
use crate::data::Data;
use crate::datatype::{self, TypeRef};
use crate::error::Result;
use crate::handle::Datatype;
use crate::memory::Addr;
use crate::op::OpRef;
use std::sync::atomic::{AtomicI32, Ordering};

/// Among whom a message of a step goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Between the peers of the communicator: the members, or this and the other side of an intercommunicator.
    Peers,
    /// Within this side of an intercommunicator.
    Local,
}

pub(crate) enum Step {
    Send {
        data: Data,
        to: i32,
        side: Side,
    },
    Recv {
        data: Data,
        from: i32,
        side: Side,
    },
    /// A message of the program itself, outside of all collectives.
    SendPlain {
        data: Data,
        dest: i32,
        tag: i32,
    },
    /// And a receive of its, whose status is that of the whole.
    RecvPlain {
        data: Data,
        source: i32,
        tag: i32,
    },
    Copy {
        from: Data,
        to: Data,
    },
    /// `inout = input op inout`; the input belongs to the lower ranks.
    Reduce {
        op: OpRef,
        datatype: Datatype,
        input: Addr,
        inout: Addr,
        count: i64,
    },
}

/// Steps of one round are begun in order; the next round begins when all its messages are through.
#[derive(Default)]
pub(crate) struct Program {
    pub rounds: Vec<Vec<Step>>,
    rooms: Rooms,
    turns: Option<Turns>,
}

/// Tags of a persistent collective: members make theirs in the same order, but may start them in any (MPI-5.0, 6.13).
struct Turns {
    /// Of either side, with room for the turn.
    tags: [i32; 2],
    next: AtomicI32,
}

impl Turns {
    /// Bits of a tag that tell the turn.
    const BITS: u32 = 12;
}

impl Program {
    pub fn new() -> Program {
        Program { rounds: vec![Vec::new()], rooms: Rooms::default(), turns: None }
    }

    fn push(&mut self, step: Step) {
        self.rounds.last_mut().expect("there is always a round").push(step);
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.rounds.iter().all(Vec::is_empty)
    }

    /// What follows waits for all messages so far.
    pub fn then(&mut self) {
        if self.rounds.last().is_some_and(|round| !round.is_empty()) {
            self.rounds.push(Vec::new());
        }
    }

    /// To and from nobody nothing goes.
    pub fn send(&mut self, data: Data, to: i32) {
        self.send_on(Side::Peers, data, to);
    }

    pub fn recv(&mut self, data: Data, from: i32) {
        self.recv_on(Side::Peers, data, from);
    }

    pub fn send_on(&mut self, side: Side, data: Data, to: i32) {
        if to >= 0 {
            self.push(Step::Send { data, to, side });
        }
    }

    pub fn recv_on(&mut self, side: Side, data: Data, from: i32) {
        if from >= 0 {
            self.push(Step::Recv { data, from, side });
        }
    }

    /// Takes a place among the persistent collectives of a communicator.
    pub fn persist(&mut self, comm: &Communicator) {
        let form = Form::Persistent;
        let place = |comm: &Communicator| {
            let number = comm.next_collective(form);
            (number & !0x0fff_ffff) | ((number << Turns::BITS) & 0x0fff_ffff)
        };
        let local = comm.remote.as_ref().map_or(0, |remote| place(&remote.local));
        self.turns = Some(Turns { tags: [place(comm), local], next: AtomicI32::new(0) });
    }

    /// The tags of the next start, if it is a persistent one.
    pub fn next_turn(&self) -> Option<[i32; 2]> {
        let turns = self.turns.as_ref()?;
        let turn = turns.next.fetch_add(1, Ordering::Relaxed) & ((1 << Turns::BITS) - 1);
        Some(turns.tags.map(|tag| tag | turn))
    }

    /// Whether it is an exchange of the program's own messages.
    pub fn is_plain(&self) -> bool {
        self.rounds.iter().flatten().any(|step| matches!(step, Step::RecvPlain { .. }))
    }

    pub fn send_plain(&mut self, data: Data, dest: i32, tag: i32) {
        self.push(Step::SendPlain { data, dest, tag });
    }

    pub fn recv_plain(&mut self, data: Data, source: i32, tag: i32) {
        self.push(Step::RecvPlain { data, source, tag });
    }

    /// The rounds of another program behind these.
    pub fn append(&mut self, other: Program) {
        self.rounds.extend(other.rounds);
        self.rooms.append(other.rooms);
    }

    /// The same for a program of one side alone.
    pub fn append_on(&mut self, own: Side, mut other: Program) {
        for step in other.rounds.iter_mut().flatten() {
            if let Step::Send { side, .. } | Step::Recv { side, .. } = step {
                *side = own;
            }
        }
        self.append(other);
    }

    /// Copies; in place where both are the same memory.
    pub fn copy(&mut self, from: Data, to: Data) {
        self.push(Step::Copy { from, to });
    }

    pub fn reduce(&mut self, op: &OpRef, datatype: Datatype, input: Addr, inout: Addr, count: i64) {
        if count > 0 {
            self.push(Step::Reduce { op: op.clone(), datatype, input, inout, count });
        }
    }

    /// Memory for `len` bytes that lives as long as the program, to be written before it is read.
    pub fn bytes(&mut self, len: usize) -> Addr {
        self.rooms.take(len)
    }

    /// Memory for `count` elements, as the address that a buffer of theirs has.
    pub fn buffer(&mut self, count: i64, datatype: Datatype) -> Result<Addr> {
        if let Some(size) = datatype::contiguous_size(datatype) {
            return Ok(self.bytes(size as usize * count as usize));
        }
        let (lb, len) = type_of(datatype)?.span(count)?;
        Ok(self.bytes(len as usize).offset(-lb))
    }
}

/// A datatype that may be used in a message.
pub(crate) fn type_of(datatype: Datatype) -> Result<TypeRef> {
    datatype::committed(datatype)
}

/// Distance of two elements in bytes.
pub(crate) fn extent(datatype: Datatype) -> Result<i64> {
    match datatype::contiguous_size(datatype) {
        Some(size) => Ok(size as i64),
        None => Ok(type_of(datatype)?.extent()),
    }
}
