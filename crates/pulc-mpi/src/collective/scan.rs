//! Reductions over all lower ranks, along the row of ranks; and reductions whose result is dealt out.

use super::gather::scatter;
use super::layout::Blocks;
use super::program::{Program, Side};
use super::reduce::{Job, LONG_BYTES};
use crate::comm::Communicator;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::handle::{Datatype, Op};
use crate::memory::{Addr, Ints};

pub(super) fn scan(
    comm: &Communicator,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
) -> Result<Program> {
    let job = one_side(comm, op, count, datatype)?;
    let mut program = Program::new();
    if !sendbuf.is_in_place() {
        program.copy(job.data(sendbuf)?, job.data(recvbuf)?);
    }
    if comm.me > 0 {
        let lower = program.buffer(count, datatype)?;
        program.recv(job.data(lower)?, comm.me - 1);
        program.then();
        program.reduce(&job.op, datatype, lower, recvbuf, count);
    }
    if comm.me + 1 < comm.size() as i32 {
        program.then();
        program.send(job.data(recvbuf)?, comm.me + 1);
    }
    Ok(program)
}

pub(super) fn exscan(
    comm: &Communicator,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
) -> Result<Program> {
    let job = one_side(comm, op, count, datatype)?;
    let mut program = Program::new();
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    let own = program.buffer(count, datatype)?;
    program.copy(job.data(input)?, job.data(own)?);
    if comm.me > 0 {
        program.recv(job.data(recvbuf)?, comm.me - 1);
        program.then();
        program.reduce(&job.op, datatype, recvbuf, own, count);
    }
    if comm.me + 1 < comm.size() as i32 {
        program.then();
        program.send(job.data(own)?, comm.me + 1);
    }
    Ok(program)
}

fn one_side(comm: &Communicator, op: Op, count: i64, datatype: Datatype) -> Result<Job> {
    if comm.remote.is_some() {
        return Err(Error::new(Class::COMM, "a scan has no meaning on an intercommunicator"));
    }
    Job::new(op, count, datatype)
}

/// How many elements every process's part has, together.
pub(super) fn check_counts(counts: &Ints<'_>, size: usize) -> Result<i64> {
    if counts.len() < size {
        return Err(Error::new(Class::ARG, format!("{} counts for {size} processes", counts.len())));
    }
    if let Some(count) = counts.iter().find(|count| *count < 0) {
        return Err(Error::new(Class::COUNT, format!("count {count} is negative")));
    }
    let total = counts.iter().take(size).try_fold(0_i64, |sum, count| sum.checked_add(count));
    total.ok_or_else(|| Error::new(Class::COUNT, "the counts exceed all memory"))
}

/// Reduces, and gives every process its part of the result.
pub(super) fn reduce_scatter(
    comm: &Communicator,
    sendbuf: Addr,
    recvbuf: Addr,
    counts: Ints<'_>,
    datatype: Datatype,
    op: Op,
) -> Result<Program> {
    let size = comm.size();
    let total = check_counts(&counts, size)?;
    let job = Job::new(op, total, datatype)?;
    let mut program = Program::new();
    let (me, own_count) = (comm.me, counts.get(comm.me as usize));
    let starts: Vec<i64> = counts.iter().scan(0, |at, count| Some(std::mem::replace(at, *at + count))).collect();
    let side = if comm.remote.is_some() { Side::Local } else { Side::Peers };
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    if comm.remote.is_none() && (size == 2 || job.data(input)?.len() > LONG_BYTES) {
        let part = |rank: i32| (starts[rank as usize], counts.get(rank as usize));
        let result = job.own_part(&mut program, me, size as i32, input, part)?;
        program.copy(Data::new(result, own_count, datatype)?, Data::new(recvbuf, own_count, datatype)?);
        return Ok(program);
    }
    let mut result = job.to_first(&mut program, side, me, size as i32, |place| place, input)?;
    if comm.remote.is_some() && me == 0 {
        // The sides get each other's result.
        let theirs = program.buffer(total, datatype)?;
        program.then();
        program.send(job.data(result)?, 0);
        program.recv(job.data(theirs)?, 0);
        result = theirs;
    }
    program.then();
    let blocks = Blocks::Varied { base: result, counts, displacements: Ints::Large(&starts), datatype };
    let own = Data::new(recvbuf, own_count, datatype)?;
    match &comm.remote {
        None => program.append(scatter(comm, blocks, || Ok(own), false, 0)?),
        Some(remote) => program.append_on(Side::Local, scatter(&remote.local, blocks, || Ok(own), false, 0)?),
    }
    Ok(program)
}
