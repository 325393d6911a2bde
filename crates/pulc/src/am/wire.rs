//! The header of active messages, 8 to 32 bytes behind the handler's.
//!
//! ```text
//!  0                    1         2           4                 8
//! | kind:4 | words:4   | handler | slot (u16) | channel (u32)   | [offset or length] | first arguments (u64 each) |
//! ```
//! `channel` is the receiver's number for the pair of endpoints, `slot` names one request among those that its credits allow;
//! its highest bit asks for a word when the handler has returned. At most [`HEADER_MAX`] bytes stand in the header: a request
//! with more arguments carries the rest at the front of its body (short, medium) or in an `ARGS` message sent before it (long,
//! fetch), so that no payload is copied to make room. Little-endian; never trusted: [`Header::parse`] checks every field.
//!
//! Source: Mainwaring and Culler, Active Message Applications Programming Interface (AM-2).

use super::args::{FEW, WORDS_MAX, Words};

/// Longest header.
pub(crate) const HEADER_MAX: usize = 32;
const FIXED_BYTES: usize = 8;
const WORD_BYTES: usize = 8;
/// Slots are numbered below this; also the number that no slot has.
pub(crate) const SLOTS_END: u16 = 0x7fff;
const TELL: u16 = 0x8000;
/// In the `handler` of an `ACK`: the handler has replied, and the reply may come later than this word.
pub(crate) const REPLY_COMES: u8 = 1;
/// Answers that one `ACK` can carry: one in the slot field, four in each word of the header.
pub(crate) const ACKS_MAX: usize = 1 + 4 * 3;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Short = 0,
    Medium = 1,
    Long = 2,
    Fetch = 3,
    /// Arguments of a long message of the same slot that do not fit its header.
    Args = 4,
    ReplyShort = 5,
    ReplyMedium = 6,
    ReplyLong = 7,
    /// Arguments of a long reply.
    ReplyArgs = 8,
    /// Handlers have returned and nothing else comes for these slots.
    Ack = 9,
    /// The request was not delivered; `handler` says why.
    Returned = 10,
    /// Asks for a channel to the endpoint named in the body: words are tag, then credits and the asker's endpoint.
    Map = 11,
    /// The answer: words are the channel's number, then credits and refusal.
    Mapped = 12,
    /// The asker needs the channel no more.
    Unmap = 13,
    /// The handler of a fetch wants the payload; the word is its number for the transfer.
    Want = 14,
    /// That payload; the word is that number.
    Wanted = 15,
}

impl Kind {
    /// Of four bits.
    #[inline(always)]
    fn from(number: u8) -> Option<Kind> {
        const ALL: [Kind; 16] = [
            Kind::Short,
            Kind::Medium,
            Kind::Long,
            Kind::Fetch,
            Kind::Args,
            Kind::ReplyShort,
            Kind::ReplyMedium,
            Kind::ReplyLong,
            Kind::ReplyArgs,
            Kind::Ack,
            Kind::Returned,
            Kind::Map,
            Kind::Mapped,
            Kind::Unmap,
            Kind::Want,
            Kind::Wanted,
        ];
        ALL.get(usize::from(number)).copied()
    }

    /// An offset (or the length of what is offered) follows the fixed part.
    #[inline(always)]
    fn has_offset(self) -> bool {
        matches!(self, Kind::Long | Kind::Fetch | Kind::ReplyLong)
    }

    /// Arguments that stand in the header.
    #[inline(always)]
    pub fn words_inline(self) -> usize {
        if self.has_offset() { FEW - 1 } else { FEW }
    }

    /// Whether further arguments come in a message of their own.
    pub fn sends_args_before(self) -> bool {
        matches!(self, Kind::Long | Kind::Fetch | Kind::ReplyLong)
    }
}

/// A header without the arguments that stand in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub kind: Kind,
    /// Arguments of the message, wherever they stand.
    pub words: u8,
    pub handler: u8,
    pub slot: u16,
    /// A word is wanted when the handler has returned.
    pub tell: bool,
    pub channel: u32,
    /// Where a long payload goes, or the length of an offered one; else zero.
    pub offset: u64,
}

/// A header as bytes.
pub(crate) struct Front {
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl Front {
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Header {
    /// The fixed part.
    #[inline(always)]
    fn word(&self) -> u64 {
        let tell = if self.tell { TELL } else { 0 };
        u64::from(self.kind as u8)
            | u64::from(self.words) << 4
            | u64::from(self.handler) << 8
            | u64::from(self.slot | tell) << 16
            | u64::from(self.channel) << 32
    }

    /// The whole header of a message without offset and with no more words than these, in registers; and how many words that is.
    #[inline(always)]
    pub fn front_of_few(&self, few: [u64; FEW]) -> ([u64; 1 + FEW], usize) {
        debug_assert!(!self.kind.has_offset() && usize::from(self.words) <= FEW);
        let [a, b, c] = few;
        ([self.word().to_le(), a.to_le(), b.to_le(), c.to_le()], 1 + usize::from(self.words).min(FEW))
    }

    /// With as many of `words` as stand in the header.
    #[inline]
    pub fn front(&self, words: &[u64]) -> Front {
        let mut bytes = [0; HEADER_MAX];
        bytes[..FIXED_BYTES].copy_from_slice(&self.word().to_le_bytes());
        let mut len = FIXED_BYTES;
        if self.kind.has_offset() {
            bytes[len..len + WORD_BYTES].copy_from_slice(&self.offset.to_le_bytes());
            len += WORD_BYTES;
        }
        for word in &words[..words.len().min(self.kind.words_inline())] {
            bytes[len..len + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
            len += WORD_BYTES;
        }
        Front { bytes, len }
    }

    /// Reads a header, and finds the arguments in it. `None`: it is none of ours.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Option<(Header, Inline<'_>)> {
        let (fixed, mut rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let fixed = u64::from_le_bytes(*fixed);
        let kind = Kind::from(fixed as u8 & 15)?;
        let words = fixed as u8 >> 4;
        let slot = (fixed >> 16) as u16;
        let mut header = Header {
            kind,
            words,
            handler: (fixed >> 8) as u8,
            slot: slot & !TELL,
            tell: slot & TELL != 0,
            channel: (fixed >> 32) as u32,
            offset: 0,
        };
        if kind.has_offset() {
            let (offset, behind) = rest.split_first_chunk::<WORD_BYTES>()?;
            header.offset = u64::from_le_bytes(*offset);
            rest = behind;
        }
        let words = usize::from(words);
        if words > WORDS_MAX || rest.len() != words.min(kind.words_inline()) * WORD_BYTES {
            return None;
        }
        Some((header, Inline { words: rest.as_chunks().0, count: words }))
    }
}

/// Where a header has its arguments; those that stand elsewhere are only counted.
#[derive(Clone, Copy)]
pub(crate) struct Inline<'a> {
    words: &'a [[u8; WORD_BYTES]],
    count: usize,
}

impl Inline<'_> {
    /// Puts the arguments that are here in their places, and says in `words` how many there are in all.
    #[inline(always)]
    pub fn fill(&self, words: &mut Words) {
        words.set_count(self.count);
        // Singly: see `Words::assign`.
        for at in 0..FEW {
            if let Some(word) = self.words.get(at) {
                words.put(at, u64::from_le_bytes(*word));
            }
        }
    }

    /// The same in words of their own, zero where nothing stands.
    pub fn words(&self) -> Words {
        let mut words = Words::none();
        self.fill(&mut words);
        words
    }
}

/// Slots of an acknowledgement in its words.
pub(crate) fn pack_slots(slots: &[u16]) -> ([u64; 3], usize) {
    let mut words = [u64::MAX; 3];
    for (at, slot) in slots.iter().enumerate() {
        let shift = 16 * (at % 4);
        words[at / 4] = words[at / 4] & !(0xffff << shift) | u64::from(*slot) << shift;
    }
    (words, slots.len().div_ceil(4))
}

/// The slots that [`pack_slots`] has packed.
pub(crate) fn unpack_slots(words: &[u64]) -> impl Iterator<Item = u16> {
    let slots = words.iter().flat_map(|word| (0..4).map(move |at| (word >> (16 * at)) as u16));
    slots.filter(|slot| *slot < SLOTS_END)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_of_every_kind_survive_the_round_trip() {
        for kind in (0..16).map(|number| Kind::from(number).unwrap()) {
            for words in 0..=WORDS_MAX {
                let offset = if kind.has_offset() { u64::MAX - 7 } else { 0 };
                let header = Header {
                    kind,
                    words: words as u8,
                    handler: 255,
                    slot: 0x7ffe,
                    tell: true,
                    channel: 0xdead_beef,
                    offset,
                };
                let args: Vec<u64> = (1..=words as u64).collect();
                let front = header.front(&args);
                assert!(front.bytes().len() <= HEADER_MAX);
                let (parsed, inline) = Header::parse(front.bytes()).unwrap();
                assert_eq!(parsed, header);
                let here = words.min(kind.words_inline());
                let inline = inline.words();
                assert_eq!((inline.all().len(), &inline.all()[..here]), (words, &args[..here]));
                if !kind.has_offset() && words <= FEW {
                    let few = std::array::from_fn(|at| args.get(at).copied().unwrap_or(0));
                    let (short, count) = header.front_of_few(few);
                    let bytes: Vec<u8> = short[..count].iter().flat_map(|word| word.to_ne_bytes()).collect();
                    assert_eq!(bytes, front.bytes());
                }
            }
        }
    }

    #[test]
    fn a_header_of_another_length_than_it_says_is_refused() {
        let header = Header { kind: Kind::Long, words: 2, handler: 1, slot: 0, tell: false, channel: 1, offset: 9 };
        let front = header.front(&[1, 2]);
        let mut longer = front.bytes().to_vec();
        for cut in 0..longer.len() {
            assert!(Header::parse(&longer[..cut]).is_none(), "a header cut to {cut} bytes was accepted");
        }
        longer.push(0);
        assert!(Header::parse(&longer).is_none());
        longer.pop();
        longer[0] = 0x92;
        assert!(Header::parse(&longer).is_none(), "nine arguments were accepted");
    }

    #[test]
    fn packed_slots_come_out_again() {
        for count in 0..=12 {
            let slots: Vec<u16> = (0..count).map(|n| n * 2731).collect();
            let (words, used) = pack_slots(&slots);
            assert_eq!(unpack_slots(&words[..used]).collect::<Vec<_>>(), slots);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_mean_what_they_are_written_as(bytes in proptest::collection::vec(any::<u8>(), 0..=40)) {
            if let Some((header, words)) = Header::parse(&bytes) {
                let inline = usize::from(header.words).min(header.kind.words_inline());
                let front = header.front(&words.words().all()[..inline]);
                prop_assert_eq!(front.bytes(), &bytes[..]);
            }
        }
    }
}
