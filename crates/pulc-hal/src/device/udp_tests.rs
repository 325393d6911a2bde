//! The `udp` device over loopback: the conformance suite, and what only sockets can do wrong.

use super::udp::Udp;
use super::{Device, Frame, Peer, PeerFault, SendError, Sink, conformance};
use pulc_base::sieve::{IF_EQUAL, Instruction, LOAD_BYTE, RETURN, UDP_HEADER_BYTES, WHOLE};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Taken(Vec<(Peer, Vec<u8>)>);

impl Sink for Taken {
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame {
            self.0.push((from, bytes.to_vec()));
        }
    }

    fn peer_failed(&mut self, _from: Peer, _why: PeerFault) {}
}

fn device() -> Udp {
    Udp::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback exists")).expect("a fresh socket is usable")
}

fn pair() -> (Udp, Peer, Udp, Peer) {
    let (mut one, mut two) = (device(), device());
    let to_two = one.open(two.local_address());
    let to_one = two.open(one.local_address());
    (one, to_two, two, to_one)
}

fn collect(device: &mut Udp, frames: usize) -> Vec<(Peer, Vec<u8>)> {
    let mut taken = Taken::default();
    let start = Instant::now();
    while taken.0.len() < frames && start.elapsed() < Duration::from_secs(120) {
        device.poll(&mut taken, 7);
    }
    taken.0
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
fn a_run_arrives_as_the_frames_it_was_made_of() {
    let (mut one, to_two, mut two, to_one) = pair();
    for (segment, len) in [(100usize, 100usize), (100, 1000), (1472, 1472 * 50 + 3), (8_000, 8_000 * 9 + 1)] {
        let run: Vec<u8> = (0..len).map(|byte| (byte * 7 % 251) as u8).collect();
        one.send_run(to_two, &[&run], segment).expect("an idle socket takes a run");
        one.flush();
        let frames = collect(&mut two, len.div_ceil(segment));
        assert!(frames.iter().all(|(from, frame)| *from == to_one && frame.len() <= segment));
        assert_eq!(frames.concat_bytes(), run, "{len} bytes in frames of {segment}");
    }
    assert_eq!(two.counters().frames_received, one.counters().frames_sent);
}

#[test]
fn a_run_is_gathered_from_pieces_whether_it_fits_one_call_or_not() {
    let (mut one, to_two, mut two, _) = pair();
    for (piece_frames, pieces) in [(3, 4), (10, 8), (2, 12), (40, 3), (1, 1)] {
        let bytes: Vec<u8> = (0..piece_frames * pieces * 1000).map(|byte| (byte % 249) as u8).collect();
        let parts: Vec<&[u8]> = bytes.chunks(piece_frames * 1000).collect();
        one.send_run(to_two, &parts, 1000).expect("an idle socket takes a run");
        let frames = collect(&mut two, piece_frames * pieces);
        assert!(frames.iter().all(|(_, frame)| frame.len() == 1000));
        assert_eq!(frames.concat_bytes(), bytes, "{pieces} pieces of {piece_frames} frames");
    }
}

#[test]
fn batched_frames_of_mixed_lengths_keep_their_borders() {
    let (mut one, to_two, mut two, _) = pair();
    let lens = [5, 5, 5, 3, 5, 900, 900, 1, 0, 40, 40, 41];
    for (fill, len) in lens.into_iter().enumerate() {
        let bytes = vec![fill as u8; len];
        one.send_short(to_two, [&bytes[..len / 2], &bytes[len / 2..]]).expect("the batch has room");
    }
    one.flush();
    let frames = collect(&mut two, lens.len());
    let got: Vec<usize> = frames.iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(got, lens);
    assert!(frames.iter().enumerate().all(|(fill, (_, frame))| frame.iter().all(|&byte| byte == fill as u8)));
}

#[test]
fn frames_of_strangers_are_counted_and_dropped() {
    let (mut one, to_two, mut two, _) = pair();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback exists");
    stranger.send_to(b"let me in", two.local_address()).expect("loopback takes it");
    one.send_short(to_two, [b"hello", b""]).expect("room");
    one.flush();
    assert_eq!(collect(&mut two, 1)[0].1, b"hello");
    assert_eq!(two.counters().frames_refused, 1);
}

#[test]
fn a_peer_that_is_not_there_costs_frames_and_nothing_else() {
    let (mut one, to_two, two, _) = pair();
    let mut three = device();
    let back = three.open(one.local_address());
    drop(two);
    for _ in 0..100 {
        one.send_short(to_two, [b"into the void", b""]).expect("lost, not refused");
        one.flush();
    }
    one.open(three.local_address());
    three.send_short(back, [b"alive", b""]).expect("room");
    three.flush();
    assert_eq!(collect(&mut one, 1)[0].1, b"alive");
}

#[test]
fn too_long_frames_and_closed_peers_are_told() {
    let (mut one, to_two, _two, _) = pair();
    let long = vec![0; one.frame_max(to_two) + 1];
    assert!(matches!(one.send_short(to_two, [&long, b""]), Err(SendError::TooLong { .. })));
    assert!(matches!(one.send_run(to_two, &[&long], long.len()), Err(SendError::TooLong { .. })));
    one.close_peer(to_two);
    assert_eq!(one.send_short(to_two, [b"x", b""]), Err(SendError::PeerGone));
    assert_eq!(one.send_run(to_two, &[b"x"], 1), Err(SendError::PeerGone));
    assert_eq!(one.frame_max(to_two), 0);
}

#[test]
fn a_socket_that_takes_no_runs_sends_frame_by_frame() {
    let (mut one, to_two, mut two, _) = pair();
    one.without_segments();
    let run = vec![9; 30 * 700];
    one.send_run(to_two, &[&run], 700).expect("taken");
    assert_eq!(collect(&mut two, 30).len(), 30);
    assert!(one.counters().system_calls >= 30);
}

trait ConcatBytes {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl ConcatBytes for Vec<(Peer, Vec<u8>)> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|(_, frame)| frame.clone()).collect()
    }
}

#[test]
fn peers_with_and_without_a_socket_of_their_own_are_told_apart_and_none_is_overheard() {
    let mut hub = device();
    let mut rim: Vec<(Udp, Peer)> = (0..20)
        .map(|_| {
            let mut one = device();
            let to_hub = one.open(hub.local_address());
            (one, to_hub)
        })
        .collect();
    let at_hub: Vec<Peer> = rim.iter().map(|(one, _)| hub.open(one.local_address())).collect();
    for round in 0..3u8 {
        for (index, peer) in at_hub.iter().enumerate() {
            hub.send_short(*peer, [&[round, index as u8], &[]]).expect("an idle socket takes a frame");
            hub.flush();
        }
        for (index, (one, to_hub)) in rim.iter_mut().enumerate() {
            let came = collect(one, 1);
            assert_eq!(came, [(*to_hub, vec![round, index as u8])]);
            one.send_short(*to_hub, [&[index as u8], &[round]]).expect("an idle socket takes a frame");
            one.flush();
        }
        let mut came = collect(&mut hub, rim.len());
        came.sort();
        let sent: Vec<_> = at_hub.iter().enumerate().map(|(index, peer)| (*peer, vec![index as u8, round])).collect();
        assert_eq!(came, sent, "round {round}");
    }
    // A peer that was closed and opened again has another number and is heard again.
    let (one, to_hub) = &mut rim[0];
    hub.close_peer(at_hub[0]);
    let again = hub.open(one.local_address());
    hub.send_short(again, [b"again", &[]]).expect("an idle socket takes a frame");
    hub.flush();
    assert_eq!(collect(one, 1), [(*to_hub, b"again".to_vec())]);
    one.send_short(*to_hub, [b"heard", &[]]).expect("an idle socket takes a frame");
    one.flush();
    assert_eq!(collect(&mut hub, 1), [(again, b"heard".to_vec())]);
}

/// Takes what came in one piece as it came.
#[derive(Default)]
struct Runs(Vec<(Peer, Vec<u8>)>);

impl Sink for Runs {
    fn frame(&mut self, _from: Peer, _frame: Frame<'_>) {
        panic!("a sink that takes runs is given no single frames");
    }

    fn takes_runs(&self) -> bool {
        true
    }

    fn run(&mut self, from: Peer, run: &mut [u8]) -> usize {
        self.0.push((from, run.to_vec()));
        1
    }

    fn peer_failed(&mut self, _from: Peer, _why: PeerFault) {}
}

fn collect_runs(device: &mut Udp, bytes: usize) -> Vec<(Peer, Vec<u8>)> {
    let mut runs = Runs::default();
    let start = Instant::now();
    while runs.0.concat_bytes().len() < bytes && start.elapsed() < Duration::from_secs(120) {
        device.poll(&mut runs, 7);
    }
    runs.0
}

#[test]
fn a_sink_that_takes_runs_gets_every_byte_from_whom_it_came() {
    let (mut hub, mut one, mut two) = (device(), device(), device());
    let at_hub = [hub.open(one.local_address()), hub.open(two.local_address())];
    for round in 0..100u8 {
        for (index, rim) in [&mut one, &mut two].into_iter().enumerate() {
            let to_hub = rim.open(hub.local_address());
            let run: Vec<u8> = (0..7_300).map(|byte| byte as u8 ^ round ^ index as u8).collect();
            rim.send_run(to_hub, &[&run], 1000).expect("an idle socket takes a run");
            let came = collect_runs(&mut hub, run.len());
            assert!(came.iter().all(|(from, _)| *from == at_hub[index]), "round {round}");
            assert_eq!(came.concat_bytes(), run, "round {round}");
            hub.send_run(at_hub[index], &[&[round]], 1).expect("an idle socket takes a frame");
            assert_eq!(collect_runs(rim, 1), [(to_hub, vec![round])]);
        }
    }
}

#[test]
fn a_socket_that_was_polled_for_long_still_wakes_a_sleeper_and_so_do_the_others() {
    let (mut one, to_two, mut two, _) = pair();
    for round in 0..200u8 {
        one.send_run(to_two, &[&[round]], 1).expect("an idle socket takes a frame");
        assert_eq!(collect_runs(&mut two, 1)[0].1, [round]);
        let to_one = two.open(one.local_address());
        two.send_run(to_one, &[&[round]], 1).expect("an idle socket takes a frame");
        collect_runs(&mut one, 1);
    }
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback exists");
    let local = two.local_address();
    for from_stranger in [false, true, false] {
        two.prepare_wait();
        let mut none = Runs::default();
        while two.poll(&mut none, 7) > 0 {}
        if from_stranger {
            stranger.send_to(b"hello", local).expect("loopback takes it");
        } else {
            one.send_run(to_two, &[b"wake up"], 7).expect("an idle socket takes a frame");
        }
        let fd = two.wait_fd().expect("udp has a descriptor to wait on");
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut fds, Some(&limit)).expect("waiting works");
        assert_eq!(ready, 1, "a frame came and the descriptor did not tell");
        if !from_stranger {
            assert_eq!(collect_runs(&mut two, 7)[0].1, b"wake up");
        } else {
            for _ in 0..2000 {
                two.poll(&mut none, 7);
            }
            assert_eq!(two.counters().frames_refused, 1);
        }
    }
}

/// The first bytes of all that comes, after enough polls to look at every socket.
fn heard(device: &mut Udp) -> Vec<u8> {
    let mut taken = Taken::default();
    for _ in 0..1200 {
        device.poll(&mut taken, 7);
    }
    taken.0.iter().map(|(_, frame)| frame[0]).collect()
}

#[test]
fn a_sieve_keeps_out_what_does_not_pass_it_until_it_is_lifted() {
    let (mut one, to_two, mut two, to_one) = pair();
    let send = |one: &mut Udp, byte: u8| {
        one.send_short(to_two, [&[byte; 100], &[]]).expect("there is room");
        one.flush();
    };
    // Each gets a socket of its own for the other one with the first frame it sends, and is heard there alone soon after.
    two.send_short(to_one, [b"hello", b""]).expect("there is room");
    two.flush();
    send(&mut one, 7);
    assert_eq!(heard(&mut two), [7]);
    assert_eq!(heard(&mut two), [0; 0]);
    let only_sevens = [
        Instruction::new(LOAD_BYTE, UDP_HEADER_BYTES),
        Instruction { if_false: 1, ..Instruction::new(IF_EQUAL, 7) },
        Instruction::new(RETURN, WHOLE),
        Instruction::new(RETURN, 0),
    ];
    two.sieve(to_one, &only_sevens);
    two.sieve_strangers();
    let before = two.dropped();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    stranger.send_to(&[7; 100], two.local_address()).expect("it is on this machine");
    [8, 7, 9].into_iter().for_each(|byte| send(&mut one, byte));
    assert_eq!(heard(&mut two), [7]);
    assert_eq!((two.dropped() - before, two.frames_refused()), (3, 0));
    // Who is opened while strangers are not heard is none.
    let mut third = device();
    let to_third = two.open(third.local_address());
    let from_third = third.open(two.local_address());
    third.send_short(from_third, [&[5; 100], &[]]).expect("there is room");
    third.flush();
    assert_eq!(heard(&mut two), [5]);
    two.close_peer(to_third);
    two.lift_sieves();
    send(&mut one, 8);
    assert_eq!(heard(&mut two), [8]);
    stranger.send_to(&[7; 100], two.local_address()).expect("it is on this machine");
    assert_eq!((heard(&mut two), two.frames_refused()), (vec![], 1));
}

/// Wants what comes behind four bytes in a place of its own, unless these say otherwise.
struct Placed {
    place: Vec<u8>,
    landed: Vec<(Vec<u8>, usize, Vec<u8>)>,
    whole: Vec<Vec<u8>>,
}

impl Sink for Placed {
    fn frame(&mut self, _from: Peer, _frame: Frame<'_>) {
        panic!("a sink that takes runs is given no single frames");
    }

    fn takes_runs(&self) -> bool {
        true
    }

    fn run(&mut self, _from: Peer, run: &mut [u8]) -> usize {
        self.whole.push(run.to_vec());
        1
    }

    fn place(&mut self, _from: Peer) -> Option<(usize, &mut [u8])> {
        Some((4, &mut self.place))
    }

    fn landed(&mut self, _from: Peer, front: &[u8], bytes: usize, rest: &[u8]) -> bool {
        let is_wanted = front[0] == 1;
        if is_wanted {
            self.landed.push((front.to_vec(), bytes, rest.to_vec()));
        }
        is_wanted
    }

    fn peer_failed(&mut self, _from: Peer, _why: PeerFault) {}
}

#[test]
fn what_comes_behind_the_front_lands_where_the_sink_says_or_comes_in_one_piece() {
    let (mut one, to_two, mut two, to_one) = pair();
    two.send_run(to_one, &[b"hello"], 5).expect("an idle socket takes a frame");
    let (mut landed, mut refused) = (0, 0);
    for turn in 0..20_000u32 {
        let room = [3, 4900, 5000, 60_000][turn as usize % 4];
        let len = [4096, 4904, 5004, 9000][turn as usize / 4 % 4];
        let mut run: Vec<u8> = (0..len).map(|byte| byte as u8 ^ turn as u8).collect();
        run[0] = turn as u8 / 16 % 2;
        let mut sink = Placed { place: vec![0; room], landed: Vec::new(), whole: Vec::new() };
        // Found empty once, the socket is known to hear this peer only.
        two.poll(&mut sink, 7);
        one.send_run(to_two, &[&run], 1000).expect("an idle socket takes a frame");
        while sink.landed.is_empty() && sink.whole.is_empty() {
            two.poll(&mut sink, 7);
        }
        match &sink.landed[..] {
            [(front, bytes, rest)] => {
                assert_eq!([&front[..], &sink.place[..*bytes], rest].concat(), run, "room {room}");
                landed += 1;
            }
            _ => {
                assert_eq!(sink.whole, [run.clone()], "room {room}");
                refused += u32::from(run[0] == 0 && sink.place[0] != 0);
            }
        }
        // Of both kinds some: sockets are looked at in the quick way only once they are known to be a peer's own.
        if landed > 100 && refused > 100 {
            return;
        }
    }
    panic!("{landed} landed, {refused} were taken back");
}
