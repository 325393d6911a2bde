//! The frame as it stands on the network. Every link frame has this form; little-endian; called by the engine and, through
//! [`peek`] and [`frame_len`], by the owner that looks for frames and their links. Parsing never panics and believes nothing.
//!
//! A frame is one datagram, or a *train*: longer than one, cut into datagrams of equal size that leave with one system call and
//! mostly arrive as one piece. A frame says how long it is, so frames that the kernel has joined are told apart without it.
//!
//! ```text
//!  byte 0               1               2               3
//!      +---------------+---------------+---------------+---------------+
//!    0 | magic+version |     flags     |     rail      |     epoch     |   0xB3; flags below; rail it was sent on;
//!      +---------------+---------------+---------------+---------------+   how often the sender has changed its rails
//!    4 |                         source rank                           |
//!      +---------------------------------------------------------------+
//!    8 |                       destination rank                        |
//!      +---------------------------------------------------------------+
//!   12 |             window: bytes the sender of this frame            |   counted from `ack` on, each packet costing
//!      |              lets the other end have under way                |   its frame plus 768 for every datagram of it
//!      +---------------------------------------------------------------+
//!   16 |                 frame counter (48 bits): grows                |   never repeated under one key: it is the nonce,
//!      +                               +-------------------------------+   and by it replays are known
//!   20 |     with every frame          |  length of the whole frame    |   in bytes, tag included
//!      +-------------------------------+-------------------------------+
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
//!   48 |     DATA: the packet.  SACK: bit n of these 64-bit words      |   DATA and PART: first 32 bits, where these bytes
//!      |     (at most 16): packet `acknowledgement + 1 + n` is here    |   begin in the packet, and 32 bits, how long it is
//!      +---------------------------------------------------------------+
//!      |    tag (128 bits) over everything before it (AEGIS-128L,      |
//!      |        with PART AEGIS-128X2 under a key of its own);         |
//!      |            with ENCRYPTED the part from 48 is secret          |
//!      +---------------------------------------------------------------+
//!
//!  A long packet that is not encrypted and lies in one frame has the AEGIS-128X2 MAC under a third key instead: over what stands
//!  from 48 on, then over the header.
//!
//!  flags  7         6         5         4         3         2         1         0
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//!      |BESIEGED |  PART   |ENCRYPTED|DUPLICATE|  ECHO   |   ASK   |  SACK   |  DATA   |
//!      +---------+---------+---------+---------+---------+---------+---------+---------+
//! ```

use pulc_base::Rank;

/// What every frame begins with: four bits of magic, four of version.
pub const MAGIC_VERSION: u8 = 0xB3;
pub(crate) const HEADER_BYTES: usize = 48;
/// What every frame ends with.
pub const TAG_BYTES: usize = 16;
/// Bytes of a frame that are not packet: header and tag.
pub const OVERHEAD: usize = HEADER_BYTES + TAG_BYTES;
/// The words of a part that say where in the packet it belongs.
pub(crate) const PLACE_BYTES: usize = 8;
/// Where the packet begins in a frame that holds all of a long one.
pub const PACKET_AT: usize = HEADER_BYTES + PLACE_BYTES;
/// Bytes of a frame with a part that are not packet.
pub(crate) const PART_OVERHEAD: usize = OVERHEAD + PLACE_BYTES;
/// Longest frame: what one datagram system call takes.
pub(crate) const FRAME_BYTES_MAX: usize = 65_507;
/// One more than the highest frame counter. A link that has come so far, after years, is silent rather than repeat one.
pub(crate) const COUNTER_END: u64 = 1 << 48;
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
/// The packet is longer than fits one datagram: behind the header stands which bytes of it these are.
pub(crate) const PART: u8 = 1 << 6;
/// The sender's sockets are flooded by others: who hears nothing from it must take that for loss.
pub(crate) const BESIEGED: u8 = 1 << 7;

/// Which bytes of a long packet a frame carries: those from `offset`, of `total` in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub offset: u32,
    pub total: u32,
}

impl Place {
    pub fn write(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.offset.to_le_bytes());
        out[4..PLACE_BYTES].copy_from_slice(&self.total.to_le_bytes());
    }

    /// What stands at the start of `inside`, with the bytes behind it. `None`: they would not lie inside the packet, or it
    /// would be longer than any is.
    pub fn read(inside: &[u8]) -> Option<(Place, &[u8])> {
        let (words, bytes) = inside.split_first_chunk::<PLACE_BYTES>()?;
        let [a, b, c, d, e, f, g, h] = *words;
        let place = Place { offset: u32::from_le_bytes([a, b, c, d]), total: u32::from_le_bytes([e, f, g, h]) };
        let end = u64::from(place.offset) + bytes.len() as u64;
        let fits = !bytes.is_empty() && end <= u64::from(place.total) && place.total as usize <= FRAME_BYTES_MAX;
        fits.then_some((place, bytes))
    }
}

/// Whether a frame of `frame_len` bytes with [`PART`], of which the front is at hand, holds all of its packet.
pub(crate) fn is_whole(front: &[u8], frame_len: usize) -> bool {
    let words = front.get(HEADER_BYTES..).and_then(|inside| inside.first_chunk::<PLACE_BYTES>());
    words.is_some_and(|[a, b, c, d, e, f, g, h]| {
        let (offset, total) = (u32::from_le_bytes([*a, *b, *c, *d]), u32::from_le_bytes([*e, *f, *g, *h]));
        offset == 0 && total as usize + PART_OVERHEAD == frame_len
    })
}

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

    /// Writes the header to the start of `frame`, which is as long as the whole frame will be.
    pub fn write(&self, frame: &mut [u8]) {
        debug_assert!(frame.len() <= FRAME_BYTES_MAX && self.counter < COUNTER_END);
        let len = frame.len() as u64;
        let out: &mut [u8; HEADER_BYTES] = frame.first_chunk_mut().expect("every frame buffer holds a header");
        out[0] = MAGIC_VERSION;
        out[1] = self.flags;
        out[2] = self.rail;
        out[3] = self.epoch;
        out[4..8].copy_from_slice(&self.src.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.dst.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.window_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&(self.counter | len << 48).to_le_bytes());
        out[24..32].copy_from_slice(&self.packet.to_le_bytes());
        out[32..40].copy_from_slice(&self.ack.to_le_bytes());
        out[40..44].copy_from_slice(&self.echo.to_le_bytes());
        out[44..48].copy_from_slice(&self.echo_delay_ns.to_le_bytes());
    }

    /// Reads and checks what can be checked without a key. `None`: malformed.
    pub fn read(frame: &[u8]) -> Option<Header> {
        Header::read_front(frame, frame.len())
    }

    /// The same of a frame of `frame_len` bytes of which only the front is at hand.
    pub fn read_front(front: &[u8], frame_len: usize) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = front.first_chunk()?;
        let flags = bytes[1];
        let (counter, len) = counter_and_len(bytes);
        if len != frame_len || len < OVERHEAD {
            return None;
        }
        let inside = len - OVERHEAD;
        let shape_holds = match (flags & DATA != 0, flags & SACK != 0) {
            _ if flags & PART != 0 => flags & (DATA | SACK) == DATA && inside > PLACE_BYTES,
            (true, sack) => !sack,
            (false, true) => inside > 0 && inside <= SACK_BYTES_MAX && inside.is_multiple_of(8),
            (false, false) => inside == 0,
        };
        if bytes[0] != MAGIC_VERSION || !shape_holds {
            return None;
        }
        Some(Header {
            flags,
            rail: bytes[2],
            epoch: bytes[3],
            src: Rank(word(bytes, 4)),
            dst: Rank(word(bytes, 8)),
            window_bytes: word(bytes, 12),
            counter,
            packet: long(bytes, 24),
            ack: long(bytes, 32),
            echo: word(bytes, 40),
            echo_delay_ns: word(bytes, 44),
        })
    }
}

/// The two share a word.
fn counter_and_len(bytes: &[u8; HEADER_BYTES]) -> (u64, usize) {
    let both = long(bytes, 16);
    (both % COUNTER_END, (both / COUNTER_END) as usize)
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

/// How many of these bytes, which a device handed over in one piece, are the first frame, by its own word; all of them if they
/// begin with no frame or hold only a part of it. Not zero unless there are none.
pub fn frame_len(bytes: &[u8]) -> usize {
    let said = bytes.first_chunk().filter(|header| header[0] == MAGIC_VERSION).map(|header| counter_and_len(header).1);
    said.filter(|len| (OVERHEAD..=bytes.len()).contains(len)).unwrap_or(bytes.len())
}

/// Whether these bytes begin with a header between these ranks.
pub(crate) fn begins_frame(bytes: &[u8], src: Rank, dst: Rank) -> bool {
    bytes.first_chunk().is_some_and(|header: &[u8; HEADER_BYTES]| {
        header[0] == MAGIC_VERSION && (word(header, 4), word(header, 8)) == (src.0, dst.0)
    })
}

/// The whole length of the train of which these bytes are the beginning, if they are only that.
pub(crate) fn whole_train(bytes: &[u8]) -> Option<usize> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let len = counter_and_len(header).1;
    let begins = header[0] == MAGIC_VERSION && header[1] & (PART | SACK | DATA) == (PART | DATA);
    (begins && len > bytes.len() && len <= FRAME_BYTES_MAX).then_some(len)
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
            counter: COUNTER_END - 2,
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
        assert_eq!(frame[..12], [0xB3, 0x09, 3, 200, 4, 3, 2, 1, 7, 0, 0, 0]);
        assert_eq!(frame[16..24], [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, OVERHEAD as u8, 0]);
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
        for (at, value) in [(0, 0xB1), (0, 0), (1, PART | DATA), (1, DATA | SACK), (1, 0), (22, 71)] {
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

    #[test]
    fn frames_that_were_joined_are_told_apart_by_their_own_lengths() {
        let mut joined = vec![0; OVERHEAD + 5];
        header().write(&mut joined);
        let mut second = vec![0; OVERHEAD];
        header().write(&mut second);
        joined.extend_from_slice(&second);
        assert_eq!(frame_len(&joined), OVERHEAD + 5);
        assert_eq!(frame_len(&joined[OVERHEAD + 5..]), OVERHEAD);
        assert_eq!(frame_len(&joined[..OVERHEAD + 4]), OVERHEAD + 4, "less than it says: all there is");
        assert_eq!((frame_len(b"no frame"), frame_len(&[])), (8, 0));
        joined[22..24].fill(0);
        assert_eq!(frame_len(&joined), joined.len(), "a length of nothing is not believed");
    }

    #[test]
    fn a_part_lies_inside_its_packet_or_is_malformed() {
        let part = |offset, total, bytes: usize| {
            let mut inside = vec![0; PLACE_BYTES + bytes];
            Place { offset, total }.write(&mut inside);
            Place::read(&inside).map(|(place, bytes)| (place.offset, place.total, bytes.len()))
        };
        assert_eq!(part(0, 10, 10), Some((0, 10, 10)));
        assert_eq!(part(4, 10, 6), Some((4, 10, 6)));
        for (offset, total, bytes) in [(5, 10, 6), (u32::MAX, 10, 1), (0, u32::MAX, 1), (0, 10, 0), (0, 70_000, 9)] {
            assert_eq!(part(offset, total, bytes), None, "{bytes} bytes from {offset} of {total}");
        }
    }

    #[test]
    fn the_beginning_of_a_train_tells_how_long_it_is() {
        let mut train = vec![0; 5000];
        Header { flags: DATA | PART, ..header() }.write(&mut train);
        assert_eq!(whole_train(&train[..1472]), Some(5000));
        assert_eq!(whole_train(&train), None, "it is all here");
        assert!(begins_frame(&train[..1472], header().src, header().dst));
        assert!(!begins_frame(&train[..1472], header().dst, header().src));
        let mut plain = vec![0; 5000];
        header().write(&mut plain);
        assert_eq!(whole_train(&plain[..1472]), None, "only long packets leave as trains");
    }
}
