//! What the membership machine is told and what it answers, and what it goes by. Plain data, filled in and carried out by the mesh; never
//! decides anything.

use crate::mesh::DownWhy;
use pulc_base::NodeId;
use pulc_base::clock::Nanos;
use pulc_control::node::NodeInfo;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What a node tells others about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub id: NodeId,
    pub name: String,
    pub addresses: Vec<SocketAddr>,
    pub cores: u32,
    pub version: u32,
}

/// Number of a connection, unique in one daemon's life.
pub type ConnId = u64;

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two signs of life of a node and one that watches it.
    pub beat: Nanos,
    /// How often [`Event::Tick`] comes.
    pub tick: Nanos,
    /// Silence after which a node is torpid.
    pub torpid_after: Nanos,
    /// Silence of daemon and host after which a node is down.
    pub dead_after: Nanos,
    /// Silence of the daemon alone after which a node is down.
    pub stopped_after: Nanos,
    pub redial_min: Nanos,
    pub redial_max: Nanos,
    pub members_max: usize,
    /// Others that a node watches.
    pub watch: usize,
    /// At the latest after this time something is wanted to be heard of each of the others too.
    pub round_max: Nanos,
}

#[derive(Clone, Debug)]
pub enum Event {
    Tick,
    /// Someone connected and proved who it is; answered by `Admit` or `Refuse`.
    Incoming {
        conn: ConnId,
        member: Member,
        session: u64,
    },
    /// Our dial was answered with a welcome.
    Dialed {
        conn: ConnId,
        member: Member,
        session: u64,
    },
    DialFailed {
        id: NodeId,
        busy: bool,
    },
    /// Bytes came in at `at`.
    Heard {
        conn: ConnId,
        at: Nanos,
    },
    /// A sign of life came that says so.
    Beat {
        conn: ConnId,
        load_milli: u32,
        /// One in return is wanted.
        answer: bool,
    },
    /// One of the others has not heard of these for a while.
    Missed {
        ids: Vec<NodeId>,
    },
    /// The peer's kernel has not acknowledged what we sent for this long (zero: all is well).
    Unacknowledged {
        conn: ConnId,
        during: Nanos,
    },
    Lost {
        conn: ConnId,
        why: DownWhy,
    },
    /// `at_once`: call them without giving them a head start, for a node that comes (back) to a running cluster.
    Learned {
        members: Vec<Member>,
        at_once: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is a connection already, or a dial in the other direction has precedence; try again.
    Busy,
    /// The caller uses the identity of the node it called.
    SameIdentity,
    /// The table of members is full.
    Full,
    /// The token's secret is unknown, revoked or expired.
    WrongToken,
    /// Only the node that founded the cluster admits new ones.
    NotFounder,
    /// No certificate of this cluster was shown.
    Stranger,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Dial {
        id: NodeId,
        addresses: Vec<SocketAddr>,
    },
    CancelDial {
        id: NodeId,
    },
    Admit {
        conn: ConnId,
        info: NodeInfo,
    },
    Refuse {
        conn: ConnId,
        why: Refusal,
    },
    Close {
        conn: ConnId,
        why: DownWhy,
    },
    SendMembers {
        conn: ConnId,
        members: Vec<Member>,
    },
    /// Say something there; with `answer`, something is to be said in return.
    Beat {
        conn: ConnId,
        answer: bool,
    },
    /// Tell this one who is missed.
    SendMissed {
        conn: ConnId,
        ids: Vec<NodeId>,
    },
    /// The set of known members has changed.
    Remember,
}
