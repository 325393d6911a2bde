//! What psid and a keeper say to each other over the socket pair made when the keeper is started; framed like the client
//! protocol. Both sides trust each other (same user, same binary), yet decode with the same care.

use pulc_base::boot::{Boot, Gone, JobSecret};
use pulc_base::{JobId, NodeId, Rank};
use pulc_control::{LaunchSpec, StopKind, Stream};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// From psid to the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Always the first one.
    Prepare(Box<Prepare>),
    Go {
        boot: Box<Boot>,
        secret: JobSecret,
    },
    Input {
        bytes: Vec<u8>,
    },
    InputEnd,
    /// So many more bytes of output may be sent.
    Credit {
        bytes: u32,
    },
    Stop(StopKind),
    /// Ranks of other nodes that have ended.
    Gone {
        ranks: Vec<(Rank, Gone)>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    pub job: JobId,
    pub node: NodeId,
    pub node_name: String,
    /// Ranks `first .. first + count` of `total` run here.
    pub first: u32,
    pub count: u32,
    pub total: u32,
    pub launch: LaunchSpec,
    /// Where to bind the ranks' sockets, one per address; empty in a job on one node.
    pub rails: Vec<IpAddr>,
}

/// From the keeper to psid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Prepared {
        rails: Vec<Vec<SocketAddr>>,
    },
    /// Program, directory, sockets or processes could not be had; the text names what. Followed by [`Report::Clean`].
    Failed {
        text: String,
    },
    /// Process ids of the ranks, for `pulc ps`.
    Started {
        pids: Vec<u32>,
    },
    Output {
        rank: Rank,
        stream: Stream,
        more: bool,
        bytes: Vec<u8>,
    },
    InputCredit {
        bytes: u32,
    },
    InputClosed,
    Exited {
        ranks: Vec<(Rank, Gone)>,
    },
    Abort {
        rank: Rank,
        code: u8,
        text: String,
    },
    /// Nothing of the job is left on this node and all output has been sent. The last report.
    Clean,
}
