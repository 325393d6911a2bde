//! The rawdata handler under a peer that sends whatever it likes: nothing panics, nothing is taken that was not given, and what is
//! kept is what was charged. Random choices come from a seed that is printed.

use super::buffer::Buffer;
use super::table::RawTable;
use super::wire::{header_of, header_of_loan, header_of_return};
use crate::Error;
use pulc_base::Rank;
use pulc_handler::{Begin, Body, Fate, Hand, Here, Outbox, ReceiveHandler, TransferId};

struct Rig {
    table: RawTable,
    outbox: Outbox,
}

impl Rig {
    fn new() -> Rig {
        Rig { table: RawTable::new(3), outbox: Outbox::default() }
    }

    fn message(&mut self, src: u32, header: &[u8], body: &[u8]) -> Fate {
        let (hand, outbox) = (&mut Hand::empty(), &mut self.outbox);
        self.table.message(Rank(src), header, Body::private(body, 0), 100, &mut Here { hand, outbox })
    }

    fn begin(&mut self, src: u32, header: &[u8], total: usize, asked: bool) -> Begin {
        let (hand, outbox) = (&mut Hand::empty(), &mut self.outbox);
        let id = TransferId { src: Rank(src), id: 1 };
        self.table.begin(id, header, total, asked, 100, &mut Here { hand, outbox })
    }

    fn part(&mut self, number: u64, body: &[u8]) {
        let (hand, outbox) = (&mut Hand::empty(), &mut self.outbox);
        self.table.part(number, Body::private(body, 0), &mut Here { hand, outbox });
    }

    fn finish(&mut self, number: u64) {
        let (hand, outbox) = (&mut Hand::empty(), &mut self.outbox);
        self.table.end(number, &mut Here { hand, outbox });
    }
}

#[test]
fn malformed_headers_and_bodies_are_dropped_and_cost_nothing() {
    let mut rig = Rig::new();
    for len in (0..12).filter(|len| *len != 8) {
        assert_eq!(rig.message(0, &vec![0; len], b"x"), Fate::Done, "a header of {len} bytes");
    }
    for kind in 3..=u16::MAX {
        let header = (u64::from(kind) << 16).to_le_bytes();
        assert_eq!(rig.message(0, &header, b"x"), Fate::Done, "kind {kind}");
    }
    for len in (0..40).filter(|len| *len != 20) {
        assert_eq!(rig.message(0, &header_of_loan(1), &vec![7; len]), Fate::Done, "a loan of {len} bytes");
        assert_eq!(rig.message(0, &header_of_return(1), &vec![7; len]), Fate::Done);
    }
    assert_eq!(rig.message(9, &header_of(1), b"x"), Fate::Done, "a rank that does not exist");
    assert!(matches!(rig.begin(0, &header_of_loan(1), 100, true), Begin::Take(_)), "a loan in parts goes nowhere");
}

#[test]
fn a_loan_is_given_back_only_by_the_rank_that_has_it() {
    let mut rig = Rig::new();
    let arena = pulc_hal::device::shm::Arena::new(1 << 20).unwrap();
    let id = rig.table.lend(Rank(1), arena.alloc(5000).unwrap());
    for (src, body) in [(0, id), (2, id), (1, id + 1), (1, u32::MAX)] {
        rig.message(src, &header_of_return(5), &body.to_le_bytes());
        assert!(arena.used() > 0, "rank {src} gave back loan {body}");
    }
    rig.message(1, &header_of_return(5), &id.to_le_bytes());
    assert_eq!(arena.used(), 0);
    rig.message(1, &header_of_return(5), &id.to_le_bytes());
    let id = rig.table.lend(Rank(2), arena.alloc(5000).unwrap());
    rig.table.peer_gone(
        Rank(2),
        pulc_handler::End::KeeperGone,
        &mut Here { hand: &mut Hand::empty(), outbox: &mut rig.outbox },
    );
    assert_eq!((arena.used(), id), (0, 0));
}

#[test]
fn whatever_order_things_happen_in_messages_and_buffers_meet_in_order() {
    let seed: u64 = std::env::var("PULC_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(42);
    println!("PULC_TEST_SEED={seed}");
    let mut state = seed;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut rig = Rig::new();
    let place = rig.table.open(Rank(1), 3).unwrap();
    // Messages carry their number; those in parts may overtake in arriving whole, never in being taken.
    let (mut sent, mut taken, mut posted) = (0_u64, 0_u64, 0_u64);
    let mut coming: Vec<(u64, u64, bool)> = Vec::new();
    for _ in 0..50_000 {
        match random(6) {
            0 | 1 => {
                let mut body = vec![0; 8 + random(100)];
                body[..8].copy_from_slice(&sent.to_le_bytes());
                sent += 1;
                rig.message(1, &header_of(3), &body);
            }
            2 if coming.len() < 4 => {
                if let Begin::Take(number) = rig.begin(1, &header_of(3), 16, false) {
                    coming.push((number, sent, false));
                    sent += 1;
                }
            }
            3 if !coming.is_empty() => {
                let at = random(coming.len());
                let (number, message, begun) = coming[at];
                if begun {
                    rig.part(number, &[0; 8]);
                    rig.finish(number);
                    coming.remove(at);
                } else {
                    rig.part(number, &message.to_le_bytes());
                    coming[at].2 = true;
                }
            }
            4 if rig.table.state(place).posted_len() < 8 => {
                let room = if random(10) == 0 { 4 } else { 200 };
                rig.table.post(place, Buffer::Owned(vec![0; room]), posted, &mut rig.outbox);
                posted += 1;
            }
            _ => {
                while let Some(landed) = rig.table.take_posted(place) {
                    match landed.result {
                        Ok(len) => {
                            assert!(len >= 8);
                            let number = u64::from_le_bytes(landed.buffer[..8].try_into().unwrap());
                            assert_eq!(number, taken, "out of order");
                            taken += 1;
                        }
                        Err(error) => {
                            assert!(matches!(error, Error::BufferTooSmall { len: 4, .. }) && landed.buffer.len() == 4);
                        }
                    }
                }
            }
        }
    }
    assert!(taken > 1000, "{taken} messages were taken");
}
