//! Numbers in memory that operations use: rooms of the library, whose addresses need no promise.

use pulc_mpi::call;
use pulc_mpi::handle::{Comm, Datatype, Op};
use pulc_mpi::memory::{Addr, Room};

pub const INT: Datatype = Datatype(0x4c00_0405);
pub const SUM: Op = Op(0x5800_0003);
pub const WORLD: Comm = Comm::WORLD;

/// Integers of MPI_INT.
pub struct Values {
    room: Room,
    len: usize,
}

impl Values {
    pub fn of(values: &[i32]) -> Values {
        let mut room = Room::new(values.len() * 4);
        for (at, value) in values.iter().enumerate() {
            room.addr().write(at as i64 * 4, &value.to_ne_bytes());
        }
        Values { room, len: values.len() }
    }

    pub fn filled(value: i32, len: usize) -> Values {
        Values::of(&vec![value; len])
    }

    pub fn addr(&mut self) -> Addr {
        self.room.addr()
    }

    pub fn count(&self) -> i64 {
        self.len as i64
    }

    pub fn get(&mut self) -> Vec<i32> {
        let mut bytes = [0; 4];
        let addr = self.addr();
        (0..self.len as i64)
            .map(|at| {
                addr.read(at * 4, &mut bytes);
                i32::from_ne_bytes(bytes)
            })
            .collect()
    }
}

/// Rank and size of a communicator.
pub fn place(comm: Comm) -> (i32, i32) {
    (call::comm_rank(comm).unwrap(), call::comm_size(comm).unwrap())
}
