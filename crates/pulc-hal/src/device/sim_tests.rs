//! The `sim` device: the conformance suite, and that its network does what it is told, the same with the same seed.

use super::sim::{Path, SimCounters, SimNet};
use super::{Device, Frame, Peer, PeerFault, Sink, conformance};
use pulc_base::clock::Nanos;

#[test]
fn the_device_conforms() {
    let make = || {
        let net = SimNet::new(1, Path::PERFECT);
        let (mut a, mut b) = (net.endpoint(1 << 20), net.endpoint(1 << 20));
        let (b_at_a, a_at_b) = (a.open(b.address()), b.open(a.address()));
        let pass_time = Box::new(move || net.advance_to(net.now() + Nanos(1_000)));
        conformance::Rig { a, b, b_at_a, a_at_b, pass_time }
    };
    let report = conformance::run(make, &[]);
    assert!(report.excluded.is_empty());
}

#[derive(Default)]
struct Taken(Vec<Vec<u8>>);

impl Sink for Taken {
    fn frame(&mut self, _from: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame {
            self.0.push(bytes.to_vec());
        }
    }

    fn peer_failed(&mut self, _from: Peer, _why: PeerFault) {}
}

fn run(seed: u64, path: Path, queue_max_bytes: usize) -> (Vec<Vec<u8>>, SimCounters) {
    let net = SimNet::new(seed, path);
    let (mut a, mut b) = (net.endpoint(1 << 20), net.endpoint(queue_max_bytes));
    let to = a.open(b.address());
    b.open(a.address());
    for number in 0..1000u32 {
        a.send_short(to, [&number.to_le_bytes(), &[]]).expect("a limit far away");
    }
    while let Some(at) = net.next_arrival() {
        net.advance_to(at);
    }
    let mut taken = Taken::default();
    b.poll(&mut taken, usize::MAX);
    (taken.0, net.counters())
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let path =
        Path { loss_permille: 100, duplicate_permille: 50, corrupt_permille: 50, jitter: Nanos(500), ..Path::PERFECT };
    let (frames, counters) = run(7, path, 1 << 20);
    assert_eq!((frames.clone(), counters), run(7, path, 1 << 20));
    assert_ne!(frames, run(8, path, 1 << 20).0);
    assert!((50..200).contains(&counters.lost), "{counters:?}");
    assert!(counters.duplicated > 10 && counters.corrupted > 10, "{counters:?}");
    assert!(!frames.is_sorted(), "jitter reorders");
}

#[test]
fn frames_behind_a_bottleneck_leave_at_its_speed_and_what_its_queue_does_not_hold_is_lost() {
    let net = SimNet::new(1, Path::PERFECT);
    let (mut a, mut b) = (net.endpoint(1 << 20), net.endpoint(1 << 20));
    let to = a.open(b.address());
    b.open(a.address());
    net.add_bottleneck(&[b.address()], 10, 5_000);
    for _ in 0..10 {
        a.send_short(to, [&[0; 1000], &[]]).expect("a limit far away");
    }
    let mut taken = Taken::default();
    let mut times = Vec::new();
    while let Some(at) = net.next_arrival() {
        net.advance_to(at);
        times.push(at.0);
        b.poll(&mut taken, usize::MAX);
    }
    assert_eq!(times, [110_000, 210_000, 310_000, 410_000, 510_000]);
    assert_eq!((taken.0.len(), net.counters().lost), (5, 5));
}

#[test]
fn a_full_queue_drops_and_a_dead_path_swallows() {
    let (frames, counters) = run(1, Path::PERFECT, 100);
    assert_eq!((frames.len(), counters.overflowed), (25, 975));
    let (frames, counters) = run(1, Path { dead: true, ..Path::PERFECT }, 1 << 20);
    assert_eq!((frames.len(), counters.lost), (0, 1000));
}
