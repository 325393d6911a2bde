//! How active messages leave: one frame if there is room now, else a parcel that the engine owns. Called by tokens, peers and
//! bundles with the engine locked; never blocks.

use super::MEDIUM_MAX;
use super::args::{FEW, WORDS_MAX, Words};
use super::arrival::{About, Payload as Arrived};
use super::event::EventState;
use super::peer::Bytes;
use super::returned::Status;
use super::table::AmTable;
use super::wire::{Header, Kind, REPLY_COMES, pack_slots};
use crate::Error;
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, Parcel, SendFault};
use std::sync::Arc;

/// What goes with the arguments.
pub(crate) enum Payload<'a> {
    None,
    Medium(&'a [u8]),
    /// Kept until it has left, of which somebody may want to know.
    Long(Bytes, Option<Arc<EventState>>),
}

#[inline]
pub(crate) fn table(engine: &mut Engine) -> &mut AmTable {
    engine.handler::<AmTable>(Proto::AM).expect("a bundle registers this handler before anything else is done with it")
}

pub(crate) fn check_medium(len: usize) -> Result<(), Error> {
    if len > MEDIUM_MAX {
        return Err(Error::MessageTooLarge { len, max: MEDIUM_MAX, parameter: "a long message or a fetch instead" });
    }
    Ok(())
}

/// The arguments that do not fit the header.
#[inline]
pub(crate) fn rest_of(words: &Words, inline: usize) -> ([u8; 8 * WORDS_MAX], usize) {
    let mut bytes = [0; 8 * WORDS_MAX];
    let rest = words.all().get(inline..).unwrap_or_default();
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(rest) {
        *place = word.to_le_bytes();
    }
    (bytes, 8 * rest.len())
}

/// Sends a short message if there is room.
#[inline(always)]
pub(crate) fn try_short(engine: &mut Engine, dst: Rank, header: Header, words: &Words) -> Result<bool, SendFault> {
    if words.all().len() <= FEW && header.kind.words_inline() == FEW {
        return try_few(engine, dst, header, words.first());
    }
    try_longer(engine, dst, header, words)
}

/// The same with arguments that all stand in the header.
#[inline(always)]
pub(crate) fn try_few(engine: &mut Engine, dst: Rank, header: Header, few: [u64; FEW]) -> Result<bool, SendFault> {
    let (front, count) = header.front_of_few(few);
    engine.try_uncounted_words(dst, Proto::AM, front, count)
}

#[inline(never)]
fn try_longer(engine: &mut Engine, dst: Rank, header: Header, words: &Words) -> Result<bool, SendFault> {
    let front = header.front(words.all());
    let (rest, len) = rest_of(words, header.kind.words_inline());
    engine.try_uncounted(dst, Proto::AM, front.bytes(), &rest[..len])
}

/// Sends a message now, or as soon as there is room: its room at the receiver is reserved.
pub(crate) fn now(
    engine: &mut Engine,
    dst: Rank,
    header: Header,
    words: &Words,
    payload: Payload<'_>,
) -> Result<(), SendFault> {
    let inline = header.kind.words_inline();
    let front = header.front(words.all());
    let (rest, rest_len) = rest_of(words, inline);
    let rest = &rest[..rest_len];
    match payload {
        Payload::None => whole_or_parcel(engine, dst, front.bytes(), rest),
        Payload::Medium(bytes) if rest.is_empty() => whole_or_parcel(engine, dst, front.bytes(), bytes),
        Payload::Medium(bytes) => whole_or_parcel(engine, dst, front.bytes(), &[rest, bytes].concat()),
        Payload::Long(bytes, local) => {
            engine.connect(dst)?;
            let mut parcel = Parcel::new(dst, Proto::AM, front.bytes(), bytes);
            if let Some(event) = local {
                parcel = parcel.telling(event);
            }
            if let Some((front, more)) = args_before(header, words) {
                let (rest, len) = rest_of(&more, front.kind.words_inline());
                parcel = parcel.after(front.front(more.all()).bytes(), &rest[..len]);
            }
            engine.send_parcel(Box::new(parcel));
            Ok(())
        }
    }
}

/// The message with the arguments that a long message's header has no room for; it has to arrive first.
pub(crate) fn args_before(header: Header, words: &Words) -> Option<(Header, Words)> {
    let kind = if header.kind == Kind::ReplyLong { Kind::ReplyArgs } else { Kind::Args };
    let more = words.all().get(header.kind.words_inline()..).filter(|more| !more.is_empty())?;
    let mut rest = [0; WORDS_MAX];
    rest[..more.len()].copy_from_slice(more);
    let header = Header { kind, words: more.len() as u8, tell: false, offset: 0, ..header };
    Some((header, Words::new(rest, more.len())))
}

/// Sends an offer if there is room.
pub(crate) fn try_offer(engine: &mut Engine, dst: Rank, header: Header, words: &Words) -> Result<bool, SendFault> {
    if let Some((front, more)) = args_before(header, words)
        && !try_short(engine, dst, front, &more)?
    {
        return Ok(false);
    }
    engine.try_uncounted(dst, Proto::AM, header.front(words.all()).bytes(), &[])
}

/// Sends a medium message if there is room, in parts if it is longer than a frame.
pub(crate) fn try_medium(
    engine: &mut Engine,
    dst: Rank,
    header: Header,
    words: &Words,
    bytes: &[u8],
) -> Result<bool, SendFault> {
    let front = header.front(words.all());
    let (rest, len) = rest_of(words, header.kind.words_inline());
    let gathered;
    let body = if len == 0 {
        bytes
    } else {
        gathered = [&rest[..len], bytes].concat();
        &gathered
    };
    if body.len() <= engine.uncounted_max() {
        return engine.try_uncounted(dst, Proto::AM, front.bytes(), body);
    }
    engine.connect(dst)?;
    parcel(engine, dst, front.bytes(), Arc::new(body.to_vec()));
    Ok(true)
}

/// Sends a body if it fits a frame and there is room.
pub(crate) fn try_body(engine: &mut Engine, dst: Rank, front: &[u8], body: &[u8]) -> Result<bool, SendFault> {
    if body.len() > engine.uncounted_max() {
        engine.connect(dst)?;
        return Ok(false);
    }
    engine.try_uncounted(dst, Proto::AM, front, body)
}

pub(crate) fn parcel(engine: &mut Engine, dst: Rank, front: &[u8], body: Bytes) {
    engine.send_parcel(Box::new(Parcel::new(dst, Proto::AM, front, body)));
}

fn whole_or_parcel(engine: &mut Engine, dst: Rank, front: &[u8], body: &[u8]) -> Result<(), SendFault> {
    if !try_body(engine, dst, front, body)? {
        parcel(engine, dst, front, Arc::new(body.to_vec()));
    }
    Ok(())
}

pub(crate) fn outbox(engine: &mut Engine) -> &mut pulc_handler::Outbox {
    engine.handler_and_outbox::<AmTable>(Proto::AM).expect("see `table`").1
}

/// A request is answered: its slot may be used again.
#[inline]
pub(crate) fn free_slot(table: &mut AmTable, channel: u32, slot: u16) {
    if let Some(incoming) = table.incoming.get(channel)
        && let Some(slot) = incoming.slots.get_mut(usize::from(slot))
    {
        slot.busy = false;
    }
}

/// Notes that a request's handler has returned; the acknowledgement leaves with others.
#[inline]
pub(crate) fn acknowledge(engine: &mut Engine, channel: u32, slot: u16) {
    let table = table(engine);
    free_slot(table, channel, slot);
    let Some(incoming) = table.incoming.get(channel) else { return };
    let is_full = incoming.acks.add(slot);
    if incoming.acks.count() == 1 {
        table.acks_due.push(channel);
    }
    if is_full {
        send_acks(engine, channel);
    }
}

/// Tells a sender who wanted to know that its request's handler has returned, after a reply.
pub(crate) fn tell(engine: &mut Engine, channel: u32, slot: u16) {
    let table = table(engine);
    free_slot(table, channel, slot);
    let Some(incoming) = table.incoming.get(channel) else { return };
    let (dst, reply_to) = (incoming.src, incoming.reply_to);
    table.tally.acks += 1;
    let header = Header { slot, handler: REPLY_COMES, ..super::table::header(Kind::Ack, reply_to) };
    leave(engine, dst, header.front(&[]).bytes());
}

/// Sends a word of our own. To those that are gone nothing goes.
fn leave(engine: &mut Engine, dst: Rank, front: &[u8]) {
    if let Ok(false) = engine.try_uncounted(dst, Proto::AM, front, &[]) {
        outbox(engine).post(dst, Proto::AM, front, &[]);
    }
}

/// Sends every acknowledgement that is due, and takes back mappings that are not needed any more.
#[inline]
pub(crate) fn flush_acks(engine: &mut Engine) {
    if let Some((table, outbox)) = engine.handler_and_outbox::<AmTable>(Proto::AM) {
        table.flush_unmaps(outbox);
    }
    while let Some(channel) = table(engine).acks_due.pop() {
        send_acks(engine, channel);
    }
}

fn send_acks(engine: &mut Engine, channel: u32) {
    let table = table(engine);
    let Some(incoming) = table.incoming.get(channel) else { return };
    let (dst, reply_to) = (incoming.src, incoming.reply_to);
    let (slots, count) = incoming.acks.take();
    let Some((first, rest)) = slots[..count].split_first() else { return };
    table.tally.acks += 1;
    let (words, used) = pack_slots(rest);
    let header = Header { slot: *first, words: used as u8, ..super::table::header(Kind::Ack, reply_to) };
    let front = header.front(&words[..used]);
    leave(engine, dst, front.bytes());
}

/// A reply found nobody: this end's error handler hears of it.
#[cold]
pub(crate) fn reply_came_back(engine: &mut Engine, request: &About, kind: Kind, handler: u8, words: Words) {
    let table = table(engine);
    table.tally.returned += 1;
    let Some(endpoint) = request.endpoint.clone() else { return };
    let (bundle, mut arrival) = (endpoint.bundle, table.fresh());
    arrival.about = About {
        endpoint: Some(endpoint),
        kind,
        handler,
        slot: request.slot,
        tell: false,
        channel: 0,
        reply_to: 0,
        src: request.src,
        words,
    };
    arrival.payload = Arrived::Returned(Status::PeerGone);
    table.arrived(bundle, arrival);
}
