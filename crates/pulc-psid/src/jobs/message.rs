//! What psids say to each other about jobs. `Prepare` and `Go` travel down the launch tree and `Prepared` up it, merged;
//! everything else goes straight between a node and the job's origin (the psid of its client). Handled only by `jobs`,
//! which checks every field against its own table of the job.

use pulc_base::boot::{Boot, Gone, JobSecret};
use pulc_base::{JobId, NodeId, Rank};
use pulc_control::queue::{Files, JobNumber, Used};
use pulc_control::{JobInfo, LaunchSpec, StopKind, Stream, WaitInfo};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMsg {
    pub job: JobId,
    pub body: JobBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobBody {
    /// First phase: check program and directory, start a keeper, bind the ranks' sockets; pass on to the children.
    Prepare(Box<JobOrder>),
    /// Answer of a whole subtree.
    Prepared {
        nodes: Vec<PreparedNode>,
    },
    /// A node could not do what it was asked: the job ends everywhere.
    Failed {
        text: String,
    },
    /// Second phase: the wire-up table; start the ranks; pass on to the children.
    Go {
        boot: Box<Boot>,
        secret: JobSecret,
    },
    Started {
        pids: Vec<u32>,
    },
    Input {
        bytes: Vec<u8>,
    },
    InputEnd,
    InputCredit {
        bytes: u32,
    },
    InputClosed,
    /// `at` counts the bytes before it, in a queued job.
    Output {
        at: u64,
        rank: Rank,
        stream: Stream,
        more: bool,
        bytes: Vec<u8>,
    },
    Credit {
        bytes: u32,
    },
    Stop(StopKind),
    /// Ranks of the sending node that have ended.
    Exited {
        ranks: Vec<(Rank, Gone)>,
    },
    /// Ranks of other nodes that have ended.
    Gone {
        ranks: Vec<(Rank, Gone)>,
    },
    Abort {
        rank: Rank,
        code: u8,
        text: String,
    },
    /// Nothing of the job is left on the sending node.
    Clean,
    /// Which jobs have their origin at the asked node? The job id is a number of the asker's choice.
    AskJobs,
    Jobs {
        jobs: Vec<JobInfo>,
    },
    /// Stop this job if its origin is the asked node.
    Kill {
        kind: StopKind,
    },
    Killed {
        found: bool,
    },
    /// All output of a queued job's node before this byte is in its files.
    Acked {
        upto: u64,
    },
    /// Stand still, or go on.
    Freeze {
        still: bool,
    },
    Frozen {
        still: bool,
    },
    Used(Used),
    /// The end of a queued job is on record: its keepers may go.
    Dismiss,
    /// The origin was restarted and knows its queued job again: say everything again.
    Again,
    /// What do the ranks of this job at the asked node wait for? The number is the asker's.
    AskWhy {
        number: u64,
    },
    Why {
        number: u64,
        waits: Vec<WaitInfo>,
    },
    /// To the parent in the launch tree, from its root to the origin: files are on their way to the sender or to nodes below it.
    Staging,
    /// Processes on the sending node have ended, and what they leave is on its way home.
    Returning,
    /// What the job was to give back from the sending node is not there, or can't be delivered.
    NotReturned {
        text: String,
    },
    /// The sending node is not fit for work, so the job did not begin.
    Unfit {
        text: String,
    },
    /// As [`JobBody::Prepared`], where networks do not reach from every node of the subtree to those below it.
    PreparedBut {
        nodes: Vec<PreparedNode>,
        dead: Vec<DeadNetwork>,
    },
    /// To the origin: in mid-run the job's network is dead between the sending node and one below it.
    NetworkLost {
        text: String,
    },
    /// As [`JobBody::Kill`], of a job of this user; 0: whoever's it is.
    KillAs {
        kind: StopKind,
        user: u32,
    },
    /// As [`JobBody::AskWhy`], about a job of this user; 0: whoever's it is.
    AskWhyAs {
        number: u64,
        user: u32,
    },
    /// To the origin: these processes on the sending node do not end even by SIGKILL.
    Stuck {
        text: String,
    },
}

/// One job's launch order, identical for all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrder {
    /// The first one is the root of the launch tree, and of a queued job the origin.
    pub nodes: Vec<OrderNode>,
    pub launch: LaunchSpec,
    pub user: u32,
    pub queued: Option<Box<Queued>>,
    /// The node of the job's client, which need not be one of its nodes.
    pub origin: NodeId,
}

/// What is different about a job out of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    pub number: JobNumber,
    /// All nodes it was given, with their slots; a script runs on the first and may use the others.
    pub allocation: Vec<OrderNode>,
    pub files: Files,
    /// Keep what is in the files.
    pub append: bool,
    pub script: Option<Vec<u8>>,
}

/// Ranks are dealt in blocks: a node holds `ranks` ranks after those of the nodes before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderNode {
    pub id: NodeId,
    pub name: String,
    pub ranks: u32,
}

/// One node that is ready to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedNode {
    pub node: u32,
    /// One list of rails for each of its ranks.
    pub rails: Vec<Vec<SocketAddr>>,
}

/// A network of the job on which one node does not reach another; the first place of each network that was found counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadNetwork {
    /// Its place in the list of the job's networks.
    pub network: u8,
    /// Positions in the order.
    pub from: u32,
    pub to: u32,
}
