//! What psids say to each other about jobs. Orders travel down the launch tree (`Prepare`, `Go`) or straight from the
//! job's origin (the psid of its client) to every node; reports travel up the tree (`Prepared`) or straight to the origin.
//! Handled only by `jobs`; every field from outside is checked there against the job's own table.

use pulc_base::boot::{Boot, Gone};
use pulc_base::{JobId, NodeId, Rank};
use pulc_control::{LaunchSpec, ProcessInfo, StopKind, Stream};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMsg {
    pub job: JobId,
    pub body: JobBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobBody {
    /// First phase: check program and directory, start a keeper, bind the ranks' sockets; pass on to the children in the tree.
    Prepare(Box<Order>),
    /// Answer of a whole subtree.
    Prepared {
        nodes: Vec<PreparedNode>,
    },
    /// Any node could not do what it was asked: the launch stops everywhere.
    Failed {
        node: u32,
        text: String,
    },
    /// Second phase: the wire-up table; start the ranks; pass on to the children in the tree.
    Go {
        boot: Box<Boot>,
    },
    Input {
        bytes: Vec<u8>,
    },
    InputEnd,
    InputCredit {
        bytes: u32,
    },
    InputClosed,
    Output {
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
    /// Ask the origin to stop a job.
    Kill {
        kind: StopKind,
    },
    PsQuery,
    PsAnswer {
        processes: Vec<ProcessInfo>,
    },
}

/// One job's launch order, identical for all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub nodes: Vec<OrderNode>,
    pub launch: LaunchSpec,
    pub user: u32,
}

/// Ranks are dealt in blocks: node i holds `ranks` ranks after those of the nodes before it.
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
