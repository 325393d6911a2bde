//! Neighbour collectives: every process exchanges with its neighbours in the communicator's topology, all in one round.
//! Source: MPI-5.0, section 8.6.

use super::layout::Blocks;
use super::program::Program;
use crate::comm::Communicator;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::topology::Topology;

/// One block to all outgoing neighbours, and one from each incoming one.
pub(super) fn allgather(comm: &Communicator, own: Data, into: Blocks<'_>) -> Result<Program> {
    exchange(comm, |_| Ok(own.clone()), &into)
}

/// A block of its own to each outgoing neighbour, and one from each incoming one.
pub(super) fn alltoall(comm: &Communicator, out: Blocks<'_>, into: Blocks<'_>) -> Result<Program> {
    exchange(comm, |at| out.get(at), &into)
}

fn exchange(comm: &Communicator, out: impl Fn(usize) -> Result<Data>, into: &Blocks<'_>) -> Result<Program> {
    let topology = comm.extras().topology.clone();
    let topology = topology.ok_or_else(|| {
        Error::new(Class::TOPOLOGY, "the communicator has no topology: make one with MPI_Cart_create or its like")
    })?;
    let (sources, destinations) = topology.neighbours(comm.me);
    let mut program = Program::new();
    for at in order_of_receives(&topology, sources.len()) {
        program.recv(into.get(at)?, sources[at]);
    }
    for (at, destination) in destinations.iter().enumerate() {
        program.send(out(at)?, *destination);
    }
    Ok(program)
}

/// Messages between two processes match in the order of sending. Along one or two processes of a dimension that wraps, both
/// neighbours are the same process: what it sends downwards, first, comes from above.
fn order_of_receives(topology: &Topology, count: usize) -> Vec<usize> {
    match topology {
        Topology::Cart(_) => (0..count).map(|at| at ^ 1).collect(),
        _ => (0..count).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Cart;

    #[test]
    fn in_a_grid_what_comes_from_above_is_expected_first() {
        let cart = Topology::Cart(Cart::new(&[2, 1], &[true, true], 2).unwrap());
        assert_eq!(order_of_receives(&cart, 4), [1, 0, 3, 2]);
    }
}
