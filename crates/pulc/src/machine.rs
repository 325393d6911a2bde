//! `Pulc`: joining the job, and the view of it as one machine.

use crate::{Error, Mode, Port};
use pulc_base::metrics::DeviceCounters;
use pulc_base::{JobId, NodeId, NodeIndex, Rank};

/// This process's membership in its job. Cheap to clone; all clones share one engine.
#[derive(Clone)]
pub struct Pulc {}

/// A process of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    pub rank: Rank,
    pub node: NodeIndex,
}

/// A node of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub index: NodeIndex,
    pub id: NodeId,
    pub name: String,
}

/// What one device of this process has moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// "self", "shm" or "udp".
    pub device: &'static str,
    /// Messages handed to and taken from the device by the message handler.
    pub messages_sent: u64,
    pub messages_received: u64,
    /// Their bytes, without any header.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// What the device itself counts: frames, system calls, back-pressure.
    pub frames: DeviceCounters,
}

impl Pulc {
    /// Joins the job that this process was started in by `pulc run`; a process started by hand becomes rank 0 of 1. May be
    /// called any number of times: the process has one engine.
    ///
    /// # Errors
    /// [`Error::Attach`] when the keeper cannot be reached, refuses, or speaks another version; [`Error::Forked`] in a fork
    /// of an attached process.
    pub fn attach() -> Result<Pulc, Error> {
        unimplemented!()
    }

    pub fn rank(&self) -> Rank {
        unimplemented!()
    }

    /// Number of processes of the job.
    pub fn size(&self) -> u32 {
        unimplemented!()
    }

    /// The node this process runs on, as an index into [`Pulc::nodes`].
    pub fn node(&self) -> NodeIndex {
        unimplemented!()
    }

    pub fn job(&self) -> JobId {
        unimplemented!()
    }

    /// All processes of the job, by rank.
    pub fn tasks(&self) -> Vec<Task> {
        unimplemented!()
    }

    /// All nodes of the job, by index.
    pub fn nodes(&self) -> Vec<Node> {
        unimplemented!()
    }

    /// Opens an ordered port.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NameTaken`], [`Error::TooManyPorts`].
    pub fn open_port(&self, name: &str) -> Result<Port, Error> {
        self.open_port_with(name, Mode::Ordered)
    }

    /// Opens a port in either mode.
    pub fn open_port_with(&self, name: &str, mode: Mode) -> Result<Port, Error> {
        let _ = (name, mode);
        unimplemented!()
    }

    /// What each device has moved so far.
    pub fn counters(&self) -> Vec<Counters> {
        unimplemented!()
    }
}
