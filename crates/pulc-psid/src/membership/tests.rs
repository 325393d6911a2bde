//! The membership core under time of our own making.

use super::*;
use std::net::SocketAddr;

const MS: u64 = 1_000_000;

pub(super) fn timing() -> Timing {
    Timing {
        beat: Nanos::from_ms(1000),
        tick: Nanos::from_ms(250),
        torpid_after: Nanos::from_ms(3000),
        dead_after: Nanos::from_ms(4500),
        stopped_after: Nanos::from_ms(60_000),
        redial_min: Nanos::from_ms(100),
        redial_max: Nanos::from_ms(5000),
        members_max: 4,
        watch: 8,
        round_max: Nanos::from_ms(30_000),
    }
}

fn member(n: u8) -> Member {
    let addresses = vec![SocketAddr::from(([10, 0, 0, n], 7852))];
    Member { id: NodeId([n; 16]), name: format!("n{n}"), addresses, cores: 2, version: 1 }
}

fn id(n: u8) -> NodeId {
    NodeId([n; 16])
}

/// One core with a clock.
struct Sim {
    core: Membership,
    now: u64,
}

impl Sim {
    fn new(me: u8) -> Sim {
        Sim { core: Membership::new(member(me), timing()), now: 1_000_000 * MS }
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        self.core.step(Nanos(self.now), event)
    }

    /// Ticks for so long, with `each` called before each tick; returns all actions but what is said in passing.
    fn pass(&mut self, ms: u64, mut each: impl FnMut(&mut Sim)) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..ms / 250 {
            self.now += 250 * MS;
            each(self);
            actions.extend(self.step(Event::Tick));
            actions.retain(|action| !matches!(action, Action::Beat { .. } | Action::SendMissed { .. }));
        }
        actions
    }

    fn connect(&mut self, n: u8, conn: ConnId) {
        let actions = self.step(Event::Incoming { conn, member: member(n), session: u64::from(n) });
        assert!(
            actions.iter().any(|action| matches!(action, Action::Admit { conn: c, .. } if *c == conn)),
            "{actions:?}"
        );
    }

    fn hear(&mut self, conn: ConnId) {
        let at = Nanos(self.now);
        self.step(Event::Heard { conn, at });
        self.step(Event::Unacknowledged { conn, during: Nanos(0) });
    }

    fn state(&self, n: u8) -> NodeState {
        self.core.others().find(|node| node.id == id(n)).unwrap().state
    }
}

fn closed(actions: &[Action]) -> Option<DownWhy> {
    actions.iter().find_map(|action| match action {
        Action::Close { why, .. } => Some(*why),
        _ => None,
    })
}

fn dials(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Dial { .. })).count()
}

#[test]
fn a_node_that_beats_stays_up() {
    let mut sim = Sim::new(1);
    sim.connect(2, 10);
    let actions = sim.pass(600_000, |sim| {
        if sim.now % (1000 * MS) == 0 {
            sim.hear(10);
        }
    });
    assert_eq!(actions, vec![]);
    assert_eq!(sim.state(2), NodeState::Up);
}

#[test]
fn a_cut_link_is_noticed_within_five_seconds_and_not_within_four() {
    let mut sim = Sim::new(1);
    sim.connect(2, 10);
    let cut = sim.now;
    let mut silent = |sim: &mut Sim| {
        let during = Nanos((sim.now - cut).saturating_sub(1000 * MS));
        sim.step(Event::Unacknowledged { conn: 10, during });
    };
    assert_eq!(closed(&sim.pass(4250, &mut silent)), None);
    assert_eq!(sim.state(2), NodeState::Torpid);
    assert_eq!(closed(&sim.pass(500, &mut silent)), Some(DownWhy::Silent));
    assert_eq!(sim.state(2), NodeState::Down);
}

#[test]
fn a_stopped_daemon_on_a_living_host_is_torpid_and_wakes_up_again() {
    let mut sim = Sim::new(1);
    sim.connect(2, 10);
    assert_eq!(closed(&sim.pass(50_000, |_| ())), None);
    assert_eq!(sim.state(2), NodeState::Torpid);
    sim.hear(10);
    sim.pass(250, |_| ());
    assert_eq!(sim.state(2), NodeState::Up);
    assert_eq!(closed(&sim.pass(59_500, |_| ())), None);
    assert_eq!(closed(&sim.pass(1000, |_| ())), Some(DownWhy::Silent));
}

#[test]
fn a_node_that_slept_itself_blames_nobody() {
    let mut sim = Sim::new(1);
    sim.connect(2, 10);
    sim.pass(1000, |sim| sim.hear(10));
    sim.now += 120_000 * MS;
    let during = Nanos::from_ms(119_000);
    sim.step(Event::Unacknowledged { conn: 10, during });
    assert_eq!(closed(&sim.step(Event::Tick)), None);
    assert_eq!(sim.state(2), NodeState::Up);
    sim.hear(10);
    assert_eq!(closed(&sim.pass(2000, |_| ())), None);
}

#[test]
fn a_known_node_is_dialed_again_and_again_with_a_pause_that_grows_to_its_limit() {
    let mut sim = Sim::new(1);
    sim.step(Event::Learned { members: vec![member(2)], at_once: false });
    assert_eq!(sim.state(2), NodeState::Joining);
    let mut count = 0;
    sim.pass(60_000, |sim| {
        let actions = sim.step(Event::Tick);
        if dials(&actions) > 0 {
            count += 1;
            sim.step(Event::DialFailed { id: id(2), busy: false });
        }
    });
    assert!((14..22).contains(&count), "{count} dials in a minute");
    assert_eq!(sim.state(2), NodeState::Down);
}

#[test]
fn when_both_dial_the_smaller_id_wins() {
    let mut small = Sim::new(1);
    small.step(Event::Learned { members: vec![member(2)], at_once: false });
    assert_eq!(dials(&small.step(Event::Tick)), 1);
    let answer = small.step(Event::Incoming { conn: 5, member: member(2), session: 2 });
    assert_eq!(answer, vec![Action::Refuse { conn: 5, why: Refusal::Busy }]);

    let mut large = Sim::new(2);
    large.step(Event::Learned { members: vec![member(1)], at_once: false });
    assert_eq!(dials(&large.pass(500, |_| ())), 1);
    let answer = large.step(Event::Incoming { conn: 5, member: member(1), session: 1 });
    assert!(answer.contains(&Action::CancelDial { id: id(1) }), "{answer:?}");
    assert!(answer.iter().any(|action| matches!(action, Action::Admit { conn: 5, .. })));
    // The late failure of the cancelled dial changes nothing.
    large.step(Event::DialFailed { id: id(1), busy: true });
    assert_eq!(large.state(1), NodeState::Up);
}

#[test]
fn a_second_connection_of_a_living_node_is_refused_and_of_a_restarted_one_replaces_the_first() {
    let mut sim = Sim::new(1);
    sim.connect(2, 10);
    let twice = sim.step(Event::Incoming { conn: 11, member: member(2), session: 2 });
    assert_eq!(twice, vec![Action::Refuse { conn: 11, why: Refusal::Busy }]);
    let reborn = sim.step(Event::Incoming { conn: 12, member: member(2), session: 77 });
    assert_eq!(reborn[0], Action::Close { conn: 10, why: DownWhy::Restarted });
    assert!(matches!(reborn[1], Action::Admit { conn: 12, .. }));
    // The reader of the old connection reports its end later.
    sim.step(Event::Lost { conn: 10, why: DownWhy::Closed });
    assert_eq!(sim.state(2), NodeState::Up);
}

#[test]
fn a_copied_identity_is_refused() {
    let mut sim = Sim::new(1);
    let answer = sim.step(Event::Incoming { conn: 3, member: member(1), session: 9 });
    assert_eq!(answer, vec![Action::Refuse { conn: 3, why: Refusal::SameIdentity }]);
}

#[test]
fn a_node_that_left_is_not_called_and_may_come_back() {
    let mut sim = Sim::new(1);
    sim.connect(2, 10);
    sim.step(Event::Lost { conn: 10, why: DownWhy::Left });
    assert_eq!(sim.state(2), NodeState::Left);
    assert_eq!(dials(&sim.pass(60_000, |_| ())), 0);
    sim.connect(2, 11);
    assert_eq!(sim.state(2), NodeState::Up);
}

#[test]
fn news_of_a_member_is_spread_to_the_others_once() {
    let mut sim = Sim::new(1);
    sim.connect(2, 10);
    let actions = sim.step(Event::Incoming { conn: 11, member: member(3), session: 3 });
    assert!(actions.contains(&Action::SendMembers { conn: 10, members: vec![member(3)] }), "{actions:?}");
    assert!(actions.contains(&Action::Remember));
    let again = sim.step(Event::Learned { members: vec![member(3), member(1)], at_once: false });
    assert_eq!(again, vec![]);
}

#[test]
fn the_table_of_members_has_a_limit() {
    let mut sim = Sim::new(1);
    sim.step(Event::Learned { members: (2..100).map(member).collect(), at_once: false });
    assert_eq!(sim.core.others().count(), 4);
    let answer = sim.step(Event::Incoming { conn: 7, member: member(200), session: 1 });
    assert_eq!(answer, vec![Action::Refuse { conn: 7, why: Refusal::Full }]);
}
