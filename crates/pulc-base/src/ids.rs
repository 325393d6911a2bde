//! Newtypes for every id, so that a rank is never taken for a node. Used by all floors; never does I/O.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A job, unique in a cluster for its lifetime: the upper bits are random, so two private daemons never collide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// A process of a job, 0..size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Rank(pub u32);

/// Position of a node in one job's node list, 0..nodes (a "virtual node" bound to a [`NodeId`] at launch).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct NodeIndex(pub u32);

/// Identity of a node in the cluster: the first 16 bytes of the SHA-256 of its public key. Never derived from a host name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub [u8; 16]);

/// Protocol number carried by every message; the handler's protocol switch dispatches on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Proto(pub u8);

impl Proto {
    /// The handler's own messages (rendezvous, peer state).
    pub const CONTROL: Proto = Proto(0);
    pub const RAWDATA: Proto = Proto(1);
    pub const PORT: Proto = Proto(2);
    pub const AM: Proto = Proto(3);
    pub const SOCKET: Proto = Proto(4);
    pub const MPI: Proto = Proto(5);
    pub const PVM: Proto = Proto(6);
    pub const DSM: Proto = Proto(7);
    /// Number of entries in the protocol switch.
    pub const COUNT: usize = 8;
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}
