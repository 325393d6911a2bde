//! Blocking collectives that may go through the hall, by name, with the standard's arguments; each says whether it was done there. Arguments
//! are looked at before anything is begun, as the way by messages does.

use super::Hall;
use super::fold::Sum;
use super::open::hall;
use crate::collective::bcast::check_root;
use crate::collective::layout::Blocks;
use crate::collective::reduce::Job;
use crate::comm::Communicator;
use crate::data::Data;
use crate::datatype;
use crate::error::Result;
use crate::handle::{Datatype, Op};
use crate::memory::Addr;
use crate::op::Reduction;
use std::sync::Arc;

pub(super) type Known<'a> = &'a Arc<Communicator>;

pub fn barrier(comm: Known<'_>) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    hall.barrier_of(comm)?;
    Ok(true)
}

pub fn bcast(comm: Known<'_>, buf: Addr, count: i64, datatype: Datatype, root: i32) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let data = Data::new(buf, count, datatype)?;
    check_root(comm, root)?;
    hall.bcast_of(comm, &data, root)?;
    Ok(true)
}

pub fn reduce(
    comm: Known<'_>,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
    root: i32,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let job = Job::new(op, count, datatype)?;
    check_root(comm, root)?;
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    job.data(input)?;
    if comm.me == root {
        job.data(recvbuf)?;
    }
    reduce_in(&mut hall, comm, &job, input, recvbuf, op, Some(root))
}

pub fn allreduce(
    comm: Known<'_>,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let job = Job::new(op, count, datatype)?;
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    job.data(input)?;
    job.data(recvbuf)?;
    reduce_in(&mut hall, comm, &job, input, recvbuf, op, None)
}

fn reduce_in(
    hall: &mut Hall,
    comm: Known<'_>,
    job: &Job,
    input: Addr,
    output: Addr,
    op: Op,
    root: Option<i32>,
) -> Result<bool> {
    let Some(sum) = sum_of(job, input)? else { return Ok(false) };
    let keeps_order = hall.across.as_ref().is_none_or(|across| across.in_order);
    if !keeps_order && !job.op.is_commutative() {
        return Ok(false);
    }
    hall.reduce_of(comm, &sum, output, op, root)?;
    Ok(true)
}

/// What is reduced, if its elements are without gaps.
pub(super) fn sum_of(job: &Job, input: Addr) -> Result<Option<Sum<'_>>> {
    let Some(size) = datatype::contiguous_size(job.datatype).filter(|size| *size > 0) else { return Ok(None) };
    let op = Reduction::new(&job.op, job.datatype)?;
    Ok(Some(Sum { op, datatype: job.datatype, size: size as usize, count: job.count as usize, input }))
}

/// Whether blocks of this length go through the hall.
fn takes(hall: &Hall, len: usize) -> bool {
    hall.across.is_none() && len <= hall.choice.block_bytes
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn gather(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
    root: i32,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    check_root(comm, root)?;
    let is_root = comm.me == root;
    let own = if is_root && sendbuf.is_in_place() { None } else { Some(Data::new(sendbuf, sendcount, sendtype)?) };
    let blocks = Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype };
    let into = |place: usize| blocks.get(place);
    let len = match &own {
        Some(own) if !is_root => own.len(),
        _ => into(0)?.len(),
    };
    if !takes(&hall, len) {
        return Ok(false);
    }
    hall.gather(own.as_ref(), if is_root { Some(&into) } else { None }, len, Some(root as usize))?;
    Ok(true)
}

pub fn allgather(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let own = if sendbuf.is_in_place() { None } else { Some(Data::new(sendbuf, sendcount, sendtype)?) };
    let blocks = Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype };
    let into = |place: usize| blocks.get(place);
    let len = into(0)?.len();
    if !takes(&hall, len) {
        return Ok(false);
    }
    hall.gather(own.as_ref(), Some(&into), len, None)?;
    Ok(true)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn scatter(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
    root: i32,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    check_root(comm, root)?;
    let is_root = comm.me == root;
    let own = if is_root && recvbuf.is_in_place() { None } else { Some(Data::new(recvbuf, recvcount, recvtype)?) };
    let blocks = Blocks::Same { base: sendbuf, count: sendcount, datatype: sendtype };
    let out = |place: usize| blocks.get(place);
    let len = match &own {
        Some(own) if !is_root => own.len(),
        _ => out(0)?.len(),
    };
    if !takes(&hall, len) {
        return Ok(false);
    }
    hall.scatter(if is_root { Some(&out) } else { None }, own.as_ref(), len, root as usize)?;
    Ok(true)
}

pub fn alltoall(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let in_place = sendbuf.is_in_place();
    let blocks = Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype };
    let sent = if in_place { blocks } else { Blocks::Same { base: sendbuf, count: sendcount, datatype: sendtype } };
    let (out, into) = (|place: usize| sent.get(place), |place: usize| blocks.get(place));
    let len = into(0)?.len();
    out(0)?;
    if !takes(&hall, len) {
        return Ok(false);
    }
    hall.alltoall(&out, &into, len, in_place)?;
    Ok(true)
}
