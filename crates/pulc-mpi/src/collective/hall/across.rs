//! Collectives of a communicator on several nodes: the members of each node meet in their hall, and one of each node, its speaker, exchanges
//! messages with those of the others by the ordinary algorithms.

use super::fold::Sum;
use super::open::Places;
use super::{Hall, What};
use crate::collective::barrier::barrier as barrier_program;
use crate::collective::reduce::{allreduce as allreduce_program, reduce as reduce_program};
use crate::collective::{Program, bcast_data, run_tagged};
use crate::comm::{Communicator, Form};
use crate::data::Data;
use crate::error::Result;
use crate::group::Group;
use crate::handle::Op;
use crate::memory::{Addr, Room};
use std::sync::Arc;

/// Where the members of all nodes are.
pub(super) struct Across {
    /// Ranks in the communicator, by node.
    nodes: Vec<Vec<i32>>,
    own: usize,
    /// Each node's ranks are consecutive, and the nodes are in order: combining node by node keeps the order of ranks.
    pub in_order: bool,
}

/// The speakers of all nodes in one collective.
struct Speakers {
    comm: Arc<Communicator>,
    /// The one of the root's node.
    root: i32,
}

impl Across {
    pub fn new(comm: &Communicator, places: &Places) -> Across {
        let in_order = places.nodes.iter().flatten().copied().eq(0..comm.size() as i32);
        Across { nodes: places.nodes.clone(), own: places.own, in_order }
    }

    /// The first member of each node speaks for it, on the root's node the root. Also the place of this node's.
    fn speakers(&self, comm: &Communicator, root: i32) -> (Speakers, usize) {
        let place_of_root = |node: &Vec<i32>| node.iter().position(|rank| *rank == root);
        let places: Vec<usize> = self.nodes.iter().map(|node| place_of_root(node).unwrap_or(0)).collect();
        let ranks = self.nodes.iter().zip(&places).filter_map(|(node, place)| comm.group.world(node[*place]));
        let group = Arc::new(Group::from_ranks(ranks.collect()));
        let root = self.nodes.iter().position(|node| node.contains(&root)).unwrap_or(0) as i32;
        let comm = Arc::new(Communicator::new(comm.handle, comm.context, self.own as i32, group, None));
        (Speakers { comm, root }, places[self.own])
    }
}

impl Hall {
    /// This node's speaker with the others; after a failure the members are out of step.
    fn speak(&mut self, speakers: &Speakers, tag: i32, program: Result<Program>) -> Result<()> {
        let result = program.and_then(|program| run_tagged(&speakers.comm, program, Some(tag)));
        self.failed |= result.is_err();
        result
    }

    fn speakers(&self, comm: &Communicator, root: i32) -> Option<(Speakers, usize)> {
        self.across.as_ref().map(|across| across.speakers(comm, root))
    }

    pub(super) fn barrier_of(&mut self, comm: &Communicator) -> Result<()> {
        let Some((speakers, _)) = self.speakers(comm, 0) else { return self.barrier() };
        let tag = comm.next_collective(Form::Blocking);
        let turn = self.enter()?;
        self.show(turn, What::Barrier, &[], false);
        let speaks = self.me == 0;
        if speaks {
            self.wait_all(turn)?;
            self.speak(&speakers, tag, barrier_program(&speakers.comm))?;
        }
        let turn = self.enter()?;
        self.show(turn, What::Barrier, &[], speaks);
        if speaks { Ok(()) } else { self.wait_one(turn, 0) }
    }

    pub(super) fn bcast_of(&mut self, comm: &Communicator, data: &Data, root: i32) -> Result<()> {
        let Some((speakers, place)) = self.speakers(comm, root) else { return self.bcast(data, root as usize) };
        let tag = comm.next_collective(Form::Blocking);
        if place == self.me {
            let program = bcast_data(&speakers.comm, data.clone(), speakers.root);
            self.speak(&speakers, tag, program)?;
        }
        self.bcast(data, place)
    }

    /// `root`: who has the result at `output`, or all.
    pub(super) fn reduce_of(
        &mut self,
        comm: &Communicator,
        sum: &Sum<'_>,
        output: Addr,
        op: Op,
        root: Option<i32>,
    ) -> Result<()> {
        let Some((speakers, place)) = self.speakers(comm, root.unwrap_or(0)) else {
            return self.reduce(sum, output, root.map(|root| root as usize));
        };
        let tag = comm.next_collective(Form::Blocking);
        let bytes = sum.size * sum.count;
        let mut room = Room::new(if place == self.me { bytes.max(1) } else { 1 });
        let partial = room.addr();
        self.reduce(sum, partial, Some(place))?;
        if place == self.me {
            let count = sum.count as i64;
            let program = match root {
                Some(_) => reduce_program(&speakers.comm, partial, output, count, sum.datatype, op, speakers.root),
                None => allreduce_program(&speakers.comm, partial, output, count, sum.datatype, op),
            };
            self.speak(&speakers, tag, program)?;
        }
        if root.is_none() { self.bcast(&Data::Flat { at: output, len: bytes }, place) } else { Ok(()) }
    }
}
