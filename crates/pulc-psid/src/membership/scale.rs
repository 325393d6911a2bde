//! One node of a large cluster under a network that loses packets: how long until a node that is gone is known to be gone, how often a node
//! that lives is taken for dead, and what an idle cluster says. Printed, never judged: run by `cargo xtask sim`. All nodes do the same, so one
//! is looked at, with all its connections.
//!
//! The network of this model: a segment is lost with the same chance every time; the sender's kernel repeats it after 200 ms, then after
//! twice as long each time, as Linux does on a short round trip. What waits behind a lost segment waits with it.

use super::tests::timing;
use super::*;

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

/// Runs a node with so many others for so long; returns how many were taken for dead though all live.
fn false_deaths(nodes: u32, seconds: u64, loss_per_mille: u64) -> u64 {
    let mut chance = Chance(u64::from(nodes) << 16 | loss_per_mille | 1);
    let mut core = Membership::new(member_of(0), Timing { members_max: nodes as usize + 1, ..timing() });
    let mut now = 1_000_000_000;
    let step = |core: &mut Membership, now: u64, event| core.step(Nanos(now * MS), event);
    for peer in 1..=nodes {
        step(&mut core, now, Event::Incoming { conn: peer.into(), member: member_of(peer), session: 1 });
    }
    // When what has arrived last came, and until when what was sent last waits for its acknowledgement.
    let mut heard = vec![now; nodes as usize + 1];
    let mut unacknowledged = vec![(0, 0); nodes as usize + 1];
    let mut deaths = 0;
    for _ in 0..seconds * 1000 / TICK_MS {
        now += TICK_MS;
        for peer in 1..=nodes {
            let at = peer as usize;
            // Everybody beats once a second, at a moment of its own.
            if (now + u64::from(peer) * TICK_MS).is_multiple_of(BEAT_MS) {
                heard[at] = heard[at].max(now + delay_ms(&mut chance, loss_per_mille));
                // Ours, and the acknowledgement that may be lost on its way back, which the next one would make good.
                let late = delay_ms(&mut chance, loss_per_mille);
                if unacknowledged[at].1 <= now {
                    unacknowledged[at] = (now, now + late);
                }
            }
            let conn = peer.into();
            if heard[at] <= now {
                step(&mut core, now, Event::Heard { conn, at: Nanos(heard[at] * MS) });
            }
            let (since, until) = unacknowledged[at];
            let during = if until > now { now - since } else { 0 };
            if loss_per_mille > 0 {
                step(&mut core, now, Event::Unacknowledged { conn, during: Nanos::from_ms(during) });
            }
        }
        for action in step(&mut core, now, Event::Tick) {
            if let Action::Close { conn, .. } = action {
                deaths += 1;
                let peer = conn as u32;
                (heard[peer as usize], unacknowledged[peer as usize]) = (now, (0, 0));
                step(&mut core, now, Event::Incoming { conn, member: member_of(peer), session: deaths });
            }
        }
    }
    deaths
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
    println!("idle, per node and second (everybody is connected with everybody, a beat a second each way)");
    for nodes in [10, 100, 1000, 10_000u64] {
        let sent = nodes - 1;
        println!("  {nodes:5} nodes: {sent} messages, {} KiB", sent * BEAT_BYTES / 1024);
    }
    println!("from a node's end until it is given up, ms (2000 times each)");
    for loss_per_mille in [0, 10, 100] {
        let mut chance = Chance(loss_per_mille + 3);
        let mut times: Vec<u64> = (0..2000).map(|_| detection_ms(&mut chance, loss_per_mille)).collect();
        times.sort_unstable();
        let loss = loss_per_mille as f64 / 10.0;
        println!("  {loss} % loss: median {}, 99 of 100 {}, at most {}", times[1000], times[1980], times[1999]);
    }
    println!("nodes that live and are taken for dead by one node");
    for (nodes, seconds, loss_per_mille) in
        [(1000, 8640, 10), (10_000, 600, 10), (1000, 2000, 50), (1000, 2000, 100), (1000, 600, 300)]
    {
        let deaths = false_deaths(nodes, seconds, loss_per_mille);
        let loss = loss_per_mille as f64 / 10.0;
        println!("  {nodes} nodes, {loss} % loss, {seconds} s: {deaths}");
    }
}
