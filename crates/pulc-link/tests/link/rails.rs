//! Several rails: one dies, the others take over, nothing is lost or doubled; it comes back and is used again.

use crate::rig::{Rig, config};
use pulc_base::clock::Nanos;
use pulc_hal::device::Device;
use pulc_hal::device::sim::Path;
use pulc_link::Rail;

const DEAD: Path = Path { dead: true, ..Path::PERFECT };

#[test]
fn a_dead_rail_is_replaced_within_tens_of_milliseconds() {
    for seed in 0..20 {
        for rail in [0, 1] {
            let mut rig = Rig::new(seed, Path::PERFECT, config(2));
            (rig.ends[0].to_send, rig.ends[1].to_send) = (200, 200);
            rig.finish();
            (rig.ends[0].to_send, rig.ends[1].to_send) = (3000, 3000);
            rig.run_until(rig.net.now() + Nanos::from_us(300));
            rig.set_rail(rail, DEAD);
            let took = rig.finish();
            assert!(took < Nanos::from_ms(50), "seed {seed}, rail {rail}: {took:?}");
        }
    }
}

#[test]
fn a_rail_dead_in_one_direction_is_replaced_too() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut rig = Rig::new(4, Path::PERFECT, config(2));
        (rig.ends[0].to_send, rig.ends[1].to_send) = (200, 200);
        rig.finish();
        let (from, to) = (rig.ends[from].sims[0].address(), rig.ends[to].sims[0].address());
        rig.net.set_path(from, to, DEAD);
        (rig.ends[0].to_send, rig.ends[1].to_send) = (3000, 3000);
        let took = rig.finish();
        assert!(took < Nanos::from_ms(50), "{took:?}");
    }
}

#[test]
fn a_rail_that_comes_back_is_used_again() {
    let mut rig = Rig::new(2, Path::PERFECT, config(2));
    // The first rail is the faster one, hence the one in use.
    rig.set_rail(1, Path { delay: Nanos(100_000), ..Path::PERFECT });
    rig.ends[0].to_send = 2000;
    rig.finish();
    rig.set_rail(0, DEAD);
    rig.ends[0].to_send = 4000;
    rig.finish();
    rig.set_rail(0, Path::PERFECT);
    rig.run_until(rig.net.now() + Nanos::from_ms(2000));
    let before = rig.ends[0].sims[0].counters().frames_sent;
    rig.ends[0].to_send = 8000;
    rig.finish();
    let used = rig.ends[0].sims[0].counters().frames_sent - before;
    assert!(used > 1000, "{used} of 4000 packets on the rail that came back");
}

#[test]
fn the_owner_takes_rails_away_and_gives_them_back() {
    let mut rig = Rig::new(3, Path { delay: Nanos::from_us(200), ..Path::PERFECT }, config(2));
    (rig.ends[0].to_send, rig.ends[1].to_send) = (5000, 5000);
    rig.run_until(Nanos::from_ms(1));
    let now = rig.net.now();
    rig.ends[0].link.rail_down(now, Rail(0));
    rig.ends[0].link.rail_down(now, Rail(9));
    let before = rig.ends[0].sims[0].counters().frames_sent;
    rig.run_until(now + Nanos::from_ms(1));
    assert_eq!(rig.ends[0].sims[0].counters().frames_sent, before, "nothing leaves on a rail that is down");
    let now = rig.net.now();
    rig.ends[0].link.rail_down(now, Rail(1));
    rig.run_until(now + Nanos::from_ms(5));
    assert!(!rig.is_done(), "without a rail everything waits");
    let now = rig.net.now();
    rig.ends[0].link.rail_up(now, Rail(0));
    rig.ends[0].link.rail_up(now, Rail(1));
    rig.finish();
}

#[test]
fn rails_that_lose_differently_still_deliver_once_and_in_order() {
    for seed in 0..15 {
        let mut rig = Rig::new(seed, Path::PERFECT, config(3));
        rig.set_rail(0, Path { loss_permille: 100, ..Path::PERFECT });
        rig.set_rail(
            1,
            Path { delay: Nanos(300_000), jitter: Nanos(300_000), duplicate_permille: 100, ..Path::PERFECT },
        );
        rig.set_rail(2, Path { corrupt_permille: 100, ..Path::PERFECT });
        (rig.ends[0].to_send, rig.ends[1].to_send) = (2000, 2000);
        rig.run_until(Nanos::from_ms(2));
        rig.set_rail((seed % 3) as usize, DEAD);
        rig.finish();
    }
}
