//! Blocking collectives that may go through the hall, continued: those whose blocks or results differ from member to member. Only where all
//! members share a node; each says whether it was done there. Arguments are looked at before anything is begun.

use super::Hall;
use super::calls::{Known, sum_of};
use super::open::hall;
use crate::collective::bcast::check_root;
use crate::collective::layout::Blocks;
use crate::collective::reduce::Job;
use crate::collective::scan::check_counts;
use crate::data::Data;
use crate::error::Result;
use crate::handle::{Datatype, Op};
use crate::memory::{Addr, Ints};

/// Whether blocks of different lengths go through the hall at all.
fn takes_any(hall: &Hall) -> bool {
    hall.across.is_none() && hall.choice.block_bytes > 0
}

/// The blocks of all members.
fn all(blocks: &Blocks<'_>, members: usize) -> Result<Vec<Data>> {
    (0..members).map(|place| blocks.get(place)).collect()
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn gatherv(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    displs: Ints<'_>,
    recvtype: Datatype,
    root: i32,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    check_root(comm, root)?;
    if !takes_any(&hall) {
        return Ok(false);
    }
    if comm.me != root {
        let own = Data::new(sendbuf, sendcount, sendtype)?;
        hall.gather_each(comm, &own, None, Some(root as usize))?;
        return Ok(true);
    }
    let own = if sendbuf.is_in_place() { None } else { Some(Data::new(sendbuf, sendcount, sendtype)?) };
    let blocks = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: displs, datatype: recvtype };
    let blocks = all(&blocks, comm.size())?;
    if let Some(own) = &own {
        own.copy_to(&blocks[root as usize])?;
    }
    // Nobody reads the root's block.
    hall.gather_each(comm, &Data::NONE, Some(&blocks), Some(root as usize))?;
    Ok(true)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn allgatherv(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    displs: Ints<'_>,
    recvtype: Datatype,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let own = if sendbuf.is_in_place() { None } else { Some(Data::new(sendbuf, sendcount, sendtype)?) };
    let blocks = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: displs, datatype: recvtype };
    let blocks = all(&blocks, comm.size())?;
    if !takes_any(&hall) || !hall.takes_each(&blocks) {
        return Ok(false);
    }
    let mine = &blocks[comm.me as usize];
    if let Some(own) = &own {
        own.copy_to(mine)?;
    }
    hall.gather_each(comm, own.as_ref().unwrap_or(mine), Some(&blocks), None)?;
    Ok(true)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn scatterv(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    displs: Ints<'_>,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
    root: i32,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    check_root(comm, root)?;
    if !takes_any(&hall) {
        return Ok(false);
    }
    let is_root = comm.me == root;
    let own = if is_root && recvbuf.is_in_place() { None } else { Some(Data::new(recvbuf, recvcount, recvtype)?) };
    let out = if is_root {
        let blocks = Blocks::Varied { base: sendbuf, counts: sendcounts, displacements: displs, datatype: sendtype };
        Some(all(&blocks, comm.size())?)
    } else {
        None
    };
    hall.scatter_each(comm, out.as_deref(), own.as_ref(), root as usize)?;
    Ok(true)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn alltoallv(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    sdispls: Ints<'_>,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    rdispls: Ints<'_>,
    recvtype: Datatype,
) -> Result<bool> {
    let out = Blocks::Varied { base: sendbuf, counts: sendcounts, displacements: sdispls, datatype: sendtype };
    let into = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: rdispls, datatype: recvtype };
    alltoall_each(comm, out, into)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub fn alltoallw(
    comm: Known<'_>,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    sdispls: Ints<'_>,
    sendtypes: &[Datatype],
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    rdispls: Ints<'_>,
    recvtypes: &[Datatype],
) -> Result<bool> {
    let out = Blocks::Each { base: sendbuf, counts: sendcounts, displacements: sdispls, datatypes: sendtypes };
    let into = Blocks::Each { base: recvbuf, counts: recvcounts, displacements: rdispls, datatypes: recvtypes };
    alltoall_each(comm, out, into)
}

fn alltoall_each(comm: Known<'_>, out: Blocks<'_>, into: Blocks<'_>) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    if !takes_any(&hall) {
        return Ok(false);
    }
    let is_in_place = out.is_in_place();
    let into = all(&into, comm.size())?;
    let out = if is_in_place { None } else { Some(all(&out, comm.size())?) };
    hall.alltoall_each(comm, out.as_deref().unwrap_or(&into), &into, is_in_place)?;
    Ok(true)
}

pub fn scan(comm: Known<'_>, sendbuf: Addr, recvbuf: Addr, count: i64, datatype: Datatype, op: Op) -> Result<bool> {
    scan_in(comm, sendbuf, recvbuf, count, datatype, op, false)
}

pub fn exscan(comm: Known<'_>, sendbuf: Addr, recvbuf: Addr, count: i64, datatype: Datatype, op: Op) -> Result<bool> {
    scan_in(comm, sendbuf, recvbuf, count, datatype, op, true)
}

fn scan_in(
    comm: Known<'_>,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
    is_exclusive: bool,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let job = Job::new(op, count, datatype)?;
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    job.data(input)?;
    if !is_exclusive || comm.me > 0 {
        job.data(recvbuf)?;
    }
    let Some(sum) = sum_of(&job, input)?.filter(|_| hall.across.is_none()) else { return Ok(false) };
    hall.scan(&sum, recvbuf, is_exclusive)?;
    Ok(true)
}

pub fn reduce_scatter(
    comm: Known<'_>,
    sendbuf: Addr,
    recvbuf: Addr,
    counts: Ints<'_>,
    datatype: Datatype,
    op: Op,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let total = check_counts(&counts, comm.size())?;
    let before: i64 = counts.iter().take(comm.me as usize).sum();
    deal(&mut hall, comm, (sendbuf, recvbuf), total, (before, counts.get(comm.me as usize)), datatype, op)
}

pub fn reduce_scatter_block(
    comm: Known<'_>,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
) -> Result<bool> {
    let Some(mut hall) = hall(comm)? else { return Ok(false) };
    let size = comm.size() as i64;
    let Some(total) = count.checked_mul(size) else { return Ok(false) };
    deal(&mut hall, comm, (sendbuf, recvbuf), total, (count * i64::from(comm.me), count), datatype, op)
}

/// `own`: where this process's part of the result begins, and how long it is, in elements.
fn deal(
    hall: &mut Hall,
    comm: Known<'_>,
    (sendbuf, recvbuf): (Addr, Addr),
    total: i64,
    (before, count): (i64, i64),
    datatype: Datatype,
    op: Op,
) -> Result<bool> {
    let job = Job::new(op, total, datatype)?;
    let input = if sendbuf.is_in_place() { recvbuf } else { sendbuf };
    job.data(input)?;
    Data::new(recvbuf, count, datatype)?;
    debug_assert!(comm.remote.is_none(), "an intercommunicator has no hall");
    let Some(sum) = sum_of(&job, input)?.filter(|_| hall.across.is_none()) else { return Ok(false) };
    let (first, len) = (before as usize * sum.size, count as usize * sum.size);
    hall.deal(&sum, first..first + len, recvbuf)?;
    Ok(true)
}
