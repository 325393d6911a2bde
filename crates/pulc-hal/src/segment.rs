//! Memory that processes of one node write together: a segment for the collective operations of one group. One of them makes it, the
//! others get its descriptor from the keeper. Called by interfaces through the handler.
//!
//! Everybody who has the descriptor can write everywhere in it. By agreement each line and each piece has one writer; whoever breaks
//! that spoils the operations in which it takes part, and nothing else: offsets and lengths are always the reader's own, a mark is
//! compared with what is expected, data is copied out before it is used. The memory cannot shrink (sealed).
//!
//! Must never hold anything by which a process finds its way: no lengths, no indices, no pointers.

use crate::device::shm::Chooser;
use crate::error::HalError;
use crate::os::cpu;
use crate::os::memfd::{self, SharedBytes, WriteMap};
use crate::sync;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Bytes of a line beside its mark.
pub const LINE_PAYLOAD: usize = 56;
pub const LINE_BYTES: usize = 64;

/// The mapped memory.
pub struct Segment {
    map: WriteMap,
    /// What fills pieces fastest, as for the slots of the pool.
    chooser: Chooser,
}

impl Segment {
    /// Makes a segment, all zero; the descriptor goes to the others.
    pub fn create(bytes: usize) -> Result<(Segment, OwnedFd), HalError> {
        let (map, fd) = memfd::create_common("pulc-segment", bytes)?;
        map.leave_out_of_forks()?;
        Ok((Segment { map, chooser: Chooser::new() }, fd))
    }

    /// Maps what another process has made; refuses another size, or memory that can shrink. The descriptor is closed.
    pub fn attach(fd: OwnedFd, bytes: usize) -> Result<Segment, HalError> {
        let map = memfd::map_common(fd.as_fd(), bytes)?;
        map.leave_out_of_forks()?;
        Ok(Segment { map, chooser: Chooser::new() })
    }

    /// The mark of the line at `at`. What its writer wrote before is visible with it.
    #[inline(always)]
    pub fn mark(&self, at: usize) -> u64 {
        // Acquire: pairs with the release of `set_mark`.
        self.map.u64_at(at).load(Ordering::Acquire)
    }

    /// Sets the mark of an own line, after everything it announces has been written.
    #[inline(always)]
    pub fn set_mark(&self, at: usize, mark: u64) {
        // Release: pairs with the acquire of `mark`.
        self.map.u64_at(at).store(mark, Ordering::Release);
    }

    /// Asks for an own line that will be written soon. Changes nothing.
    #[inline(always)]
    pub fn claim(&self, at: usize) {
        self.map.claim_line(at);
    }

    /// Puts bytes into an own line.
    ///
    /// # Panics
    /// When they are more than [`LINE_PAYLOAD`].
    #[inline]
    pub fn put(&self, at: usize, from: &[u8]) {
        let line = self.map.line_at(at);
        for (word, bytes) in line[1..].iter().zip(from.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        assert!(from.len() <= LINE_PAYLOAD, "{} bytes do not fit a line", from.len());
    }

    /// Takes the first bytes out of a line.
    ///
    /// # Panics
    /// When they are more than [`LINE_PAYLOAD`].
    #[inline]
    pub fn take(&self, at: usize, to: &mut [u8]) {
        assert!(to.len() <= LINE_PAYLOAD, "{} bytes are not in a line", to.len());
        let line = self.map.line_at(at);
        for (word, bytes) in line[1..].iter().zip(to.chunks_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..bytes.len()]);
        }
    }

    /// Copies private bytes into an own piece.
    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) {
        let choice = self.chooser.choose(from.len());
        let start = if choice.timed { cpu::ticks() } else { 0 };
        self.map.copy_in_with(at, from, choice.stores);
        if choice.timed {
            self.chooser.learn(choice.stores, from.len(), cpu::ticks().saturating_sub(start));
        }
    }

    /// Bytes of a piece, for those who read them where they lie.
    #[inline]
    pub fn shared(&self, at: usize, len: usize) -> SharedBytes<'_> {
        self.map.shared(at, len)
    }

    /// Copies bytes out.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) {
        self.map.shared(at, to.len()).copy_to(0, to);
    }
}

/// What was written before is visible to all before anything is read after.
#[inline(always)]
pub fn full_barrier() {
    sync::full_barrier();
}

/// What a process says about a segment whose descriptor it passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentText {
    /// Chosen by the maker, to tell its segments apart.
    pub token: u64,
    pub bytes: u64,
}

const MAGIC: [u8; 4] = *b"pSeg";
const TEXT_BYTES: usize = 20;
/// Longest segment that is mapped.
const BYTES_MAX: u64 = 1 << 36;

impl SegmentText {
    pub fn encode(self) -> Vec<u8> {
        [&MAGIC[..], &self.token.to_le_bytes(), &self.bytes.to_le_bytes()].concat()
    }

    /// `None` when it is an offer of another kind.
    pub fn decode(bytes: &[u8]) -> Result<Option<SegmentText>, HalError> {
        if !bytes.starts_with(&MAGIC) {
            return Ok(None);
        }
        let bytes: &[u8; TEXT_BYTES] = bytes.try_into().map_err(|_| HalError::BadOffer("wrong length"))?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let text = SegmentText { token: number(4), bytes: number(12) };
        if text.bytes == 0 || text.bytes > BYTES_MAX {
            return Err(HalError::BadOffer("a segment of impossible size"));
        }
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_segments_survive_the_round_trip_and_are_refused_when_cut() {
        let text = SegmentText { token: 7 << 40, bytes: 1 << 20 };
        let bytes = text.encode();
        assert_eq!(SegmentText::decode(&bytes).unwrap(), Some(text));
        assert!((4..bytes.len()).all(|len| SegmentText::decode(&bytes[..len]).is_err()));
        assert_eq!(SegmentText::decode(&bytes[..3]).unwrap(), None);
        assert!(SegmentText::decode(&SegmentText { token: 0, bytes: 0 }.encode()).is_err());
    }

    #[test]
    fn what_one_process_writes_the_others_read() {
        let (mut one, fd) = Segment::create(8192).unwrap();
        let other = Segment::attach(fd.try_clone().unwrap(), 8192).unwrap();
        assert!(Segment::attach(fd, 4096).is_err(), "it has another size");
        one.put(64, b"thirteen char");
        one.write(4000, b"across a page border");
        one.set_mark(64, 9);
        let (mut line, mut piece) = ([0; 13], [0; 20]);
        assert_eq!(other.mark(64), 9);
        other.take(64, &mut line);
        other.read(4000, &mut piece);
        assert_eq!((&line, &piece), (b"thirteen char", b"across a page border"));
    }
}
