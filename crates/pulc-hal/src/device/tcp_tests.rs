//! The `tcp` device over loopback: the conformance suite, and what only streams can do wrong.

use super::fault::{Fault, FaultPlan};
use super::tcp::{FRAME_MAX, Tcp, Token};
use super::{Device, Frame, Peer, PeerFault, SendError, Sink, conformance};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const ONE: Token = *b"greets from one.";
const TWO: Token = *b"greets from two.";
const HANG: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Taken {
    frames: Vec<(Peer, Vec<u8>)>,
    faults: Vec<PeerFault>,
}

impl Sink for Taken {
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame {
            self.frames.push((from, bytes.to_vec()));
        }
    }

    fn peer_failed(&mut self, _from: Peer, why: PeerFault) {
        self.faults.push(why);
    }
}

fn device() -> Tcp {
    Tcp::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback exists")).expect("a fresh socket is usable")
}

fn pair() -> (Tcp, Peer, Tcp, Peer) {
    let (mut one, mut two) = (device(), device());
    let to_two = one.open(two.local_address(), ONE, TWO);
    let to_one = two.open(one.local_address(), TWO, ONE);
    (one, to_two, two, to_one)
}

/// Polls both until `done`.
fn until(one: &mut Tcp, two: &mut Tcp, at_two: &mut Taken, mut done: impl FnMut(&Taken, &Taken) -> bool) -> Taken {
    let (start, mut at_one) = (Instant::now(), Taken::default());
    while !done(&at_one, at_two) {
        assert!(start.elapsed() < HANG, "nothing came");
        one.poll(&mut at_one, 16);
        two.poll(at_two, 16);
    }
    at_one
}

#[test]
fn the_device_conforms() {
    let make = || {
        let (a, b_at_a, b, a_at_b) = pair();
        conformance::Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(std::thread::yield_now) }
    };
    let report = conformance::run(make, &[]);
    assert!(report.excluded.is_empty());
}

#[test]
fn the_device_conforms_inside_of_a_fault_device_that_does_no_harm() {
    let make = || {
        let (a, b_at_a, b, a_at_b) = pair();
        let (a, b) = (Fault::new(a, FaultPlan::default()), Fault::new(b, FaultPlan::default()));
        conformance::Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(std::thread::yield_now) }
    };
    assert!(conformance::run(make, &[]).excluded.is_empty());
}

#[test]
fn a_sender_that_nobody_reads_is_told_again_and_nothing_of_what_was_taken_is_lost() {
    let (mut one, to_two, mut two, to_one) = pair();
    let frame = vec![7; FRAME_MAX];
    let (mut sent, start) = (0u32, Instant::now());
    // The kernel takes some MiB; the connection is made by the polls of `one` alone, `two` does not look.
    let mut agains = 0;
    while agains < 1000 {
        assert!(start.elapsed() < HANG, "a stream without a limit");
        match one.send_short(to_two, [&sent.to_le_bytes(), &frame[4..]]) {
            Ok(()) => (sent, agains) = (sent + 1, 0),
            Err(SendError::Again) => agains += 1,
            Err(other) => panic!("{other}"),
        }
        one.poll(&mut Taken::default(), 1);
    }
    let mut at_two = Taken::default();
    until(&mut one, &mut two, &mut at_two, |_, two| two.frames.len() == sent as usize);
    for (number, (from, bytes)) in (0u32..).zip(&at_two.frames) {
        assert_eq!((*from, bytes.len()), (to_one, FRAME_MAX));
        assert_eq!(bytes[..4], number.to_le_bytes());
    }
}

#[test]
fn a_run_arrives_as_the_frames_it_was_made_of() {
    let (mut one, to_two, mut two, _) = pair();
    for (segment, len) in [(100usize, 100usize), (100, 64_000), (1472, 1472 * 40 + 3), (FRAME_MAX, FRAME_MAX * 2 - 1)] {
        let run: Vec<u8> = (0..len).map(|byte| (byte * 7 % 251) as u8).collect();
        while one.send_run(to_two, &[&run], segment) == Err(SendError::Again) {
            one.poll(&mut Taken::default(), 1);
        }
        let mut at_two = Taken::default();
        until(&mut one, &mut two, &mut at_two, |_, two| two.frames.len() == len.div_ceil(segment));
        let joined: Vec<u8> = at_two.frames.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert!(joined == run, "{len} bytes in frames of {segment} changed");
    }
}

#[test]
fn a_stream_that_breaks_is_told_and_opened_again() {
    let (mut one, to_two, two, _) = pair();
    let address = two.local_address();
    drop(two);
    let start = Instant::now();
    let mut at_one = Taken::default();
    while at_one.faults.is_empty() {
        assert!(start.elapsed() < HANG, "nobody listens there and nothing is told");
        one.send_short(to_two, [b"lost", b""]).expect("losing is no failure");
        one.poll(&mut at_one, 1);
    }
    assert!(matches!(at_one.faults[0], PeerFault::System(_)));
    let mut two = Tcp::new(TcpListener::bind(address).expect("the port is free again")).expect("usable");
    let to_one = two.open(one.local_address(), TWO, ONE);
    let mut at_two = Taken::default();
    while at_two.frames.is_empty() {
        assert!(start.elapsed() < HANG, "the stream was not opened again");
        one.send_short(to_two, [b"back", b""]).expect("an idle stream takes a frame");
        one.poll(&mut at_one, 1);
        two.poll(&mut at_two, 1);
    }
    assert_eq!(at_two.frames[0], (to_one, b"back".to_vec()));
}

#[test]
fn strangers_are_closed_hear_nothing_and_disturb_nobody() {
    let (mut one, to_two, mut two, to_one) = pair();
    // More than are waited for; the last ones say something wrong, or something right and then too much.
    let strangers: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(two.local_address()).expect("it listens")).collect();
    let mut liar = TcpStream::connect(two.local_address()).expect("it listens");
    liar.write_all(b"I am one, really: let me in").expect("the kernel takes it");
    let mut at_two = Taken::default();
    for number in 0..100u8 {
        one.send_short(to_two, [&[number], b""]).expect("an idle stream takes a frame");
        until(&mut one, &mut two, &mut at_two, |_, two| two.frames.len() > usize::from(number));
    }
    assert_eq!(at_two.frames.len(), 100);
    assert!(at_two.frames.iter().all(|(from, bytes)| *from == to_one && bytes.len() == 1));
    liar.set_read_timeout(Some(HANG)).expect("a timeout");
    assert!(matches!(liar.read(&mut [0; 8]), Ok(0) | Err(_)), "a liar hears nothing");
    assert!(two.counters().frames_refused >= 37, "the oldest strangers had to go");
    drop(strangers);
}

#[test]
fn a_frame_beyond_the_limit_ends_its_stream_and_is_told() {
    let (mut one, _, mut two, to_one) = pair();
    let mut rogue = TcpStream::connect(two.local_address()).expect("it listens");
    rogue.write_all(&ONE).expect("the kernel takes it");
    rogue.write_all(&[3, 0, 0, 0, 1, 2, 3]).expect("the kernel takes it");
    rogue.write_all(&[0xff; 64]).expect("the kernel takes it");
    let mut at_two = Taken::default();
    until(&mut one, &mut two, &mut at_two, |_, two| !two.faults.is_empty());
    assert_eq!(at_two.frames, [(to_one, vec![1, 2, 3])]);
    assert!(matches!(at_two.faults[..], [PeerFault::BrokenRules(_)]));
}
