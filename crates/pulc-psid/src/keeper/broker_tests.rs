//! Tests of the broker: ranks in this very process talk to it over its real socket, honest and hostile ones.

use super::strangers::STRANGERS_OF_A_PROCESS_MAX;
use super::*;
use std::os::fd::AsFd;

const NONE: [BorrowedFd<'static>; 0] = [];

struct Fixture {
    broker: Broker,
    name: Vec<u8>,
}

fn cookie(rank: u32) -> [u8; 16] {
    [rank as u8 + 1; 16]
}

fn fixture(ranks: u32) -> Fixture {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("pulc-broker-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into_bytes();
    let listener = Listener::bind(&name).unwrap();
    let boot = pulc_hal::os::memfd::create_constant("pulc-boot", b"boot").unwrap();
    // Global ranks 10, 11, …: this node is not the first one.
    let seats = (10..10 + ranks).map(|rank| Seat::new(Rank(rank), cookie(rank), Vec::new())).collect();
    Fixture { broker: Broker::new(listener, (boot, 4), None, Board::create(ranks).unwrap(), seats), name }
}

impl Fixture {
    fn connect(&mut self) -> (Seqpacket, usize) {
        let socket = Seqpacket::connect(&self.name).unwrap();
        socket.set_nonblocking(true).unwrap();
        let index = self.broker.accept(&mut Vec::new()).unwrap();
        (socket, index)
    }

    fn attach(&mut self, rank: u32) -> (Seqpacket, usize) {
        let (socket, index) = self.connect();
        let hello = ToKeeper::Hello { version: PROTOCOL_VERSION, rank: Rank(rank), cookie: cookie(rank) };
        socket.send(&boot::encode(&hello), &NONE).unwrap();
        assert_eq!(self.broker.read(index), []);
        let (welcome, fds) = receive(&socket).unwrap();
        assert_eq!(
            welcome,
            ToRank::Welcome { boot_bytes: 4, local_rank: rank - 10, local_size: self.broker.seats.len() as u32 }
        );
        assert_eq!(fds.len(), 2, "wire-up table and board");
        (socket, index)
    }

    /// What a stranger is told for these bytes.
    fn refusal(&mut self, bytes: &[u8]) -> String {
        let (socket, index) = self.connect();
        socket.send(bytes, &NONE).unwrap();
        assert_eq!(self.broker.read(index), [Event::Closed]);
        match receive(&socket) {
            Some((ToRank::Refused { why }, _)) => why,
            other => panic!("not refused but {other:?}"),
        }
    }
}

fn receive(socket: &Seqpacket) -> Option<(ToRank, Vec<OwnedFd>)> {
    let mut buffer = [0; MESSAGE_MAX];
    let received = socket.recv(&mut buffer).ok()??;
    Some((boot::decode(&buffer[..received.bytes]).unwrap(), received.fds))
}

#[test]
fn descriptors_pass_between_ranks_and_wait_for_those_who_attach_later() {
    let mut fixture = fixture(2);
    let (first, first_index) = fixture.attach(10);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let pass = ToKeeper::Pass { to: Rank(11), what: vec![1, 2, 3] };
    first.send(&boot::encode(&pass), &[writer.as_fd()]).unwrap();
    assert_eq!(fixture.broker.read(first_index), []);
    drop(writer);
    let before = fixture.broker.board.slot(1).broker_waiting();
    let (second, _) = fixture.attach(11);
    let (message, fds) = receive(&second).unwrap();
    assert_eq!(message, ToRank::Passed { from: Rank(10), what: vec![1, 2, 3] });
    rustix::io::write(&fds[0], b"!").unwrap();
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]).unwrap(), 1);
    assert_eq!(fixture.broker.board.slot(1).broker_waiting(), before + 1, "announced on the board");
}

#[test]
fn what_a_rank_passed_before_its_death_arrives_before_the_news_of_it() {
    let mut fixture = fixture(2);
    let (first, _) = fixture.attach(10);
    let (second, _) = fixture.attach(11);
    first.send(&boot::encode(&ToKeeper::Pass { to: Rank(11), what: vec![7] }), &NONE).unwrap();
    drop(first);
    fixture.broker.gone(&[(Rank(10), Gone::Killed(9))]);
    assert_eq!(receive(&second).unwrap().0, ToRank::Passed { from: Rank(10), what: vec![7] });
    assert_eq!(receive(&second).unwrap().0, ToRank::Gone { rank: Rank(10), how: Gone::Killed(9) });
}

#[test]
fn what_a_rank_passed_arrives_though_it_ended_with_words_unread_and_had_passed_much() {
    let mut fixture = fixture(2);
    let (first, _) = fixture.attach(10);
    let (second, second_index) = fixture.attach(11);
    second.send(&boot::encode(&ToKeeper::Pass { to: Rank(10), what: vec![1] }), &NONE).unwrap();
    assert_eq!(fixture.broker.read(second_index), []);
    let passed = READS_MAX as u8 + 3;
    for number in 0..passed {
        first.send(&boot::encode(&ToKeeper::Pass { to: Rank(11), what: vec![number] }), &NONE).unwrap();
    }
    drop(first);
    fixture.broker.gone(&[(Rank(10), Gone::Exited(0))]);
    for number in 0..passed {
        assert_eq!(receive(&second).unwrap().0, ToRank::Passed { from: Rank(10), what: vec![number] });
    }
    assert_eq!(receive(&second).unwrap().0, ToRank::Gone { rank: Rank(10), how: Gone::Exited(0) });
}

#[test]
fn ranks_of_other_nodes_that_ended_are_told_also_to_those_who_attach_later() {
    let mut fixture = fixture(1);
    fixture.broker.gone(&[(Rank(3), Gone::Lost)]);
    let (socket, _) = fixture.attach(10);
    assert_eq!(receive(&socket).unwrap().0, ToRank::Gone { rank: Rank(3), how: Gone::Lost });
}

#[test]
fn an_abort_is_passed_on() {
    let mut fixture = fixture(1);
    let (socket, index) = fixture.attach(10);
    socket.send(&boot::encode(&ToKeeper::Abort { code: 5, text: "no".to_owned() }), &NONE).unwrap();
    assert_eq!(fixture.broker.read(index), [Event::Abort { rank: Rank(10), code: 5, text: "no".to_owned() }]);
}

#[test]
fn strangers_are_refused_with_a_reason_and_counted() {
    let mut fixture = fixture(2);
    let hello = |version, rank, cookie| boot::encode(&ToKeeper::Hello { version, rank: Rank(rank), cookie });
    assert!(fixture.refusal(&hello(PROTOCOL_VERSION + 1, 10, cookie(10))).contains("protocol version"));
    assert!(fixture.refusal(&hello(PROTOCOL_VERSION, 9, cookie(9))).contains("does not run on this node"));
    assert!(fixture.refusal(&hello(PROTOCOL_VERSION, 12, cookie(12))).contains("does not run on this node"));
    assert!(fixture.refusal(&hello(PROTOCOL_VERSION, 10, cookie(11))).contains("wrong cookie"));
    assert!(fixture.refusal(&boot::encode(&ToKeeper::Pass { to: Rank(10), what: vec![] })).contains("hello first"));
    assert!(fixture.refusal(&[0xff; 100]).contains("malformed"));
    fixture.attach(10);
    assert!(fixture.refusal(&hello(PROTOCOL_VERSION, 10, cookie(10))).contains("attached already"));
    assert_eq!(fixture.broker.refused(), 7);
}

#[test]
fn a_rank_that_breaks_the_rules_is_cut_off_and_the_others_go_on() {
    let breaks: [(Vec<u8>, usize, &str); 4] = [
        (boot::encode(&ToKeeper::Pass { to: Rank(11), what: vec![0; PASS_BYTES_MAX + 1] }), 0, "passed 257 bytes"),
        (boot::encode(&ToKeeper::Pass { to: Rank(11), what: vec![] }), PASS_FDS_MAX + 1, "5 descriptors"),
        (boot::encode(&ToKeeper::Pass { to: Rank(99), what: vec![] }), 0, "not on this node"),
        (vec![0; MESSAGE_MAX + 1], 0, "did not fit"),
    ];
    for (bytes, count, text) in breaks {
        let mut fixture = fixture(3);
        let (bad, bad_index) = fixture.attach(10);
        let (good, good_index) = fixture.attach(12);
        let null = std::fs::File::open("/dev/null").unwrap();
        bad.send(&bytes, &vec![null.as_fd(); count]).unwrap();
        assert_eq!(fixture.broker.read(bad_index), [Event::Closed]);
        match receive(&bad) {
            Some((ToRank::Refused { why }, _)) => assert!(why.contains(text), "{why}"),
            other => panic!("not refused but {other:?}"),
        }
        good.send(&boot::encode(&ToKeeper::Pass { to: Rank(12), what: vec![1] }), &NONE).unwrap();
        assert_eq!(fixture.broker.read(good_index), []);
        assert!(matches!(receive(&good), Some((ToRank::Passed { .. }, _))));
    }
}

/// Whether the keeper has cut off a rank that passes and passes.
fn floods(fixture: &mut Fixture, flood: &Seqpacket, index: usize, to: u32) -> bool {
    let parcel = boot::encode(&ToKeeper::Pass { to: Rank(to), what: vec![0; 200] });
    (0..10_000).any(|_| flood.send(&parcel, &NONE).is_err() || fixture.broker.read(index) == [Event::Closed])
}

#[test]
fn a_flood_for_a_rank_that_does_not_read_is_stopped_at_the_limit_and_takes_nobody_elses_room() {
    let mut fixture = fixture(3);
    let (flood, index) = fixture.attach(10);
    let (honest, honest_index) = fixture.attach(12);
    assert!(floods(&mut fixture, &flood, index, 11));
    assert!(fixture.broker.seats[1].queue.len() <= WAITING_MAX);
    honest.send(&boot::encode(&ToKeeper::Pass { to: Rank(11), what: vec![3] }), &NONE).unwrap();
    assert_eq!(fixture.broker.read(honest_index), []);
    let (late, _) = fixture.attach(11);
    let mut last = None;
    while let Some((message, _)) = receive(&late) {
        last = Some(message);
    }
    assert_eq!(last, Some(ToRank::Passed { from: Rank(12), what: vec![3] }));
}

#[test]
fn a_rank_that_passes_without_end_to_one_that_reads_is_stopped_as_well() {
    let mut fixture = fixture(2);
    let (flood, index) = fixture.attach(10);
    let (reader, _) = fixture.attach(11);
    let parcel = boot::encode(&ToKeeper::Pass { to: Rank(11), what: vec![0; 200] });
    let mut passed = 0;
    while flood.send(&parcel, &NONE).is_ok() && fixture.broker.read(index) != [Event::Closed] {
        assert!(receive(&reader).is_some());
        passed += 1;
        assert!(passed <= PASSES_MAX, "nobody stops it");
    }
    assert_eq!(passed, PASSES_MAX);
}

#[test]
fn random_datagrams_never_panic() {
    let mut fixture = fixture(2);
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..1 + next() % 60).map(|_| (next() % 256) as u8).collect();
        let (socket, index) = fixture.connect();
        socket.send(&bytes, &NONE).unwrap();
        fixture.broker.read(index);
        drop(socket);
        fixture.broker.read(index);
    }
    assert!(fixture.broker.conns.iter().flatten().count() == 0, "every stranger is gone again");
    fixture.attach(11);
}

#[test]
fn a_process_that_connects_without_end_loses_its_own_connections_and_keeps_nobody_from_attaching() {
    let mut fixture = fixture(2);
    let mut events = Vec::new();
    let connect = |fixture: &Fixture| Seqpacket::connect(&fixture.name).unwrap();
    let silent: Vec<Seqpacket> = (0..100).map(|_| connect(&fixture)).collect();
    // It has said hello, but nobody has listened to it yet.
    let late = connect(&fixture);
    let hello = ToKeeper::Hello { version: PROTOCOL_VERSION, rank: Rank(11), cookie: cookie(11) };
    late.send(&boot::encode(&hello), &NONE).unwrap();
    let more: Vec<Seqpacket> = (0..100).map(|_| connect(&fixture)).collect();
    for _ in 0..201 {
        fixture.broker.accept(&mut events).unwrap();
    }
    assert!(matches!(receive(&late), Some((ToRank::Welcome { .. }, _))), "its hello was read before it was sent away");
    assert_eq!(fixture.broker.strangers(|_| true).count(), STRANGERS_OF_A_PROCESS_MAX);
    assert_eq!(events.len(), 200 - STRANGERS_OF_A_PROCESS_MAX);
    assert!(events.iter().all(|event| *event == Event::Closed));
    for socket in silent.iter().chain(&more[..100 - STRANGERS_OF_A_PROCESS_MAX]) {
        assert!(socket.recv(&mut [0; 64]).unwrap().is_none(), "it is closed without a word: it may come again");
    }
    fixture.attach(10);
}

#[test]
fn a_descriptor_that_is_missing_is_taken_from_a_stranger_and_never_from_a_rank() {
    let mut fixture = fixture(1);
    let (rank, _) = fixture.attach(10);
    let (stranger, _) = fixture.connect();
    let mut events = Vec::new();
    assert!(fixture.broker.free_a_descriptor(&mut events));
    assert!(stranger.recv(&mut [0; 64]).unwrap().is_none());
    assert!(!fixture.broker.free_a_descriptor(&mut events), "nobody but a rank is there");
    assert_eq!(rank.recv(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
