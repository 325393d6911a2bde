//! The bytes of a ring: of one direction of a connection, or of an inbox. Whoever calls holds the lock of its side and has checked the
//! positions.

use crate::layout::{LINE, RING_BYTES, Side, at_ring};
use crate::memory::{Memory, copy_out};

/// Where a ring lies, and how long it is: a power of two.
#[derive(Clone, Copy)]
pub struct Region {
    pub at: usize,
    pub bytes: usize,
}

impl From<Side> for Region {
    /// The ring of the direction in which this side sends.
    #[inline]
    fn from(sender: Side) -> Region {
        Region { at: at_ring(sender), bytes: RING_BYTES }
    }
}

impl Region {
    /// Where `position` lies, and how far it goes on from there without a break.
    #[inline]
    fn place(self, position: u64, base: u64) -> (usize, usize) {
        let at = (position.wrapping_sub(base) & (self.bytes as u64 - 1)) as usize;
        (self.at + at, self.bytes - at)
    }
}

/// The line in which `position` lies.
#[inline]
fn line(ring: Region, position: u64, base: u64) -> usize {
    ring.place(position, base).0 & !(LINE - 1)
}

/// Asks for the line at `position`, which is written next.
#[inline]
pub fn claim(map: &Memory, ring: impl Into<Region>, position: u64, base: u64) {
    map.claim_line(line(ring.into(), position, base));
}

/// Asks for the line at `position`, which is read next.
#[inline]
pub fn expect(map: &Memory, ring: impl Into<Region>, position: u64, base: u64) {
    map.expect_line(line(ring.into(), position, base));
}

/// Copies `from` to `position` and behind; at most a whole ring.
#[inline]
pub fn put(map: &Memory, ring: impl Into<Region>, position: u64, base: u64, from: &[u8]) {
    let ring = ring.into();
    let (at, straight) = ring.place(position, base);
    let (first, second) = from.split_at(straight.min(from.len()));
    map.copy_in(at, first);
    if !second.is_empty() {
        map.copy_in(ring.at, second);
    }
}

/// Copies from `position` and behind.
#[inline]
pub fn get(map: &Memory, ring: impl Into<Region>, position: u64, base: u64, to: &mut [u8]) {
    let ring = ring.into();
    let (at, straight) = ring.place(position, base);
    let (first, second) = to.split_at_mut(straight.min(to.len()));
    copy_out(map, at, first);
    if !second.is_empty() {
        copy_out(map, ring.at, second);
    }
}
