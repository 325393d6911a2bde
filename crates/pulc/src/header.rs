//! The port protocol's header, 16 bytes behind the handler's, or 24 for what an old owner of a port passes on to its new one.
//!
//! ```text
//!  0               4        5                 8                16              20
//! | port (u32)    | kind   | zero            | tag (u64)      | src (u32)     | zero           |
//! ```
//! `DATA` goes to the port of that number. `LOOKUP` asks for the number of the port whose name is the body, `tag` being the
//! asker's number for its question; `FOUND` answers with that tag, `ELSEWHERE` when the port has moved, with the rank that has it now
//! as the body. `CLOSED` says that there is no port of this number any more. The others move a port and are told in
//! `table/moves`. Only `PASSED` and `PASSED_LAST` have 24 bytes: `src` is the sender of what is passed on.
//! Little-endian; never trusted.

use pulc_base::Rank;

pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const PASSED_BYTES: usize = 24;

macro_rules! kinds {
    ($($name:ident = $number:literal,)+) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Kind {
            $($name = $number,)+
        }

        impl Kind {
            #[cfg(test)]
            const ALL: &[Kind] = &[$(Kind::$name,)+];

            #[inline(always)]
            fn of(byte: u8) -> Option<Kind> {
                match byte {
                    $($number => Some(Kind::$name),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    Data = 0,
    Datagram = 1,
    Lookup = 2,
    Found = 3,
    Closed = 4,
    Elsewhere = 5,
    Offer = 6,
    OfferBack = 7,
    Taken = 8,
    Yours = 9,
    Void = 10,
    Moved = 11,
    Last = 12,
    Come = 13,
    Whole = 14,
}

const PASSED: u8 = 15;
const PASSED_LAST: u8 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub port: u32,
    pub kind: Kind,
    pub tag: u64,
}

/// What an old owner passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passed {
    /// A message.
    Message { port: u32, tag: u64 },
    /// Nothing more of this sender comes this way.
    Last { port: u32 },
}

impl Header {
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let word = u128::from(self.port) | u128::from(self.kind as u8) << 32 | u128::from(self.tag) << 64;
        word.to_le_bytes()
    }

    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        // In words, as they were stored: a load of both would wait for the store buffer.
        let ([first, tag], []) = bytes.as_chunks::<8>() else { return None };
        let word = u64::from_le_bytes(*first);
        let kind = Kind::of((word >> 32) as u8)?;
        Some(Header { port: word as u32, kind, tag: u64::from_le_bytes(*tag) })
    }
}

impl Passed {
    /// With the rank whose message it is.
    pub fn encode(self, src: Rank) -> [u8; PASSED_BYTES] {
        let (port, kind, tag) = match self {
            Passed::Message { port, tag } => (port, PASSED, tag),
            Passed::Last { port } => (port, PASSED_LAST, 0),
        };
        let mut bytes = [0; PASSED_BYTES];
        bytes[..4].copy_from_slice(&port.to_le_bytes());
        bytes[4] = kind;
        bytes[8..16].copy_from_slice(&tag.to_le_bytes());
        bytes[16..20].copy_from_slice(&src.0.to_le_bytes());
        bytes
    }

    #[cold]
    pub fn decode(bytes: &[u8]) -> Option<(Passed, Rank)> {
        let ([first, tag, src], []) = bytes.as_chunks::<8>() else { return None };
        let (first, src) = (u64::from_le_bytes(*first), Rank(u64::from_le_bytes(*src) as u32));
        let port = first as u32;
        match (first >> 32) as u8 {
            PASSED => Some((Passed::Message { port, tag: u64::from_le_bytes(*tag) }, src)),
            PASSED_LAST => Some((Passed::Last { port }, src)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_round_trip_and_nonsense_is_refused() {
        for kind in Kind::ALL.iter().copied() {
            let header = Header { port: 0xfeed_0001, kind, tag: u64::MAX - 1 };
            assert_eq!(Header::decode(&header.encode()), Some(header));
            assert_eq!(Passed::decode(&header.encode()), None);
        }
        assert_eq!(Header::decode(&[0; 15]), None);
        assert_eq!(Header::decode(&[99; 16]), None);
    }

    #[test]
    fn what_is_passed_on_survives_the_round_trip_and_nonsense_is_refused() {
        for passed in [Passed::Message { port: 0xfeed_0001, tag: u64::MAX - 2 }, Passed::Last { port: 7 }] {
            let bytes = passed.encode(Rank(70_000));
            assert_eq!(Passed::decode(&bytes), Some((passed, Rank(70_000))));
            assert_eq!(Header::decode(&bytes), None);
            assert_eq!(Passed::decode(&bytes[..23]), None);
        }
        assert_eq!(Passed::decode(&[3; 24]), None);
    }
}
