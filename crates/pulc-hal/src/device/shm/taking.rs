//! From cells to a frame: what a peer refers to is looked for where it says, and must lie there. Called by `pair`.

use super::cells::In;
use super::layout::{Kind, Reference};
use super::pair::Incoming;
use super::ring::Consumer;
use crate::device::{Frame, SharedFrame};

/// What the next cells hold.
pub(super) enum Got<'a> {
    Nothing,
    Frame(Frame<'a>),
    /// To be read in the peer's memory, and the head of the frame.
    Memory(Reference, &'a [u8]),
}

/// Takes the next frame. A reference is checked against the mapping before anything is read through it.
#[inline(always)]
pub(super) fn take<'a>(
    consumer: &mut Consumer,
    incoming: &'a Incoming,
    buffer: &'a mut [u8],
) -> Result<Got<'a>, &'static str> {
    let Some(header) = consumer.pop(&In(&incoming.channel), buffer)? else { return Ok(Got::Nothing) };
    let bytes = &mut buffer[..header.bytes as usize];
    if header.kind == Kind::Short {
        return Ok(Got::Frame(Frame::Private(bytes)));
    }
    let (reference, head) = bytes.split_first_chunk().ok_or("a reference that is cut short")?;
    let reference = Reference::decode(reference);
    let area = match header.kind {
        Kind::Short | Kind::Memory => return Ok(Got::Memory(reference, head)),
        Kind::Pool => &incoming.pool,
        Kind::Arena => incoming.arena.as_ref().ok_or("a reference into an arena that was never offered")?,
    };
    let body = area.shared(reference.offset, reference.len.into()).ok_or("a reference outside of shared memory")?;
    Ok(Got::Frame(Frame::Shared(SharedFrame::new(head, body))))
}
