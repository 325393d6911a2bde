//! Broadcast along a binomial tree; long messages in segments, so that all floors of the tree work at the same time.

use super::program::{Program, Side};
use crate::comm::Communicator;
use crate::consts::{PROC_NULL, ROOT};
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::handle::Datatype;
use crate::memory::Addr;

pub(super) fn bcast(comm: &Communicator, buf: Addr, count: i64, datatype: Datatype, root: i32) -> Result<Program> {
    let mut program = Program::new();
    if comm.remote.is_some() && root == PROC_NULL {
        // A bystander: nothing else that it says counts.
        return Ok(program);
    }
    let data = Data::new(buf, count, datatype)?;
    if comm.remote.is_none() {
        check_root(comm, root)?;
        tree(&mut program, Side::Peers, comm.me, comm.size() as i32, root, &data);
        return Ok(program);
    }
    match root {
        ROOT => program.send(data, 0),
        root => {
            check_root(comm, root)?;
            if comm.me == 0 {
                program.recv(data.clone(), root);
            }
            tree(&mut program, Side::Local, comm.me, comm.size() as i32, 0, &data);
        }
    }
    Ok(program)
}

/// The root must be a member, or one of the other side.
pub(super) fn check_root(comm: &Communicator, root: i32) -> Result<()> {
    let size = comm.peers().size() as i32;
    if (0..size).contains(&root) {
        return Ok(());
    }
    let text = format!("root {root} of a communicator with {size} processes: roots are 0 to {}", size - 1);
    Err(Error::new(Class::ROOT, text))
}

/// From `root` to all of one side.
pub(super) fn tree(program: &mut Program, side: Side, me: i32, size: i32, root: i32, data: &Data) {
    let place = (me + size - root) % size;
    let real = |place: i32| (place + root) % size;
    let mut mask = 1;
    while mask < size {
        if place & mask != 0 {
            program.then();
            program.recv_on(side, data.clone(), real(place - mask));
            break;
        }
        mask *= 2;
    }
    program.then();
    // The farthest first: its subtree is the largest.
    while mask > 1 {
        mask /= 2;
        if place + mask < size && place & mask == 0 {
            program.send_on(side, data.clone(), real(place + mask));
        }
    }
}
