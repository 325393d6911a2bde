//! A node of the cluster as clients and the daemon's own rooms see it. Made by the daemon's mesh, shown by `pulc nodes`,
//! used by the launcher to place ranks. Plain data; never does I/O.

use pulc_base::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub id: NodeId,
    /// Chosen by its owner or the host name; for people only, never an identity.
    pub name: String,
    /// Where its daemon listens, the best way first; empty for a node that runs alone.
    pub addresses: Vec<SocketAddr>,
    pub state: NodeState,
    /// Whether this is the node that gave the answer.
    pub me: bool,
    pub cores: u32,
    /// Load average over one minute, in thousandths.
    pub load_milli: u32,
    /// Protocol version its daemon speaks.
    pub version: u32,
}

impl NodeInfo {
    /// The address under which other nodes reach this one (ranks bind their rails to it); loopback for a node alone.
    pub fn ip(&self) -> IpAddr {
        self.addresses.first().map_or(IpAddr::from([127, 0, 0, 1]), SocketAddr::ip)
    }
}

/// What this node believes of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeState {
    /// Known, not yet connected.
    Joining,
    Up,
    /// Its host answers but its daemon does not (stopped or starved): no new work, running jobs stay.
    Torpid,
    /// Up, but gets nothing new: an operator wants so.
    Draining,
    /// Lost; its jobs have been ended everywhere. Comes back by itself.
    Down,
    /// Stopped on purpose.
    Left,
}

impl NodeState {
    pub const fn word(self) -> &'static str {
        match self {
            NodeState::Joining => "joining",
            NodeState::Up => "up",
            NodeState::Torpid => "torpid",
            NodeState::Draining => "draining",
            NodeState::Down => "down",
            NodeState::Left => "left",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
