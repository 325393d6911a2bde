//! One node of a large cluster under a network that loses packets: how long until a node that is gone is known to be gone, how often a node
//! that lives is taken for dead, and what an idle cluster says. Printed, never judged: run by `cargo xtask sim`. All nodes do the same, so one
//! is looked at, with all its connections; clusters as wholes are in `watch_tests`.
//!
//! The network of this model: a segment is lost with the same chance every time; the sender's kernel repeats it after 200 ms, then after
//! twice as long each time, as Linux does on a short round trip. What waits behind a lost segment waits with it.

use super::tests::timing;
use super::*;
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
const TICK_MS: u64 = 250;
const BEAT_MS: u64 = 1000;
/// First repetition by the kernel.
const REPEAT_MS: u64 = 200;
/// Octets of a beat on the wire: frame, TLS record, TCP, IP and Ethernet headers, and the acknowledgement that answers it.
const BEAT_BYTES: u64 = 100 + 66;

/// Numbers that look random and come again with the seed (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }
}

fn member_of(number: u32) -> Member {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    Member { id: NodeId(id), name: format!("n{number}"), addresses: Vec::new(), cores: 2, version: 1 }
}

/// How much later a segment arrives than it would without loss.
fn delay_ms(chance: &mut Chance, loss_per_mille: u64) -> u64 {
    let (mut delay, mut wait) = (0, REPEAT_MS);
    while loss_per_mille > 0 && chance.below(1000) < loss_per_mille {
        delay += wait;
        wait = (wait * 2).min(120_000);
    }
    delay
}

/// What is under way from and to one of the others.
#[derive(Default)]
struct UnderWay {
    /// When what it says arrives here, in order.
    arrivals: VecDeque<u64>,
    heard: u64,
    /// From when until when what was sent last waits for its acknowledgement.
    sent: u64,
    acknowledged: u64,
}

impl UnderWay {
    /// Something is sent now, and answered.
    fn ask(&mut self, now: u64, chance: &mut Chance, loss_per_mille: u64) {
        let there = now + delay_ms(chance, loss_per_mille);
        let back = there + delay_ms(chance, loss_per_mille);
        self.arrivals.push_back(back.max(self.arrivals.back().copied().unwrap_or(0)));
        if self.acknowledged <= now {
            // The acknowledgement may be lost on its way back, which the next one would make good.
            (self.sent, self.acknowledged) = (now, there + delay_ms(chance, loss_per_mille));
        }
    }

    fn look(&mut self, now: u64) -> (u64, u64) {
        while let Some(at) = self.arrivals.front().copied().filter(|at| *at <= now) {
            self.heard = at;
            self.arrivals.pop_front();
        }
        (self.heard, if self.acknowledged > now { now - self.sent } else { 0 })
    }
}

/// What one node of many has said and believed.
#[derive(Default)]
struct Believed {
    /// Nodes that were taken for dead though all live.
    deaths: u64,
    /// How often it has told all that it misses some.
    alarms: u64,
    messages: u64,
    /// Of a processor, for its membership.
    share: f64,
}

/// Runs a node with so many others, which all do as it does, for so long.
fn watch(nodes: u32, seconds: u64, loss_per_mille: u64) -> Believed {
    let mut chance = Chance(u64::from(nodes) << 16 | loss_per_mille | 1);
    let mut core = Membership::new(member_of(nodes / 2), Timing { members_max: nodes as usize + 1, ..timing() });
    let mut now = 1_000_000_000;
    let step = |core: &mut Membership, now: u64, event| core.step(Nanos(now * MS), event);
    for peer in (0..=nodes).filter(|peer| *peer != nodes / 2) {
        step(&mut core, now, Event::Incoming { conn: peer.into(), member: member_of(peer), session: 1 });
    }
    let mut under_way = BTreeMap::<ConnId, UnderWay>::new();
    let mut believed = Believed::default();
    let begin = std::time::Instant::now();
    for _ in 0..seconds * 1000 / TICK_MS {
        now += TICK_MS;
        let looked_at: Vec<ConnId> = core.looks_at(Nanos(now * MS)).collect();
        for conn in looked_at {
            let (heard, during) = under_way.entry(conn).or_default().look(now);
            step(&mut core, now, Event::Heard { conn, at: Nanos(heard * MS) });
            step(&mut core, now, Event::Unacknowledged { conn, during: Nanos::from_ms(during) });
        }
        let mut misses = false;
        for action in step(&mut core, now, Event::Tick) {
            match action {
                Action::Beat { conn, .. } => {
                    believed.messages += 1;
                    under_way.entry(conn).or_default().ask(now, &mut chance, loss_per_mille);
                }
                Action::SendMissed { .. } => {
                    believed.messages += 1;
                    misses = true;
                }
                Action::Close { conn, .. } => {
                    believed.deaths += 1;
                    under_way.remove(&conn);
                    let session = believed.deaths + 1;
                    step(&mut core, now, Event::Incoming { conn, member: member_of(conn as u32), session });
                }
                _ => {}
            }
        }
        believed.alarms += u64::from(misses);
    }
    believed.share = begin.elapsed().as_secs_f64() / seconds as f64;
    believed
}

/// Losses in a row after which a segment is so late.
fn losses_until(late_ms: u64) -> i32 {
    let repeats = (1..).map(|count| REPEAT_MS * ((1 << count) - 1));
    repeats.take_while(|delay| *delay < late_ms).count() as i32 + 1
}

/// What is to be expected where it is too seldom to be seen: false deaths of one neighbour in a day. Its beat is late until it has been
/// silent for long enough, and of ours that were sent meanwhile (some three count) one waits for half as long.
fn expected_a_day(loss: f64) -> f64 {
    let dead_ms = timing().dead_after.0 / MS;
    86_400_000.0 / BEAT_MS as f64
        * loss.powi(losses_until(dead_ms - BEAT_MS))
        * 3.0
        * loss.powi(losses_until(dead_ms / 2))
}

/// Milliseconds from the moment at which a node vanishes until another one has given it up, by the moment inside of a beat.
fn detection_ms(chance: &mut Chance, loss_per_mille: u64) -> u64 {
    let mut core = Membership::new(member_of(0), timing());
    let mut now = 1_000_000_000;
    core.step(Nanos(now * MS), Event::Incoming { conn: 1, member: member_of(1), session: 1 });
    core.step(Nanos(now * MS), Event::Tick);
    let mut last = now;
    let gone = now + 5000 + chance.below(BEAT_MS);
    // Of ours, the first one that is never acknowledged.
    let phase = chance.below(BEAT_MS);
    let first_lost = gone + (BEAT_MS - (gone + phase) % BEAT_MS);
    loop {
        now += TICK_MS;
        if now <= gone && now.is_multiple_of(BEAT_MS) {
            last = now + delay_ms(chance, loss_per_mille).min(gone.saturating_sub(now));
        }
        core.step(Nanos(now * MS), Event::Heard { conn: 1, at: Nanos(last.min(now) * MS) });
        let during = Nanos::from_ms(now.saturating_sub(first_lost));
        core.step(Nanos(now * MS), Event::Unacknowledged { conn: 1, during });
        if core.step(Nanos(now * MS), Event::Tick).iter().any(|action| matches!(action, Action::Close { .. })) {
            return now - gone;
        }
        assert!(now < gone + 100_000, "a node that is gone is never given up");
    }
}

#[test]
#[ignore = "a measurement: run by cargo xtask sim"]
fn what_a_node_of_a_large_cluster_says_and_believes() {
    println!("idle, per node and second, and the core's own time for it (each node watches {})", timing().watch);
    for nodes in [10, 100, 1000, 10_000u32] {
        let seconds = 300;
        let Believed { deaths, messages, share, .. } = watch(nodes - 1, seconds, 0);
        assert_eq!(deaths, 0, "without any loss");
        // What is asked is answered; of two that watch each other one asks.
        let (messages, bytes) = (messages / seconds, messages * BEAT_BYTES / seconds);
        println!("  {nodes:5} nodes: {messages} messages, {} KiB, {:.2} % of a processor", bytes / 1024, share * 100.0);
    }
    println!("from the cut of a node's cable until the last of all others has given it up, and it them, ms (no loss)");
    for nodes in [10, 100, 300] {
        println!("  {nodes:5} nodes: {}", super::watch_tests::all_notice_ms(nodes));
    }
    println!("from a node's end until one that watches it gives it up, ms (2000 times each)");
    for loss_per_mille in [0, 10, 100] {
        let mut chance = Chance(loss_per_mille + 3);
        let mut times: Vec<u64> = (0..2000).map(|_| detection_ms(&mut chance, loss_per_mille)).collect();
        times.sort_unstable();
        let loss = loss_per_mille as f64 / 10.0;
        println!("  {loss} % loss: median {}, 99 of 100 {}, at most {}", times[1000], times[1980], times[1999]);
    }
    println!(
        "nodes that live and are taken for dead by one node: seen, and reckoned from the chance that enough is lost in a row; and how often \
         it missed some and told all"
    );
    for (nodes, seconds, loss_per_mille) in
        [(1000, 86_400, 10), (10_000, 3600, 10), (1000, 3600, 50), (1000, 3600, 100), (1000, 600, 300)]
    {
        let Believed { deaths, alarms, .. } = watch(nodes, seconds, loss_per_mille);
        let loss = loss_per_mille as f64 / 1000.0;
        let reckoned = expected_a_day(loss) * timing().watch as f64 * seconds as f64 / 86_400.0;
        println!(
            "  {nodes} nodes, {} % loss, {seconds} s: {deaths}, reckoned {reckoned:.1e}, {alarms} times",
            loss * 100.0
        );
    }
    println!("reckoned for all that watch each other in a cluster, 1 % loss, a day");
    for nodes in [1000.0, 10_000.0_f64] {
        println!("  {nodes} nodes: {:.1e}", expected_a_day(0.01) * nodes * timing().watch as f64);
    }
}
