//! The frame as it stands on the network.

use pulc_base::Rank;

/// Bytes of a frame that are not packet: header and tag.
pub const OVERHEAD: usize = 64;

/// Source and destination that a frame claims, to find its link. Nothing is verified yet. `None`: not a frame of this version.
pub fn peek(frame: &[u8]) -> Option<(Rank, Rank)> {
    let word = |at: usize| frame.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    (frame.len() >= OVERHEAD).then_some(())?;
    Some((Rank(word(4)?), Rank(word(8)?)))
}
