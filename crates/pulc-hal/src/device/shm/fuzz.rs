//! A hostile peer of the device, made of an input: what `crate::fuzz` offers of this room. The peer has its raw mappings, so that
//! it does what no honest device would; the device must neither panic nor read outside, and get all it has lent back.

use super::layout::{CELLS, CELLS_AT, CHANNEL_BYTES, CREDIT_AT, LINE, OfferText};
use super::{Shm, ShmConfig};
use crate::board::Board;
use crate::device::{Device, Frame, Peer, PeerFault, Sink};
use crate::os::memfd::{self, WriteMap};
use crate::segment::{Segment, SegmentText};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const POOL: usize = 64 << 10;

/// Copies every byte of what arrives.
#[derive(Default)]
struct Reader {
    bytes: usize,
    failed: usize,
}

impl Sink for Reader {
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        self.bytes += match frame {
            Frame::Private(bytes) => bytes.len(),
            Frame::Shared(shared) => {
                let mut copy = vec![0; shared.len()];
                shared.copy_to(&mut copy);
                copy.len()
            }
        };
    }

    fn peer_failed(&mut self, _: Peer, _: PeerFault) {
        self.failed += 1;
        assert_eq!(self.failed, 1, "a fault is told once");
    }
}

fn device() -> Shm {
    let (board, _) = Board::create(3).expect("there is memory");
    Shm::new(ShmConfig::default(), Arc::new(board), 0).expect("there is memory")
}

/// Steps of nine bytes: what to do, and a number.
pub(crate) fn channel(bytes: &[u8]) {
    let mut victim = device();
    let (channel, channel_fd) = memfd::create_produced("fuzz-channel", CHANNEL_BYTES).expect("there is memory");
    let (pool, pool_fd) = memfd::create_produced("fuzz-pool", POOL).expect("there is memory");
    let text = OfferText { slot: 1, pool_bytes: POOL as u64, arena_bytes: 0, has_bell: false };
    let (peer, _) = victim.accept(1, &text.encode(), vec![channel_fd, pool_fd]).expect("a right offer");
    let (mut reader, mut cell) = (Reader::default(), 0);
    for step in bytes.chunks_exact(9) {
        let number = u64::from_le_bytes(step[1..].try_into().expect("eight bytes"));
        play(step[0], number, &mut cell, &channel, &pool);
        match step[0] % 5 {
            0 => drop(victim.send_short(peer, [&step[1..], &[0; 100]])),
            1 => drop(victim.send_bulk(peer, [&step[1..], &[0; 2000]])),
            _ => drop(victim.poll(&mut reader, 8)),
        }
    }
    victim.close_peer(peer);
    let pool = &victim.home.pool;
    assert_eq!(pool.free() * pool.slot_bytes(), pool.bytes(), "everything lent is back");
    victim.open(1).expect("the place is free again");
}

fn play(what: u8, number: u64, cell: &mut u32, channel: &WriteMap, pool: &WriteMap) {
    let header = CELLS_AT + (*cell % CELLS) as usize * LINE;
    match what >> 4 {
        0 => channel.u64_at(CREDIT_AT).store(number, Ordering::Release),
        1 => channel.u64_at(0).store(number, Ordering::Release),
        2 => channel.u64_at((number >> 16) as usize % (CHANNEL_BYTES / 8) * 8).store(number, Ordering::Release),
        3 => pool.u64_at((number >> 16) as usize % (POOL / 8) * 8).store(number, Ordering::Release),
        // Payload of the next cell.
        4..=8 => channel.u64_at(header + 8 + usize::from(what >> 4) % 7 * 8).store(number, Ordering::Relaxed),
        // Its header, with the sequence that the consumer waits for.
        _ => {
            let sequence = u64::from(cell.wrapping_add(1));
            channel.u64_at(header).store(number & !0xffff_ffff | sequence, Ordering::Release);
            *cell = cell.wrapping_add((number >> 40) as u8 as u32 % 17);
        }
    }
}

/// The first byte says which descriptors come, the second to which slot, the rest is the text.
pub(crate) fn offer(bytes: &[u8]) {
    let [which, slot, what @ ..] = bytes else { return };
    let mut victim = device();
    let memory = |len| memfd::create_produced("fuzz-offer", len).map(|(_, fd)| fd).expect("there is memory");
    let mut fds: Vec<OwnedFd> = Vec::new();
    for at in 0..4 {
        match which >> (2 * at) & 3 {
            0 => {}
            1 => fds.push(memory(CHANNEL_BYTES)),
            2 => fds.push(memory(POOL)),
            _ => fds.extend(std::fs::File::open("/dev/null").map(OwnedFd::from)),
        }
    }
    let slot = u32::from(slot % 4);
    let accepted = victim.accept(slot, what, fds);
    assert!(accepted.is_err() || slot == 1 || slot == 2, "nobody is in slot {slot}");
    if let Ok((peer, _)) = accepted {
        victim.poll(&mut Reader::default(), 8);
        // A second one of the same is refused or announces an arena.
        let _ = victim.accept(slot, what, vec![memory(POOL)]);
        victim.close_peer(peer);
    }
    victim.open(1 + slot % 2).map(drop).unwrap_or_default();
    segment(what, memory);
}

/// The same text as an offer of a segment, with memory of its size and of another one.
fn segment(what: &[u8], memory: impl Fn(usize) -> OwnedFd) {
    let Ok(Some(text)) = SegmentText::decode(what) else { return };
    let bytes = usize::try_from(text.bytes).expect("an address of 64 bits");
    // Sealed as a channel is and no segment should be.
    assert!(Segment::attach(memory(POOL), bytes).is_err(), "memory that its maker alone writes is no segment");
    if (LINE..=POOL).contains(&bytes) {
        let (_, fd) = Segment::create(bytes).expect("there is memory");
        let found = Segment::attach(fd, bytes).expect("it is a segment of this size");
        assert_eq!(found.mark(0), 0);
    }
}
