//! What the job room and the queue room of a daemon know of each other. Plain data; neither waits for the other.

use crate::queue::message::QueueStart;
use pulc_base::JobId;
use pulc_control::StopKind;
use pulc_control::queue::ClusterConfig;
use tokio::sync::mpsc;

/// The way to the queue room of the same daemon.
pub struct QueueLink {
    pub sender: mpsc::UnboundedSender<crate::queue::Event>,
    /// Where keepers of queued jobs find this daemon when it was started again.
    pub keepers_socket: String,
}

/// What the queue room tells this one.
pub enum QueueOrder {
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
    /// What is set for the cluster.
    Config(Box<ClusterConfig>),
    /// The end is on record.
    Seen(JobId),
}
