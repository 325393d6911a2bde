//! What stands in front of an active message's payload: who sent it, its header, and its arguments wherever they are. Used by
//! `arrive` and `parts`; pure, and trusts no length.

use super::MEDIUM_MAX;
use super::args::{WORDS_MAX, Words};
use super::returned::Status;
use super::wire::{Header, Inline, Kind};
use pulc_base::Rank;

pub(super) const WORD_BYTES: usize = 8;

/// A frame's header, the arguments in it, and who sent it.
#[derive(Clone, Copy)]
pub(super) struct Front<'a> {
    pub src: Rank,
    pub header: Header,
    pub inline: Inline<'a>,
}

/// Arguments that came before their message.
pub(super) type Before = Option<Box<[u64; WORDS_MAX]>>;

/// Bytes of arguments that stand in front of the payload.
#[inline]
pub(super) fn behind(header: &Header) -> usize {
    match header.kind.sends_args_before() {
        true => 0,
        false => usize::from(header.words).saturating_sub(header.kind.words_inline()) * WORD_BYTES,
    }
}

/// Whether a body may have this length, and its place exists.
#[inline(always)]
pub(super) fn check_len(header: &Header, len: usize, segment: usize) -> Result<(), Status> {
    match header.kind {
        Kind::Short | Kind::ReplyShort if len != behind(header) => Err(Status::BadArguments),
        Kind::Medium | Kind::ReplyMedium if len < behind(header) => Err(Status::BadArguments),
        Kind::Medium | Kind::ReplyMedium if len - behind(header) > MEDIUM_MAX => Err(Status::BadLength),
        Kind::Long | Kind::ReplyLong => match usize::try_from(header.offset) {
            Ok(offset) if offset > segment => Err(Status::BadOffset),
            Ok(offset) if len > segment - offset => Err(Status::BadLength),
            Ok(_) => Ok(()),
            Err(_) => Err(Status::BadOffset),
        },
        Kind::Fetch if len > 0 => Err(Status::BadLength),
        _ => Ok(()),
    }
}

/// Whether all arguments are there but those that stand in the body.
#[inline(always)]
pub(super) fn is_complete(header: &Header, before: &Before) -> bool {
    !header.kind.sends_args_before() || usize::from(header.words) <= header.kind.words_inline() || before.is_some()
}

/// The arguments of a message, with those that came before it; what stands in its body is read later.
#[inline(always)]
pub(super) fn fill(words: &mut Words, front: &Front<'_>, before: Before) {
    front.inline.fill(words);
    if let Some(before) = before {
        let inline = front.header.kind.words_inline();
        for at in inline..words.all().len() {
            words.put(at, before[at - inline]);
        }
    }
}

/// Fills in the words that stand in front of the payload.
#[inline(always)]
pub(super) fn read_words(words: &mut Words, kind: Kind, bytes: &[u8]) {
    let inline = kind.words_inline();
    for (at, word) in (inline..words.all().len()).zip(bytes.as_chunks::<WORD_BYTES>().0) {
        words.put(at, u64::from_le_bytes(*word));
    }
}
