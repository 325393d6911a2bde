//! Whatever the network does: exactly once, in order, unchanged, within bounded memory, and with an end.

use crate::rig::{Rig, config};
use crate::seeds::{Draw, each_seed};
use pulc_base::clock::Nanos;
use pulc_hal::device::sim::Path;
use pulc_link::Rail;

const HOUR_US: u64 = 3_600_000_000;

/// Up to 30 % of loss, 20 % doubled, 10 % bent, milliseconds of delay and of reordering.
fn any_path(draw: &mut Draw) -> Path {
    Path {
        loss_permille: draw.within(0..301) as u32,
        duplicate_permille: draw.within(0..201) as u32,
        corrupt_permille: draw.within(0..101) as u32,
        delay: Nanos(draw.within(1..2_000_000)),
        jitter: Nanos(draw.within(0..3_000_000)),
        dead: false,
    }
}

#[test]
fn every_packet_arrives_once_and_in_order() {
    each_seed(96, |seed, draw| {
        let path = any_path(draw);
        let config = pulc_link::Config {
            window_bytes: draw.within(3_000..400_000) as u32,
            first_window_bytes: draw.within(0..400_000) as u32,
            encrypt: draw.coin(),
            ..config(draw.within(1..4) as u8)
        };
        let mut rig = Rig::new(seed, path, config);
        (rig.ends[0].to_send, rig.ends[1].to_send) = (draw.within(0..400), draw.within(0..400));
        rig.finish();
        for end in &rig.ends {
            let kept_max = config.retention_max_bytes + config.window_bytes as usize + (128 << 10);
            assert!(end.memory_peak_bytes <= kept_max, "{} bytes kept", end.memory_peak_bytes);
        }
    });
}

#[test]
fn pauses_of_either_side_of_up_to_an_hour_change_nothing() {
    each_seed(96, |seed, draw| {
        let mut rig = Rig::new(seed, any_path(draw), config(1));
        (rig.ends[0].to_send, rig.ends[1].to_send) = (draw.within(1..300), draw.within(1..300));
        for _ in 0..draw.within(1..12) {
            let pause_us = 1 + draw.magnitude(HOUR_US);
            let until = rig.net.now() + Nanos::from_us(pause_us);
            rig.ends[usize::from(draw.coin())].paused_until = until;
            rig.run_until(until + Nanos::from_us(pause_us / 4));
        }
        rig.finish();
    });
}

#[test]
fn rails_that_die_heal_and_are_taken_away_at_any_time_lose_nothing() {
    each_seed(96, |seed, draw| {
        let (path, rails) = (any_path(draw), draw.within(1..4) as u8);
        let mut rig = Rig::new(seed, path, config(rails));
        (rig.ends[0].to_send, rig.ends[1].to_send) = (draw.within(1..1500), draw.within(1..1500));
        for _ in 0..draw.within(1..25) {
            let (rail, end, now) = (draw.within(0..rails.into()) as u8, usize::from(draw.coin()), rig.net.now());
            match draw.within(0..4) {
                0 => rig.set_rail(rail.into(), Path { dead: true, ..path }),
                1 => rig.set_rail(rail.into(), path),
                2 => rig.ends[end].link.rail_down(now, Rail(rail)),
                _ => rig.ends[end].link.rail_up(now, Rail(rail)),
            }
            rig.run_until(now + Nanos::from_us(draw.within(1..20_000)));
        }
        for rail in 0..rails {
            let now = rig.net.now();
            rig.set_rail(rail.into(), path);
            rig.ends.iter_mut().for_each(|end| end.link.rail_up(now, Rail(rail)));
        }
        rig.finish();
    });
}

#[test]
fn a_third_of_all_frames_lost_is_survived_with_every_seed() {
    each_seed(40, |seed, _| {
        let path = Path { loss_permille: 333, jitter: Nanos(20_000), ..Path::PERFECT };
        let mut rig = Rig::new(seed, path, config(1));
        (rig.ends[0].to_send, rig.ends[1].to_send) = (500, 100);
        let took = rig.finish();
        assert!(took < Nanos::from_ms(60_000), "500 packets took {took:?}");
    });
}

#[test]
fn a_perfect_network_sees_no_repetition_and_few_acknowledgements() {
    let mut rig = Rig::new(1, Path::PERFECT, config(1));
    rig.ends[0].to_send = 20_000;
    rig.finish();
    let (sender, receiver) = (rig.ends[0].link.counters(), rig.ends[1].link.counters());
    assert_eq!((sender.packets_sent, sender.packets_retransmitted), (20_000, 0));
    assert!(receiver.acks_sent <= 20_000 / 8, "{receiver:?}");
    assert_eq!(receiver.packets_delivered, 20_000);
    assert_eq!((receiver.duplicates_dropped, receiver.tags_refused, receiver.malformed_refused), (0, 0, 0));
}

#[test]
fn reordering_alone_costs_few_repetitions_once_it_is_known() {
    let path = Path { jitter: Nanos(8_000), ..Path::PERFECT };
    let mut rig = Rig::new(3, path, config(1));
    rig.ends[0].to_send = 20_000;
    rig.finish();
    let counters = rig.ends[0].link.counters();
    assert!(counters.packets_retransmitted < 1_000, "{counters:?}");
}

#[test]
fn a_lost_packet_is_repeated_within_milliseconds() {
    let path = Path { loss_permille: 20, ..Path::PERFECT };
    each_seed(50, |seed, _| {
        let mut worst = Nanos(0);
        let mut rig = Rig::new(seed, path, config(1));
        // The first exchange tells the round-trip time; then one packet at a time, whose loss nothing else reveals.
        for number in 1..=40 {
            rig.ends[0].to_send = number;
            worst = worst.max(rig.finish());
        }
        assert!(worst < Nanos::from_ms(20), "a packet took {worst:?}");
    });
}

#[test]
fn corrupted_frames_are_caught_by_the_tag_and_counted() {
    for encrypt in [false, true] {
        let path = Path { corrupt_permille: 200, ..Path::PERFECT };
        let mut rig = Rig::new(9, path, pulc_link::Config { encrypt, ..config(1) });
        (rig.ends[0].to_send, rig.ends[1].to_send) = (1000, 1000);
        rig.finish();
        let corrupted = rig.net.counters().corrupted;
        let refused: u64 = rig.ends.iter().map(|end| end.refused).sum();
        assert!(corrupted > 100);
        // What was bent may still be on its way or waiting when all is done.
        assert!(refused <= corrupted && refused + 20 >= corrupted, "{refused} refused of {corrupted}");
        assert!(rig.ends.iter().all(|end| end.link.counters().tags_refused > 50));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let path = Path { loss_permille: 150, duplicate_permille: 50, jitter: Nanos(50_000), ..Path::PERFECT };
        let mut rig = Rig::new(77, path, config(2));
        (rig.ends[0].to_send, rig.ends[1].to_send) = (300, 300);
        (rig.finish(), rig.net.counters(), rig.ends.map(|end| end.link.counters()))
    };
    assert_eq!(run(), run());
}
