//! What psid and a keeper say to each other over the socket pair made when the keeper is started, or over the line that the keeper of a
//! queued job has opened to a psid that was started again; framed like the client protocol. Both sides trust each other (same user,
//! same binary), yet decode with the same care. Variants are only ever appended: psid may be newer than its keepers.

use pulc_base::boot::{Boot, Gone, JobSecret};
use pulc_base::{JobId, NodeId, Rank};
use pulc_control::queue::{Files, Used};
use pulc_control::{LaunchSpec, StopKind, Stream, WaitInfo};
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
    /// Output of another node's ranks, for the files of a queued job.
    Write {
        node: u32,
        at: u64,
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The first node has written all output before this byte.
    Acked {
        upto: u64,
    },
    /// The first node may not have got what was sent: send again what it has not written.
    Resend,
    /// Stand still, or go on.
    Freeze {
        still: bool,
    },
    /// The end of the job is on record: the keeper of a queued job may go.
    Dismiss,
    /// Say what the ranks wait for, and this number with it. Only to keepers of this psid's own binary: others end the line at a word
    /// that they don't know.
    Look {
        number: u64,
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
    /// Of a queued job: its keepers outlive psid.
    pub stays: Option<Stay>,
    /// The program where it is on this node, if it was brought along.
    pub program: Option<Vec<u8>>,
    /// Directory of the job that is in use as long as the keeper lives.
    pub room: Option<Vec<u8>>,
    /// What the job leaves there goes back to its home: the directory stays until psid has dismissed the keeper, or is gone.
    pub returns: bool,
    /// Somebody works at this node: the processes get only what nobody else wants.
    pub lowly: bool,
}

/// How a keeper goes on without psid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stay {
    /// Abstract address, or path, at which a psid that was started again is found.
    pub socket: String,
    /// What that one has to be told about the job; the keeper does not look inside.
    pub memo: Vec<u8>,
    /// On the job's first node: where output goes.
    pub files: Option<Files>,
    /// Keep what is in the files: this is not the first attempt.
    pub append: bool,
    /// The text of the job's script, which is started with the arguments behind the first.
    pub script: Option<Vec<u8>>,
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
    /// `at` counts the bytes before it, in a queued job.
    Output {
        at: u64,
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
    /// All output of that node before this byte is in the job's files.
    Wrote {
        node: u32,
        upto: u64,
    },
    Frozen {
        still: bool,
    },
    /// What the processes have used; comes before [`Report::Clean`].
    Used(Used),
    /// The first word on a line that a keeper has opened.
    Back(Box<Back>),
    /// What the ranks wait for that wait for something.
    Looked {
        number: u64,
        waits: Vec<WaitInfo>,
    },
    /// After [`Report::Back`]: the keeper understands the orders of this version of [`ORDERS`].
    Knows {
        orders: u32,
    },
    /// After [`Report::Back`]: where the first of the ranks here is reached by those of other nodes.
    Reached {
        at: IpAddr,
    },
    /// These processes do not end even by SIGKILL; the text names them. [`Report::Clean`] comes when they have.
    Stuck {
        text: String,
    },
}

/// Counts up with every order that is added.
pub const ORDERS: u32 = 1;

/// All that a keeper has reported so far, for a psid that was started again.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Back {
    pub job: u64,
    pub memo: Vec<u8>,
    pub pids: Vec<u32>,
    pub ended: Vec<(Rank, Gone)>,
    pub failed: Option<String>,
    pub abort: Option<(Rank, u8, String)>,
    pub still: bool,
    pub clean: bool,
    pub used: Used,
}
