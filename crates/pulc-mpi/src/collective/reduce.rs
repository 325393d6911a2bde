//! Reductions, always combined in the order of ranks by the same tree, so that results are the same from run to run and operations that
//! do not commute are right.

use super::bcast::{check_root, tree};
use super::program::{Program, Side, extent};
use crate::comm::Communicator;
use crate::consts::{PROC_NULL, ROOT};
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::handle::{Datatype, Op};
use crate::memory::Addr;
use crate::op::{self, OpRef};

/// Above this many bytes a reduction whose result all get moves every part once instead of everything in every round.
pub(super) const LONG_BYTES: usize = 32 << 10;

/// What is reduced.
pub(super) struct Job {
    pub op: OpRef,
    pub count: i64,
    pub datatype: Datatype,
}

impl Job {
    pub fn new(op: Op, count: i64, datatype: Datatype) -> Result<Job> {
        let op = op::get(op)?;
        op::check(&op, datatype)?;
        if count < 0 {
            return Err(Error::new(Class::COUNT, format!("count {count} is negative")));
        }
        Ok(Job { op, count, datatype })
    }

    pub fn data(&self, at: Addr) -> Result<Data> {
        Data::new(at, self.count, self.datatype)
    }

    fn buffer(&self, program: &mut Program) -> Result<Addr> {
        program.buffer(self.count, self.datatype)
    }

    fn combine(&self, program: &mut Program, lower: Addr, higher: Addr) {
        program.reduce(&self.op, self.datatype, lower, higher, self.count);
    }

    /// Combines the inputs of one side at the member at `place` 0. The address of what this process has in the end: the
    /// result, or what it has passed on. Where nothing is combined that is the input itself.
    pub fn to_first(
        &self,
        program: &mut Program,
        side: Side,
        place: i32,
        size: i32,
        real: impl Fn(i32) -> i32,
        input: Addr,
    ) -> Result<Addr> {
        let mut own = Own { at: input, is_input: true, free: Vec::new() };
        let mut mask = 1;
        while mask < size {
            program.then();
            if place & mask != 0 {
                program.send_on(side, self.data(own.at)?, real(place - mask));
                break;
            }
            if place + mask < size {
                let incoming = own.room(self, program)?;
                program.recv_on(side, self.data(incoming)?, real(place + mask));
                own.below(self, program, incoming)?;
            }
            mask *= 2;
        }
        Ok(own.at)
    }

    /// Combines this process's part of everybody's input, which each of the others sends to it, in the order of ranks. `part` tells begin and
    /// length of each process's part, in elements. The address of the result, which may be the input itself.
    pub fn own_part(
        &self,
        program: &mut Program,
        me: i32,
        size: i32,
        input: Addr,
        part: impl Fn(i32) -> (i64, i64),
    ) -> Result<Addr> {
        let step = extent(self.datatype)?;
        let input_of = |rank: i32| {
            let (from, count) = part(rank);
            Data::new(input.offset(from * step), count, self.datatype)
        };
        let (own_from, own_count) = part(me);
        let mut rooms = Vec::new();
        for turn in 1..size {
            let (to, source) = ((me + turn) % size, (me + size - turn) % size);
            if own_count > 0 {
                let room = program.buffer(own_count, self.datatype)?;
                program.recv(Data::new(room, own_count, self.datatype)?, source);
                rooms.push((source, room));
            }
            if part(to).1 > 0 {
                program.send(input_of(to)?, to);
            }
        }
        // The lower one of two is only read, so the sum moves up.
        let mut own = input.offset(own_from * step);
        if own_count > 0 && (me > 0 || !self.op.keeps_input()) {
            own = program.buffer(own_count, self.datatype)?;
            program.copy(input_of(me)?, Data::new(own, own_count, self.datatype)?);
        }
        rooms.push((me, own));
        rooms.sort_unstable_by_key(|(rank, _)| *rank);
        program.then();
        for pair in rooms.windows(2) {
            program.reduce(&self.op, self.datatype, pair[0].1, pair[1].1, own_count);
        }
        Ok(rooms.last().map_or(own, |(_, room)| *room))
    }
}

/// Where what this process has combined so far stands: at first the program's own memory, which is only read.
struct Own {
    at: Addr,
    is_input: bool,
    /// Memory for results that is free.
    free: Vec<Addr>,
}

impl Own {
    /// Free memory for one vector.
    fn room(&mut self, job: &Job, program: &mut Program) -> Result<Addr> {
        match self.free.pop() {
            Some(room) => Ok(room),
            None => job.buffer(program),
        }
    }

    /// Has it in memory that may be written.
    fn copied(&mut self, job: &Job, program: &mut Program) -> Result<()> {
        if self.is_input {
            let room = self.room(job, program)?;
            program.copy(job.data(self.at)?, job.data(room)?);
            (self.at, self.is_input) = (room, false);
        }
        Ok(())
    }

    /// Is combined with what comes from higher ranks, once that is there.
    fn below(&mut self, job: &Job, program: &mut Program, incoming: Addr) -> Result<()> {
        if !job.op.keeps_input() {
            self.copied(job, program)?;
        }
        program.then();
        job.combine(program, self.at, incoming);
        if !self.is_input {
            self.free.push(self.at);
        }
        (self.at, self.is_input) = (incoming, false);
        Ok(())
    }

    /// Is combined with what comes from lower ranks. It has been [copied](Own::copied).
    fn above(&mut self, job: &Job, program: &mut Program, incoming: Addr) {
        program.then();
        job.combine(program, incoming, self.at);
        self.free.push(incoming);
    }
}

pub(super) fn reduce(
    comm: &Communicator,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
    root: i32,
) -> Result<Program> {
    let mut program = Program::new();
    if comm.remote.is_some() && root == PROC_NULL {
        // A bystander: nothing else that it says counts.
        return Ok(program);
    }
    let job = Job::new(op, count, datatype)?;
    let (me, size) = (comm.me, comm.size() as i32);
    if comm.remote.is_some() {
        match root {
            ROOT => program.recv(job.data(recvbuf)?, 0),
            root => {
                check_root(comm, root)?;
                let result = job.to_first(&mut program, Side::Local, me, size, |place| place, sendbuf)?;
                if me == 0 {
                    program.then();
                    program.send(job.data(result)?, root);
                }
            }
        }
        return Ok(program);
    }
    check_root(comm, root)?;
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    if job.op.is_commutative() {
        let place = (me + size - root) % size;
        let result = job.to_first(&mut program, Side::Peers, place, size, |place| (place + root) % size, input)?;
        if me == root {
            program.copy(job.data(result)?, job.data(recvbuf)?);
        }
        return Ok(program);
    }
    let result = job.to_first(&mut program, Side::Peers, me, size, |place| place, input)?;
    match (me, root) {
        (0, 0) => program.copy(job.data(result)?, job.data(recvbuf)?),
        (0, root) => {
            program.then();
            program.send(job.data(result)?, root);
        }
        (me, root) if me == root => {
            program.then();
            program.recv(job.data(recvbuf)?, 0);
        }
        _ => {}
    }
    Ok(program)
}

pub(crate) fn allreduce(
    comm: &Communicator,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
) -> Result<Program> {
    let job = Job::new(op, count, datatype)?;
    let mut program = Program::new();
    let (me, size) = (comm.me, comm.size() as i32);
    let output = job.data(recvbuf)?;
    if comm.remote.is_some() {
        let result = job.to_first(&mut program, Side::Local, me, size, |place| place, sendbuf)?;
        if me == 0 {
            program.then();
            program.send(job.data(result)?, 0);
            program.recv(output.clone(), 0);
        }
        tree(&mut program, Side::Local, me, size, 0, &output);
        return Ok(program);
    }
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    if output.len() > LONG_BYTES && size > 2 && count >= i64::from(size) && job.op.is_commutative() {
        in_parts(&mut program, &job, me, size, input, recvbuf)?;
    } else {
        doubling(&mut program, &job, me, size, input, recvbuf)?;
    }
    Ok(program)
}

/// Recursive doubling: in every round two groups of neighbours exchange what they have. Those beyond a power of two pass theirs to
/// a neighbour first and get the result at the end.
fn doubling(program: &mut Program, job: &Job, me: i32, size: i32, input: Addr, recvbuf: Addr) -> Result<()> {
    // Of two, each has its result where it belongs, without a copy of it.
    let is_input = input != recvbuf;
    let mut own = Own { at: input, is_input, free: if is_input { vec![recvbuf] } else { Vec::new() } };
    let power = 1 << (31 - size.leading_zeros());
    let rest = size - power;
    let mut place = me - rest;
    if me < 2 * rest {
        if me % 2 == 0 {
            program.send(job.data(input)?, me + 1);
            program.then();
            program.recv(job.data(recvbuf)?, me + 1);
            return Ok(());
        }
        own.copied(job, program)?;
        let incoming = own.room(job, program)?;
        program.recv(job.data(incoming)?, me - 1);
        own.above(job, program, incoming);
        place = me / 2;
    }
    let real = |place: i32| if place < rest { place * 2 + 1 } else { place + rest };
    let mut mask = 1;
    while mask < power {
        let partner = real(place ^ mask);
        program.then();
        program.send(job.data(own.at)?, partner);
        if partner < me {
            own.copied(job, program)?;
            let incoming = own.room(job, program)?;
            program.recv(job.data(incoming)?, partner);
            own.above(job, program, incoming);
        } else {
            let incoming = own.room(job, program)?;
            program.recv(job.data(incoming)?, partner);
            own.below(job, program, incoming)?;
        }
        mask *= 2;
    }
    if own.at != recvbuf {
        program.copy(job.data(own.at)?, job.data(recvbuf)?);
    }
    if me < 2 * rest {
        program.then();
        program.send(job.data(own.at)?, me - 1);
    }
    Ok(())
}

/// Every process combines one part of everybody's input, then gives it to all: each byte crosses twice, however many there are.
fn in_parts(program: &mut Program, job: &Job, me: i32, size: i32, input: Addr, recvbuf: Addr) -> Result<()> {
    let step = extent(job.datatype)?;
    let from = |part: i32| job.count * i64::from(part) / i64::from(size);
    let count = |part: i32| from(part + 1) - from(part);
    let part_of = |part: i32| Data::new(recvbuf.offset(from(part) * step), count(part), job.datatype);
    let result = job.own_part(program, me, size, input, |part| (from(part), count(part)))?;
    let whole = Data::new(result, count(me), job.datatype)?;
    program.copy(whole.clone(), part_of(me)?);
    program.then();
    for turn in 1..size {
        let (to, source) = ((me + turn) % size, (me + size - turn) % size);
        program.recv(part_of(source)?, source);
        program.send(whole.clone(), to);
    }
    Ok(())
}
