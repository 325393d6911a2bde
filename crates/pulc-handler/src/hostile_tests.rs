//! A rank that sends whatever it likes, against the accounts of the floor: it is given up with one word, takes no more memory
//! than was agreed, and costs nobody else anything.

use crate::dispatch::Floor;
use crate::error::End;
use crate::matching::Pattern;
use crate::outbox::Outbox;
use crate::peers::{PeerState, Route};
use crate::switch::{Begin, Body, Fate, Hand, Handlers, Here, ReceiveHandler, TransferId, Want};
use crate::wire::{FREE, FRONT_MAX, Head, Kind, MESSAGE_COST};
use pulc_base::{Proto, Rank};

const WINDOW: u64 = 32 << 10;
const TRANSFERS_MAX: usize = 16;

/// Keeps everything and says how much that was.
#[derive(Default)]
struct Hoarder {
    messages: usize,
    gone: Vec<Rank>,
}

impl ReceiveHandler for Hoarder {
    fn message(&mut self, _: Rank, _: &[u8], _: Body<'_>, _: u64, _: &mut Here<'_, '_>) -> Fate {
        self.messages += 1;
        Fate::Kept
    }

    fn begin(&mut self, _: TransferId, _: &[u8], _: usize, _: bool, _: u64, _: &mut Here<'_, '_>) -> Begin {
        Begin::Hold(0)
    }

    fn part(&mut self, _: u64, _: Body<'_>, _: &mut Here<'_, '_>) {}

    fn end(&mut self, _: u64, _: &mut Here<'_, '_>) -> Fate {
        Fate::Done
    }

    fn withdrawn(&mut self, _: u64, _: &mut Here<'_, '_>) {}

    fn peer_gone(&mut self, rank: Rank, _: End, _: &mut Here<'_, '_>) {
        self.gone.push(rank);
    }
}

fn floor() -> Floor {
    let mut handlers = Handlers::default();
    assert!(handlers.register(Proto::PORT, Box::new(Hoarder::default())));
    Floor {
        me: Rank(0),
        window: WINDOW,
        past_caches_min: 4 << 10,
        transfers_max: TRANSFERS_MAX,
        peers: (0..3).map(|_| PeerState::new(Route::Unopened, WINDOW)).collect(),
        handlers,
        outbox: Outbox::new(1024),
        parked: Vec::new(),
        broken: Vec::new(),
    }
}

fn frame(proto: Proto, kind: Kind, flags: u8, id: u32, total: u64, body: usize) -> Vec<u8> {
    let head = Head { proto: proto.0, kind, header_len: 0, flags, id, total };
    let mut front = [0; FRONT_MAX];
    let len = head.write(&[], &mut front);
    [&front[..len], &vec![7; body]].concat()
}

impl Floor {
    fn take(&mut self, src: u32, frame: &[u8]) {
        self.private(Rank(src), frame, &mut Hand::empty());
    }

    fn is_broken(&self, src: u32) -> bool {
        self.broken.iter().any(|(rank, _)| *rank == Rank(src))
    }
}

#[test]
fn however_many_bad_frames_come_in_one_poll_their_sender_is_given_up_once() {
    let mut floor = floor();
    for _ in 0..50 {
        floor.take(1, &[0xff; 20]);
        floor.take(1, &frame(Proto::PORT, Kind::Next, 0, 9, 0, 1));
        floor.take(2, &[]);
    }
    let ranks: Vec<Rank> = floor.broken.iter().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, [Rank(1), Rank(2)]);
}

#[test]
fn a_message_outside_all_credit_is_not_longer_than_all_that_its_sender_may_fill() {
    let mut floor = floor();
    floor.take(1, &frame(Proto::PORT, Kind::Whole, FREE, 0, 0, WINDOW as usize));
    assert!(!floor.is_broken(1));
    floor.take(1, &frame(Proto::PORT, Kind::Whole, FREE, 0, 0, WINDOW as usize + 1));
    assert!(floor.is_broken(1));
    floor.take(2, &frame(Proto::PORT, Kind::First, FREE, 0, WINDOW + 1, 10));
    assert!(floor.is_broken(2));
}

#[test]
fn more_transfers_than_agreed_and_two_of_one_number_are_refused() {
    let mut flood = floor();
    for id in 0..TRANSFERS_MAX as u32 {
        flood.take(1, &frame(Proto::PORT, Kind::Ask, 0, id, 1 << 40, 0));
        assert!(!flood.is_broken(1), "request {id}");
    }
    // A withdrawn one makes room.
    flood.take(1, &frame(Proto::CONTROL, Kind::Withdraw, FREE, 3, 0, 0));
    flood.take(1, &frame(Proto::PORT, Kind::Ask, 0, 100, 5, 0));
    assert!(!flood.is_broken(1));
    flood.take(2, &frame(Proto::PORT, Kind::Ask, 0, 0, 5, 0));
    flood.take(1, &frame(Proto::PORT, Kind::Ask, 0, 101, 5, 0));
    assert!(flood.is_broken(1) && !flood.is_broken(2));

    let mut twice = floor();
    twice.take(1, &frame(Proto::PORT, Kind::Ask, 0, 5, 1000, 0));
    twice.take(1, &frame(Proto::PORT, Kind::Ask, 0, 5, 1000, 0));
    assert!(twice.is_broken(1));
}

#[test]
fn who_floods_a_protocol_that_is_not_open_fills_its_own_share_only() {
    let mut floor = floor();
    let mut taken = 0;
    while !floor.is_broken(1) {
        floor.take(1, &frame(Proto::AM, Kind::Whole, FREE, 0, 0, 100));
        taken += 1;
        assert!(taken < 10_000, "nobody stops it");
    }
    let honest = frame(Proto::AM, Kind::Whole, 0, 0, 0, 100);
    for _ in 0..WINDOW / (100 + MESSAGE_COST) {
        floor.take(2, &honest);
        assert!(!floor.is_broken(2));
    }
}

#[test]
fn the_memory_for_messages_that_nobody_takes_is_the_window() {
    let mut floor = floor();
    let message = frame(Proto::PORT, Kind::Whole, 0, 0, 0, 1000);
    let mut taken = 0;
    while !floor.is_broken(1) {
        floor.take(1, &message);
        taken += 1;
    }
    assert_eq!(taken, WINDOW / (1000 + MESSAGE_COST) + 1);
}

#[test]
fn a_message_that_is_wanted_to_the_letter_lands_once_and_no_other_one_does() {
    const HEADER: u64 = 77;
    let message = |flags: u8, header: u64, body: &[u8]| {
        let head = Head { proto: Proto::PORT.0, kind: Kind::Whole, header_len: 8, flags, id: 0, total: 0 };
        [&head.word().to_le_bytes()[..], &header.to_le_bytes(), body].concat()
    };
    let mut floor = floor();
    let mut landed = |src: u32, frame: &[u8], times: usize| {
        let mut buffer = [0; 5];
        let want = Want { lane: 0, pattern: Pattern { src: Some(1), tag: Some(9) } };
        let mut hand = Hand::wanting(want, &mut buffer).exactly(Proto::PORT, HEADER);
        for _ in 0..times {
            floor.private(Rank(src), frame, &mut hand);
        }
        let landed = hand.landed;
        assert!(!floor.is_broken(src));
        landed.map(|(src, tag, len)| (src.0, tag, buffer[..len].to_vec()))
    };
    let wanted = message(0, HEADER, b"four");
    assert_eq!(landed(1, &wanted, 1), Some((1, 9, b"four".to_vec())));
    assert_eq!(landed(1, &message(0, HEADER, b""), 1), Some((1, 9, Vec::new())));
    assert_eq!(landed(1, &message(0, HEADER, b"longer"), 1), None, "too long");
    assert_eq!(landed(1, &message(0, HEADER + 1, b"four"), 1), None, "another header");
    assert_eq!(landed(2, &wanted, 1), None, "another sender");
    assert_eq!(landed(1, &message(FREE, HEADER, b"four"), 1), None, "outside all credit");
    // What lands gives its room back.
    for _ in 0..WINDOW {
        assert!(landed(1, &wanted, 1).is_some());
    }
    assert_eq!(landed(1, &wanted, 2), Some((1, 9, b"four".to_vec())));
    let keeper = floor.handlers.as_its_own::<Hoarder>(Proto::PORT.0).expect("it was registered");
    assert_eq!(keeper.messages, 5, "those that did not land, and the second of two");
}
