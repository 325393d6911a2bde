//! The mesh: every daemon of a cluster connected with every other one. Called by the daemon and by embedded psids; hands
//! messages to and from the rooms above (`jobs`). Ordered and at most once per connection; a lost connection is reported,
//! never papered over. Never looks inside a [`PeerMsg`].

mod accept;
pub mod address;
mod config;
mod connection;
mod dial;
mod fuzz;
#[cfg(test)]
mod hostile_tests;
mod hub;
mod join;
mod shared;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

pub use config::{DEFAULT_PORT, MeshConfig, PARAMS, VERSION, WITH_USERS_FILES, check_free};
pub(crate) use fuzz::{certificates as fuzz_certificates, frames as fuzz_frames};
pub use join::{Joined, join};

use crate::error::Error;
use crate::membership::Membership;
use crate::peer_message::PeerMsg;
use connection::Outbox;
use hub::{Hub, Input};
use pulc_base::NodeId;
pub use pulc_control::node::{NodeInfo, NodeState};
use shared::Shared;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

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

/// Messages of a node to itself that may wait.
const OWN_QUEUE: usize = 16 << 10;

/// Handle on the mesh of one node; clones share it. The mesh ends when [`Mesh::stop`] is called or the last handle goes.
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {
    me: NodeId,
    shared: Arc<Shared>,
    to_self: mpsc::Sender<PeerMsg>,
    /// None for a mesh of one node that listens nowhere.
    hub: Option<(mpsc::Sender<Input>, AbortHandle)>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.hub {
            task.abort();
        }
    }
}

impl Mesh {
    /// Starts listening and connecting. Must be called inside a tokio runtime. `events` should be bounded: while it is full
    /// the mesh stops reading from the peers whose messages do not fit (they are held back by TCP).
    ///
    /// # Errors
    /// If the listener or the identity can't be used.
    pub fn start(config: MeshConfig, events: mpsc::Sender<MeshEvent>) -> Result<Mesh, Error> {
        let me = config.me.id;
        let shared = Arc::new(Shared::new(config.me.clone()));
        let (to_self, mut own) = mpsc::channel(OWN_QUEUE);
        let own_events = events.clone();
        tokio::spawn(async move {
            while let Some(message) = own.recv().await {
                if own_events.send(MeshEvent::Message(me, message)).await.is_err() {
                    break;
                }
            }
        });
        let hub = match config.identity {
            None => None,
            Some(identity) => {
                let (inputs, from_all) = mpsc::channel(256);
                let (reports, from_conns) = mpsc::channel(256);
                let host = accept::Host {
                    tls: tls::Tls::of(&identity)?,
                    shared: shared.clone(),
                    session: u64::from_le_bytes(crate::identity::random()?),
                    version: config.me.version,
                    desk: config.desk.map(|state| join::Desk { state }),
                    hub: inputs.clone(),
                };
                let listener = config.listener.map(config::into_tokio).transpose()?;
                let core = Membership::new(config.me, config.timing);
                let hub = Hub::new(core, config.timing, config.limits, Arc::new(host), events, config.state, reports);
                let task = tokio::spawn(hub.run(listener, config.members, from_all, from_conns));
                Some((inputs, task.abort_handle()))
            }
        };
        Ok(Mesh { inner: Arc::new(Inner { me, shared, to_self, hub }) })
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.inner.me
    }

    /// Queues a message; a message to this node itself comes back as an event without touching the network. Never blocks.
    ///
    /// # Errors
    /// [`Error::QueueFull`] is back-pressure: nothing was queued, try later or use [`Mesh::send_wait`].
    pub fn send(&self, to: NodeId, message: PeerMsg) -> Result<(), Error> {
        if to == self.inner.me {
            return self.inner.to_self.try_send(message).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => Error::OwnQueueFull { limit: OWN_QUEUE },
                mpsc::error::TrySendError::Closed(_) => Error::MeshStopped,
            });
        }
        self.outbox(to)?.put(wire::encode(&wire::Frame::Peer(message))).map_err(|(error, _)| error)
    }

    /// Like [`Mesh::send`], waiting for room in the queue as long as the node is up.
    pub async fn send_wait(&self, to: NodeId, message: PeerMsg) -> Result<(), Error> {
        if to == self.inner.me {
            return self.inner.to_self.send(message).await.map_err(|_| Error::MeshStopped);
        }
        self.outbox(to)?.put_wait(wire::encode(&wire::Frame::Peer(message))).await
    }

    fn outbox(&self, to: NodeId) -> Result<Outbox, Error> {
        let missing = || if self.inner.shared.knows(to) { Error::NotConnected(to) } else { Error::UnknownNode(to) };
        self.inner.shared.outbox(to).ok_or_else(missing)
    }

    /// Every node ever known, this one first, then by name.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.inner.shared.nodes()
    }

    /// Load average of this node, in thousandths.
    pub fn load_milli(&self) -> u32 {
        self.inner.shared.load_milli()
    }

    /// Says which nodes get nothing new; they are shown as draining.
    pub fn set_drained(&self, nodes: &std::collections::BTreeSet<NodeId>) {
        self.inner.shared.set_drained(nodes);
    }

    /// Sends what is queued (for a bounded time), says good-bye to all peers and closes every connection.
    pub async fn stop(&self) {
        if let Some((hub, task)) = &self.inner.hub {
            let (done, stopped) = oneshot::channel();
            if hub.send(Input::Stop { done }).await.is_ok() {
                let _ = stopped.await;
            }
            task.abort();
        }
    }
}
