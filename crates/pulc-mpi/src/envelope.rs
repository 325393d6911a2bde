//! The header of an MPI message: one word, so that a short message is put together in registers. Written by sends, read by the
//! receive handler; never trusted there.
//!
//! ```text
//!  0                        4                 8
//! | context (u32, little) | tag (i32, little) |
//! ```
//! Who sent it is known from the channel that it came on. Every communicator has two contexts: an even one for messages between two
//! processes, the next odd one for its collectives.

/// Contexts that a process may know: what a peer writes stays below.
pub(crate) const CONTEXTS_MAX: u32 = 1 << 16;

pub(crate) const HEADER_BYTES: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub context: u32,
    pub tag: i32,
}

impl Envelope {
    #[inline(always)]
    pub fn word(self) -> u64 {
        u64::from(self.context) | u64::from(self.tag as u32) << 32
    }

    #[inline(always)]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        self.word().to_le_bytes()
    }

    #[inline(always)]
    pub fn decode(header: &[u8]) -> Option<Envelope> {
        let word = u64::from_le_bytes(header.try_into().ok()?);
        let (context, tag) = (word as u32, (word >> 32) as u32 as i32);
        (context < CONTEXTS_MAX && tag >= 0).then_some(Envelope { context, tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_survives_and_a_hostile_one_is_refused() {
        let envelope = Envelope { context: 7, tag: i32::MAX };
        assert_eq!(Envelope::decode(&envelope.encode()), Some(envelope));
        assert_eq!(Envelope::decode(&[0xff; 8]), None);
        assert_eq!(Envelope::decode(&[0; 7]), None);
    }
}
