//! Whole clusters of membership cores under time of our own making, on a network that can be cut: who notices what, when, and what is said.

use super::tests::timing;
use super::*;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
/// One way between two nodes.
const HOP_MS: u64 = 1;
/// First repetition of a segment by the kernel.
const REPEAT_MS: u64 = 200;

fn member(n: usize) -> Member {
    // Neighbours on the ring are not neighbours by number.
    let scattered = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&scattered);
    Member { id: NodeId(id), name: format!("n{n}"), addresses: Vec::new(), cores: 2, version: 1 }
}

#[derive(Clone)]
enum Said {
    Beat { answer: bool },
    Missed(Vec<NodeId>),
    Closed,
}

/// So many cores, all connected: the number of a connection is that of the other node. A step is a millisecond.
struct Cluster {
    cores: Vec<Membership>,
    now_ms: u64,
    /// What arrives when, at whom, from whom.
    under_way: BTreeMap<u64, Vec<(usize, usize, Said)>>,
    /// What is said over cut links, with the time of its first attempt: acknowledged by nobody.
    unacknowledged: BTreeMap<(usize, usize), Vec<(u64, Said)>>,
    /// Pairs of nodes between which nothing goes, both ways.
    cut: BTreeSet<(usize, usize)>,
    /// Nodes that do nothing but for their kernel, and what waits there for them.
    stopped: BTreeMap<usize, Vec<(usize, Said)>>,
    heard: BTreeMap<(usize, usize), u64>,
    /// Who has given up whom, when and why.
    closed: BTreeMap<(usize, usize), (u64, DownWhy)>,
    said: u64,
}

impl Cluster {
    fn new(nodes: usize, watch: usize) -> Cluster {
        let timing = Timing { watch, members_max: nodes, ..timing() };
        let mut cluster = Cluster {
            cores: (0..nodes).map(|n| Membership::new(member(n), timing)).collect(),
            now_ms: 1_000_000,
            under_way: BTreeMap::new(),
            unacknowledged: BTreeMap::new(),
            cut: BTreeSet::new(),
            stopped: BTreeMap::new(),
            heard: BTreeMap::new(),
            closed: BTreeMap::new(),
            said: 0,
        };
        for node in 0..nodes {
            for other in (0..nodes).filter(|other| *other != node) {
                cluster.step(node, Event::Incoming { conn: other as u64, member: member(other), session: 1 });
            }
        }
        cluster
    }

    fn step(&mut self, node: usize, event: Event) {
        for action in self.cores[node].step(Nanos(self.now_ms * MS), event) {
            match action {
                Action::Beat { conn, answer } => self.say(node, conn as usize, Said::Beat { answer }),
                Action::SendMissed { conn, ids } => self.say(node, conn as usize, Said::Missed(ids)),
                Action::Close { conn, why } => {
                    self.closed.insert((node, conn as usize), (self.now_ms, why));
                    self.say(node, conn as usize, Said::Closed);
                }
                _ => {}
            }
        }
    }

    fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&(one.min(other), one.max(other)))
    }

    fn say(&mut self, from: usize, to: usize, said: Said) {
        self.said += 1;
        if self.is_cut(from, to) || self.unacknowledged.contains_key(&(from, to)) {
            self.unacknowledged.entry((from, to)).or_default().push((self.now_ms, said));
        } else {
            self.under_way.entry(self.now_ms + HOP_MS).or_default().push((to, from, said));
        }
    }

    fn arrives(&mut self, at: usize, from: usize, said: Said) {
        if let Some(waiting) = self.stopped.get_mut(&at) {
            return waiting.push((from, said));
        }
        if self.closed.contains_key(&(at, from)) {
            return;
        }
        self.heard.insert((at, from), self.now_ms);
        let conn = from as u64;
        match said {
            Said::Beat { answer } => self.step(at, Event::Beat { conn, load_milli: 0, answer }),
            Said::Missed(ids) => self.step(at, Event::Missed { ids }),
            Said::Closed => {
                self.closed.insert((at, from), (self.now_ms, DownWhy::Closed));
                self.step(at, Event::Lost { conn, why: DownWhy::Closed });
            }
        }
    }

    fn tick(&mut self, node: usize) {
        let now = Nanos(self.now_ms * MS);
        let looked_at: Vec<ConnId> = self.cores[node].looks_at(now).collect();
        for conn in looked_at {
            let heard_ms = self.heard.get(&(node, conn as usize)).copied().unwrap_or_default();
            let first = self.unacknowledged.get(&(node, conn as usize)).and_then(|waiting| waiting.first());
            let during = Nanos::from_ms(first.map_or(0, |(sent, _)| self.now_ms - sent));
            self.step(node, Event::Heard { conn, at: Nanos(heard_ms * MS) });
            self.step(node, Event::Unacknowledged { conn, during });
        }
        self.step(node, Event::Tick);
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            for (at, from, said) in self.under_way.remove(&self.now_ms).unwrap_or_default() {
                self.arrives(at, from, said);
            }
            // Nobody ticks at the same time as the others.
            let now_ms = self.now_ms;
            for node in (0..self.cores.len()).filter(|node| (now_ms + 37 * *node as u64).is_multiple_of(250)) {
                if !self.stopped.contains_key(&node) {
                    self.tick(node);
                }
            }
        }
    }

    fn cut(&mut self, pairs: impl Iterator<Item = (usize, usize)>) {
        self.cut.extend(pairs.filter(|(one, other)| one != other).map(|(one, other)| (one.min(other), one.max(other))));
    }

    /// A node's cable is pulled out.
    fn cut_off(&mut self, node: usize) {
        self.cut((0..self.cores.len()).map(|other| (node, other)));
    }

    /// Everything goes again, what waits when its kernel repeats it next.
    fn heal(&mut self) {
        self.cut.clear();
        for ((from, to), waiting) in std::mem::take(&mut self.unacknowledged) {
            let first = waiting.first().map_or(self.now_ms, |(sent, _)| *sent);
            let repeats = (0..).map(|count| first + REPEAT_MS * ((1 << count) - 1));
            let next = repeats.into_iter().find(|at| *at > self.now_ms).unwrap_or(self.now_ms);
            let arriving = waiting.into_iter().map(|(_, said)| (to, from, said));
            self.under_way.entry(next + HOP_MS).or_default().extend(arriving);
        }
    }

    fn stop(&mut self, node: usize) {
        self.stopped.insert(node, Vec::new());
    }

    fn go_on(&mut self, node: usize) {
        for (from, said) in self.stopped.remove(&node).unwrap_or_default() {
            self.arrives(node, from, said);
        }
    }

    fn states_of(&self, node: usize) -> BTreeSet<String> {
        let lists = (0..self.cores.len()).filter(|other| *other != node).map(|other| &self.cores[other]);
        let states = lists.flat_map(|core| core.others().filter(|info| info.id == member(node).id));
        states.map(|info| info.state.to_string()).collect()
    }
}

/// From the cut of a node's cable until the last of the others has given it up, and it them.
pub(super) fn all_notice_ms(nodes: usize) -> u64 {
    let mut cluster = Cluster::new(nodes, timing().watch);
    cluster.pass(65_000);
    let begin = cluster.now_ms;
    cluster.cut_off(nodes / 2);
    cluster.pass(10_000);
    assert_eq!(cluster.closed.len(), 2 * (nodes - 1));
    cluster.closed.values().map(|(at, _)| at - begin).max().unwrap_or_default()
}

fn words(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_node_that_vanishes_is_given_up_by_all_within_five_seconds_and_gives_up_all() {
    for nodes in [3, 10, 40, 150] {
        for gone in [0, 1, 2] {
            let mut cluster = Cluster::new(nodes, 8);
            cluster.pass(65_000 + 331 * gone as u64);
            assert_eq!(cluster.closed, BTreeMap::new(), "{nodes} nodes while nothing happens");
            let begin = cluster.now_ms;
            cluster.cut_off(gone);
            cluster.pass(5000);
            let pairs: BTreeSet<(usize, usize)> = cluster.closed.keys().copied().collect();
            let others = (0..nodes).filter(|other| *other != gone);
            let expected = others.flat_map(|other| [(gone, other), (other, gone)]).collect();
            assert_eq!(pairs, expected, "{nodes} nodes, {gone} is gone");
            let first = cluster.closed.values().map(|(at, _)| at - begin).min().unwrap();
            assert!(first > 2500, "given up after {first} ms already");
            assert_eq!(cluster.states_of(gone), words(&["down"]));
        }
    }
}

#[test]
fn an_outage_of_two_seconds_changes_nothing() {
    for (nodes, watch) in [(3, 8), (12, 2), (60, 8)] {
        for begin in 0..6 {
            let mut cluster = Cluster::new(nodes, watch);
            cluster.pass(40_000 + 170 * begin);
            cluster.cut_off(1);
            cluster.pass(2000);
            cluster.heal();
            cluster.pass(10_000);
            assert_eq!(cluster.closed, BTreeMap::new(), "{nodes} nodes, begin {begin}");
            assert_eq!(cluster.states_of(1), words(&["up"]));
        }
    }
}

#[test]
fn a_stopped_daemon_is_torpid_to_all_and_up_again_when_it_goes_on() {
    for (nodes, watch) in [(5, 8), (9, 2), (40, 8)] {
        let mut cluster = Cluster::new(nodes, watch);
        cluster.pass(40_000);
        cluster.stop(2);
        cluster.pass(6000);
        assert_eq!(cluster.states_of(2), words(&["torpid"]), "{nodes} nodes");
        cluster.pass(44_000);
        assert_eq!(cluster.states_of(2), words(&["torpid"]), "{nodes} nodes");
        cluster.go_on(2);
        cluster.pass(4000);
        assert_eq!(cluster.states_of(2), words(&["up"]), "{nodes} nodes");
        assert_eq!(cluster.closed, BTreeMap::new());
    }
}

#[test]
fn a_stopped_daemon_stays_torpid_to_who_no_longer_watches_it() {
    let mut cluster = Cluster::new(12, 2);
    cluster.pass(40_000);
    cluster.stop(2);
    cluster.pass(6000);
    // Everybody chooses neighbours anew, most of them others than before.
    for core in &mut cluster.cores {
        (core.timing.watch, core.ring_is_stale) = (4, true);
    }
    cluster.pass(2000);
    for core in &mut cluster.cores {
        (core.timing.watch, core.ring_is_stale) = (2, true);
    }
    for _ in 0..20 {
        cluster.pass(250);
        assert_eq!(cluster.states_of(2), words(&["torpid"]));
    }
    assert_eq!(cluster.closed, BTreeMap::new());
}

#[test]
fn a_daemon_that_stays_stopped_is_given_up_by_all_after_a_minute() {
    let mut cluster = Cluster::new(30, 8);
    cluster.pass(40_000);
    cluster.stop(2);
    cluster.pass(58_000);
    assert_eq!(cluster.closed, BTreeMap::new());
    cluster.pass(7000);
    assert_eq!(cluster.states_of(2), words(&["down"]));
}

#[test]
fn both_halves_of_a_cluster_that_falls_apart_give_each_other_up_within_five_seconds() {
    for (nodes, watch) in [(40, 8), (12, 2), (100, 8)] {
        for part in [nodes / 2, nodes / 4] {
            let mut cluster = Cluster::new(nodes, watch);
            cluster.pass(40_000);
            cluster.cut((0..part).flat_map(|one| (part..nodes).map(move |other| (one, other))));
            cluster.pass(5000);
            let across = |(one, other): &(usize, usize)| (*one < part) != (*other < part);
            assert!(cluster.closed.keys().all(across), "only what is cut is given up");
            assert_eq!(cluster.closed.len(), 2 * part * (nodes - part), "{nodes} nodes, {part} of them apart");
        }
    }
}

#[test]
fn a_cut_between_two_that_do_not_watch_each_other_is_found_in_their_round() {
    let mut cluster = Cluster::new(60, 8);
    cluster.pass(61_000);
    let begin = Nanos(cluster.now_ms * MS);
    let watched: BTreeSet<ConnId> = cluster.cores[0].looks_at(begin).collect();
    let stranger = (1..60).find(|other| !watched.contains(&(*other as u64))).unwrap();
    cluster.cut([(0, stranger)].into_iter());
    cluster.pass(40_000);
    let pairs: BTreeSet<(usize, usize)> = cluster.closed.keys().copied().collect();
    assert_eq!(pairs, [(0, stranger), (stranger, 0)].into_iter().collect());
}

#[test]
fn what_an_idle_node_says_does_not_grow_with_the_cluster() {
    let rates = [20, 60, 180].map(|nodes| {
        let mut cluster = Cluster::new(nodes, 8);
        cluster.pass(40_000);
        let before = cluster.said;
        cluster.pass(60_000);
        assert_eq!(cluster.closed, BTreeMap::new());
        (cluster.said - before) as f64 / 60.0 / nodes as f64
    });
    assert!(rates.iter().all(|rate| (7.0..16.0).contains(rate)), "{rates:?} messages a second of each node");
}

#[test]
fn where_one_watches_and_the_other_does_not_it_is_answered() {
    let mut cluster = Cluster::new(20, 2);
    // This one looks at all, and is looked at by few.
    cluster.cores[3].timing.watch = 100;
    cluster.cores[3].ring_is_stale = true;
    cluster.pass(60_000);
    assert_eq!(cluster.closed, BTreeMap::new());
    assert_eq!(cluster.cores[3].others().filter(|info| info.state != NodeState::Up).count(), 0);
}

#[test]
fn a_second_call_of_a_node_that_is_not_watched_makes_sure_that_the_first_connection_lives() {
    let mut cluster = Cluster::new(30, 2);
    cluster.pass(60_000);
    let now = Nanos(cluster.now_ms * MS);
    let watched: BTreeSet<ConnId> = cluster.cores[0].looks_at(now).collect();
    let other = (1..30).find(|other| !watched.contains(&(*other as u64))).unwrap();
    let call = || Event::Incoming { conn: 1000, member: member(other), session: 1 };
    let actions = cluster.cores[0].step(now, call());
    let (conn, why) = (other as u64, Refusal::Busy);
    assert_eq!(actions, vec![Action::Beat { conn, answer: true }, Action::Refuse { conn: 1000, why }]);
    // It does not answer there, so its next call counts.
    let later = now + Nanos::from_ms(2500);
    let actions = cluster.cores[0].step(later, call());
    assert!(actions.contains(&Action::Close { conn, why: DownWhy::Closed }), "{actions:?}");
    assert!(actions.iter().any(|action| matches!(action, Action::Admit { conn: 1000, .. })), "{actions:?}");
}
