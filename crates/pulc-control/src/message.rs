//! What clients and psid say to each other. Plain data: encoded by `frame`, sent by `client` and by psid's `jobs`. Never
//! holds a descriptor or a path that must exist on another machine.

use crate::node::NodeInfo;
use crate::queue::{QueueReply, QueueRequest};
use pulc_base::boot::Gone;
use pulc_base::{JobId, NodeId, Rank};
use serde::{Deserialize, Serialize};

/// From a client to its local psid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Always the first one.
    Hello {
        version: u32,
    },
    /// Start a job; this connection becomes its terminal: when it closes before [`Reply::Ended`], the job is stopped.
    Run(Box<RunSpec>),
    /// Bytes for rank 0's standard input, at most what [`Reply::InputCredit`] allowed.
    Input {
        bytes: Vec<u8>,
    },
    InputEnd,
    /// `bytes` of output of node `node` (index in the job) have been written out; as many more may come.
    Credit {
        node: u32,
        bytes: u32,
    },
    /// Stop the job of this connection.
    Stop(StopKind),
    Ps,
    Kill {
        job: JobId,
        kind: StopKind,
    },
    Nodes,
    /// Token with which another machine can join.
    Token,
    /// Take the daemon (or, with `all`, every daemon of the cluster) down.
    Down {
        all: bool,
    },
    /// For the controller, wherever it is.
    Queue(Box<QueueRequest>),
    /// Stop the daemon, which will be started again: queued jobs go on.
    Restart,
    /// What the ranks of a running job wait for.
    Why {
        job: JobId,
    },
}

/// From psid to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Welcome {
        version: u32,
        node: NodeId,
    },
    /// The request cannot be served; the text says why and what to do.
    Refused {
        why: String,
    },
    /// All ranks have been started.
    Started {
        job: JobId,
        nodes: Vec<String>,
    },
    /// Output of a rank. `more` means that the last line is not complete: no other rank's output of this stream may be
    /// written before the rest of it has come.
    Output {
        node: u32,
        rank: Rank,
        stream: Stream,
        more: bool,
        bytes: Vec<u8>,
    },
    /// The client may send so many more bytes of input.
    InputCredit {
        bytes: u32,
    },
    /// Rank 0 has closed its standard input or ended.
    InputClosed,
    Ended(Ended),
    Jobs(Vec<JobInfo>),
    Nodes(Vec<NodeInfo>),
    Token(String),
    Done,
    /// From the controller.
    Queue(Box<QueueReply>),
    /// Those ranks of the job that wait for something, as they say themselves.
    Why(Vec<WaitInfo>),
    /// Files that the job brings along are being looked at or are on their way.
    Staging,
    /// One line about the job of this connection that its user should know.
    Note {
        text: String,
    },
}

/// A job as asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    pub ranks: u32,
    /// Number of nodes, or as many as the ranks need.
    pub nodes: Option<u32>,
    /// Nodes by name; then `nodes` says nothing.
    pub hosts: Vec<Host>,
    pub timeout_ms: Option<u64>,
    /// The queued job in whose slots it runs.
    pub allocation: Option<JobId>,
    pub launch: LaunchSpec,
}

/// A node that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    /// Ranks there; else an even share.
    pub ranks: Option<u32>,
}

/// What every keeper needs to know to start its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Program and arguments; never empty.
    pub argv: Vec<Vec<u8>>,
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    pub cwd: Vec<u8>,
    pub umask: u32,
    pub limits: Vec<Limit>,
    pub pin: bool,
    /// Between SIGTERM and SIGKILL.
    pub kill_delay_ms: u64,
}

/// A resource limit (`RLIMIT_*` number of Linux), `None` = infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub resource: u32,
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    Out,
    Err,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopKind {
    /// SIGTERM, and SIGKILL after the kill delay.
    Gently,
    /// SIGKILL.
    AtOnce,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit status for the client.
    pub code: u8,
    /// One line for the user; none when every rank ended with 0.
    pub text: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    pub job: JobId,
    pub user: u32,
    pub command: String,
    pub ranks: u32,
    pub nodes: Vec<String>,
    pub age_ms: u64,
    pub processes: Vec<ProcessInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    pub rank: Rank,
    pub node: String,
    pub pid: u32,
    pub ended: Option<Gone>,
}

/// What a rank waits for, by its own word: nothing of it has been checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitInfo {
    pub rank: Rank,
    /// The function that it has called.
    pub call: String,
    /// The communicator.
    pub place: String,
    pub waited_ms: u64,
    /// Tells this wait of the rank from its others.
    pub stamp: u64,
    /// Ranks of the job that it waits for, perhaps not all.
    pub ranks: Vec<u32>,
    /// How many these are.
    pub count: u32,
    /// One of them is enough.
    pub any: bool,
    pub tag: Option<i32>,
    /// The same number for all that wait in one collective operation.
    pub meeting: Option<u64>,
}
