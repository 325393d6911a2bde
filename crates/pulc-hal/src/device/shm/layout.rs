//! How a channel lies in memory and how an offer of one is written. Used by every file of this device; no state.
//!
//! One direction of a pair is one memfd of two pages, written by its producer only:
//! ```text
//!    0  u64: whether the producer reads the *other* side's arena: 0 not yet, 1 yes, 2 never
//!    8  u64: low half the same for the other side's memory; after a yes that became a never, high half the number of the first reference
//!       that was not read
//!  128  u64 credit for the *opposite* direction: low half cells consumed, high half references consumed (both wrapping)
//!  256  cells of 64 bytes
//! ```
//! A cell is a header and 56 bytes. The header is stored last and says by its sequence number that the cell is full:
//! ```text
//!  bits  0..32  sequence: number of cells produced before this one, plus 1 (wrapping)
//!       32..40  kind
//!       40..48  cells of this frame; 0 in a continuation
//!       48..64  bytes used in the cells of this frame
//! ```
//! A frame longer than one cell has the following cells filled before the header of its first.

use crate::error::HalError;

pub const LINE: usize = 64;
/// Bytes of one direction's memfd.
pub const CHANNEL_BYTES: usize = 8192;
pub const ARENA_WORD_AT: usize = 0;
pub const MEMORY_WORD_AT: usize = 8;
pub const CREDIT_AT: usize = 128;
pub const CELLS_AT: usize = 256;
pub const CELLS: u32 = ((CHANNEL_BYTES - CELLS_AT) / LINE) as u32;
/// Payload bytes of a cell.
pub const CELL_PAYLOAD: usize = 56;
/// Most cells of one frame.
pub const FRAME_CELLS_MAX: usize = 16;
/// Most bytes in the cells of one frame.
pub const CELLS_PAYLOAD_MAX: usize = FRAME_CELLS_MAX * CELL_PAYLOAD;
/// Longer bodies go through the pool while it has slots: from here on that is faster. Filling many cells takes their lines from their last
/// reader one by one; a slot's lines are asked for all together, and a frame before.
pub const CELLS_BODY_MAX: usize = 2 * CELL_PAYLOAD;
/// A consumer publishes its credit when it owes this many cells.
pub const CREDIT_BATCH: u32 = CELLS / 4;

const _: () = assert!(
    CELLS_AT.is_multiple_of(128) && CREDIT_AT.is_multiple_of(128) && CELLS as usize * LINE + CELLS_AT == CHANNEL_BYTES
);
// A sender that waits for room is never starved by credit which is owed but not yet published.
const _: () = assert!(FRAME_CELLS_MAX as u32 + CREDIT_BATCH <= CELLS);
const _: () = assert!(CELLS_PAYLOAD_MAX <= u16::MAX as usize);

/// What the bytes in the cells of a frame are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The frame itself.
    Short = 1,
    /// A [`Reference`] into the producer's pool, then the head of the frame.
    Pool = 2,
    /// A [`Reference`] into the producer's arena, then the head of the frame.
    Arena = 3,
    /// A [`Reference`] to the producer's memory by address, then the head of the frame.
    Memory = 4,
}

/// Header of a frame's first cell, without the sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: Kind,
    pub cells: u8,
    pub bytes: u16,
}

impl Header {
    #[inline(always)]
    pub fn encode(self, sequence: u32) -> u64 {
        u64::from(sequence)
            | u64::from(self.kind as u8) << 32
            | u64::from(self.cells) << 40
            | u64::from(self.bytes) << 48
    }

    /// Whether the header says that the frame is a short one of one cell, and nothing that cannot be.
    #[inline(always)]
    pub fn is_short_cell(word: u64) -> bool {
        const SHORT: u64 = Kind::Short as u64 | 1 << 8;
        word >> 32 & 0xffff == SHORT && word >> 48 <= CELL_PAYLOAD as u64
    }

    /// Whether not more than three words of a cell mean anything: the line is on its way for a shorter time.
    #[inline(always)]
    pub fn is_few(word: u64) -> bool {
        word >> 48 <= 3 * 8
    }

    /// The length in bytes of a frame for which [`Header::is_short_cell`] holds.
    #[inline(always)]
    pub fn bytes_of_short_cell(word: u64) -> usize {
        (word >> 48) as usize
    }

    /// Checks everything that a header can say against the layout.
    #[inline(always)]
    pub fn decode(word: u64) -> Result<Header, &'static str> {
        let kind = match (word >> 32) as u8 {
            1 => Kind::Short,
            2 => Kind::Pool,
            3 => Kind::Arena,
            4 => Kind::Memory,
            _ => return Err("a cell of unknown kind"),
        };
        let header = Header { kind, cells: (word >> 40) as u8, bytes: (word >> 48) as u16 };
        let cells = header.cells as usize;
        if cells == 0 || cells > FRAME_CELLS_MAX || cells != cells_for(header.bytes as usize) {
            return Err("a frame whose length does not fit its cells");
        }
        Ok(header)
    }
}

/// Header word of a continuation cell: its sequence never equals what the consumer waits for at that place.
#[inline(always)]
pub fn continuation(sequence: u32) -> u64 {
    u64::from(sequence)
}

/// Cells needed for so many bytes; an empty frame needs one.
#[inline(always)]
pub fn cells_for(bytes: usize) -> usize {
    bytes.div_ceil(CELL_PAYLOAD).max(1)
}

/// Where the body of a frame lies in the producer's pool or arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    pub offset: u64,
    pub len: u32,
}

pub const REFERENCE_BYTES: usize = 16;
/// Longest first part that travels inside the cells beside a reference.
pub const HEAD_MAX: usize = CELLS_PAYLOAD_MAX - REFERENCE_BYTES;

impl Reference {
    #[inline(always)]
    pub fn encode(self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_ne_bytes());
        bytes
    }

    #[inline(always)]
    pub fn decode(bytes: &[u8; REFERENCE_BYTES]) -> Reference {
        let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3, ..] = *bytes;
        Reference {
            offset: u64::from_ne_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            len: u32::from_ne_bytes([l0, l1, l2, l3]),
        }
    }
}

/// The plain-data half of an offer; the descriptors come beside it in the order channel, pool, bell, arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfferText {
    /// Slot of the process that offers.
    pub slot: u32,
    pub pool_bytes: u64,
    /// 0: none.
    pub arena_bytes: u64,
    pub has_bell: bool,
}

const OFFER_MAGIC: u32 = u32::from_le_bytes(*b"pShm");
const OFFER_VERSION: u16 = 1;
const OFFER_BYTES: usize = 32;
/// Largest pool or arena that is mapped for a peer.
const AREA_MAX: u64 = 1 << 36;

impl OfferText {
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(OFFER_BYTES);
        bytes.extend(OFFER_MAGIC.to_le_bytes());
        bytes.extend(OFFER_VERSION.to_le_bytes());
        bytes.extend(u16::from(self.has_bell).to_le_bytes());
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend(CELLS.to_le_bytes());
        bytes.extend(self.pool_bytes.to_le_bytes());
        bytes.extend(self.arena_bytes.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<OfferText, HalError> {
        let bytes: &[u8; OFFER_BYTES] = bytes.try_into().map_err(|_| HalError::BadOffer("wrong length"))?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(0) != OFFER_MAGIC || bytes[4..6] != OFFER_VERSION.to_le_bytes() || u32_at(12) != CELLS {
            return Err(HalError::BadOffer("not this version's channel"));
        }
        let has_bell = match bytes[6..8] {
            [0, 0] => false,
            [1, 0] => true,
            _ => return Err(HalError::BadOffer("unknown flags")),
        };
        let text = OfferText { slot: u32_at(8), pool_bytes: u64_at(16), arena_bytes: u64_at(24), has_bell };
        if text.pool_bytes == 0 || text.pool_bytes > AREA_MAX || text.arena_bytes > AREA_MAX {
            return Err(HalError::BadOffer("a pool or arena of impossible size"));
        }
        Ok(text)
    }

    /// Number of descriptors that must come with it.
    pub fn fds(&self) -> usize {
        2 + usize::from(self.has_bell) + usize::from(self.arena_bytes > 0)
    }
}

/// The plain-data half of an arena's own offer; the arena's descriptor comes beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaText {
    /// Slot of the process that offers.
    pub slot: u32,
    pub bytes: u64,
}

const ARENA_MAGIC: u32 = u32::from_le_bytes(*b"pAre");
const ARENA_TEXT_BYTES: usize = 16;

impl ArenaText {
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ARENA_TEXT_BYTES);
        bytes.extend(ARENA_MAGIC.to_le_bytes());
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend(self.bytes.to_le_bytes());
        bytes
    }

    /// `None` when it is an offer of another kind.
    pub fn decode(bytes: &[u8]) -> Result<Option<ArenaText>, HalError> {
        if !bytes.starts_with(&ARENA_MAGIC.to_le_bytes()) {
            return Ok(None);
        }
        let bytes: &[u8; ARENA_TEXT_BYTES] = bytes.try_into().map_err(|_| HalError::BadOffer("wrong length"))?;
        let [_, _, _, _, s0, s1, s2, s3, b @ ..] = *bytes;
        let text = ArenaText { slot: u32::from_le_bytes([s0, s1, s2, s3]), bytes: u64::from_le_bytes(b) };
        if text.bytes == 0 || text.bytes > AREA_MAX {
            return Err(HalError::BadOffer("an arena of impossible size"));
        }
        Ok(Some(text))
    }
}

/// What a process tells about its memory: how to prove that a process number is its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryText {
    /// Slot of the process that offers.
    pub slot: u32,
    pub pid: u32,
    /// Where in its memory the proof lies.
    pub address: u64,
    pub proof: [u64; 2],
}

const MEMORY_MAGIC: u32 = u32::from_le_bytes(*b"pMem");
const MEMORY_TEXT_BYTES: usize = 36;

impl MemoryText {
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MEMORY_TEXT_BYTES);
        bytes.extend(MEMORY_MAGIC.to_le_bytes());
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        for word in [self.address, self.proof[0], self.proof[1]] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// `None` when it is an offer of another kind.
    pub fn decode(bytes: &[u8]) -> Result<Option<MemoryText>, HalError> {
        if !bytes.starts_with(&MEMORY_MAGIC.to_le_bytes()) {
            return Ok(None);
        }
        let bytes: &[u8; MEMORY_TEXT_BYTES] = bytes.try_into().map_err(|_| HalError::BadOffer("wrong length"))?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let text = MemoryText { slot: u32_at(4), pid: u32_at(8), address: u64_at(12), proof: [u64_at(20), u64_at(28)] };
        if text.pid == 0 || text.address == 0 {
            return Err(HalError::BadOffer("memory of no process"));
        }
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_round_trip_and_lies_about_length_are_refused() {
        for bytes in 0..=CELLS_PAYLOAD_MAX {
            let header = Header { kind: Kind::Pool, cells: cells_for(bytes) as u8, bytes: bytes as u16 };
            assert_eq!(Header::decode(header.encode(u32::MAX)), Ok(header));
            let lie = Header { cells: header.cells + 1, ..header };
            assert!(Header::decode(lie.encode(1)).is_err());
            assert!(!Header::is_short_cell(header.encode(7)));
            let short = Header { kind: Kind::Short, ..header };
            assert_eq!(Header::is_short_cell(short.encode(7)), bytes <= CELL_PAYLOAD);
            assert_eq!(Header::bytes_of_short_cell(short.encode(7)), bytes);
            assert!(!Header::is_short_cell(Header { cells: 2, ..short }.encode(7)));
        }
        assert!(Header::decode(0).is_err());
        assert!(Header::decode(u64::MAX).is_err());
    }

    #[test]
    fn offers_of_arenas_survive_the_round_trip_and_are_refused_when_cut_or_absurd() {
        let text = ArenaText { slot: 9, bytes: 1 << 33 };
        let bytes = text.encode();
        assert_eq!(ArenaText::decode(&bytes).unwrap(), Some(text));
        assert!((4..bytes.len()).all(|len| ArenaText::decode(&bytes[..len]).is_err()));
        assert_eq!(ArenaText::decode(&bytes[..3]).unwrap(), None);
        assert!(ArenaText::decode(&ArenaText { bytes: 0, ..text }.encode()).is_err());
        assert!(ArenaText::decode(&ArenaText { bytes: u64::MAX, ..text }.encode()).is_err());
    }

    #[test]
    fn words_about_memory_survive_the_round_trip_and_are_refused_when_cut() {
        let text = MemoryText { slot: 9, pid: 4711, address: 0x7fff_1234_5678, proof: [u64::MAX, 3] };
        let bytes = text.encode();
        assert_eq!(MemoryText::decode(&bytes).unwrap(), Some(text));
        assert!((4..bytes.len()).all(|len| MemoryText::decode(&bytes[..len]).is_err()));
        assert_eq!(MemoryText::decode(b"pAre").unwrap(), None);
        assert!(MemoryText::decode(&MemoryText { pid: 0, ..text }.encode()).is_err());
    }

    #[test]
    fn offers_survive_the_round_trip_and_are_refused_when_cut_or_changed() {
        let text = OfferText { slot: 3, pool_bytes: 1 << 21, arena_bytes: 0, has_bell: true };
        let bytes = text.encode();
        assert_eq!(OfferText::decode(&bytes).unwrap(), text);
        for len in 0..bytes.len() {
            assert!(OfferText::decode(&bytes[..len]).is_err());
        }
        for at in [0, 4, 6, 12, 23] {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert!(OfferText::decode(&changed).is_err(), "byte {at} was not checked");
        }
    }
}
