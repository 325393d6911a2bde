//! The collectives by name, each in its three forms: blocking, nonblocking and persistent.

use super::layout::Blocks;
use super::program::Program;
use super::schedule::{run, start};
use super::{
    barrier as barriers, bcast as bcasts, gather as gathers, hall, neighbor as neighbors, reduce as reductions,
    scan as scans,
};
use crate::comm::{self, Communicator};
use crate::data::Data;
use crate::error::Result;
use crate::handle::{Comm, Datatype, Info, Op, Request};
use crate::memory::{Addr, Ints};
use crate::request::{Plan, keep};
use std::sync::Arc;

/// Whether it was done in shared memory, where it knows that way.
macro_rules! in_hall {
    (() $($arg:expr),*) => {
        false
    };
    (($hall:path) $($arg:expr),*) => {
        $hall($($arg),*)?
    };
}

macro_rules! collectives {
    ($($(#[$text:meta])* $blocking:ident $nonblocking:ident $persistent:ident: $make:path $(, $hall:path)?; ($($arg:ident: $type:ty),*);)*) => {$(
        $(#[$text])*
        #[allow(clippy::too_many_arguments, reason = "the standard's")]
        pub fn $blocking($($arg: $type,)* comm: Comm) -> Result<()> {
            let comm = comm::hold(comm)?;
            if in_hall!(($($hall)?) &comm $(, $arg)*) {
                return Ok(());
            }
            run(&comm, $make(&comm, $($arg),*)?)
        }

        /// The nonblocking form.
        #[allow(clippy::too_many_arguments, reason = "the standard's")]
        pub fn $nonblocking($($arg: $type,)* comm: Comm) -> Result<Request> {
            let comm = comm::find(comm)?;
            start(&comm, $make(&comm, $($arg),*)?)
        }

        /// The persistent form.
        #[allow(clippy::too_many_arguments, reason = "the standard's")]
        pub fn $persistent($($arg: $type,)* comm: Comm, _info: Info) -> Result<Request> {
            let found = comm::find(comm)?;
            let mut program = $make(&found, $($arg),*)?;
            program.persist(&found);
            keep(Plan::Collective(Arc::new(program)), comm)
        }
    )*};
}

collectives! {
    /// Waits for all members.
    barrier ibarrier barrier_init: barriers::barrier, hall::barrier; ();
    /// From the root to all.
    bcast ibcast bcast_init: bcasts::bcast, hall::bcast; (buf: Addr, count: i64, datatype: Datatype, root: i32);
    /// Combines everybody's data at the root.
    reduce ireduce reduce_init: reductions::reduce, hall::reduce;
        (sendbuf: Addr, recvbuf: Addr, count: i64, datatype: Datatype, op: Op, root: i32);
    /// Combines everybody's data for everybody.
    allreduce iallreduce allreduce_init: reductions::allreduce, hall::allreduce;
        (sendbuf: Addr, recvbuf: Addr, count: i64, datatype: Datatype, op: Op);
    /// Combines the data of all lower ranks and one's own.
    scan iscan scan_init: scans::scan, hall::scan; (sendbuf: Addr, recvbuf: Addr, count: i64, datatype: Datatype, op: Op);
    /// Combines the data of all lower ranks.
    exscan iexscan exscan_init: scans::exscan, hall::exscan; (sendbuf: Addr, recvbuf: Addr, count: i64, datatype: Datatype, op: Op);
    /// Combines, and deals the result out.
    reduce_scatter ireduce_scatter reduce_scatter_init: scans::reduce_scatter, hall::reduce_scatter;
        (sendbuf: Addr, recvbuf: Addr, recvcounts: Ints<'_>, datatype: Datatype, op: Op);
    /// The same in blocks of one length.
    reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init: reduce_scatter_blocks, hall::reduce_scatter_block;
        (sendbuf: Addr, recvbuf: Addr, recvcount: i64, datatype: Datatype, op: Op);
    /// Everybody's block to the root.
    gather igather gather_init: gather_same, hall::gather;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcount: i64, recvtype: Datatype, root: i32);
    /// The same with lengths that differ.
    gatherv igatherv gatherv_init: gather_varied, hall::gatherv;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcounts: Ints<'_>, displs: Ints<'_>,
         recvtype: Datatype, root: i32);
    /// A block from the root to everybody.
    scatter iscatter scatter_init: scatter_same, hall::scatter;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcount: i64, recvtype: Datatype, root: i32);
    /// The same with lengths that differ.
    scatterv iscatterv scatterv_init: scatter_varied, hall::scatterv;
        (sendbuf: Addr, sendcounts: Ints<'_>, displs: Ints<'_>, sendtype: Datatype, recvbuf: Addr, recvcount: i64,
         recvtype: Datatype, root: i32);
    /// Everybody's block to everybody.
    allgather iallgather allgather_init: allgather_same, hall::allgather;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcount: i64, recvtype: Datatype);
    /// The same with lengths that differ.
    allgatherv iallgatherv allgatherv_init: allgather_varied, hall::allgatherv;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcounts: Ints<'_>, displs: Ints<'_>,
         recvtype: Datatype);
    /// A block from everybody to everybody.
    alltoall ialltoall alltoall_init: alltoall_same, hall::alltoall;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcount: i64, recvtype: Datatype);
    /// The same with lengths that differ.
    alltoallv ialltoallv alltoallv_init: alltoall_varied, hall::alltoallv;
        (sendbuf: Addr, sendcounts: Ints<'_>, sdispls: Ints<'_>, sendtype: Datatype, recvbuf: Addr,
         recvcounts: Ints<'_>, rdispls: Ints<'_>, recvtype: Datatype);
    /// The same with datatypes that differ, displacements in bytes.
    alltoallw ialltoallw alltoallw_init: alltoall_each, hall::alltoallw;
        (sendbuf: Addr, sendcounts: Ints<'_>, sdispls: Ints<'_>, sendtypes: &[Datatype], recvbuf: Addr,
         recvcounts: Ints<'_>, rdispls: Ints<'_>, recvtypes: &[Datatype]);
    /// A block to all neighbours.
    neighbor_allgather ineighbor_allgather neighbor_allgather_init: neighbor_allgather_same;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcount: i64, recvtype: Datatype);
    /// The same with lengths that differ.
    neighbor_allgatherv ineighbor_allgatherv neighbor_allgatherv_init: neighbor_allgather_varied;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcounts: Ints<'_>, displs: Ints<'_>,
         recvtype: Datatype);
    /// A block to each neighbour.
    neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init: neighbor_alltoall_same;
        (sendbuf: Addr, sendcount: i64, sendtype: Datatype, recvbuf: Addr, recvcount: i64, recvtype: Datatype);
    /// The same with lengths that differ.
    neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init: neighbor_alltoall_varied;
        (sendbuf: Addr, sendcounts: Ints<'_>, sdispls: Ints<'_>, sendtype: Datatype, recvbuf: Addr,
         recvcounts: Ints<'_>, rdispls: Ints<'_>, recvtype: Datatype);
    /// The same with datatypes that differ, displacements in bytes.
    neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init: neighbor_alltoall_each;
        (sendbuf: Addr, sendcounts: Ints<'_>, sdispls: Ints<'_>, sendtypes: &[Datatype], recvbuf: Addr,
         recvcounts: Ints<'_>, rdispls: Ints<'_>, recvtypes: &[Datatype]);
}

fn reduce_scatter_blocks(
    comm: &Communicator,
    sendbuf: Addr,
    recvbuf: Addr,
    count: i64,
    datatype: Datatype,
    op: Op,
) -> Result<Program> {
    let counts = vec![count; comm.size()];
    scans::reduce_scatter(comm, sendbuf, recvbuf, Ints::Large(&counts), datatype, op)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn gather_same(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
    root: i32,
) -> Result<Program> {
    let blocks = Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype };
    gathers::gather(comm, || Data::new(sendbuf, sendcount, sendtype), sendbuf.is_in_place(), blocks, root)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn gather_varied(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    displs: Ints<'_>,
    recvtype: Datatype,
    root: i32,
) -> Result<Program> {
    let blocks = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: displs, datatype: recvtype };
    gathers::gather(comm, || Data::new(sendbuf, sendcount, sendtype), sendbuf.is_in_place(), blocks, root)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn scatter_same(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
    root: i32,
) -> Result<Program> {
    let blocks = Blocks::Same { base: sendbuf, count: sendcount, datatype: sendtype };
    gathers::scatter(comm, blocks, || Data::new(recvbuf, recvcount, recvtype), recvbuf.is_in_place(), root)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn scatter_varied(
    comm: &Communicator,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    displs: Ints<'_>,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
    root: i32,
) -> Result<Program> {
    let blocks = Blocks::Varied { base: sendbuf, counts: sendcounts, displacements: displs, datatype: sendtype };
    gathers::scatter(comm, blocks, || Data::new(recvbuf, recvcount, recvtype), recvbuf.is_in_place(), root)
}

/// This process's data, unless it lies in place.
fn own(buf: Addr, count: i64, datatype: Datatype) -> Result<Option<Data>> {
    if buf.is_in_place() { Ok(None) } else { Data::new(buf, count, datatype).map(Some) }
}

fn allgather_same(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
) -> Result<Program> {
    let blocks = Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype };
    gathers::allgather(comm, own(sendbuf, sendcount, sendtype)?, blocks)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn allgather_varied(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    displs: Ints<'_>,
    recvtype: Datatype,
) -> Result<Program> {
    let blocks = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: displs, datatype: recvtype };
    gathers::allgather(comm, own(sendbuf, sendcount, sendtype)?, blocks)
}

fn alltoall_same(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
) -> Result<Program> {
    let out = Blocks::Same { base: sendbuf, count: sendcount, datatype: sendtype };
    gathers::alltoall(comm, out, Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype })
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn alltoall_varied(
    comm: &Communicator,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    sdispls: Ints<'_>,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    rdispls: Ints<'_>,
    recvtype: Datatype,
) -> Result<Program> {
    let out = Blocks::Varied { base: sendbuf, counts: sendcounts, displacements: sdispls, datatype: sendtype };
    let into = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: rdispls, datatype: recvtype };
    gathers::alltoall(comm, out, into)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn alltoall_each(
    comm: &Communicator,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    sdispls: Ints<'_>,
    sendtypes: &[Datatype],
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    rdispls: Ints<'_>,
    recvtypes: &[Datatype],
) -> Result<Program> {
    let out = Blocks::Each { base: sendbuf, counts: sendcounts, displacements: sdispls, datatypes: sendtypes };
    let into = Blocks::Each { base: recvbuf, counts: recvcounts, displacements: rdispls, datatypes: recvtypes };
    gathers::alltoall(comm, out, into)
}

fn neighbor_allgather_same(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
) -> Result<Program> {
    let into = Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype };
    neighbors::allgather(comm, Data::new(sendbuf, sendcount, sendtype)?, into)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn neighbor_allgather_varied(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    displs: Ints<'_>,
    recvtype: Datatype,
) -> Result<Program> {
    let into = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: displs, datatype: recvtype };
    neighbors::allgather(comm, Data::new(sendbuf, sendcount, sendtype)?, into)
}

fn neighbor_alltoall_same(
    comm: &Communicator,
    sendbuf: Addr,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcount: i64,
    recvtype: Datatype,
) -> Result<Program> {
    let out = Blocks::Same { base: sendbuf, count: sendcount, datatype: sendtype };
    neighbors::alltoall(comm, out, Blocks::Same { base: recvbuf, count: recvcount, datatype: recvtype })
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn neighbor_alltoall_varied(
    comm: &Communicator,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    sdispls: Ints<'_>,
    sendtype: Datatype,
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    rdispls: Ints<'_>,
    recvtype: Datatype,
) -> Result<Program> {
    let out = Blocks::Varied { base: sendbuf, counts: sendcounts, displacements: sdispls, datatype: sendtype };
    let into = Blocks::Varied { base: recvbuf, counts: recvcounts, displacements: rdispls, datatype: recvtype };
    neighbors::alltoall(comm, out, into)
}

#[expect(clippy::too_many_arguments, reason = "the standard's")]
fn neighbor_alltoall_each(
    comm: &Communicator,
    sendbuf: Addr,
    sendcounts: Ints<'_>,
    sdispls: Ints<'_>,
    sendtypes: &[Datatype],
    recvbuf: Addr,
    recvcounts: Ints<'_>,
    rdispls: Ints<'_>,
    recvtypes: &[Datatype],
) -> Result<Program> {
    let out = Blocks::Each { base: sendbuf, counts: sendcounts, displacements: sdispls, datatypes: sendtypes };
    let into = Blocks::Each { base: recvbuf, counts: recvcounts, displacements: rdispls, datatypes: recvtypes };
    neighbors::alltoall(comm, out, into)
}
