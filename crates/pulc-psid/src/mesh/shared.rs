//! What the hub and the handles on a mesh both see: the table of nodes and where to queue messages. Written by the hub, read by
//! everybody; no lock is held across an await.

use super::connection::Outbox;
use super::{NodeInfo, NodeState};
use crate::membership::{ConnId, Member};
use pulc_base::NodeId;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct Shared {
    inner: Mutex<Inner>,
}

struct Inner {
    me: Member,
    load_milli: u32,
    others: Vec<NodeInfo>,
    members: Vec<Member>,
    outboxes: HashMap<NodeId, (ConnId, Outbox)>,
    /// Nodes that get nothing new.
    drained: BTreeSet<NodeId>,
}

impl Shared {
    pub(crate) fn new(me: Member) -> Shared {
        let members = vec![me.clone()];
        Shared {
            inner: Mutex::new(Inner {
                me,
                load_milli: 0,
                others: Vec::new(),
                members,
                outboxes: HashMap::new(),
                drained: BTreeSet::new(),
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn me(&self) -> Member {
        self.inner().me.clone()
    }

    pub(crate) fn set_me(&self, me: Member) {
        self.inner().me = me;
    }

    pub(crate) fn set_load(&self, load_milli: u32) {
        self.inner().load_milli = load_milli;
    }

    pub(crate) fn load_milli(&self) -> u32 {
        self.inner().load_milli
    }

    /// Every member that others could be told about, this node first.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.inner().members.clone()
    }

    pub(crate) fn set_members(&self, members: Vec<Member>) {
        self.inner().members = members;
    }

    pub(crate) fn set_others(&self, others: Vec<NodeInfo>) {
        self.inner().others = others;
    }

    /// This node first, the others by name.
    pub(crate) fn nodes(&self) -> Vec<NodeInfo> {
        let inner = self.inner();
        let me = NodeInfo {
            id: inner.me.id,
            name: inner.me.name.clone(),
            addresses: inner.me.addresses.clone(),
            state: NodeState::Up,
            me: true,
            cores: inner.me.cores,
            load_milli: inner.load_milli,
            version: inner.me.version,
        };
        let mut nodes = inner.others.clone();
        nodes.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        nodes.insert(0, me);
        for node in nodes.iter_mut().filter(|node| node.state == NodeState::Up && inner.drained.contains(&node.id)) {
            node.state = NodeState::Draining;
        }
        nodes
    }

    pub(crate) fn set_drained(&self, nodes: &BTreeSet<NodeId>) {
        self.inner().drained.clone_from(nodes);
    }

    pub(crate) fn knows(&self, id: NodeId) -> bool {
        self.inner().others.iter().any(|node| node.id == id)
    }

    pub(crate) fn outbox(&self, id: NodeId) -> Option<Outbox> {
        self.inner().outboxes.get(&id).map(|(_, outbox)| outbox.clone())
    }

    pub(crate) fn open(&self, id: NodeId, conn: ConnId, outbox: Outbox) {
        self.inner().outboxes.insert(id, (conn, outbox));
    }

    pub(crate) fn close(&self, id: NodeId, conn: ConnId) {
        let mut inner = self.inner();
        if inner.outboxes.get(&id).is_some_and(|(current, _)| *current == conn) {
            inner.outboxes.remove(&id);
        }
    }
}
