//! What every device must do, as a suite that runs on any of them. Called by the tests of each device with a [`Rig`] maker;
//! what a device is excused from is data with a reason ([`Exclusion`]), so that excuses can be counted.
//!
//! Devices without [`Caps::RELIABLE`] may lose frames only when they are overrun: checks keep few frames in flight. Must
//! never wait for wall-clock time: a check gives up after a number of fruitless polls.

use super::{Caps, Device, Frame, Peer, PeerFault, SendError, Sink};
use std::collections::VecDeque;

/// Two connected devices of one kind.
pub struct Rig<D> {
    pub a: D,
    pub b: D,
    /// `b` as `a` numbers it.
    pub b_at_a: Peer,
    /// `a` as `b` numbers it.
    pub a_at_b: Peer,
    /// Lets time pass for the devices (virtual time, kernel queues); called between fruitless polls.
    pub pass_time: Box<dyn FnMut()>,
}

/// An excuse: this check is not run, for this reason.
pub struct Exclusion {
    pub check: &'static str,
    pub reason: &'static str,
}

/// What [`run`] did.
#[derive(Debug, Default)]
pub struct Report {
    pub passed: Vec<&'static str>,
    pub excluded: Vec<(&'static str, &'static str)>,
}

/// A name and what it does.
type Check<D> = (&'static str, fn(&mut Bench<D>));

/// Fruitless polls after which a frame counts as lost.
const PATIENCE: usize = 2_000_000;

/// Runs every check that is not excluded on a fresh rig.
///
/// # Panics
/// When a check fails, with its name; when an exclusion names no check.
pub fn run<D: Device>(mut make: impl FnMut() -> Rig<D>, exclusions: &[Exclusion]) -> Report {
    let checks: &[Check<D>] = &[
        ("short_frames_of_every_length_arrive_whole", short_frames_of_every_length_arrive_whole),
        ("parts_are_gathered_wherever_the_cut_is", parts_are_gathered_wherever_the_cut_is),
        ("bulk_frames_arrive_whole", bulk_frames_arrive_whole),
        ("frames_arrive_once_and_in_order", frames_arrive_once_and_in_order),
        ("both_directions_run_at_once", both_directions_run_at_once),
        ("a_full_device_answers_again_and_recovers", a_full_device_answers_again_and_recovers),
        ("poll_keeps_its_budget", poll_keeps_its_budget),
        ("a_frame_that_is_too_long_is_refused_with_the_limit", a_frame_that_is_too_long_is_refused_with_the_limit),
        ("a_closed_or_unknown_peer_is_gone", a_closed_or_unknown_peer_is_gone),
        ("counters_count_what_moved", counters_count_what_moved),
    ];
    for exclusion in exclusions {
        assert!(checks.iter().any(|(name, _)| *name == exclusion.check), "no check is called {}", exclusion.check);
    }
    let mut report = Report::default();
    for (name, check) in checks {
        if let Some(exclusion) = exclusions.iter().find(|exclusion| exclusion.check == *name) {
            report.excluded.push((name, exclusion.reason));
            continue;
        }
        let rig = make();
        println!("conformance: {}: {name}", rig.a.name());
        check(&mut Bench { rig, inbox_a: Inbox::default(), inbox_b: Inbox::default() });
        report.passed.push(name);
    }
    report
}

/// Collects what arrives at one end.
#[derive(Default)]
struct Inbox {
    frames: VecDeque<Vec<u8>>,
    from: Option<Peer>,
    faults: Vec<PeerFault>,
}

impl Sink for Inbox {
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        self.from = Some(from);
        self.frames.push_back(match frame {
            Frame::Private(bytes) => bytes.to_vec(),
            Frame::Shared(shared) => {
                let mut bytes = vec![0; shared.len()];
                shared.copy_to(&mut bytes);
                // The same in two pieces, from the end: the accessor takes any range.
                let mut again = vec![0; shared.len()];
                let (front, back) = again.split_at_mut(bytes.len() / 3);
                shared.copy_range_to(front.len(), back);
                shared.copy_range_to(0, front);
                assert_eq!(bytes, again, "two looks at a frame that nobody changes differ");
                again.fill(0);
                shared.copy_range_past_caches(bytes.len() / 3, &mut again[bytes.len() / 3..]);
                assert_eq!(bytes[bytes.len() / 3..], again[bytes.len() / 3..], "past the caches other bytes come");
                bytes
            }
        });
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        self.faults.push(why);
    }
}

struct Bench<D> {
    rig: Rig<D>,
    inbox_a: Inbox,
    inbox_b: Inbox,
}

impl<D: Device> Bench<D> {
    /// Sends from `a`, polling `b` while there is no room.
    fn send(&mut self, bulk: bool, parts: [&[u8]; 2]) {
        for _ in 0..PATIENCE {
            let to = self.rig.b_at_a;
            let result = if bulk { self.rig.a.send_bulk(to, parts) } else { self.rig.a.send_short(to, parts) };
            match result {
                Ok(()) => return self.rig.a.flush(),
                Err(SendError::Again) => self.turn(),
                Err(other) => panic!("a send of {} + {} bytes failed: {other}", parts[0].len(), parts[1].len()),
            }
        }
        panic!("the device never had room");
    }

    /// The next frame at `b`.
    fn receive(&mut self) -> Vec<u8> {
        for _ in 0..PATIENCE {
            if let Some(frame) = self.inbox_b.frames.pop_front() {
                assert_eq!(self.inbox_b.from, Some(self.rig.a_at_b), "the frame names a wrong sender");
                return frame;
            }
            self.turn();
        }
        panic!("a frame was lost");
    }

    fn turn(&mut self) {
        self.rig.a.flush();
        self.rig.b.flush();
        let moved = self.rig.b.poll(&mut self.inbox_b, 16) + self.rig.a.poll(&mut self.inbox_a, 16);
        assert_eq!((&self.inbox_a.faults, &self.inbox_b.faults), (&vec![], &vec![]), "a healthy peer was given up");
        if moved == 0 {
            (self.rig.pass_time)();
        }
    }

    /// Nothing more comes.
    fn expect_silence(&mut self) {
        for _ in 0..1000 {
            self.turn();
        }
        assert!(self.inbox_b.frames.is_empty() && self.inbox_a.frames.is_empty(), "a frame came twice or from nowhere");
    }

    fn round_trip(&mut self, bulk: bool, parts: [&[u8]; 2]) {
        self.send(bulk, parts);
        assert_eq!(self.receive(), parts.concat(), "{} + {} bytes changed", parts[0].len(), parts[1].len());
    }

    fn bulk(&self) -> bool {
        self.rig.a.caps().has(Caps::BULK)
    }
}

/// Bytes that differ from frame to frame and from place to place.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed.wrapping_mul(131) ^ i.wrapping_mul(7) ^ (i >> 8)) as u8).collect()
}

fn short_frames_of_every_length_arrive_whole<D: Device>(bench: &mut Bench<D>) {
    let max = bench.rig.a.limits().short_max;
    for len in (0..=max.min(1200)).chain([max]) {
        let bytes = pattern(len, len);
        bench.round_trip(false, [&[], &bytes]);
    }
    bench.expect_silence();
}

fn parts_are_gathered_wherever_the_cut_is<D: Device>(bench: &mut Bench<D>) {
    let len = bench.rig.a.limits().short_max.min(200);
    let bytes = pattern(1, len);
    for cut in 0..=len {
        bench.round_trip(false, [&bytes[..cut], &bytes[cut..]]);
    }
    if bench.bulk() {
        let max = bench.rig.a.limits().frame_max;
        let bytes = pattern(2, max);
        for cut in [0, 1, 8, 24, 63, 64, 65, 800, 1000, 2000, max / 2, max - 1, max] {
            let cut = cut.min(max);
            bench.round_trip(true, [&bytes[..cut], &bytes[cut..]]);
        }
    }
    bench.expect_silence();
}

fn bulk_frames_arrive_whole<D: Device>(bench: &mut Bench<D>) {
    if !bench.bulk() {
        return;
    }
    let max = bench.rig.a.limits().frame_max;
    let mut len = 0;
    while len < max {
        let bytes = pattern(len, len);
        bench.round_trip(true, [&[], &bytes]);
        len = len + 1 + len / 7;
    }
    let bytes = pattern(max, max);
    // Often enough to use every buffer of the device more than once.
    for _ in 0..600 {
        bench.round_trip(true, [&bytes[..20], &bytes[20..]]);
    }
    bench.expect_silence();
}

fn frames_arrive_once_and_in_order<D: Device>(bench: &mut Bench<D>) {
    let limits = bench.rig.a.limits();
    let reliable = bench.rig.a.caps().has(Caps::RELIABLE.with(Caps::ORDERED));
    let (mut sent, mut received) = (0usize, 0usize);
    // Of a device that may drop what overruns it, no more is asked than what its smallest queue holds.
    let in_flight = if reliable { usize::MAX } else { 8 };
    let len_of = |i: usize| match i % 5 {
        0..3 => 4 + (i * 13) % (limits.short_max - 3),
        _ => 4 + (i * 997) % (limits.frame_max - 3),
    };
    while received < 3000 {
        let idle = sent == 3000 || sent - received >= in_flight;
        if !idle {
            let mut bytes = pattern(sent, len_of(sent));
            bytes[..4].copy_from_slice(&(sent as u32).to_le_bytes());
            let bulk = bytes.len() > limits.short_max;
            if bulk && !bench.bulk() {
                bytes.truncate(limits.short_max);
            }
            let to = bench.rig.b_at_a;
            let parts: [&[u8]; 2] = [&bytes[..4], &bytes[4..]];
            let result =
                if bulk && bench.bulk() { bench.rig.a.send_bulk(to, parts) } else { bench.rig.a.send_short(to, parts) };
            match result {
                Ok(()) => {
                    sent += 1;
                    continue;
                }
                Err(SendError::Again) => {}
                Err(other) => panic!("frame {sent} was not taken: {other}"),
            }
        }
        let frame = bench.receive();
        let mut expected = pattern(received, len_of(received));
        expected[..4].copy_from_slice(&(received as u32).to_le_bytes());
        if !bench.bulk() {
            expected.truncate(limits.short_max);
        }
        assert!(frame == expected, "frame {received} came out of order or changed");
        received += 1;
    }
    bench.expect_silence();
}

fn both_directions_run_at_once<D: Device>(bench: &mut Bench<D>) {
    for i in 0..2000usize {
        let (there, back) = (pattern(i, 24), pattern(i + 7, 24));
        bench.send(false, [&there[..8], &there[8..]]);
        let to = bench.rig.a_at_b;
        while bench.rig.b.send_short(to, [&back[..3], &back[3..]]) == Err(SendError::Again) {
            bench.turn();
        }
        bench.rig.b.flush();
        assert_eq!(bench.receive(), there);
        for _ in 0..PATIENCE {
            if !bench.inbox_a.frames.is_empty() {
                break;
            }
            bench.turn();
        }
        assert_eq!(bench.inbox_a.frames.pop_front(), Some(back));
    }
    bench.expect_silence();
}

fn a_full_device_answers_again_and_recovers<D: Device>(bench: &mut Bench<D>) {
    if !bench.rig.a.caps().has(Caps::RELIABLE) {
        // It may take everything and drop it instead.
        return;
    }
    let flavours: &[(bool, usize)] =
        if bench.bulk() { &[(false, 1), (false, 150), (true, 4096)] } else { &[(false, 1), (false, 150)] };
    for &(bulk, len) in flavours {
        let len = len.min(if bulk { bench.rig.a.limits().frame_max } else { bench.rig.a.limits().short_max });
        let to = bench.rig.b_at_a;
        for round in 0..3 {
            let mut taken = 0;
            let full = loop {
                let bytes = pattern(taken, len);
                let parts: [&[u8]; 2] = [&[], &bytes];
                let result = if bulk { bench.rig.a.send_bulk(to, parts) } else { bench.rig.a.send_short(to, parts) };
                match result {
                    Ok(()) => taken += 1,
                    Err(full) => break full,
                }
                assert!(taken < 10_000_000, "a device without a limit");
            };
            assert_eq!(full, SendError::Again, "round {round}");
            assert!(taken > 0, "no room even in an empty device, round {round}");
            for i in 0..taken {
                assert!(bench.receive() == pattern(i, len), "frame {i} of {taken} changed");
            }
        }
    }
    bench.expect_silence();
}

fn poll_keeps_its_budget<D: Device>(bench: &mut Bench<D>) {
    let to = bench.rig.b_at_a;
    for i in 0..4u8 {
        assert_eq!(bench.rig.a.send_short(to, [&[i], &[]]), Ok(()));
    }
    bench.rig.a.flush();
    let mut came = 0;
    for _ in 0..PATIENCE {
        if came == 4 {
            break;
        }
        let before = bench.inbox_b.frames.len();
        let taken = bench.rig.b.poll(&mut bench.inbox_b, 1);
        assert!(taken <= 1 && bench.inbox_b.frames.len() - before == taken, "poll took {taken} frames of 1");
        came += taken;
        if taken == 0 {
            (bench.rig.pass_time)();
        }
    }
    assert_eq!(came, 4);
    assert_eq!(bench.rig.b.poll(&mut bench.inbox_b, 0), 0, "a budget of nothing takes nothing");
}

fn a_frame_that_is_too_long_is_refused_with_the_limit<D: Device>(bench: &mut Bench<D>) {
    let limits = bench.rig.a.limits();
    let bytes = vec![0; limits.frame_max + 1];
    let to = bench.rig.b_at_a;
    let len = limits.short_max + 1;
    let refused = bench.rig.a.send_short(to, [&bytes[..1], &bytes[1..len]]);
    assert_eq!(refused, Err(SendError::TooLong { len, max: limits.short_max }));
    let expected = if bench.bulk() {
        SendError::TooLong { len: limits.frame_max + 1, max: limits.frame_max }
    } else {
        SendError::Unsupported
    };
    assert_eq!(bench.rig.a.send_bulk(to, [&[], &bytes]), Err(expected));
    bench.round_trip(false, [b"still", b" works"]);
    bench.expect_silence();
}

fn a_closed_or_unknown_peer_is_gone<D: Device>(bench: &mut Bench<D>) {
    let unknown = Peer(u32::MAX);
    assert_eq!(bench.rig.a.send_short(unknown, [&[], &[]]), Err(SendError::PeerGone));
    bench.round_trip(false, [b"first", b""]);
    let to = bench.rig.b_at_a;
    bench.rig.a.close_peer(to);
    assert_eq!(bench.rig.a.send_short(to, [b"x", b""]), Err(SendError::PeerGone));
    if bench.bulk() {
        assert_eq!(bench.rig.a.send_bulk(to, [b"x", b""]), Err(SendError::PeerGone));
    }
    // Closing twice or what never was is harmless; polling goes on.
    bench.rig.a.close_peer(to);
    bench.rig.a.close_peer(unknown);
    bench.rig.a.poll(&mut bench.inbox_a, 16);
}

fn counters_count_what_moved<D: Device>(bench: &mut Bench<D>) {
    let (before_a, before_b) = (bench.rig.a.counters(), bench.rig.b.counters());
    for _ in 0..10 {
        bench.round_trip(false, [b"four", b"more"]);
    }
    let (a, b) = (bench.rig.a.counters(), bench.rig.b.counters());
    assert_eq!(a.frames_sent - before_a.frames_sent, 10);
    assert_eq!(a.bytes_sent - before_a.bytes_sent, 80);
    assert_eq!(b.frames_received - before_b.frames_received, 10);
    assert_eq!(b.bytes_received - before_b.bytes_received, 80);
    assert_eq!(b.frames_refused, before_b.frames_refused);
}
