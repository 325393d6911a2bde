//! The shm device under the conformance suite, and what is special to it: offers, exhaustion, hostile peers, memory.

use super::*;
use crate::device::Frame;
use crate::device::conformance::{self, Rig};
use crate::device::fault::{Fault, FaultPlan};

/// Two devices in one process, joined without a keeper.
pub(super) fn joined(config: ShmConfig) -> (Shm, Shm, Peer, Peer) {
    let (board, _fd) = Board::create(2).unwrap();
    let board = Arc::new(board);
    let mut a = Shm::new(config.clone(), board.clone(), 0).unwrap();
    let mut b = Shm::new(config, board, 1).unwrap();
    let (b_at_a, offer) = a.open(1).unwrap();
    let (a_at_b, answer) = b.accept(0, &offer.what, offer.fds).unwrap();
    let answer = answer.unwrap();
    let (same, none) = a.accept(1, &answer.what, answer.fds).unwrap();
    assert_eq!((same, none.is_none()), (b_at_a, true));
    (a, b, b_at_a, a_at_b)
}

#[test]
fn shm_conforms() {
    let make = || {
        let (a, b, b_at_a, a_at_b) = joined(ShmConfig::default());
        Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(|| {}) }
    };
    let report = conformance::run(make, &[]);
    assert!(report.excluded.is_empty());
}

#[test]
fn shm_conforms_inside_of_a_fault_device_that_does_no_harm() {
    let make = || {
        let (a, b, b_at_a, a_at_b) = joined(ShmConfig::default());
        let (a, b) = (Fault::new(a, FaultPlan::default()), Fault::new(b, FaultPlan::default()));
        Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(|| {}) }
    };
    assert!(conformance::run(make, &[]).excluded.is_empty());
}

#[test]
fn shm_conforms_with_the_smallest_pool() {
    let make = || {
        let config = ShmConfig { pool_bytes: 8192, slot_bytes: 4096, ..ShmConfig::default() };
        let (a, b, b_at_a, a_at_b) = joined(config);
        Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(|| {}) }
    };
    conformance::run(make, &[]);
}

/// Keeps frames as vectors and faults as they come.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) frames: Vec<Vec<u8>>,
    faults: Vec<(Peer, PeerFault)>,
}

impl Sink for Inbox {
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        self.frames.push(match frame {
            Frame::Private(bytes) => bytes.to_vec(),
            Frame::Shared(shared) => {
                let mut bytes = vec![0; shared.len()];
                shared.copy_to(&mut bytes);
                bytes
            }
        });
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        self.faults.push((from, why));
    }
}

#[test]
fn a_frame_out_of_the_arena_is_not_copied_and_its_token_comes_back() {
    let arena = Arena::new(1 << 20).unwrap();
    let config = ShmConfig { arena: Some(arena.clone()), ..ShmConfig::default() };
    let (mut a, mut b, b_at_a, _) = joined(config);
    assert!(a.caps().has(Caps::ZERO_COPY));
    let mut block = arena.alloc(300_000).unwrap();
    block.fill(7);
    a.send_zcopy(b_at_a, b"head", &block, 99).unwrap();
    // Changed after sending and before arrival: proof that nothing was copied yet.
    block[200_000] = 8;
    let mut tokens = Vec::new();
    a.completed(&mut tokens);
    assert!(tokens.is_empty(), "the peer has not read it");
    let mut inbox = Inbox::default();
    assert_eq!(b.poll(&mut inbox, 16), 1);
    let frame = &inbox.frames[0];
    assert_eq!((&frame[..4], frame.len(), frame[4 + 200_000]), (&b"head"[..], 300_004, 8));
    a.completed(&mut tokens);
    assert_eq!(tokens, [99]);
    assert_eq!(a.send_zcopy(b_at_a, b"", b"not in the arena", 1), Err(SendError::Unsupported));
    a.send_zcopy(b_at_a, b"", &block, 100).unwrap();
    a.close_peer(b_at_a);
    a.completed(&mut tokens);
    assert_eq!(tokens, [99, 100], "a peer that is gone reads nothing any more");
}

#[test]
fn frames_sent_and_taken_in_one_go_stay_in_order_and_what_is_not_wanted_stays_there() {
    let (mut a, mut b, b_at_a, a_at_b) = joined(ShmConfig::default());
    let mut asked = 0;
    let mut fill = |a: &mut Shm| {
        a.send_cells(b_at_a, || {
            asked += 1;
            Some((CELL_PAYLOAD, std::array::from_fn(|at| asked + at as u64)))
        })
    };
    let held = fill(&mut a);
    assert!(held > 100 && fill(&mut a) == 0, "the ring is full, and nothing is asked for that has no room");
    let mut seen = 0;
    let mut take = |b: &mut Shm, until: u64| {
        b.take_cells(a_at_b, |bytes, words| {
            if seen < until {
                seen += 1;
                assert_eq!((bytes, *words), (CELL_PAYLOAD, std::array::from_fn(|at| seen + at as u64)));
                return true;
            }
            false
        })
    };
    assert_eq!((take(&mut b, 50), take(&mut b, 50)), (50, 0));
    let more = fill(&mut a);
    assert!(more > 0, "room for those taken is back");
    assert_eq!(take(&mut b, u64::MAX), held + more - 50);
    assert_eq!(b.counters().frames_received, (held + more) as u64);
    // Only short frames of one cell are offered.
    a.send_short(b_at_a, [&[7; 100], &[]]).unwrap();
    assert_eq!(take(&mut b, u64::MAX), 0);
    let mut inbox = Inbox::default();
    assert_eq!((b.poll(&mut inbox, 16), inbox.frames[0].len()), (1, 100));
    a.close_peer(b_at_a);
    b.close_peer(a_at_b);
    assert_eq!((fill(&mut a), take(&mut b, u64::MAX)), (0, 0));
}

#[test]
fn an_arena_that_is_made_later_is_used_once_the_peer_reads_it() {
    let (mut a, mut b, b_at_a, a_at_b) = joined(ShmConfig::default());
    let arena = Arena::new(1 << 20).unwrap();
    assert!(a.arena_offer(b_at_a).unwrap().is_none(), "there is no arena");
    a.set_arena(&arena);
    let mut block = arena.alloc(100_000).unwrap();
    block.fill(3);
    assert_eq!(a.send_zcopy(b_at_a, b"h", &block, 1), Err(SendError::Unsupported));
    let offer = a.arena_offer(b_at_a).unwrap().unwrap();
    assert!(a.arena_offer(b_at_a).unwrap().is_none(), "told once");
    assert_eq!(a.reads_arena(b_at_a), Reads::NotYet);
    assert!(b.view(a_at_b, block.offset(), 10).is_none());
    let copies = offer.fds.iter().map(|fd| fd.try_clone().unwrap()).collect();
    assert!(matches!(b.accept(0, &offer.what, offer.fds), Ok((peer, None)) if peer == a_at_b));
    assert_eq!(a.reads_arena(b_at_a), Reads::Yes);
    a.send_zcopy(b_at_a, b"h", &block, 1).unwrap();
    let mut inbox = Inbox::default();
    assert_eq!(b.poll(&mut inbox, 16), 1);
    assert_eq!((inbox.frames[0].len(), inbox.frames[0][100_000]), (100_001, 3));
    // A view stays readable when the peer's channel is closed.
    let view = b.view(a_at_b, block.offset(), 100_000).unwrap();
    assert!(b.view(a_at_b, 1 << 20, 1).is_none() && b.view(a_at_b, u64::MAX, 2).is_none());
    assert!(b.accept(0, &offer.what, copies).is_err(), "a second arena is refused");
    b.close_peer(a_at_b);
    let mut end = [0; 2];
    view.copy_to(99_998, &mut end);
    assert_eq!((end, view.len()), ([3; 2], 100_000));
}

/// Whether this process may read its own memory as if it were another's.
fn may_read_memory() -> bool {
    let word = 7_u64;
    let may = crate::os::peer_memory::read(std::process::id() as i32, &raw const word as u64, &mut [0; 8]).is_ok();
    if !may {
        eprintln!("SKIPPED: this system does not let a process read its own memory by a system call");
    }
    may
}

/// Tells b about a's memory; what a knows then.
fn tell_memory(a: &mut Shm, b: &mut Shm, b_at_a: Peer) -> Reads {
    let (reads, offer) = a.reads_memory(b_at_a);
    assert_eq!(reads, Reads::NotYet);
    let offer = offer.expect("the first question");
    assert!(a.reads_memory(b_at_a).1.is_none(), "told once");
    b.accept(0, &offer.what, offer.fds).unwrap();
    a.reads_memory(b_at_a).0
}

#[test]
fn memory_is_read_where_it_lies_once_the_peer_has_proved_that_it_can() {
    if !may_read_memory() {
        return;
    }
    let (mut a, mut b, b_at_a, _) = joined(ShmConfig::default());
    let mut bytes: Vec<u8> = (0..100_000_u32).map(|i| (i * 7) as u8).collect();
    assert_eq!(a.send_memory(b_at_a, b"h", &bytes, 1), Err(SendError::Unsupported));
    assert_eq!(tell_memory(&mut a, &mut b, b_at_a), Reads::Yes);
    let (mut tokens, mut inbox) = (Vec::new(), Inbox::default());
    a.send_memory(b_at_a, b"h", &bytes, 41).unwrap();
    // Changed after sending and before arrival: proof that nothing was copied yet.
    bytes[50_000] = 9;
    a.completed(&mut tokens);
    assert!(tokens.is_empty(), "the peer has not read it");
    assert_eq!(b.poll(&mut inbox, 16), 1);
    assert!(inbox.frames[0][0] == b'h' && inbox.frames[0][1..] == bytes[..]);
    a.completed(&mut tokens);
    assert_eq!(tokens, [41]);
    let long = vec![0; MEMORY_PART_MAX + 1];
    assert!(matches!(a.send_memory(b_at_a, b"", &long, 2), Err(SendError::TooLong { .. })));
}

#[test]
fn memory_that_can_not_be_read_any_more_delivers_nothing_and_is_told_for_good() {
    if !may_read_memory() {
        return;
    }
    let (mut a, mut b, b_at_a, a_at_b) = joined(ShmConfig::default());
    assert_eq!(tell_memory(&mut a, &mut b, b_at_a), Reads::Yes);
    let bytes = vec![5; 70_000];
    let (mut done, mut unread, mut inbox) = (Vec::new(), Vec::new(), Inbox::default());
    a.send_memory(b_at_a, b"", &bytes, 1).unwrap();
    assert_eq!(b.poll(&mut inbox, 16), 1);
    for token in [2, 3] {
        a.send_memory(b_at_a, b"", &bytes, token).unwrap();
    }
    a.send_short(b_at_a, [b"after", b""]).unwrap();
    b.pairs[a_at_b.0 as usize].as_mut().unwrap().reading.lose_sight();
    b.poll(&mut inbox, 16);
    assert_eq!(inbox.frames.len(), 2, "what was not read is not delivered");
    assert_eq!(inbox.frames[1], b"after");
    assert!(inbox.faults.is_empty());
    a.completed(&mut done);
    a.unread(&mut unread);
    assert_eq!((done, unread), (vec![1], vec![2, 3]));
    assert_eq!(a.reads_memory(b_at_a).0, Reads::Never);
    assert_eq!(a.send_memory(b_at_a, b"", &bytes, 4), Err(SendError::Unsupported));
    a.send_bulk(b_at_a, [&bytes[..10_000], b""]).unwrap();
    assert_eq!(b.poll(&mut inbox, 16), 1);
}

#[test]
fn a_process_number_that_is_not_proved_is_never_read() {
    let (mut a, mut b, b_at_a, _) = joined(ShmConfig::default());
    let (_, offer) = a.reads_memory(b_at_a);
    let text = layout::MemoryText::decode(&offer.unwrap().what).unwrap().unwrap();
    for wrong in [
        layout::MemoryText { proof: [text.proof[0], !text.proof[1]], ..text },
        layout::MemoryText { pid: u32::MAX, ..text },
        layout::MemoryText { address: 64, ..text },
    ] {
        b.accept(0, &wrong.encode(), Vec::new()).unwrap();
        assert_eq!(a.reads_memory(b_at_a).0, Reads::Never);
    }
    assert!(b.accept(0, &layout::MemoryText { slot: 1, ..text }.encode(), Vec::new()).is_err());
}

#[test]
fn an_arena_that_can_change_its_shape_is_refused() {
    let (_a, mut b, _, _) = joined(ShmConfig::default());
    let text = layout::ArenaText { slot: 0, bytes: 4096 }.encode();
    let (_map, fd) = memfd::create_common("not sealed enough", 4096).unwrap();
    assert!(matches!(b.accept(0, &text, vec![fd]), Err(HalError::NotSealed { .. })));
    let (_map, fd) = memfd::create_produced("of another size", 8192).unwrap();
    assert!(matches!(b.accept(0, &text, vec![fd]), Err(HalError::WrongSize { .. })));
    assert!(b.accept(0, &text, vec![]).is_err());
}

#[test]
fn crossing_offers_make_one_channel() {
    let (board, _fd) = Board::create(2).unwrap();
    let board = Arc::new(board);
    let mut a = Shm::new(ShmConfig::default(), board.clone(), 0).unwrap();
    let mut b = Shm::new(ShmConfig::default(), board, 1).unwrap();
    let (b_at_a, from_a) = a.open(1).unwrap();
    let (a_at_b, from_b) = b.open(0).unwrap();
    // Both send before anything has come.
    a.send_short(b_at_a, [b"from", b" a"]).unwrap();
    b.send_bulk(a_at_b, [b"", &[5; 9000]]).unwrap();
    assert!(matches!(a.accept(1, &from_b.what, from_b.fds), Ok((peer, None)) if peer == b_at_a));
    assert!(matches!(b.accept(0, &from_a.what, from_a.fds), Ok((peer, None)) if peer == a_at_b));
    let (mut at_a, mut at_b) = (Inbox::default(), Inbox::default());
    assert_eq!((a.poll(&mut at_a, 9), b.poll(&mut at_b, 9)), (1, 1));
    assert_eq!((&at_b.frames[0][..], &at_a.frames[0][..]), (&b"from a"[..], &[5; 9000][..]));
}

#[test]
fn offers_that_are_not_as_they_must_be_are_refused_and_change_nothing() {
    let (board, _fd) = Board::create(3).unwrap();
    let board = Arc::new(board);
    let mut a = Shm::new(ShmConfig::default(), board.clone(), 0).unwrap();
    let mut b = Shm::new(ShmConfig::default(), board, 1).unwrap();
    let (_, good) = a.open(1).unwrap();
    let copies = |fds: &[OwnedFd]| fds.iter().map(|fd| fd.try_clone().unwrap()).collect::<Vec<_>>();
    let mut refuse = |slot: u32, what: &[u8], fds: Vec<OwnedFd>| b.accept(slot, what, fds).unwrap_err();

    assert!(matches!(refuse(2, &good.what, copies(&good.fds)), HalError::BadOffer(_)), "another sender");
    assert!(matches!(refuse(7, &good.what, copies(&good.fds)), HalError::NoSuchSlot { .. }));
    assert!(matches!(refuse(1, &good.what, copies(&good.fds)), HalError::OwnSlot { .. }));
    assert!(matches!(refuse(0, &good.what[1..], copies(&good.fds)), HalError::BadOffer(_)));
    assert!(matches!(refuse(0, &good.what, copies(&good.fds[..1])), HalError::BadOffer(_)));
    assert!(matches!(refuse(0, &good.what, vec![]), HalError::BadOffer(_)));
    // The pool in the place of the channel: sealed, but of a wrong size.
    let swapped = vec![copies(&good.fds[1..]).remove(0), copies(&good.fds).remove(0)];
    assert!(matches!(refuse(0, &good.what, swapped), HalError::WrongSize { .. }));
    // Right size, but others may still write it, or its maker may still cut it.
    let (_map, common) = memfd::create_common("test", CHANNEL_BYTES).unwrap();
    let unsealed = vec![common, copies(&good.fds).remove(1)];
    assert!(matches!(refuse(0, &good.what, unsealed), HalError::NotSealed { .. }));
    let pipe = rustix::pipe::pipe().unwrap();
    assert!(matches!(refuse(0, &good.what, vec![pipe.0, copies(&good.fds).remove(1)]), HalError::NotSharedMemory));

    assert!(b.peer(0).is_none(), "a refused offer opens nothing");
    assert!(b.accept(0, &good.what, copies(&good.fds)).is_ok());
    assert!(matches!(b.accept(0, &good.what, good.fds), Err(HalError::AlreadyOpen { .. })));
    assert!(matches!(a.open(1), Err(HalError::AlreadyOpen { .. })));
    assert!(matches!(a.open(0), Err(HalError::OwnSlot { .. })));
}

#[test]
fn a_peer_that_hoards_the_pool_starves_nobody_and_closing_it_frees_everything() {
    let (board, _fd) = Board::create(3).unwrap();
    let board = Arc::new(board);
    let config = ShmConfig { pool_bytes: 64 << 10, slot_bytes: 4096, ..ShmConfig::default() };
    let mut devices: Vec<Shm> = (0..3).map(|slot| Shm::new(config.clone(), board.clone(), slot).unwrap()).collect();
    let [a, b, c] = &mut devices[..] else { panic!("three devices") };
    let mut join = |other: &mut Shm, slot: u32| {
        let (peer, offer) = a.open(slot).unwrap();
        let (_, answer) = other.accept(0, &offer.what, offer.fds).unwrap();
        let answer = answer.unwrap();
        a.accept(slot, &answer.what, answer.fds).unwrap();
        peer
    };
    let (hoarder, other) = (join(b, 1), join(c, 2));
    let body = [1; 4096];
    let mut held = 0;
    while a.send_bulk(hoarder, [&[], &body]).is_ok() {
        held += 1;
    }
    assert_eq!(held, 9, "one peer gets what is over half of 16 slots");
    let mut inbox = Inbox::default();
    for _ in 0..100 {
        a.send_bulk(other, [&[], &body]).unwrap();
        assert_eq!(c.poll(&mut inbox, 1), 1);
    }
    assert_eq!(a.send_bulk(hoarder, [&[], &body]), Err(SendError::Again));
    a.close_peer(hoarder);
    assert_eq!(a.home.pool.free(), 16, "every slot is home again");
    assert_eq!(a.send_bulk(hoarder, [&[], &body]), Err(SendError::PeerGone));
}

#[test]
fn what_a_peer_sent_before_it_died_still_arrives() {
    let (mut a, b, _, a_at_b) = joined(ShmConfig::default());
    let mut b = b;
    b.send_short(a_at_b, [b"last", b""]).unwrap();
    b.send_bulk(a_at_b, [&[9; 5000], &[]]).unwrap();
    drop(b);
    let mut inbox = Inbox::default();
    assert_eq!(a.poll(&mut inbox, 9), 2);
    assert_eq!((&inbox.frames[0][..], &inbox.frames[1][..]), (&b"last"[..], &[9; 5000][..]));
}

#[test]
fn a_channel_costs_two_pages_and_128_peers_stay_within_the_budget() {
    let config = ShmConfig::default();
    let pool = Pool::new(config.pool_bytes, config.slot_bytes).unwrap().bytes();
    // Every byte of a channel is shared by two processes, and each has one for writing and one for reading per peer; pool
    // pages are counted whole, as if no peer had mapped them.
    let bytes = 127 * CHANNEL_BYTES + pool;
    assert!(bytes <= 4 << 20, "{bytes} bytes of 8 MiB, the rest is the program's");
}
