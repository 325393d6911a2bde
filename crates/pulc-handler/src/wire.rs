//! The header that the handler puts before every frame, the same on every device.
//!
//! ```text
//!  0        1        2            3        4                 8
//! | proto  | kind   | header_len | flags  | id (u32, little) | total (u64, FIRST and ASK only) | protocol's header | body
//! ```
//! `WHOLE` is a message in one frame. A longer one is `FIRST` (if the receiver has room by the sender's account) or `ASK`
//! and then, after `GRANT`, parts in order as `NEXT`. `id` numbers the sender's transfers; in `CREDIT` it counts units of
//! [`CREDIT_UNIT`] bytes. Never trusted: [`Head::parse`] checks every field before anyone uses it.

/// Bytes of the handler's header.
pub const HEAD_BYTES: usize = 8;
/// And of the length that follows it in `FIRST` and `ASK`.
pub const TOTAL_BYTES: usize = 8;
/// Longest header of a protocol.
pub const HEADER_MAX: usize = 32;
/// Longest head with everything.
pub const FRONT_MAX: usize = HEAD_BYTES + TOTAL_BYTES + HEADER_MAX;

/// What a message costs in the receiver's memory beyond its body, by both sides' account.
pub const MESSAGE_COST: u64 = 64;
/// Credit is returned in units of this many bytes.
pub const CREDIT_UNIT: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Whole = 0,
    First = 1,
    Ask = 2,
    Next = 3,
    Grant = 4,
    Credit = 5,
    Withdraw = 6,
}

/// The message is not counted against the sender's credit.
pub const FREE: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub proto: u8,
    pub kind: Kind,
    pub header_len: u8,
    pub flags: u8,
    pub id: u32,
    /// Zero except in `FIRST` and `ASK`.
    pub total: u64,
}

const _: () = assert!(HEAD_BYTES == 1 + 1 + 1 + 1 + 4);

impl Head {
    /// The first word of every frame.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        u64::from(self.proto)
            | u64::from(self.kind as u8) << 8
            | u64::from(self.header_len) << 16
            | u64::from(self.flags) << 24
            | u64::from(self.id) << 32
    }

    /// Writes head and protocol header to the front of `out`; returns how many bytes that took.
    #[inline]
    pub fn write(&self, header: &[u8], out: &mut [u8; FRONT_MAX]) -> usize {
        out[..HEAD_BYTES].copy_from_slice(&self.word().to_le_bytes());
        let mut at = HEAD_BYTES;
        if matches!(self.kind, Kind::First | Kind::Ask) {
            out[at..at + TOTAL_BYTES].copy_from_slice(&self.total.to_le_bytes());
            at += TOTAL_BYTES;
        }
        out[at..at + header.len()].copy_from_slice(header);
        at + header.len()
    }

    /// Reads protocol, length of its header and flags of a frame that is a whole message: most are. `None`: it is something
    /// else, or malformed.
    #[inline(always)]
    pub fn parse_whole(frame: &[u8]) -> Option<(u8, usize, u8)> {
        let word = u64::from_le_bytes(*frame.first_chunk()?);
        let header_len = usize::from((word >> 16) as u8);
        let is_whole = (word >> 8) as u8 == Kind::Whole as u8;
        (is_whole && header_len <= HEADER_MAX.min(frame.len() - HEAD_BYTES)).then_some((
            word as u8,
            header_len,
            (word >> 24) as u8,
        ))
    }

    /// Reads the front of a frame of `frame_len` bytes, of which `front` holds the first ones (all, or at least
    /// [`FRONT_MAX`]). Returns the head and where the protocol's header begins; its end is `header_len` further.
    #[inline(always)]
    pub fn parse(front: &[u8], frame_len: usize) -> Option<(Head, usize)> {
        let word = u64::from_le_bytes(front.get(..HEAD_BYTES)?.try_into().ok()?);
        let kind = match (word >> 8) as u8 {
            0 => Kind::Whole,
            1 => Kind::First,
            2 => Kind::Ask,
            3 => Kind::Next,
            4 => Kind::Grant,
            5 => Kind::Credit,
            6 => Kind::Withdraw,
            _ => return None,
        };
        let mut head = Head {
            proto: word as u8,
            kind,
            header_len: (word >> 16) as u8,
            flags: (word >> 24) as u8,
            id: (word >> 32) as u32,
            total: 0,
        };
        let mut at = HEAD_BYTES;
        if matches!(kind, Kind::First | Kind::Ask) {
            head.total = u64::from_le_bytes(front.get(at..at + TOTAL_BYTES)?.try_into().ok()?);
            at += TOTAL_BYTES;
        }
        let end = at + usize::from(head.header_len);
        (usize::from(head.header_len) <= HEADER_MAX && end <= frame_len && end <= front.len()).then_some((head, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_round_trip() {
        for kind in [Kind::Whole, Kind::First, Kind::Ask, Kind::Next, Kind::Grant, Kind::Credit, Kind::Withdraw] {
            let long = matches!(kind, Kind::First | Kind::Ask);
            let total = if long { u64::MAX - 5 } else { 0 };
            let head = Head { proto: 7, kind, header_len: 16, flags: FREE, id: 0xdead_beef, total };
            let mut out = [0; FRONT_MAX];
            let len = head.write(&[9; 16], &mut out);
            let (parsed, at) = Head::parse(&out[..len], len).unwrap();
            assert_eq!(parsed, head);
            assert_eq!(&out[at..at + 16], &[9; 16]);
        }
    }

    #[test]
    fn a_header_that_reaches_beyond_the_frame_is_refused() {
        let head = Head { proto: 1, kind: Kind::Whole, header_len: 20, flags: 0, id: 0, total: 0 };
        let mut out = [0; FRONT_MAX];
        let len = head.write(&[1; 20], &mut out);
        for cut in 0..len {
            assert!(Head::parse(&out[..cut], cut).is_none(), "a frame cut to {cut} bytes was accepted");
        }
        out[2] = 33;
        assert!(Head::parse(&out, 200).is_none(), "a header longer than any protocol's was accepted");
        out[1] = 200;
        assert!(Head::parse(&out, 200).is_none(), "an unknown kind was accepted");
    }
}
