//! What daemons say to each other about the queue: requests of clients on their way to the controller, its orders to the first nodes
//! of jobs, and their reports. Handled only by `queue`. Variants are only ever appended.

use crate::jobs::message::{OrderNode, Queued};
use pulc_base::{JobId, NodeId};
use pulc_control::queue::{ClusterConfig, QueueReply, QueueRequest};
use pulc_control::{LaunchSpec, StopKind};
use pulc_sched::Report;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueMsg {
    /// The sender is the controller; answered with [`QueueMsg::Facts`], and with what was not on record yet.
    Controller,
    Facts(Facts),
    Ask {
        ticket: u64,
        user: u32,
        request: QueueRequest,
    },
    Answer {
        ticket: u64,
        reply: QueueReply,
    },
    /// The client of a ticket has gone.
    Hung {
        ticket: u64,
    },
    Start(Box<QueueStart>),
    Stop {
        job: JobId,
        kind: StopKind,
        code: u8,
        text: String,
    },
    Freeze {
        job: JobId,
        still: bool,
    },
    /// The end of this job is on disk.
    Seen(JobId),
    Report {
        job: JobId,
        report: Report,
    },
    AskRoll,
    /// All queued jobs of which the sender is the first node.
    Roll(Vec<JobId>),
    /// Nodes that get nothing new.
    Drained(Vec<NodeId>),
    /// What is set for the whole cluster.
    Config(ClusterConfig),
    /// What the sender's health check has said: why it fails, if it does.
    Checked {
        failure: Option<String>,
    },
}

/// What a node knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    pub memory_mib: u64,
    pub memory_free_mib: u64,
    /// Load average of one minute in thousandths.
    pub load_milli: u32,
}

/// A queued job, for its first node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStart {
    pub job: JobId,
    pub queued: Queued,
    /// Where its processes are started, the first node first.
    pub nodes: Vec<OrderNode>,
    pub launch: LaunchSpec,
}
