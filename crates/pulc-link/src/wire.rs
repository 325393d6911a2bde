//! The frame as it stands on the network. Every link frame has this form; little-endian; called by the engine and, through
//! [`peek`], by the owner that looks for the frame's link. Parsing never panics and believes nothing.
//!
//! ```text
//!  byte 0               1               2               3
//!      +---------------+---------------+---------------+---------------+
//!    0 | magic+version |     flags     |     rail      |     epoch     |   0xB1; flags below; rail it was sent on;
//!      +---------------+---------------+---------------+---------------+   how often the sender has changed its rails
//!    4 |                         source rank                           |
//!      +---------------------------------------------------------------+
//!    8 |                       destination rank                        |
//!      +---------------------------------------------------------------+
//!   12 |             window: bytes the sender of this frame            |   counted from `ack` on, each packet costing
//!      |              lets the other end have under way                |   its frame plus 768
//!      +---------------------------------------------------------------+
//!   16 |                 frame counter (64 bits): grows                |   never repeated under one key: it is the nonce,
//!      |               with every frame, also when repeated            |   and by it replays are known
//!      +---------------------------------------------------------------+
//!   24 |                    packet number (64 bits):                   |   with DATA: of the packet in this frame;
//!      |                     per pair, not per rail                    |   else: the next one never sent so far
//!      +---------------------------------------------------------------+
//!   32 |               acknowledgement (64 bits): the first            |
//!      |                packet number not received so far              |
//!      +---------------------------------------------------------------+
//!   40 |      echo: low half of the newest frame counter received      |   with ECHO; of the rail this frame is sent on
//!      +---------------------------------------------------------------+
//!   44 |            echo delay: nanoseconds since its receipt           |
//!      +---------------------------------------------------------------+
//!   48 |     DATA: the packet.  SACK: bit n of these 64-bit words      |
//!      |     (at most 16): packet `acknowledgement + 1 + n` is here    |
//!      +---------------------------------------------------------------+
//!      |    tag (128 bits) over everything before it (AEGIS-128L);     |
//!      |            with ENCRYPTED the part from 48 is secret          |
//!      +---------------------------------------------------------------+
//!
//!  flags  7         6         5         4         3         2         1         0
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//!      |    0    |    0    |ENCRYPTED|DUPLICATE|  ECHO   |   ASK   |  SACK   |  DATA   |
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//! ```

use pulc_base::Rank;

/// Four bits of magic, four of version.
const MAGIC_VERSION: u8 = 0xB1;
pub(crate) const HEADER_BYTES: usize = 48;
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of a frame that are not packet: header and tag.
pub const OVERHEAD: usize = HEADER_BYTES + TAG_BYTES;
/// Longest list of selective acknowledgements.
pub(crate) const SACK_BYTES_MAX: usize = crate::PACKETS_UNDER_WAY_MAX / 8;
/// Longest frame without a packet.
pub(crate) const CONTROL_FRAME_MAX: usize = OVERHEAD + SACK_BYTES_MAX;

const _: () = assert!(OVERHEAD == 64, "header and tag fill one cache line");
const _: () = assert!(SACK_BYTES_MAX == 16 * 8, "sixteen words of acknowledgements");

/// The frame carries a packet.
pub(crate) const DATA: u8 = 1 << 0;
/// The frame carries selective acknowledgements. Never together with `DATA`.
pub(crate) const SACK: u8 = 1 << 1;
/// To be acknowledged at once, on the rail it came by.
pub(crate) const ASK: u8 = 1 << 2;
/// The echo fields are valid.
pub(crate) const ECHO: u8 = 1 << 3;
/// A packet arrived more than once since the last frame from here: the other end repeats too early.
pub(crate) const DUPLICATE: u8 = 1 << 4;
/// Everything behind the header is encrypted.
pub(crate) const ENCRYPTED: u8 = 1 << 5;
const KNOWN_FLAGS: u8 = DATA | SACK | ASK | ECHO | DUPLICATE | ENCRYPTED;

/// The fixed part of a frame; the fields as drawn above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub flags: u8,
    pub rail: u8,
    pub epoch: u8,
    pub src: Rank,
    pub dst: Rank,
    pub window_bytes: u32,
    pub counter: u64,
    pub packet: u64,
    pub ack: u64,
    pub echo: u32,
    pub echo_delay_ns: u32,
}

impl Header {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Writes the header to the start of `frame`.
    pub fn write(&self, frame: &mut [u8]) {
        let out: &mut [u8; HEADER_BYTES] = frame.first_chunk_mut().expect("every frame buffer holds a header");
        out[0] = MAGIC_VERSION;
        out[1] = self.flags;
        out[2] = self.rail;
        out[3] = self.epoch;
        out[4..8].copy_from_slice(&self.src.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.dst.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.window_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.counter.to_le_bytes());
        out[24..32].copy_from_slice(&self.packet.to_le_bytes());
        out[32..40].copy_from_slice(&self.ack.to_le_bytes());
        out[40..44].copy_from_slice(&self.echo.to_le_bytes());
        out[44..48].copy_from_slice(&self.echo_delay_ns.to_le_bytes());
    }

    /// Reads and checks what can be checked without a key. `None`: malformed.
    pub fn read(frame: &[u8]) -> Option<Header> {
        if frame.len() < OVERHEAD {
            return None;
        }
        let bytes: &[u8; HEADER_BYTES] = frame.first_chunk()?;
        let flags = bytes[1];
        let inside = frame.len() - OVERHEAD;
        let shape_holds = match (flags & DATA != 0, flags & SACK != 0) {
            (true, sack) => !sack,
            (false, true) => inside > 0 && inside <= SACK_BYTES_MAX && inside.is_multiple_of(8),
            (false, false) => inside == 0,
        };
        if bytes[0] != MAGIC_VERSION || flags & !KNOWN_FLAGS != 0 || !shape_holds {
            return None;
        }
        Some(Header {
            flags,
            rail: bytes[2],
            epoch: bytes[3],
            src: Rank(word(bytes, 4)),
            dst: Rank(word(bytes, 8)),
            window_bytes: word(bytes, 12),
            counter: long(bytes, 16),
            packet: long(bytes, 24),
            ack: long(bytes, 32),
            echo: word(bytes, 40),
            echo_delay_ns: word(bytes, 44),
        })
    }
}

fn word(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes inside the header"))
}

fn long(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes inside the header"))
}

/// Source and destination that a frame claims, to find its link. Nothing is verified yet. `None`: not a well-formed frame of
/// this version.
pub fn peek(frame: &[u8]) -> Option<(Rank, Rank)> {
    Header::read(frame).map(|header| (header.src, header.dst))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            flags: DATA | ECHO,
            rail: 3,
            epoch: 200,
            src: Rank(0x0102_0304),
            dst: Rank(7),
            window_bytes: 99,
            counter: u64::MAX - 1,
            packet: 1 << 63,
            ack: 12,
            echo: 0xdead_beef,
            echo_delay_ns: 4,
        }
    }

    #[test]
    fn a_header_reads_back_as_it_was_written() {
        let mut frame = [0; OVERHEAD + 5];
        header().write(&mut frame);
        assert_eq!(Header::read(&frame), Some(header()));
        assert_eq!(peek(&frame), Some((Rank(0x0102_0304), Rank(7))));
    }

    #[test]
    fn the_layout_on_the_wire_is_the_one_drawn() {
        let mut frame = [0; OVERHEAD];
        header().write(&mut frame);
        assert_eq!(frame[..12], [0xB1, 0x09, 3, 200, 4, 3, 2, 1, 7, 0, 0, 0]);
        assert_eq!(frame[16], 0xfe);
        assert_eq!(frame[31], 0x80);
        assert_eq!(frame[32], 12);
        assert_eq!(frame[40..48], [0xef, 0xbe, 0xad, 0xde, 4, 0, 0, 0]);
    }

    #[test]
    fn short_frames_foreign_versions_reserved_flags_and_impossible_shapes_are_malformed() {
        let mut frame = [0; OVERHEAD + 8];
        header().write(&mut frame);
        for len in 0..OVERHEAD {
            assert_eq!(Header::read(&frame[..len]), None);
        }
        for (at, value) in [(0, 0xB2), (0, 0), (1, 0x40 | DATA), (1, 0x80 | DATA), (1, DATA | SACK), (1, 0)] {
            let mut bad = frame;
            bad[at] = value;
            assert_eq!(Header::read(&bad), None, "byte {at} = {value:#x}");
        }
        let mut sack = frame;
        sack[1] = SACK;
        assert!(Header::read(&sack).is_some());
        assert_eq!(Header::read(&sack[..OVERHEAD]), None);
        assert_eq!(Header::read(&sack[..OVERHEAD + 7]), None);
    }
}
