//! Barrier: every process tells others in rounds that double their distance. Between two sides: each side meets, its first members
//! tell each other, and each side is told.

use super::program::{Program, Side};
use crate::comm::Communicator;
use crate::data::Data;
use crate::error::Result;

pub(super) fn barrier(comm: &Communicator) -> Result<Program> {
    let mut program = Program::new();
    match &comm.remote {
        None => meet(&mut program, Side::Peers, comm.me, comm.size() as i32),
        Some(_) => {
            let (me, size) = (comm.me, comm.size() as i32);
            meet(&mut program, Side::Local, me, size);
            if me == 0 {
                program.then();
                program.send(Data::NONE, 0);
                program.recv(Data::NONE, 0);
            }
            meet_after_first(&mut program, me, size);
        }
    }
    Ok(program)
}

/// Dissemination: after the last round everybody has heard of everybody.
fn meet(program: &mut Program, side: Side, me: i32, size: i32) {
    let mut distance = 1;
    while distance < size {
        program.then();
        program.send_on(side, Data::NONE, (me + distance) % size);
        program.recv_on(side, Data::NONE, (me + size - distance) % size);
        distance *= 2;
    }
}

/// The first member tells all others of its side.
fn meet_after_first(program: &mut Program, me: i32, size: i32) {
    program.then();
    if me == 0 {
        for rank in 1..size {
            program.send_on(Side::Local, Data::NONE, rank);
        }
    } else {
        program.recv_on(Side::Local, Data::NONE, 0);
    }
}
