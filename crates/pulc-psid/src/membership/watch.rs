//! Who looks at whom, and what is concluded: the part of the membership machine that judges silence. Called by `membership` with every
//! tick and every sign. Never touches links but to look at them: who is lost is decided here and carried out there.
//!
//! Each node *watches* some others, its neighbours on the ring of ids, and says something to them every second. Where there are few nodes
//! these are all. The others it *asks* only where there is a reason: somebody misses one of them, a round is due, or it may be itself that
//! is cut off. Who misses a neighbour tells all, and everybody judges by its own connection: a word alone ends nobody.

use super::{Action, ConnId, DownWhy, Membership, Node, NodeState};
use pulc_base::NodeId;
use pulc_base::clock::Nanos;

/// Ticks of silence beyond a beat after which a neighbour is missed.
const MISSED_TICKS: u64 = 3;
/// Beats after which who does not answer is asked again. The host's kernel must be given something to acknowledge.
const AGAIN_BEATS: u64 = 3;
/// A round over those that are not watched costs this part of what watching costs, unless it would take longer than `round_max`.
const ROUND_SHARE: u64 = 4;

/// What is known of the signs of life on one connection, and which are due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Signs {
    pub(super) heard: Nanos,
    pub(super) unacknowledged: Nanos,
    /// When something was said to it last.
    spoke: Nanos,
    /// Silence before this is nobody's fault: no sign was due.
    since: Nanos,
    watched: bool,
    /// It was asked then, and has not answered.
    asked: Option<Nanos>,
    /// When all were told that it is missed, unless it has been heard since.
    told: Option<Nanos>,
    next_round: Nanos,
}

impl Signs {
    /// Of a new connection: the first sign is due at once.
    pub(super) fn new(now: Nanos) -> Signs {
        Signs {
            heard: now,
            unacknowledged: Nanos(0),
            spoke: now,
            since: now,
            watched: false,
            asked: Some(now),
            told: None,
            next_round: now,
        }
    }

    fn is_looked_at(&self) -> bool {
        self.watched || self.asked.is_some()
    }

    /// For how long signs have been due that did not come.
    pub(super) fn silent(&self, now: Nanos) -> Nanos {
        if self.is_looked_at() { now.since(self.heard.max(self.since)) } else { Nanos(0) }
    }

    /// From now on a sign is due; silence counts from `since`, or from before.
    fn ask(&mut self, conn: ConnId, now: Nanos, since: Nanos, actions: &mut Vec<Action>) {
        if self.is_looked_at() {
            self.since = self.since.min(since);
            return;
        }
        (self.asked, self.since, self.spoke) = (Some(now), since, now);
        self.unacknowledged = Nanos(0);
        actions.push(Action::Beat { conn, answer: true });
    }

    /// This node itself was asleep: nobody is blamed for what was not heard meanwhile.
    fn slept(&mut self, now: Nanos, slept: Nanos) {
        self.since = (self.heard.max(self.since) + slept).min(now);
        self.unacknowledged = Nanos(0);
    }

    /// What is over when it has answered.
    fn answered(&mut self, round: Nanos) {
        if self.asked.is_some_and(|at| self.heard >= at) {
            self.asked = None;
            self.next_round = self.heard + round;
        }
    }
}

impl Membership {
    /// Connections of which [`super::Event::Heard`] and [`super::Event::Unacknowledged`] are wanted before the next [`super::Event::Tick`].
    pub fn looks_at(&self, now: Nanos) -> impl Iterator<Item = ConnId> {
        self.nodes
            .values()
            .filter_map(Node::live)
            .filter(move |live| live.signs.is_looked_at() || now >= live.signs.next_round)
            .map(|live| live.conn)
    }

    /// A sign of life of this node is wanted there whatever else is said.
    pub(super) fn ask_again(&mut self, now: Nanos, id: NodeId, actions: &mut Vec<Action>) {
        if let Some(live) = self.nodes.get_mut(&id).and_then(Node::live_mut) {
            live.signs.ask(live.conn, now, now, actions);
        }
    }

    pub(super) fn beat_came(
        &mut self,
        now: Nanos,
        conn: ConnId,
        load_milli: u32,
        answer: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(node) = self.node_of(conn) else { return };
        node.load_milli = load_milli;
        if let Some(live) = node.live_mut().filter(|_| answer) {
            live.signs.spoke = now;
            actions.push(Action::Beat { conn, answer: false });
        }
    }

    /// Somebody has missed these for a while: they are asked, and so much of their silence is believed.
    pub(super) fn missed_elsewhere(&mut self, now: Nanos, ids: &[NodeId], actions: &mut Vec<Action>) {
        let since = now - (self.missed_after() + self.timing.tick);
        for id in ids {
            if let Some(live) = self.nodes.get_mut(id).and_then(Node::live_mut) {
                live.signs.told = Some(now);
                live.signs.ask(live.conn, now, since, actions);
            }
        }
    }

    /// Looks at everybody who is to be looked at; pushes who is given up, what is to be said and whom to miss.
    pub(super) fn judge(&mut self, now: Nanos, slept: Nanos, actions: &mut Vec<Action>) {
        if std::mem::take(&mut self.ring_is_stale) {
            self.choose_neighbours(now);
        }
        let (timing, missed_after, round) = (self.timing, self.missed_after(), self.round());
        let (mut missed, mut silent_watched) = (Vec::new(), 0);
        for (id, node) in &mut self.nodes {
            let Some(super::Live { conn, signs, .. }) = node.link.live_mut() else { continue };
            let conn = *conn;
            if slept > Nanos(0) {
                signs.slept(now, slept);
            }
            signs.answered(round);
            if !signs.is_looked_at() {
                if now >= signs.next_round {
                    if now.since(signs.heard) < round {
                        signs.next_round = signs.heard + round;
                    } else {
                        signs.ask(conn, now, now, actions);
                    }
                }
                self.changed |= std::mem::replace(&mut node.state, NodeState::Up) != NodeState::Up;
                continue;
            }
            let silent = signs.silent(now);
            let host_is_gone = signs.unacknowledged.0 >= timing.dead_after.0 / 2;
            if silent >= timing.stopped_after || (silent >= timing.dead_after && host_is_gone) {
                actions.push(Action::Close { conn, why: DownWhy::Silent });
                continue;
            }
            let state = if silent >= timing.torpid_after { NodeState::Torpid } else { NodeState::Up };
            self.changed |= std::mem::replace(&mut node.state, state) != state;
            let is_missed = silent >= missed_after;
            silent_watched += usize::from(signs.watched && is_missed);
            signs.told = signs.told.filter(|at| signs.heard <= *at);
            if signs.watched && is_missed && signs.told.is_none() {
                signs.told = Some(now);
                missed.push(*id);
            }
            let pause = if signs.watched { timing.beat } else { Nanos(timing.beat.0 * AGAIN_BEATS) };
            if now.since(signs.spoke) >= pause {
                signs.spoke = now;
                let answer = !signs.watched || silent + timing.tick >= timing.beat;
                actions.push(Action::Beat { conn, answer });
            }
        }
        self.tell_missed(missed, actions);
        // One neighbour that is silent is in trouble; where half of them are it may be this node, and nobody can tell it of the others.
        if silent_watched > 1 && 2 * silent_watched >= self.watched && now >= self.next_look_round {
            self.next_look_round = now + timing.dead_after;
            let since = now - (missed_after + timing.tick);
            for live in self.nodes.values_mut().filter_map(Node::live_mut) {
                live.signs.ask(live.conn, now, since, actions);
            }
        }
    }

    fn tell_missed(&self, missed: Vec<NodeId>, actions: &mut Vec<Action>) {
        if missed.is_empty() {
            return;
        }
        for (id, node) in &self.nodes {
            if let Some(live) = node.live().filter(|_| !missed.contains(id)) {
                actions.push(Action::SendMissed { conn: live.conn, ids: missed.clone() });
            }
        }
    }

    /// The neighbours on both sides of the ring of all that are connected, by id; ids are as good as drawn by chance, so machines that
    /// stand or fall together are not neighbours.
    fn choose_neighbours(&mut self, now: Nanos) {
        let count = self.nodes.values().filter(|node| node.live().is_some()).count();
        let before = self.nodes.range(..self.me.id).filter(|(_, node)| node.live().is_some()).count();
        let reach = self.timing.watch / 2;
        let live = self.nodes.values_mut().filter_map(Node::live_mut);
        self.watched = 0;
        for (index, live) in live.enumerate() {
            // From this node on around the ring.
            let distance = (index + count - before) % count;
            let watched = distance < reach || distance + reach >= count;
            self.watched += usize::from(watched);
            let signs = &mut live.signs;
            if watched && !signs.is_looked_at() {
                signs.since = now;
            }
            // Others look at it from now on; what was not heard until now is not forgotten for that.
            if signs.watched && !watched {
                signs.asked = Some(now);
            }
            signs.watched = watched;
        }
    }

    /// Silence after which a neighbour is missed.
    fn missed_after(&self) -> Nanos {
        self.timing.beat + Nanos(MISSED_TICKS * self.timing.tick.0)
    }

    /// For how long nothing need be heard of one that is not watched.
    fn round(&self) -> Nanos {
        let others = self.conns.len().saturating_sub(self.watched) as u64;
        let beats = others * ROUND_SHARE / (self.watched as u64).max(1);
        Nanos(self.timing.beat.0.saturating_mul(beats.max(AGAIN_BEATS))).min(self.timing.round_max)
    }
}
