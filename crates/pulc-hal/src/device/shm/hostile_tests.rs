//! A peer that writes whatever it likes into everything it can write, while we poll it and send to it. What must never
//! happen: a read outside of what is mapped (a crash), a panic, a poll that does not end, harm to another pair.
//!
//! The peer here is made of its raw mappings, so that it can do what no honest device would. Random choices come from a
//! seed that is printed.

use super::layout::{ARENA_WORD_AT, ArenaText, CELLS, CELLS_AT, CREDIT_AT, Header, Kind, LINE, OfferText, Reference};
use super::*;
use crate::device::Frame;
use crate::os::memfd::{ReadMap, WriteMap};
use std::sync::atomic::Ordering;

/// The raw memory of a hostile peer in slot 1 and the device that it attacks in slot 0.
struct Attack {
    victim: Shm,
    peer: Peer,
    channel: WriteMap,
    pool: WriteMap,
    /// What the victim writes: the hostile peer reads it to aim well.
    from_victim: ReadMap,
}

const POOL: usize = 64 << 10;

fn attack() -> Attack {
    let (board, _fd) = Board::create(3).unwrap();
    let mut victim = Shm::new(ShmConfig::default(), Arc::new(board), 0).unwrap();
    let (channel, channel_fd) = memfd::create_produced("hostile-channel", CHANNEL_BYTES).unwrap();
    let (pool, pool_fd) = memfd::create_produced("hostile-pool", POOL).unwrap();
    let text = OfferText { slot: 1, pool_bytes: POOL as u64, arena_bytes: 0, has_bell: false };
    let (peer, answer) = victim.accept(1, &text.encode(), vec![channel_fd, pool_fd]).unwrap();
    let mut fds = answer.unwrap().fds;
    let from_victim = memfd::map_produced(fds.remove(0), CHANNEL_BYTES).unwrap();
    Attack { victim, peer, channel, pool, from_victim }
}

/// Reads every byte of what arrives and notes why the peer was given up.
#[derive(Default)]
struct Reader {
    frames: usize,
    sum: u64,
    fault: Option<PeerFault>,
}

impl Sink for Reader {
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        self.frames += 1;
        let mut bytes = Vec::new();
        let bytes: &[u8] = match frame {
            Frame::Private(bytes) => bytes,
            Frame::Shared(shared) => {
                assert!(shared.len() <= POOL + CELLS_PAYLOAD_MAX);
                bytes.resize(shared.len(), 0);
                shared.copy_to(&mut bytes);
                &bytes
            }
        };
        self.sum = bytes.iter().fold(self.sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        assert!(self.fault.is_none(), "a fault is told once");
        self.fault = Some(why);
    }
}

impl Attack {
    /// Puts a first cell as the `n`th (from 0).
    fn cell(&self, n: u32, header: u64, payload: &[u8]) {
        let at = CELLS_AT + (n % CELLS) as usize * LINE;
        self.channel.copy_in(at + 8, payload);
        self.channel.u64_at(at).store(header, Ordering::Release);
    }

    fn expect_poisoned(&mut self, why: &str) {
        let mut reader = Reader::default();
        for _ in 0..3 {
            self.victim.poll(&mut reader, 1000);
        }
        assert!(matches!(reader.fault, Some(PeerFault::BrokenRules(_))), "{why}: {:?}", reader.fault);
        assert_eq!(self.victim.send_short(self.peer, [b"x", b""]), Err(SendError::PeerGone), "{why}");
        assert_eq!(self.victim.send_bulk(self.peer, [b"x", b""]), Err(SendError::PeerGone), "{why}");
    }
}

#[test]
fn references_outside_of_the_pool_poison_the_pair() {
    for (offset, len) in [
        (POOL as u64, 1),
        (0, POOL as u32 + 1),
        (u64::MAX, 1),
        (u64::MAX - 7, 16),
        (1 << 63, u32::MAX),
        (POOL as u64 - 1, 2),
    ] {
        let mut attack = attack();
        let header = Header { kind: Kind::Pool, cells: 1, bytes: 16 };
        attack.cell(0, header.encode(1), &Reference { offset, len }.encode());
        attack.expect_poisoned(&format!("reference {offset}+{len}"));
    }
}

#[test]
fn references_outside_of_an_arena_that_came_later_poison_the_pair() {
    const ARENA: usize = 1 << 20;
    for (offset, len) in
        [(ARENA as u64, 1), (0, ARENA as u32 + 1), (u64::MAX, 1), (u64::MAX - 7, 16), (1 << 63, u32::MAX)]
    {
        let mut attack = attack();
        let (_map, fd) = memfd::create_produced("hostile-arena", ARENA).unwrap();
        let text = ArenaText { slot: 1, bytes: ARENA as u64 };
        attack.victim.accept(1, &text.encode(), vec![fd]).unwrap();
        assert!(attack.victim.view(attack.peer, offset, len.into()).is_none());
        let header = Header { kind: Kind::Arena, cells: 1, bytes: 16 };
        attack.cell(0, header.encode(1), &Reference { offset, len }.encode());
        attack.expect_poisoned(&format!("reference {offset}+{len}"));
    }
}

#[test]
fn whatever_a_peer_says_about_our_arena_only_stops_our_using_it() {
    for word in [2, 3, u64::MAX, 1 << 32] {
        let mut attack = attack();
        let arena = Arena::new(1 << 20).unwrap();
        attack.victim.set_arena(&arena);
        attack.channel.u64_at(ARENA_WORD_AT).store(word, Ordering::Release);
        assert_eq!(attack.victim.reads_arena(attack.peer), Reads::Never, "{word}");
        let block = arena.alloc(100_000).unwrap();
        assert_eq!(attack.victim.send_zcopy(attack.peer, b"h", &block, 1), Err(SendError::Unsupported));
        attack.victim.send_short(attack.peer, [b"x", b""]).unwrap();
    }
    // It says yes without having been told, and then returns more than it got.
    let mut attack = attack();
    let arena = Arena::new(1 << 20).unwrap();
    attack.victim.set_arena(&arena);
    attack.channel.u64_at(ARENA_WORD_AT).store(1, Ordering::Release);
    let block = arena.alloc(100_000).unwrap();
    attack.victim.send_zcopy(attack.peer, b"h", &block, 7).unwrap();
    attack.channel.u64_at(CREDIT_AT).store(2 << 32 | 1, Ordering::Release);
    let mut tokens = Vec::new();
    attack.victim.completed(&mut tokens);
    assert!(tokens.is_empty());
    attack.victim.close_peer(attack.peer);
    attack.victim.completed(&mut tokens);
    assert_eq!(tokens, [7]);
}

#[test]
fn headers_that_lie_poison_the_pair() {
    let sequence = 1u64;
    for (header, why) in [
        (sequence, "no kind"),
        (sequence | 9 << 32 | 1 << 40, "an unknown kind"),
        (sequence | 1 << 32, "no cells"),
        (sequence | 1 << 32 | 1 << 40 | 57 << 48, "more bytes than its cells hold"),
        (sequence | 1 << 32 | 255 << 40 | 0xFFFF << 48, "more cells than a frame may have"),
        (sequence | 2 << 32 | 1 << 40 | 15 << 48, "a reference that is cut short"),
        (sequence | 3 << 32 | 1 << 40 | 16 << 48, "an arena that was never offered"),
    ] {
        let mut attack = attack();
        attack.cell(0, header, &[]);
        attack.expect_poisoned(why);
    }
}

#[test]
fn credit_for_what_was_never_sent_poisons_the_pair() {
    for credit in [1u64, 1 << 32, u64::MAX, u64::from(u32::MAX)] {
        let mut attack = attack();
        attack.channel.u64_at(CREDIT_AT).store(credit, Ordering::Release);
        // Looked at only when room is needed.
        let mut result = Ok(());
        for _ in 0..2 * CELLS {
            result = attack.victim.send_short(attack.peer, [b"x", b""]);
            if result.is_err() {
                break;
            }
        }
        let honest_by_chance = result == Err(SendError::Again);
        if credit == 1 {
            // One cell was consumed, says the peer, and by now one was sent: nothing wrong with that.
            assert!(honest_by_chance);
            continue;
        }
        assert_eq!(result, Err(SendError::PeerGone), "credit {credit:#x}");
        attack.expect_poisoned("false credit");
    }
}

/// Counts frames by peer, and lets the flooding peer send again after each of its own.
struct Flooded<'a> {
    flooder: &'a mut Shm,
    by_peer: [usize; 2],
}

impl Sink for Flooded<'_> {
    fn frame(&mut self, from: Peer, _: Frame<'_>) {
        self.by_peer[from.0 as usize] += 1;
        while self.flooder.send_short(Peer(0), [b"more", b""]).is_ok() {}
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        panic!("{why}");
    }
}

#[test]
fn a_peer_that_sends_as_fast_as_it_is_polled_takes_nobody_elses_turn() {
    let (board, _fd) = Board::create(3).unwrap();
    let board = Arc::new(board);
    let mut devices = [0, 1, 2].map(|slot| Shm::new(ShmConfig::default(), Arc::clone(&board), slot).unwrap());
    for slot in [1, 2] {
        let (_, offer) = devices[slot].open(0).unwrap();
        let (_, answer) = devices[0].accept(slot as u32, &offer.what, offer.fds).unwrap();
        let answer = answer.unwrap();
        devices[slot].accept(0, &answer.what, answer.fds).unwrap();
    }
    let [victim, flooder, honest] = &mut devices;
    let mut sink = Flooded { flooder, by_peer: [0; 2] };
    // It is the hot one, and its ring is never empty.
    while sink.flooder.send_short(Peer(0), [b"first", b""]).is_ok() {}
    victim.poll(&mut sink, 64);
    for round in 1..=20 {
        honest.send_short(Peer(0), [b"a word", b""]).unwrap();
        victim.poll(&mut sink, 64);
        assert_eq!(sink.by_peer[1], round, "the honest peer waits for the flood to end");
    }
    assert!(sink.by_peer[0] > 500);
}

#[test]
fn a_peer_that_scribbles_over_everything_harms_only_its_own_pair() {
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64) | 1;
    println!("seed {seed}");
    let mut random = seed;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let (mut poisoned, mut frames) = (0, 0);
    // Where the two hardly ever run at the same time it takes more rounds until both have been seen.
    for round in 0..4000 {
        if round >= 400 && poisoned > 0 && frames > 0 {
            break;
        }
        let mut attack = attack();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let begun = std::sync::atomic::AtomicBool::new(false);
        let mut reader = Reader::default();
        let scribble_seed = next();
        std::thread::scope(|scope| {
            let Attack { victim, peer, channel, pool, from_victim } = &mut attack;
            let (channel, pool, from_victim, stop, begun) = (&*channel, &*pool, &*from_victim, &stop, &begun);
            scope.spawn(move || {
                begun.store(true, Ordering::Relaxed);
                scribble(scribble_seed, channel, pool, from_victim, stop);
            });
            // On a busy machine all polls would be over before the other side has written a word.
            while !begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for step in 0..300 {
                if step % 64 == 0 {
                    std::thread::yield_now();
                }
                victim.poll(&mut reader, 64);
                let _ = victim.send_short(*peer, [b"some", b"thing"]);
                if step % 7 == 0 {
                    let _ = victim.send_bulk(*peer, [b"head", &[0; 3000]]);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        frames += reader.frames;
        poisoned += usize::from(reader.fault.is_some());
        // Whatever happened: closing frees everything, and the device goes on.
        attack.victim.close_peer(attack.peer);
        let pool = &attack.victim.home.pool;
        assert_eq!(pool.free() * pool.slot_bytes(), pool.bytes(), "round {round}");
        attack.victim.open(2).unwrap();
    }
    println!("{frames} frames taken, {poisoned} pairs poisoned");
    assert!(poisoned > 0 && frames > 0, "an attack that neither sends nor breaks anything tests nothing");
}

/// Writes plausible and absurd values, until told to stop.
fn scribble(
    seed: u64,
    channel: &WriteMap,
    pool: &WriteMap,
    from_victim: &ReadMap,
    stop: &std::sync::atomic::AtomicBool,
) {
    let mut random = seed | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut sequence = 0u32;
    while !stop.load(Ordering::Relaxed) {
        let cell = CELLS_AT + (sequence % CELLS) as usize * LINE;
        match next() % 64 {
            0 => channel.u64_at(CREDIT_AT).store(next(), Ordering::Release),
            1 => channel.u64_at(CREDIT_AT).store(from_victim.load_u64(CREDIT_AT, Ordering::Acquire), Ordering::Release),
            2 => channel.u64_at(next() as usize % (CHANNEL_BYTES / 8) * 8).store(next(), Ordering::Release),
            3 => pool.u64_at(next() as usize % (POOL / 8) * 8).store(next(), Ordering::Release),
            choice => {
                // Mostly well-formed, so that the attack gets deep.
                let len = if choice < 6 { next() as u32 } else { next() as u32 % 4096 };
                let offset = if choice == 7 { next() } else { next() % (POOL as u64 - 4096) };
                let kind = if choice % 2 == 0 { Kind::Pool } else { Kind::Short };
                let header = Header { kind, cells: 1, bytes: 16 + (next() % 41) as u16 };
                channel.copy_in(cell + 8, &Reference { offset, len }.encode());
                sequence = sequence.wrapping_add(1);
                channel.u64_at(cell).store(header.encode(sequence), Ordering::Release);
            }
        }
    }
}
