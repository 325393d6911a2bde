//! What this end has taken for sending and the other end has not acknowledged: the packets, lying in memory as the frames they
//! leave in. Frames of one size lie one behind the other, so a device gathers a whole run from few pieces with one system
//! call and nothing is copied twice. Called by the engine; knows neither time nor rails beyond noting them.

use crate::keys::TrainTag;
use crate::wire::{HEADER_BYTES, OVERHEAD, PART_OVERHEAD, PLACE_BYTES, Place, TAG_BYTES};
use pulc_base::clock::Nanos;
use std::collections::VecDeque;

/// First chunk of an idle link; one that moves bulk gets larger ones.
const SMALL_CHUNK_BYTES: usize = 8 << 10;
/// As much as one datagram system call takes.
const CHUNK_BYTES: usize = 64 << 10;
/// Pieces of memory that one run may lie in.
pub(crate) const PIECES_MAX: usize = 4;
/// Empty chunks kept for the next packets while the link is busy.
const SPARE_CHUNKS_MAX: usize = 16;

/// Where a packet stands on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Never sent.
    Queued,
    UnderWay,
    /// Sent, and found to be lost; waits for its repetition.
    Lost,
    /// Acknowledged out of order.
    Arrived,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub state: State,
    /// More than once sent.
    pub repeated: bool,
    /// Longer than one datagram: it leaves as a train or in parts,
    pub long: bool,
    /// and has left as a train.
    pub train: bool,
    /// Rail, place in that rail's order, frame counter and time of the last transmission.
    pub rail: u8,
    pub rail_order: u64,
    pub counter: u64,
    pub sent_at: Nanos,
    chunk: u64,
    at: u32,
    /// Of the frame, in bytes.
    pub frame_len: u32,
}

struct Chunk {
    bytes: Box<[u8]>,
    used: usize,
    /// Packets in it that are not released.
    live: usize,
}

/// Packets `base..end`, of which those from `fresh` on were never sent.
pub(crate) struct Retention {
    base: u64,
    fresh: u64,
    slots: VecDeque<Slot>,
    chunks: VecDeque<Chunk>,
    /// Number of the first chunk.
    chunk_base: u64,
    spare: Vec<Box<[u8]>>,
    bytes: usize,
    bytes_max: usize,
    /// Frames of packets never sent.
    queued_bytes: usize,
    /// Tags of long packets never sent, by their numbers: over all but the header.
    tags: VecDeque<(u64, TrainTag)>,
}

impl Retention {
    pub fn new(bytes_max: usize) -> Retention {
        Retention {
            base: 0,
            fresh: 0,
            slots: VecDeque::new(),
            chunks: VecDeque::new(),
            chunk_base: 0,
            spare: Vec::new(),
            bytes: 0,
            bytes_max,
            queued_bytes: 0,
            tags: VecDeque::new(),
        }
    }

    /// Oldest packet not released.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// First packet never sent.
    pub fn fresh(&self) -> u64 {
        self.fresh
    }

    /// One past the newest packet.
    pub fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Packets kept.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of frames never sent.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Bytes kept, bookkeeping included.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes allocated for chunks.
    pub fn allocated_bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| chunk.bytes.len());
        chunks.chain(self.spare.iter().map(|spare| spare.len())).sum::<usize>()
            + self.tags.len() * size_of::<TrainTag>()
    }

    /// Keeps a packet, leaving room for header and tag around it, behind its place if it is `long`. The tag of a train is made while
    /// it is copied. False: full.
    pub fn push(&mut self, parts: [&[u8]; 2], long: bool, tag: Option<TrainTag>) -> bool {
        let (overhead, front) =
            if long { (PART_OVERHEAD, HEADER_BYTES + PLACE_BYTES) } else { (OVERHEAD, HEADER_BYTES) };
        let frame_len = overhead + parts[0].len() + parts[1].len();
        let cost = frame_len + size_of::<Slot>();
        if self.bytes + cost > self.bytes_max && !self.slots.is_empty() {
            return false;
        }
        if self.chunks.back().is_none_or(|chunk| chunk.bytes.len() - chunk.used < frame_len) {
            self.add_chunk(frame_len);
        }
        let chunk = self.chunks.back_mut().expect("a chunk with room was made sure of");
        let at = chunk.used;
        let middle = at + front + parts[0].len();
        chunk.bytes[at + front..middle].copy_from_slice(parts[0]);
        if long {
            let total = (parts[0].len() + parts[1].len()) as u32;
            Place { offset: 0, total }.write(&mut chunk.bytes[at + HEADER_BYTES..at + front]);
        }
        let (before, rest) = chunk.bytes[..middle + parts[1].len()].split_at_mut(middle);
        match tag {
            Some(mut tag) => {
                tag.over(&before[at + HEADER_BYTES..]);
                tag.over_copy(rest, parts[1]);
                self.tags.push_back((self.base + self.slots.len() as u64, tag));
            }
            None => rest.copy_from_slice(parts[1]),
        }
        chunk.used += frame_len;
        chunk.live += 1;
        self.bytes += cost;
        self.queued_bytes += frame_len;
        self.slots.push_back(Slot {
            state: State::Queued,
            repeated: false,
            long,
            train: false,
            rail: 0,
            rail_order: 0,
            counter: 0,
            sent_at: Nanos(0),
            chunk: self.chunk_base + self.chunks.len() as u64 - 1,
            at: at as u32,
            frame_len: frame_len as u32,
        });
        true
    }

    fn add_chunk(&mut self, frame_len: usize) {
        let wanted = if self.chunks.is_empty() { SMALL_CHUNK_BYTES } else { CHUNK_BYTES }.max(frame_len);
        // The one used last is most likely still in the cache.
        let found = self.spare.iter().rposition(|spare| spare.len() >= wanted);
        let bytes = match found {
            Some(index) => self.spare.remove(index),
            None => vec![0; wanted].into_boxed_slice(),
        };
        self.chunks.push_back(Chunk { bytes, used: 0, live: 0 });
    }

    pub fn slot(&self, packet: u64) -> &Slot {
        &self.slots[(packet - self.base) as usize]
    }

    pub fn slot_mut(&mut self, packet: u64) -> &mut Slot {
        &mut self.slots[(packet - self.base) as usize]
    }

    /// Whether the frame of `packet` lies right behind that of the packet before it.
    pub fn follows(&self, packet: u64) -> bool {
        let (before, this) = (self.slot(packet - 1), self.slot(packet));
        before.chunk == this.chunk && before.at + before.frame_len == this.at
    }

    pub fn frame_mut(&mut self, packet: u64) -> &mut [u8] {
        let slot = *self.slot(packet);
        let chunk = &mut self.chunks[(slot.chunk - self.chunk_base) as usize];
        &mut chunk.bytes[slot.at as usize..(slot.at + slot.frame_len) as usize]
    }

    /// The bytes of a long packet.
    pub fn long_packet(&self, packet: u64) -> &[u8] {
        let slot = self.slot(packet);
        debug_assert!(slot.long);
        let chunk = &self.chunks[(slot.chunk - self.chunk_base) as usize];
        &chunk.bytes[slot.at as usize + HEADER_BYTES + PLACE_BYTES..(slot.at + slot.frame_len) as usize - TAG_BYTES]
    }

    /// The tag of a packet that leaves as a train, as far as it was made when the packet came, and those of earlier ones are forgotten:
    /// a packet is a train only the first time.
    pub fn tag(&mut self, packet: u64) -> Option<&TrainTag> {
        while self.tags.front().is_some_and(|(of, _)| *of < packet) {
            self.tags.pop_front();
        }
        self.tags.front().filter(|(of, _)| *of == packet).map(|(_, tag)| tag)
    }

    /// The frames of `count` packets, as the pieces of memory they lie in. At most [`PIECES_MAX`]; the rest are empty.
    pub fn pieces(&self, first: u64, count: usize) -> ([&[u8]; PIECES_MAX], usize) {
        let mut pieces: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
        let (mut used, mut packet, end) = (0, first, first + count as u64);
        while packet < end {
            let start = self.slot(packet);
            let mut len = start.frame_len as usize;
            packet += 1;
            while packet < end && self.follows(packet) {
                len += self.slot(packet).frame_len as usize;
                packet += 1;
            }
            let chunk = &self.chunks[(start.chunk - self.chunk_base) as usize];
            pieces[used] = &chunk.bytes[start.at as usize..start.at as usize + len];
            used += 1;
        }
        (pieces, used)
    }

    /// Notes that the first `count` fresh packets are no longer fresh.
    pub fn sent_fresh(&mut self, count: usize) {
        for _ in 0..count {
            self.queued_bytes -= self.slot(self.fresh).frame_len as usize;
            self.fresh += 1;
        }
        debug_assert!(self.fresh <= self.end());
    }

    /// Forgets the oldest packet, which has been sent and acknowledged.
    pub fn release(&mut self) -> Slot {
        let slot = self.slots.pop_front().expect("only what is kept is released");
        debug_assert!(self.base < self.fresh, "only what was sent is released");
        self.base += 1;
        while self.tags.front().is_some_and(|(of, _)| *of < self.base) {
            self.tags.pop_front();
        }
        self.bytes -= slot.frame_len as usize + size_of::<Slot>();
        self.chunks[(slot.chunk - self.chunk_base) as usize].live -= 1;
        while self.chunks.len() > 1 && self.chunks[0].live == 0 {
            let chunk = self.chunks.pop_front().expect("there are two chunks or more");
            self.chunk_base += 1;
            if self.spare.len() < SPARE_CHUNKS_MAX && chunk.bytes.len() >= CHUNK_BYTES {
                self.spare.push(chunk.bytes);
            }
        }
        if let [only] = self.chunks.make_contiguous()
            && only.live == 0
        {
            only.used = 0;
        }
        slot
    }

    /// Gives memory back that an idle link does not need. Only when nothing is kept.
    pub fn trim(&mut self) {
        debug_assert!(self.slots.is_empty());
        self.chunk_base += self.chunks.len() as u64;
        self.chunks = VecDeque::new();
        self.spare = Vec::new();
        self.slots = VecDeque::new();
        self.tags = VecDeque::new();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.base = self.end();
        self.fresh = self.base;
        self.slots.clear();
        (self.bytes, self.queued_bytes) = (0, 0);
        self.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_bulk_lie_one_behind_the_other() {
        let mut retention = Retention::new(1 << 20);
        let packet = [9; 1000];
        (0..200).for_each(|_| assert!(retention.push([&packet[..300], &packet[300..]], false, None)));
        let runs = (1..200).filter(|&packet| !retention.follows(packet)).count();
        assert!(runs <= 4, "{runs} seams in 200 packets of 1000 bytes");
        let (pieces, used) = retention.pieces(100, 80);
        assert!(used <= 3);
        assert_eq!(pieces.concat().len(), 80 * (1000 + OVERHEAD));
        let frame = retention.frame_mut(199);
        assert!(frame[HEADER_BYTES..HEADER_BYTES + 1000].iter().all(|&byte| byte == 9));
    }

    #[test]
    fn a_full_retention_refuses_and_a_released_packet_makes_room() {
        let mut retention = Retention::new(10_000);
        while retention.push([&[1; 900], &[]], false, None) {}
        let kept = retention.len();
        assert!(retention.bytes() <= 10_000 && kept >= 9);
        retention.sent_fresh(1);
        retention.release();
        assert!(retention.push([&[1; 900], &[]], false, None));
        assert!(!retention.push([&[1; 900], &[]], false, None));
    }

    #[test]
    fn memory_is_reused_while_busy_and_given_back_when_idle() {
        let mut retention = Retention::new(1 << 20);
        for _ in 0..50 {
            (0..300).for_each(|_| assert!(retention.push([&[1; 1400], &[]], false, None)));
            retention.sent_fresh(300);
            (0..300).for_each(|_| _ = retention.release());
            assert!(retention.allocated_bytes() < 1 << 20);
        }
        retention.trim();
        assert_eq!((retention.allocated_bytes(), retention.bytes(), retention.len()), (0, 0, 0));
        assert!(retention.push([&[1], &[2]], false, None));
        assert_eq!(retention.frame_mut(15_000).len(), OVERHEAD + 2);
    }

    #[test]
    fn a_long_packet_is_kept_in_one_piece_behind_its_place() {
        let mut retention = Retention::new(1 << 20);
        let packet: Vec<u8> = (0..60_000).map(|byte| byte as u8).collect();
        assert!(retention.push([&[7; 10], &[]], false, None));
        assert!(retention.push([&packet[..16], &packet[16..]], true, None));
        assert_eq!(retention.long_packet(1), packet);
        assert_eq!(retention.frame_mut(1).len(), 60_000 + PART_OVERHEAD);
        assert_eq!(retention.queued_bytes(), 10 + OVERHEAD + 60_000 + PART_OVERHEAD);
        retention.sent_fresh(2);
        assert_eq!(retention.queued_bytes(), 0);
    }
}
