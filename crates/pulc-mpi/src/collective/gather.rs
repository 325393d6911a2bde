//! Collectives that move blocks: every block goes straight from where it is to where it belongs, all in one round, so that processes
//! that share a core are switched to once. Long blocks of an allgather go round in a ring.

use super::bcast::check_root;
use super::layout::Blocks;
use super::program::Program;
use crate::comm::Communicator;
use crate::consts::{PROC_NULL, ROOT};
use crate::data::Data;
use crate::error::Result;

/// Above this many bytes in all, an allgather of more than two goes round.
const LONG_BYTES: usize = 256 << 10;

/// To the root. `own` makes this process's data, `blocks` is looked at on the root only.
pub(super) fn gather(
    comm: &Communicator,
    own: impl FnOnce() -> Result<Data>,
    in_place: bool,
    blocks: Blocks<'_>,
    root: i32,
) -> Result<Program> {
    let mut program = Program::new();
    let is_inter = comm.remote.is_some();
    if is_inter && root == PROC_NULL {
        return Ok(program);
    }
    if !(is_inter && root == ROOT) {
        check_root(comm, root)?;
        if is_inter || comm.me != root {
            program.send(own()?, root);
            return Ok(program);
        }
    }
    let mut own = Some(own);
    for rank in 0..comm.peers().size() {
        if !is_inter && rank as i32 == comm.me {
            if let (false, Some(own)) = (in_place, own.take()) {
                program.copy(own()?, blocks.get(rank)?);
            }
        } else {
            program.recv(blocks.get(rank)?, rank as i32);
        }
    }
    Ok(program)
}

/// From the root.
pub(super) fn scatter(
    comm: &Communicator,
    blocks: Blocks<'_>,
    own: impl FnOnce() -> Result<Data>,
    in_place: bool,
    root: i32,
) -> Result<Program> {
    let mut program = Program::new();
    let is_inter = comm.remote.is_some();
    if is_inter && root == PROC_NULL {
        return Ok(program);
    }
    if !(is_inter && root == ROOT) {
        check_root(comm, root)?;
        if is_inter || comm.me != root {
            program.recv(own()?, root);
            return Ok(program);
        }
    }
    let mut own = Some(own);
    for rank in 0..comm.peers().size() {
        if !is_inter && rank as i32 == comm.me {
            if let (false, Some(own)) = (in_place, own.take()) {
                program.copy(blocks.get(rank)?, own()?);
            }
        } else {
            program.send(blocks.get(rank)?, rank as i32);
        }
    }
    Ok(program)
}

/// From everybody to everybody the same block. `own` is this process's, `None` where it lies in place.
pub(super) fn allgather(comm: &Communicator, own: Option<Data>, blocks: Blocks<'_>) -> Result<Program> {
    let total = blocks.total(comm.peers().size())?;
    let mut program = Program::new();
    let (me, size) = (comm.me as usize, comm.peers().size());
    if comm.remote.is_some() {
        let own = own.unwrap_or(Data::NONE);
        for turn in 0..size {
            let rank = (me + turn) % size;
            program.recv(blocks.get(rank)?, rank as i32);
            program.send(own.clone(), rank as i32);
        }
        return Ok(program);
    }
    let in_place = own.is_none();
    let mine = match own {
        Some(own) => own,
        None => blocks.get(me)?,
    };
    if !in_place {
        program.copy(mine.clone(), blocks.get(me)?);
    }
    if size > 2 && total > LONG_BYTES {
        for turn in 0..size - 1 {
            program.then();
            let (out, into) = ((me + size - turn) % size, (me + 2 * size - turn - 1) % size);
            program.recv(blocks.get(into)?, ((me + size - 1) % size) as i32);
            program.send(blocks.get(out)?, ((me + 1) % size) as i32);
        }
        return Ok(program);
    }
    for turn in 1..size {
        let (to, from) = ((me + turn) % size, (me + size - turn) % size);
        program.recv(blocks.get(from)?, from as i32);
        program.send(mine.clone(), to as i32);
    }
    Ok(program)
}

/// From everybody to everybody a block of its own.
pub(super) fn alltoall(comm: &Communicator, out: Blocks<'_>, into: Blocks<'_>) -> Result<Program> {
    let mut program = Program::new();
    let (me, size) = (comm.me as usize, comm.peers().size());
    let in_place = out.is_in_place();
    let is_inter = comm.remote.is_some();
    let mut copies = Vec::new();
    if in_place {
        // What is received would overwrite what is still to be sent.
        for rank in 0..size {
            let block = into.get(rank)?;
            let len = block.len();
            let copy = Data::Flat { at: program.bytes(len.max(1)), len };
            if rank != me {
                program.copy(block, copy.clone());
            }
            copies.push(copy);
        }
    }
    for turn in 0..size {
        let (to, from) = ((me + turn) % size, (me + size - turn % size) % size);
        if turn == 0 && !is_inter {
            if !in_place {
                program.copy(out.get(me)?, into.get(me)?);
            }
            continue;
        }
        program.recv(into.get(from)?, from as i32);
        let data = if in_place { copies[to].clone() } else { out.get(to)? };
        program.send(data, to as i32);
    }
    Ok(program)
}
