//! Who is in the cluster and who is up: a state machine without sockets and without a clock. The mesh feeds it what happened and when, and
//! carries out the actions it answers with; so do its tests, with time of their own making.
//!
//! Two nodes may dial each other at the same moment; the dial of the smaller id wins. Death has two signs that must both be there: the
//! daemon is silent *and* its host's kernel acknowledges nothing. A daemon that is only silent (stopped, starved) is *torpid* for a
//! long time before it is given up. A node that was itself asleep blames nobody for the silence it slept through. Who looks for whose signs
//! is said in `watch`.

mod event;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod tests;
mod watch;
#[cfg(test)]
mod watch_tests;

pub use event::{Action, ConnId, Event, Member, Refusal, Timing};

use crate::mesh::DownWhy;
use pulc_base::NodeId;
use pulc_base::clock::Nanos;
use pulc_control::node::{NodeInfo, NodeState};
use std::collections::{BTreeMap, HashMap};

pub struct Membership {
    me: Member,
    timing: Timing,
    nodes: BTreeMap<NodeId, Node>,
    conns: HashMap<ConnId, NodeId>,
    last_tick: Option<Nanos>,
    /// Connections have come or gone since the neighbours were chosen.
    ring_is_stale: bool,
    /// How many are watched.
    watched: usize,
    /// When everybody may be looked at again.
    next_look_round: Nanos,
    /// What [`Membership::others`] says is not what it said when it was asked last, but for loads.
    changed: bool,
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
    Up(Live),
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Live {
    conn: ConnId,
    session: u64,
    signs: watch::Signs,
}

impl Membership {
    pub fn new(me: Member, timing: Timing) -> Membership {
        Membership {
            me,
            timing,
            nodes: BTreeMap::new(),
            conns: HashMap::new(),
            last_tick: None,
            ring_is_stale: false,
            watched: 0,
            next_look_round: Nanos(0),
            changed: false,
        }
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
                if let Some(live) = self.live_of(conn) {
                    live.signs.heard = at.max(live.signs.heard);
                }
            }
            Event::Beat { conn, load_milli, answer } => self.beat_came(now, conn, load_milli, answer, &mut actions),
            Event::Missed { ids } => self.missed_elsewhere(now, &ids, &mut actions),
            Event::Unacknowledged { conn, during } => {
                if let Some(live) = self.live_of(conn) {
                    live.signs.unacknowledged = during;
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

    /// Whether what [`Membership::others`] says has changed since this was asked last, but for loads.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Everybody this node could tell others about, itself first.
    pub fn members(&self) -> Vec<Member> {
        std::iter::once(&self.me).chain(self.nodes.values().map(|node| &node.member)).cloned().collect()
    }

    fn node_of(&mut self, conn: ConnId) -> Option<&mut Node> {
        let node = self.nodes.get_mut(self.conns.get(&conn)?)?;
        node.live().is_some_and(|live| live.conn == conn).then_some(node)
    }

    fn live_of(&mut self, conn: ConnId) -> Option<&mut Live> {
        self.node_of(conn)?.live_mut()
    }

    fn tick(&mut self, now: Nanos, actions: &mut Vec<Action>) {
        let slept = self.last_tick.map_or(Nanos(0), |last| now.since(last).since(self.timing.tick));
        let slept = if slept > self.timing.tick { slept } else { Nanos(0) };
        self.last_tick = Some(now);
        self.judge(now, slept, actions);
        for (id, node) in &mut self.nodes {
            let is_due = node.state != NodeState::Left && now >= node.next_dial && !node.member.addresses.is_empty();
            if node.link == Link::None && is_due {
                node.link = Link::Dialing;
                actions.push(Action::Dial { id: *id, addresses: node.member.addresses.clone() });
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
            Some(Link::Up(Live { conn: old, session: old_session, signs })) => {
                // Our dial may have been answered while the other side's was under way: the connection that lives stays. If the other
                // side does not know it any more, it will not answer there.
                if old_session == session && signs.silent(now) < self.timing.beat + self.timing.beat {
                    self.ask_again(now, member.id, actions);
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
        let link = Link::Up(Live { conn, session, signs: watch::Signs::new(now) });
        let node = Node { member, state: NodeState::Up, load_milli: 0, link, backoff, next_dial: now };
        actions.push(Action::Admit { conn, info: node.info() });
        actions.push(Action::SendMembers { conn, members: self.members() });
        if is_news {
            self.spread(&node.member, actions);
        }
        self.nodes.insert(id, node);
        self.conns.insert(conn, id);
        (self.ring_is_stale, self.changed) = (true, true);
    }

    /// Tells everyone connected about one member.
    fn spread(&self, member: &Member, actions: &mut Vec<Action>) {
        for node in self.nodes.values() {
            if let Some(live) = node.live().filter(|_| node.member.id != member.id) {
                actions.push(Action::SendMembers { conn: live.conn, members: vec![member.clone()] });
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
            self.changed |= std::mem::replace(&mut node.state, NodeState::Down) != NodeState::Down;
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
        (self.ring_is_stale, self.changed) = (true, true);
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
                Some(node) if node.live().is_some() || node.member == member => continue,
                Some(node) => {
                    node.member = member;
                    self.changed = true;
                    actions.push(Action::Remember);
                }
                None if full => left_out += 1,
                None => {
                    self.spread(&member, actions);
                    let next_dial = if at_once { now } else { now + self.dial_delay(member.id) };
                    let (state, link) = (NodeState::Joining, Link::None);
                    let node = Node { state, load_milli: 0, link, backoff: self.timing.redial_min, next_dial, member };
                    self.nodes.insert(node.member.id, node);
                    self.changed = true;
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

impl Link {
    fn live_mut(&mut self) -> Option<&mut Live> {
        match self {
            Link::Up(live) => Some(live),
            Link::None | Link::Dialing => None,
        }
    }
}

impl Node {
    fn live(&self) -> Option<&Live> {
        match &self.link {
            Link::Up(live) => Some(live),
            Link::None | Link::Dialing => None,
        }
    }

    fn live_mut(&mut self) -> Option<&mut Live> {
        self.link.live_mut()
    }

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
