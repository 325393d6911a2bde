//! What daemons say to each other beyond the mesh's own upkeep. One enum for the whole crate, so that a reader sees every
//! message in one place; each room adds its variants. Carried by [`crate::mesh`] in order, at most once, encoded with postcard.
//! Variants are only ever appended: their position is their number on the wire.

use crate::jobs::message::JobMsg;
use crate::queue::message::QueueMsg;
use crate::stage::StageMsg;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMsg {
    /// Answered with [`PeerMsg::ProbeAnswer`] carrying the same number: is the other daemon's event loop alive?
    Probe(u64),
    ProbeAnswer(u64),
    /// Launch, stdio, signals and exits of jobs.
    Job(JobMsg),
    /// The whole cluster goes down: end this node's jobs and stop.
    GoDown,
    /// The queue: submissions, orders of the controller, reports to it.
    Queue(Box<QueueMsg>),
    /// Files that jobs bring along.
    Stage(StageMsg),
}
