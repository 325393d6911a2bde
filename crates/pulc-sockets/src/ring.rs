//! The bytes of one direction's ring. Whoever calls holds the direction's lock of its side and has checked the positions.

use crate::layout::{LINE, RING_BYTES, Side, at_ring};
use crate::memory::{Memory, copy_out};

const MASK: u64 = RING_BYTES as u64 - 1;

/// Where `position` lies, and how far it goes on from there without a break.
#[inline]
fn place(position: u64, base: u64) -> (usize, usize) {
    let at = (position.wrapping_sub(base) & MASK) as usize;
    (at, RING_BYTES - at)
}

/// The line in which `position` lies.
#[inline]
fn line(sender: Side, position: u64, base: u64) -> usize {
    (at_ring(sender) + place(position, base).0) & !(LINE - 1)
}

/// Asks for the line at `position`, which is written next.
#[inline]
pub fn claim(map: &Memory, sender: Side, position: u64, base: u64) {
    map.claim_line(line(sender, position, base));
}

/// Asks for the line at `position`, which is read next.
#[inline]
pub fn expect(map: &Memory, sender: Side, position: u64, base: u64) {
    map.expect_line(line(sender, position, base));
}

/// Copies `from` to `position` and behind; at most a whole ring.
#[inline]
pub fn put(map: &Memory, sender: Side, position: u64, base: u64, from: &[u8]) {
    let (at, straight) = place(position, base);
    let (first, second) = from.split_at(straight.min(from.len()));
    map.copy_in(at_ring(sender) + at, first);
    if !second.is_empty() {
        map.copy_in(at_ring(sender), second);
    }
}

/// Copies from `position` and behind.
#[inline]
pub fn get(map: &Memory, sender: Side, position: u64, base: u64, to: &mut [u8]) {
    let (at, straight) = place(position, base);
    let (first, second) = to.split_at_mut(straight.min(to.len()));
    copy_out(map, at_ring(sender) + at, first);
    if !second.is_empty() {
        copy_out(map, at_ring(sender), second);
    }
}
