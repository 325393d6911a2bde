//! Many messages between the members of a communicator at once, in every mode of sending and way of receiving, of every length, and
//! through datatypes with gaps. Receivers that name neither source nor tag take what comes, in the order in which each sender sent it.

use super::Play;
use crate::values::INT;
use pulc_mpi::call;
use pulc_mpi::consts::{ANY_SOURCE, ANY_TAG};
use pulc_mpi::handle::{Comm, Datatype, Request};
use pulc_mpi::memory::{Addr, Room};
use pulc_mpi::status::Status;
use std::collections::VecDeque;

struct Letter {
    from: usize,
    to: usize,
    tag: i32,
    /// In integers.
    len: usize,
    content: u64,
    synchronous: bool,
    send_gap: usize,
    recv_gap: usize,
}

/// How a member receives all its letters of one storm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    PostedFirst,
    PostedLast,
    Blocking,
    /// From anybody, with any tag.
    Wild,
    Probed,
    MatchedProbe,
}

const WAYS: [Way; 6] = [Way::PostedFirst, Way::PostedLast, Way::Blocking, Way::Wild, Way::Probed, Way::MatchedProbe];

/// Integers with `gap` integers between each of them and the next.
struct Buffer {
    room: Room,
    datatype: Datatype,
    stride: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize, gap: usize) -> Buffer {
        let stride = gap + 1;
        let datatype = call::type_vector(len as i64, 1, stride as i64, INT, true).unwrap();
        call::type_commit(datatype).unwrap();
        Buffer { room: Room::new((len * stride).max(1) * 4), datatype, stride, len }
    }

    /// What the call gets; without gaps it is plain integers.
    fn words(&mut self) -> (Addr, i64, Datatype) {
        let addr = self.room.addr();
        if self.stride == 1 { (addr, self.len as i64, INT) } else { (addr, 1, self.datatype) }
    }

    fn fill(&mut self, content: u64) {
        let addr = self.room.addr();
        for at in 0..self.len {
            addr.write((at * self.stride) as i64 * 4, &value(content, at).to_ne_bytes());
        }
    }

    fn check(&mut self, content: u64) {
        let (addr, mut bytes) = (self.room.addr(), [0; 4]);
        for at in 0..self.len * self.stride {
            addr.read(at as i64 * 4, &mut bytes);
            let expected = if at % self.stride == 0 { value(content, at / self.stride) } else { 0 };
            assert_eq!(u32::from_ne_bytes(bytes), expected, "integer {at} of {content:#x}");
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        call::type_free(&mut self.datatype).unwrap();
    }
}

fn value(content: u64, at: usize) -> u32 {
    (content ^ (at as u64).wrapping_mul(0x9e37_79b9)) as u32 | 1
}

pub fn play(play: &mut Play, at: usize, act: u64) {
    let size = play.teams[at].members.len();
    let letters: Vec<Letter> = (0..play.dice.below(4 * size + 2)).map(|_| letter(play, size)).collect();
    let ways: Vec<Way> = (0..size).map(|_| WAYS[play.dice.below(WAYS.len())]).collect();
    let order = play.own_dice.order(letters.len());
    let Some((comm, rank)) = play.teams[at].mine(play.me) else { return };
    let mut mail = Mail { comm, rank, way: ways[rank], receives: Vec::new() };
    if mail.way == Way::PostedFirst {
        mail.post(&letters);
    }
    let (mut sent, mut requests) = (Vec::new(), Vec::new());
    for letter in letters.iter().filter(|letter| letter.from == rank) {
        let mut buffer = Buffer::new(letter.len, letter.send_gap);
        buffer.fill(letter.content);
        let (addr, count, datatype) = buffer.words();
        let begin = if letter.synchronous { call::issend } else { call::isend };
        requests.push(begin(addr, count, datatype, letter.to as i32, letter.tag, comm).unwrap());
        sent.push(buffer);
    }
    match mail.way {
        Way::PostedFirst => {}
        Way::PostedLast => mail.post(&letters),
        Way::Blocking => mail.take_in_order(&letters),
        Way::Wild | Way::Probed | Way::MatchedProbe => mail.take_anything(&letters),
    }
    mail.finish(&letters, requests, &order);
    // Whoever takes anything must not get what belongs to a later storm.
    if ways.iter().any(|way| matches!(way, Way::Wild | Way::Probed | Way::MatchedProbe)) || act.is_multiple_of(5) {
        call::barrier(comm).unwrap();
    }
}

fn letter(play: &mut Play, size: usize) -> Letter {
    let dice = &mut play.dice;
    let len = match dice.below(12) {
        0 => 0,
        1..=7 => dice.below(30),
        8..=9 => dice.below(3000),
        10 => 16_000 + dice.below(1000),
        _ => dice.below(100_000),
    };
    let mut gap = || if len < 5000 && dice.one_in(4) { 1 + dice.below(3) } else { 0 };
    let (send_gap, recv_gap) = (gap(), gap());
    Letter {
        from: dice.below(size),
        to: dice.below(size),
        tag: dice.below(4) as i32,
        len,
        content: dice.word(),
        synchronous: dice.one_in(5),
        send_gap,
        recv_gap,
    }
}

/// What one member does with its letters.
struct Mail {
    comm: Comm,
    rank: usize,
    way: Way,
    receives: Vec<(usize, Request, Buffer)>,
}

impl Mail {
    fn mine<'a>(&self, letters: &'a [Letter]) -> impl Iterator<Item = (usize, &'a Letter)> + use<'a> {
        let rank = self.rank;
        letters.iter().enumerate().filter(move |(_, letter)| letter.to == rank)
    }

    fn post(&mut self, letters: &[Letter]) {
        for (at, letter) in self.mine(letters) {
            let mut buffer = Buffer::new(letter.len, letter.recv_gap);
            let (addr, count, datatype) = buffer.words();
            let request = call::irecv(addr, count, datatype, letter.from as i32, letter.tag, self.comm).unwrap();
            self.receives.push((at, request, buffer));
        }
    }

    fn take_in_order(&self, letters: &[Letter]) {
        for (_, letter) in self.mine(letters) {
            let mut buffer = Buffer::new(letter.len, letter.recv_gap);
            let (addr, count, datatype) = buffer.words();
            let status = call::recv(addr, count, datatype, letter.from as i32, letter.tag, self.comm).unwrap();
            check(letter, &status, &mut buffer);
        }
    }

    /// Of each sender the letters come in the order in which they were sent.
    fn take_anything(&self, letters: &[Letter]) {
        let mut expected: Vec<VecDeque<&Letter>> = Vec::new();
        for (_, letter) in self.mine(letters) {
            expected.resize_with(expected.len().max(letter.from + 1), VecDeque::new);
            expected[letter.from].push_back(letter);
        }
        let longest = self.mine(letters).map(|(_, letter)| letter.len).max().unwrap_or(0);
        for _ in self.mine(letters) {
            let mut found = None;
            let status = match self.way {
                Way::Probed => call::probe(ANY_SOURCE, ANY_TAG, self.comm).unwrap(),
                Way::MatchedProbe => {
                    let (message, status) = call::mprobe(ANY_SOURCE, ANY_TAG, self.comm).unwrap();
                    found = Some(message);
                    status
                }
                _ => {
                    let mut buffer = Buffer::new(longest, 0);
                    let (addr, count, datatype) = buffer.words();
                    let status = call::recv(addr, count, datatype, ANY_SOURCE, ANY_TAG, self.comm).unwrap();
                    let letter = expected[status.source as usize].pop_front().expect("one letter too many");
                    buffer.len = letter.len;
                    check(letter, &status, &mut buffer);
                    continue;
                }
            };
            let letter = expected[status.source as usize].pop_front().expect("one letter too many");
            let mut buffer = Buffer::new(letter.len, letter.recv_gap);
            let (addr, count, datatype) = buffer.words();
            let status = match found {
                Some(mut message) => call::mrecv(addr, count, datatype, &mut message).unwrap(),
                None => call::recv(addr, count, datatype, status.source, status.tag, self.comm).unwrap(),
            };
            check(letter, &status, &mut buffer);
        }
        assert!(expected.iter().all(VecDeque::is_empty), "letters are missing");
    }

    /// Completes everything, in an order of this process's own.
    fn finish(self, letters: &[Letter], mut sends: Vec<Request>, order: &[usize]) {
        let place = |at: &usize| order.iter().position(|other| other == at);
        let mut receives = self.receives;
        receives.sort_by_key(|(at, _, _)| place(at));
        for (at, mut request, mut buffer) in receives {
            let status = match order.first().is_some_and(|first| first % 2 == 0) {
                true => call::wait(&mut request).unwrap(),
                false => loop {
                    if let Some(status) = call::test(&mut request).unwrap() {
                        break status;
                    }
                    std::thread::yield_now();
                },
            };
            check(&letters[at], &status, &mut buffer);
        }
        call::waitall(&mut sends, &mut |_, _| {}).unwrap();
    }
}

fn check(letter: &Letter, status: &Status, buffer: &mut Buffer) {
    let told = (status.source, status.tag, status.bytes);
    assert_eq!(told, (letter.from as i32, letter.tag, letter.len as u64 * 4), "of {:#x}", letter.content);
    buffer.check(letter.content);
}
