//! The port protocol's header, 16 bytes behind the handler's.
//!
//! ```text
//!  0               4        5                 8
//! | port (u32)    | kind   | zero            | tag (u64)
//! ```
//! `DATA` goes to the port of that number. `LOOKUP` asks for the number of the port whose name is the body, `tag` being the
//! asker's number for its question; `FOUND` answers with that tag. `CLOSED` says that there is no port of this number any
//! more. Little-endian; never trusted.

pub(crate) const HEADER_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = 0,
    Datagram = 1,
    Lookup = 2,
    Found = 3,
    Closed = 4,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub port: u32,
    pub kind: Kind,
    pub tag: u64,
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
        let kind = match (word >> 32) as u8 {
            0 => Kind::Data,
            1 => Kind::Datagram,
            2 => Kind::Lookup,
            3 => Kind::Found,
            4 => Kind::Closed,
            _ => return None,
        };
        Some(Header { port: word as u32, kind, tag: u64::from_le_bytes(*tag) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_round_trip_and_nonsense_is_refused() {
        for kind in [Kind::Data, Kind::Datagram, Kind::Lookup, Kind::Found, Kind::Closed] {
            let header = Header { port: 0xfeed_0001, kind, tag: u64::MAX - 1 };
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[0; 15]), None);
        assert_eq!(Header::decode(&[9; 16]), None);
    }
}
