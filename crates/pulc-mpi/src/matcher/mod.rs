//! The receive handler of MPI, with everything that changes when a message comes: queues by context, requests, messages in parts, and
//! sends that wait for room. Called by the protocol switch for every frame and by the calls of this crate between polls,
//! always with the engine locked; never blocks.

mod arrive;
mod kept;
mod own;
mod pending;
mod post;
mod requests;
mod spare;

pub(crate) use kept::{Goal, Kept, SMALL_BYTES, Transfers};
pub(crate) use pending::{of_send as of_send_fault, push_pending};
pub(crate) use requests::{Bytes, Out, Phase, Recv, Requests, Work};

use spare::Spare;

use crate::comm::Communicator;
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, INDEX_MAX};
use pulc_base::{Proto, Rank};
use pulc_handler::matching::Matching;
use pulc_handler::{End, Engine, Outbox};
use std::sync::Arc;

/// Messages of one context: receives by their request.
#[derive(Default)]
pub(crate) struct Lane {
    pub queue: Matching<u32, Kept>,
}

/// A message that a probe has taken out of its queue.
pub(crate) struct Probed {
    pub kept: Kept,
    pub src: Rank,
    pub tag: i32,
    pub comm: Comm,
}

#[derive(Default)]
pub(crate) struct Matcher {
    /// By the index in the handle; the two predefined ones first.
    pub comms: Vec<Option<Arc<Communicator>>>,
    /// By context.
    pub lanes: Vec<Lane>,
    pub requests: Requests,
    pub transfers: Transfers,
    pub probed: Vec<Option<Probed>>,
    /// Requests of sends that have not left completely, in the order they were made.
    pub pending: Vec<u32>,
    /// How many of them have not begun: no later message to the same process may overtake them.
    pub unstarted: usize,
    pub spare: Spare,
    /// Costs of kept messages that have been received.
    pub to_release: Vec<(Rank, u64)>,
    pub gone: Vec<(Rank, End)>,
    /// Contexts in use, in pairs.
    pub contexts: Vec<bool>,
    /// The program receives nothing any more: contexts of long messages that were thrown away since.
    pub leaving: Option<Vec<u32>>,
}

/// The MPI receive handler of the engine.
#[inline(always)]
pub(crate) fn matcher(engine: &mut Engine) -> &mut Matcher {
    engine.handler::<Matcher>(Proto::MPI).expect("registered when MPI is initialised")
}

#[inline]
pub(crate) fn matcher_and_outbox(engine: &mut Engine) -> (&mut Matcher, &mut Outbox) {
    engine.handler_and_outbox::<Matcher>(Proto::MPI).expect("registered when MPI is initialised")
}

impl Matcher {
    /// The communicator with this handle.
    #[inline(always)]
    pub fn comm(&self, comm: Comm) -> Result<&Arc<Communicator>> {
        match self.comms.get(comm.0 as usize & INDEX_MAX) {
            Some(Some(found)) if found.handle == comm => Ok(found),
            _ => Err(no_comm(comm)),
        }
    }

    /// The queue of a context, made when it is first named.
    #[inline]
    pub fn lane(&mut self, context: u32) -> &mut Lane {
        if context as usize >= self.lanes.len() {
            self.lanes.resize_with(context as usize + 1, Lane::default);
        }
        &mut self.lanes[context as usize]
    }

    /// Why nothing more comes from a rank.
    pub fn end_of(&self, rank: Rank) -> Option<End> {
        self.gone.iter().find(|(gone, _)| *gone == rank).map(|(_, end)| *end)
    }
}

/// Gives back the room of kept messages that were received.
#[inline]
pub(crate) fn settle(engine: &mut Engine) {
    if matcher(engine).to_release.is_empty() {
        return;
    }
    for (src, cost) in std::mem::take(&mut matcher(engine).to_release) {
        engine.release(src, cost);
    }
}

#[cold]
fn no_comm(comm: Comm) -> Error {
    if comm.is_null() {
        return Error::new(Class::COMM, "the communicator is MPI_COMM_NULL");
    }
    Error::new(Class::COMM, format!("{:#010x} is no communicator: was it freed?", comm.0))
}

#[cold]
pub(crate) fn peer_gone(rank: Rank, end: End) -> Error {
    Error::new(Class::PROC_ABORTED, format!("rank {rank} of MPI_COMM_WORLD is gone: {end}"))
}
