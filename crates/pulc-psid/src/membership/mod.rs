//! Who is in the cluster and who is up: a state machine without sockets and without a clock. The mesh feeds it what happened and when, and
//! carries out the actions it answers with; so do its tests, with time of their own making.
//!
//! Two nodes may dial each other at the same moment; the dial of the smaller id wins. Death has two signs that must both be there: the
//! daemon is silent *and* its host's kernel acknowledges nothing. A daemon that is only silent (stopped, starved) is *torpid* for a
//! long time before it is given up. A node that was itself asleep blames nobody for the silence it slept through.

#[cfg(test)]
mod scale;
#[cfg(test)]
mod tests;

use crate::mesh::DownWhy;
use pulc_base::NodeId;
use pulc_base::clock::Nanos;
use pulc_control::node::{NodeInfo, NodeState};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
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
    /// Between two signs of life on an idle connection.
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
    Load {
        conn: ConnId,
        load_milli: u32,
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
    /// The set of known members has changed.
    Remember,
}

pub struct Membership {
    me: Member,
    timing: Timing,
    nodes: BTreeMap<NodeId, Node>,
    conns: HashMap<ConnId, NodeId>,
    last_tick: Option<Nanos>,
}

struct Node {
    member: Member,
    state: NodeState,
    load_milli: u32,
    link: Link,
    backoff: Nanos,
    next_dial: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    None,
    Dialing,
    Up { conn: ConnId, session: u64, heard: Nanos, unacknowledged: Nanos },
}

impl Membership {
    pub fn new(me: Member, timing: Timing) -> Membership {
        Membership { me, timing, nodes: BTreeMap::new(), conns: HashMap::new(), last_tick: None }
    }

    pub fn step(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Tick => self.tick(now, &mut actions),
            Event::Incoming { conn, member, session } => self.incoming(now, conn, member, session, &mut actions),
            Event::Dialed { conn, member, session } => match self.nodes.get(&member.id) {
                Some(node) if node.link == Link::Dialing => self.admit(now, conn, member, session, &mut actions),
                _ => actions.push(Action::Close { conn, why: DownWhy::Closed }),
            },
            Event::DialFailed { id, busy } => self.dial_failed(now, id, busy),
            Event::Heard { conn, at } => {
                if let Some(Node { link: Link::Up { heard, .. }, .. }) = self.node_of(conn) {
                    *heard = at.max(*heard);
                }
            }
            Event::Load { conn, load_milli } => {
                if let Some(node) = self.node_of(conn) {
                    node.load_milli = load_milli;
                }
            }
            Event::Unacknowledged { conn, during } => {
                if let Some(Node { link: Link::Up { unacknowledged, .. }, .. }) = self.node_of(conn) {
                    *unacknowledged = during;
                }
            }
            Event::Lost { conn, why } => self.lost(now, conn, why),
            Event::Learned { members, at_once } => self.learn(now, members, at_once, &mut actions),
        }
        actions
    }

    /// Everybody but this node, by id.
    pub fn others(&self) -> impl Iterator<Item = NodeInfo> {
        self.nodes.values().map(Node::info)
    }

    /// Everybody this node could tell others about, itself first.
    pub fn members(&self) -> Vec<Member> {
        std::iter::once(&self.me).chain(self.nodes.values().map(|node| &node.member)).cloned().collect()
    }

    fn node_of(&mut self, conn: ConnId) -> Option<&mut Node> {
        let node = self.nodes.get_mut(self.conns.get(&conn)?)?;
        matches!(node.link, Link::Up { conn: current, .. } if current == conn).then_some(node)
    }

    fn tick(&mut self, now: Nanos, actions: &mut Vec<Action>) {
        let slept = self.last_tick.map_or(Nanos(0), |last| now.since(last).since(self.timing.tick));
        let slept = if slept > self.timing.tick { slept } else { Nanos(0) };
        self.last_tick = Some(now);
        for (id, node) in &mut self.nodes {
            match &mut node.link {
                Link::Up { conn, heard, unacknowledged, .. } => {
                    if slept > Nanos(0) {
                        *heard = (*heard + slept).min(now);
                        *unacknowledged = Nanos(0);
                    }
                    let silent = now.since(*heard);
                    let host_gone = unacknowledged.0 >= self.timing.dead_after.0 / 2;
                    if silent >= self.timing.stopped_after || (silent >= self.timing.dead_after && host_gone) {
                        actions.push(Action::Close { conn: *conn, why: DownWhy::Silent });
                    } else {
                        node.state = if silent >= self.timing.torpid_after { NodeState::Torpid } else { NodeState::Up };
                    }
                }
                Link::None
                    if node.state != NodeState::Left && now >= node.next_dial && !node.member.addresses.is_empty() =>
                {
                    node.link = Link::Dialing;
                    actions.push(Action::Dial { id: *id, addresses: node.member.addresses.clone() });
                }
                Link::None | Link::Dialing => {}
            }
        }
        for action in actions {
            if let Action::Close { conn, why } = *action {
                self.lost(now, conn, why);
            }
        }
    }

    fn incoming(&mut self, now: Nanos, conn: ConnId, member: Member, session: u64, actions: &mut Vec<Action>) {
        if member.id == self.me.id {
            return actions.push(Action::Refuse { conn, why: Refusal::SameIdentity });
        }
        match self.nodes.get(&member.id).map(|node| node.link) {
            None if self.nodes.len() >= self.timing.members_max => {
                return actions.push(Action::Refuse { conn, why: Refusal::Full });
            }
            Some(Link::Dialing) if self.me.id < member.id => {
                return actions.push(Action::Refuse { conn, why: Refusal::Busy });
            }
            Some(Link::Dialing) => actions.push(Action::CancelDial { id: member.id }),
            Some(Link::Up { conn: old, session: old_session, heard, .. }) => {
                // Our dial may have been answered while the other side's was under way: the connection that lives stays.
                if old_session == session && now.since(heard) < self.timing.beat + self.timing.beat {
                    return actions.push(Action::Refuse { conn, why: Refusal::Busy });
                }
                let why = if old_session == session { DownWhy::Closed } else { DownWhy::Restarted };
                actions.push(Action::Close { conn: old, why });
                self.lost(now, old, why);
            }
            None | Some(Link::None) => {}
        }
        self.admit(now, conn, member, session, actions);
    }

    fn admit(&mut self, now: Nanos, conn: ConnId, member: Member, session: u64, actions: &mut Vec<Action>) {
        let id = member.id;
        let is_news = self.nodes.get(&id).is_none_or(|node| node.member != member);
        let backoff = self.timing.redial_min;
        let link = Link::Up { conn, session, heard: now, unacknowledged: Nanos(0) };
        let node = Node { member, state: NodeState::Up, load_milli: 0, link, backoff, next_dial: now };
        actions.push(Action::Admit { conn, info: node.info() });
        actions.push(Action::SendMembers { conn, members: self.members() });
        if is_news {
            self.spread(&node.member, actions);
        }
        self.nodes.insert(id, node);
        self.conns.insert(conn, id);
    }

    /// Tells everyone connected about one member.
    fn spread(&self, member: &Member, actions: &mut Vec<Action>) {
        for node in self.nodes.values() {
            if let Link::Up { conn, .. } = node.link
                && node.member.id != member.id
            {
                actions.push(Action::SendMembers { conn, members: vec![member.clone()] });
            }
        }
        actions.push(Action::Remember);
    }

    fn dial_failed(&mut self, now: Nanos, id: NodeId, busy: bool) {
        let redial_max = self.timing.redial_max;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.link != Link::Dialing {
            return;
        }
        node.link = Link::None;
        node.next_dial = now + node.backoff;
        if !busy {
            node.backoff = (node.backoff + node.backoff).min(redial_max);
            node.state = NodeState::Down;
        }
    }

    fn lost(&mut self, now: Nanos, conn: ConnId, why: DownWhy) {
        let delay = self.dial_delay_of(conn);
        let backoff = self.timing.redial_min;
        if let Some(node) = self.node_of(conn) {
            node.link = Link::None;
            node.state = if why == DownWhy::Left { NodeState::Left } else { NodeState::Down };
            node.load_milli = 0;
            node.backoff = backoff;
            node.next_dial = now + delay;
        }
        self.conns.remove(&conn);
    }

    /// The smaller id dials first, the other gives it a head start.
    fn dial_delay(&self, id: NodeId) -> Nanos {
        if self.me.id < id { Nanos(0) } else { self.timing.redial_min }
    }

    fn dial_delay_of(&self, conn: ConnId) -> Nanos {
        self.conns.get(&conn).map_or(Nanos(0), |id| self.dial_delay(*id) + self.timing.redial_min)
    }

    fn learn(&mut self, now: Nanos, members: Vec<Member>, at_once: bool, actions: &mut Vec<Action>) {
        let mut left_out = 0;
        for mut member in members {
            member.addresses = crate::identity::limit_addresses(member.addresses);
            if member.id == self.me.id {
                continue;
            }
            let full = self.nodes.len() >= self.timing.members_max;
            match self.nodes.get_mut(&member.id) {
                // Only a node itself says where it is while it is connected.
                Some(node) if matches!(node.link, Link::Up { .. }) || node.member == member => continue,
                Some(node) => {
                    node.member = member;
                    actions.push(Action::Remember);
                }
                None if full => left_out += 1,
                None => {
                    self.spread(&member, actions);
                    let next_dial = if at_once { now } else { now + self.dial_delay(member.id) };
                    let (state, link) = (NodeState::Joining, Link::None);
                    let node = Node { state, load_milli: 0, link, backoff: self.timing.redial_min, next_dial, member };
                    self.nodes.insert(node.member.id, node);
                }
            }
        }
        if left_out > 0 {
            pulc_base::log!(
                Warn,
                "membership",
                "{left_out} nodes are left out: {} are known, the limit (mesh_members_max)",
                self.nodes.len()
            );
        }
    }
}

impl Node {
    fn info(&self) -> NodeInfo {
        NodeInfo {
            id: self.member.id,
            name: self.member.name.clone(),
            addresses: self.member.addresses.clone(),
            state: self.state,
            me: false,
            cores: self.member.cores,
            load_milli: self.load_milli,
            version: self.member.version,
        }
    }
}
