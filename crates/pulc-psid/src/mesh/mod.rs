//! The mesh: every daemon of a cluster connected with every other one. Called by the daemon and by embedded psids; hands
//! messages to and from the rooms above (`jobs`). Ordered and at most once per connection; a lost connection is reported,
//! never papered over. Never looks inside a [`PeerMsg`].

use crate::error::Error;
use crate::peer_message::PeerMsg;
use pulc_base::NodeId;
pub use pulc_control::node::{NodeInfo, NodeState};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Reported to whoever started the mesh. For one node: `Up`, then messages, then `Down`, possibly again.
#[derive(Clone, Debug)]
pub enum MeshEvent {
    /// A node (never this one) can be sent to.
    Up(NodeInfo),
    /// A node is lost: nothing more will come from it, and what was sent to it may or may not have arrived.
    Down(NodeId, DownWhy),
    Message(NodeId, PeerMsg),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownWhy {
    /// It said good-bye.
    Left,
    /// The connection was closed or reset: its daemon ended.
    Closed,
    /// Nothing was heard from it for too long: link cut, host lost, or daemon stopped.
    Silent,
    /// Its daemon was restarted: the old one is gone, `Up` of the new one follows.
    Restarted,
    /// It sent what no daemon sends.
    BrokenRules,
}

pub struct MeshConfig {
    pub name: String,
    pub id: NodeId,
}

impl MeshConfig {
    /// A mesh of one node that listens nowhere: the embedded psid of `pulc run`.
    pub fn alone(name: &str, id: NodeId) -> MeshConfig {
        MeshConfig { name: name.to_owned(), id }
    }
}

/// Handle on the mesh of one node; clones share it. The mesh ends when [`Mesh::stop`] is called.
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {
    me: NodeInfo,
    to_self: mpsc::UnboundedSender<PeerMsg>,
}

impl Mesh {
    /// Starts listening and connecting. Must be called inside a tokio runtime. `events` should be bounded: while it is full
    /// the mesh stops reading from the peers whose messages do not fit (they are held back by TCP).
    ///
    /// # Errors
    /// If the listener can't be used.
    pub fn start(config: MeshConfig, events: mpsc::Sender<MeshEvent>) -> Result<Mesh, Error> {
        let me = NodeInfo {
            id: config.id,
            name: config.name,
            addresses: Vec::new(),
            state: NodeState::Up,
            me: true,
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            load_milli: 0,
            version: pulc_base::PROTOCOL_VERSION,
        };
        let (to_self, mut own) = mpsc::unbounded_channel();
        let id = config.id;
        tokio::spawn(async move {
            while let Some(message) = own.recv().await {
                if events.send(MeshEvent::Message(id, message)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Mesh { inner: Arc::new(Inner { me, to_self }) })
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.inner.me.id
    }

    /// Queues a message; a message to this node itself comes back as an event without touching the network. Never blocks.
    ///
    /// # Errors
    /// [`Error::QueueFull`] is back-pressure: nothing was queued, try later or use [`Mesh::send_wait`].
    pub fn send(&self, to: NodeId, message: PeerMsg) -> Result<(), Error> {
        if to == self.me() {
            return self.inner.to_self.send(message).map_err(|_| Error::MeshStopped);
        }
        Err(Error::UnknownNode(to))
    }

    /// Like [`Mesh::send`], waiting for room in the queue as long as the node is up.
    pub async fn send_wait(&self, to: NodeId, message: PeerMsg) -> Result<(), Error> {
        self.send(to, message)
    }

    /// Every node ever known, this one first, then by name.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        vec![self.inner.me.clone()]
    }

    /// Says good-bye to all peers and closes every connection.
    pub async fn stop(&self) {}
}
