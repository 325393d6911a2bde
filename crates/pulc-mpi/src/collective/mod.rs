//! Collectives: each is a schedule of rounds, so that its blocking, nonblocking and persistent form are one algorithm. A thread that
//! waits for anything in MPI drives the schedules under way; functions of the program run with nothing locked.
//! Source: MPI-5.0, chapter 6.

mod barrier;
mod bcast;
mod calls;
mod gather;
mod hall;
mod layout;
mod neighbor;
mod program;
mod reduce;
mod rooms;
mod scan;
mod schedule;

pub use calls::*;
pub(crate) use hall::Door;
pub(crate) use program::{Program, Side};
pub(crate) use schedule::{Schedule, any_active, begin, drive, launch, run, start as begin_program};

pub(crate) use reduce::allreduce as allreduce_program;
pub(crate) use schedule::run_tagged;

use crate::comm::{self, Communicator};
use crate::data::Data;
use crate::error::Result;
use crate::handle::Comm;
use crate::memory::Addr;
use layout::Blocks;

/// Waits until every process of the job has come here, for the end of MPI.
pub(crate) fn barrier_world() -> Result<()> {
    let world = comm::find(Comm::WORLD)?;
    run(&world, barrier::barrier(&world)?)
}

/// Bytes from one member to all.
pub(crate) fn bcast_data(comm: &Communicator, data: Data, root: i32) -> Result<Program> {
    let mut program = Program::new();
    bcast::tree(&mut program, Side::Peers, comm.me, comm.size() as i32, root, &data);
    Ok(program)
}

/// As many bytes of every member to all.
pub(crate) fn allgather_bytes(comm: &Communicator, own: Data, base: Addr, len: i64) -> Result<Program> {
    gather::allgather(comm, Some(own), Blocks::Same { base, count: len, datatype: crate::handle::Datatype::BYTE })
}
