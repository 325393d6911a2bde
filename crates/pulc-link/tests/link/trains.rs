//! Long packets: as trains they arrive on a network that keeps them together or apart, and on one that loses pieces in parts.
//! The simulated network tears every train into its datagrams, so whatever arrives here was put together again.

use crate::rig::{Rig, config};
use crate::seeds::{Draw, each_seed};
use pulc_base::clock::Nanos;
use pulc_base::{JobId, Rank};
use pulc_hal::device::sim::Path;
use pulc_link::{Config, Full, Link, LinkKeys, Outlet, PACKET_AT, Rail};

const MESSAGE_MAX: usize = 60_000;

fn trains(rails: u8) -> Config {
    Config { train_max_bytes: 65_507, window_bytes: 1 << 20, first_window_bytes: 1 << 20, ..config(rails) }
}

fn any_path(draw: &mut Draw) -> Path {
    Path {
        loss_permille: draw.within(0..301) as u32,
        duplicate_permille: draw.within(0..201) as u32,
        corrupt_permille: draw.within(0..101) as u32,
        delay: Nanos(draw.within(1..2_000_000)),
        jitter: Nanos(draw.within(0..2) * draw.within(0..3_000_000)),
        dead: false,
    }
}

#[test]
fn a_perfect_network_carries_long_packets_as_trains_without_repetition() {
    for encrypt in [false, true] {
        let mut rig = Rig::new(1, Path::PERFECT, Config { encrypt, ..trains(1) }).with_messages_of(MESSAGE_MAX);
        (rig.ends[0].to_send, rig.ends[1].to_send) = (500, 500);
        rig.finish();
        for end in &rig.ends {
            let counters = end.link.counters();
            assert_eq!((counters.packets_retransmitted, counters.trains_broken), (0, 0), "{counters:?}");
            assert_eq!((counters.malformed_refused, counters.tags_refused, end.refused), (0, 0, 0));
        }
        // A header, a number and a tag for each packet, not for each datagram.
        assert!(rig.ends[0].frames_out < 700, "{} frames", rig.ends[0].frames_out);
    }
}

#[test]
fn long_packets_arrive_once_and_in_order_whatever_the_network_does() {
    each_seed(16, |seed, draw| {
        let config = Config { encrypt: draw.coin(), ..trains(draw.within(1..4) as u8) };
        let mut rig =
            Rig::new(seed, any_path(draw), config).with_messages_of(draw.within(1500..MESSAGE_MAX as u64) as usize);
        (rig.ends[0].to_send, rig.ends[1].to_send) = (draw.within(0..60), draw.within(0..60));
        rig.finish();
        for end in &rig.ends {
            let kept_max = config.retention_max_bytes + config.window_bytes as usize + (256 << 10);
            assert!(end.memory_peak_bytes <= kept_max, "{} bytes kept", end.memory_peak_bytes);
        }
    });
}

#[test]
fn pauses_and_dying_rails_lose_nothing_of_long_packets() {
    each_seed(12, |seed, draw| {
        let (path, rails) = (any_path(draw), draw.within(1..3) as u8);
        let mut rig = Rig::new(seed, path, trains(rails)).with_messages_of(MESSAGE_MAX);
        (rig.ends[0].to_send, rig.ends[1].to_send) = (draw.within(1..60), draw.within(1..60));
        for _ in 0..draw.within(1..12) {
            let (rail, now) = (draw.within(0..rails.into()) as usize, rig.net.now());
            match draw.within(0..3) {
                0 => rig.set_rail(rail, Path { dead: true, ..path }),
                1 => rig.set_rail(rail, path),
                _ => {
                    rig.ends[usize::from(draw.coin())].paused_until =
                        now + Nanos::from_us(draw.magnitude(3_600_000_000))
                }
            }
            rig.run_until(now + Nanos::from_us(draw.within(1..20_000)));
        }
        (0..rails.into()).for_each(|rail| rig.set_rail(rail, path));
        rig.finish();
    });
}

#[test]
fn where_trains_do_not_get_through_packets_become_short_and_trains_are_tried_again_later() {
    let reorders = Path { jitter: Nanos(40_000), ..Path::PERFECT };
    let mut rig = Rig::new(4, reorders, trains(1)).with_messages_of(MESSAGE_MAX);
    rig.ends[0].to_send = 300;
    rig.finish();
    let single = config(1).packet_max();
    assert_eq!(rig.ends[0].link.packet_max(), single, "torn trains are not sent for ever");
    assert!(rig.ends[1].link.counters().trains_broken > 0);
    rig.net.set_everywhere(Path::PERFECT);
    rig.run_until(rig.net.now() + Nanos::from_ms(10_000));
    rig.ends[0].to_send = 1500;
    rig.finish();
    assert!(rig.ends[0].link.packet_max() > single);
}

#[test]
fn what_is_under_way_of_long_packets_stays_within_the_window_of_a_peer_that_does_not_poll() {
    for window_bytes in [150_000, 400_000] {
        let config = Config { window_bytes, first_window_bytes: window_bytes, ..trains(1) };
        let mut rig = Rig::new(u64::from(window_bytes), Path::PERFECT, config).with_messages_of(30_000);
        rig.ends[0].to_send = 200;
        rig.ends[1].paused_until = Nanos::from_ms(1000);
        rig.run_until(Nanos::from_ms(999));
        let (frames, bytes) = rig.ends[1].sims[0].waiting();
        let probes = 40;
        let cost = bytes + frames.saturating_sub(probes) * 768;
        assert!(frames > 0 && cost <= window_bytes as usize + probes * 64, "{bytes} in {frames}");
        rig.finish();
    }
}

/// Keeps what leaves, each frame in one piece.
#[derive(Default)]
struct Whole(Vec<Vec<u8>>);

impl Outlet for Whole {
    fn send_run(&mut self, _rail: Rail, pieces: &[&[u8]], _segment: usize) -> Result<(), Full> {
        self.0.push(pieces.concat());
        Ok(())
    }
}

#[test]
fn a_train_that_landed_in_pieces_is_taken_if_it_is_the_next_and_else_changes_nothing() {
    let link =
        |here, peer| Link::new(trains(1), LinkKeys::derive(&[4; 32], JobId(1), Rank(here), Rank(peer)), Nanos(0));
    let (mut one, mut two) = (link(0, 1), link(1, 0));
    let packet = |number: u8| -> Vec<u8> { (0..40_000u32).map(|byte| byte as u8 ^ number).collect() };
    let mut out = Whole::default();
    for number in 0..3 {
        one.send(Nanos(1), [&packet(number)[..9], &packet(number)[9..]]).expect("an idle link has room");
        one.transmit_runs(Nanos(1), &mut out);
    }
    let mut frames = out.0;
    let pieces = |frame: &[u8], cuts: [usize; 2]| {
        [frame[..cuts[0]].to_vec(), frame[cuts[0]..cuts[1]].to_vec(), frame[cuts[1]..].to_vec()]
    };
    let take = |two: &mut Link, [front, middle, rest]: &[Vec<u8>; 3]| {
        two.receive_landed(Nanos(2), Rail(0), front, [middle, rest])
    };
    let end = frames[0].len();
    // Bent anywhere, it is not taken, and neither is one whose turn has not come; then the right one still is.
    for at in [0, 3, 20, 50, PACKET_AT, PACKET_AT + 100, end - 17, end - 16, end - 1] {
        let mut bent = frames[0].clone();
        bent[at] ^= 1;
        assert!(!take(&mut two, &pieces(&bent, [PACKET_AT + 8, end - 30])), "bent at {at}");
    }
    assert!(!take(&mut two, &pieces(&frames[1], [PACKET_AT, end])));
    let before = two.counters();
    assert_eq!((before.packets_delivered, before.packets_landed), (0, 0));
    // Wherever it is cut: the tag in the place, half of it there, all of it behind.
    for (number, cut) in [(0, end - 16), (1, end - 5)] {
        assert!(take(&mut two, &pieces(&frames[number], [PACKET_AT + 8 * number, cut])), "packet {number}");
        assert!(!take(&mut two, &pieces(&frames[number], [PACKET_AT, cut])), "packet {number} a second time");
    }
    assert_eq!(two.counters().packets_landed, 2);
    // The usual way goes on from there.
    assert_eq!(two.receive(Nanos(3), Rail(0), &mut frames[2]), Ok(Some(&packet(2)[..])));
    assert_eq!(two.counters().packets_delivered, 3);
}
