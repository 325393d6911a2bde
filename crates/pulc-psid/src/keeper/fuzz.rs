//! Datagrams at the attach socket, made of an input: what `crate::fuzz` offers of this room. A rank that has attached and a stranger
//! send them in turn, with descriptors; whatever they do, another rank still attaches and hears what is for it.

use super::broker::{Broker, Seat};
use pulc_base::boot::{self, MESSAGE_MAX, ToKeeper, ToRank};
use pulc_base::{PROTOCOL_VERSION, Rank};
use pulc_hal::board::Board;
use pulc_hal::os::fdpass::{Listener, Seqpacket};
use pulc_hal::os::memfd;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

const RANKS: u32 = 3;

fn cookie(rank: u32) -> [u8; 16] {
    [rank as u8 + 1; 16]
}

/// Each datagram behind its length in one byte, whose highest bit says who sends it, after a byte that says how many descriptors
/// come along.
pub(crate) fn datagrams(mut bytes: &[u8]) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("pulc-fuzz-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let listener = Listener::bind(name.as_bytes()).expect("the name is free");
    let boot = memfd::create_constant("pulc-boot", b"boot").expect("there is memory");
    let seats = (0..RANKS).map(|rank| Seat::new(Rank(rank), cookie(rank), Vec::new())).collect();
    let mut broker = Broker::new(listener, (boot, 4), None, Board::create(RANKS).expect("there is memory"), seats);
    let hostile = attach(&mut broker, &name, 0);
    let null = std::fs::File::open("/dev/null").expect("it is there");
    while let Some((&[fds, len], rest)) = bytes.split_first_chunk::<2>() {
        let (datagram, behind) = rest.split_at(usize::from(len & 0x7f).min(rest.len()));
        bytes = behind;
        let along: Vec<BorrowedFd<'_>> = (0..fds % 8).map(|_| null.as_fd()).collect();
        if len & 0x80 == 0 {
            let _ = hostile.0.send(datagram, &along);
            broker.read(hostile.1);
            continue;
        }
        let stranger = connect(&name);
        let Ok(index) = broker.accept(&mut Vec::new()) else { continue };
        let _ = stranger.send(datagram, &along);
        broker.read(index);
        drop(stranger);
        broker.read(index);
    }
    // Unless somebody knew its cookie, which no input can guess but by the rule above.
    let honest = connect(&name);
    let index = broker.accept(&mut Vec::new()).expect("it has connected");
    let hello = ToKeeper::Hello { version: PROTOCOL_VERSION, rank: Rank(2), cookie: cookie(2) };
    honest.send(&boot::encode(&hello), &[]).expect("the keeper listens");
    broker.read(index);
    let mut buffer = [0; MESSAGE_MAX];
    let answer = honest.recv(&mut buffer).expect("the keeper answers").expect("the keeper lives");
    match boot::decode::<ToRank>(&buffer[..answer.bytes]).expect("a keeper speaks well") {
        ToRank::Welcome { local_size, .. } => assert_eq!((local_size, answer.fds.len()), (RANKS, 2)),
        ToRank::Refused { why } => assert!(why.contains("attached already"), "{why}"),
        other => panic!("a keeper said {other:?}"),
    }
    broker.retry();
}

fn connect(name: &str) -> Seqpacket {
    let socket = Seqpacket::connect(name.as_bytes()).expect("the keeper listens");
    socket.set_nonblocking(true).expect("it is a socket");
    socket
}

fn attach(broker: &mut Broker, name: &str, rank: u32) -> (Seqpacket, usize) {
    let socket = connect(name);
    let index = broker.accept(&mut Vec::new()).expect("it has connected");
    let hello = ToKeeper::Hello { version: PROTOCOL_VERSION, rank: Rank(rank), cookie: cookie(rank) };
    socket.send(&boot::encode(&hello), &[]).expect("the keeper listens");
    broker.read(index);
    (socket, index)
}
