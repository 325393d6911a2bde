//! The receive handler of active messages: from a frame to a message that waits for its handler. Called by the protocol switch
//! with the engine locked; never blocks, never runs a user's handler, and trusts no field of a frame: what names nothing, or
//! exceeds what was agreed, is dropped and counted, what is honest but not deliverable goes back.

use super::MEDIUM_MAX;
use super::args::{WORDS_MAX, Words};
use super::returned::Status;
use super::table::{AmTable, Arrival, Payload, Target, with_rest};
use super::wire::{Header, Kind, REPLY_COMES, unpack_slots};
use pulc_base::Rank;
use pulc_handler::{Begin, Body, End, Fate, Here, Outbox, ReceiveHandler, TransferId};
use std::any::Any;
use std::sync::Arc;

const WORD_BYTES: usize = 8;

/// A frame's header, the arguments in it, and who sent it.
#[derive(Clone, Copy)]
pub(super) struct Front {
    pub src: Rank,
    pub header: Header,
    pub words: Words,
}

impl AmTable {
    #[inline]
    fn request(&mut self, front: Front, body: Body<'_>, outbox: &mut Outbox) {
        let Front { src, header, .. } = front;
        match self.admit(&front, body.len()) {
            Ok(words) => {
                let (words, payload) = self.take_in(&front, words, body);
                match payload {
                    Ok(payload) => self.requested(src, header, words, payload),
                    Err(why) => self.refuse(header.channel, header.slot, why, outbox),
                }
            }
            Err(Some(why)) => self.refuse(header.channel, header.slot, why, outbox),
            Err(None) => self.tally.strays += 1,
        }
    }

    /// Whether a request may come in; takes its slot. `Err(None)`: nothing honest sends this.
    #[inline]
    pub(super) fn admit(&mut self, front: &Front, len: usize) -> Result<Words, Option<Status>> {
        let Front { src, header, words } = *front;
        let incoming = self.incoming.get(header.channel).filter(|incoming| incoming.src == src).ok_or(None)?;
        let slot = incoming.slots.get_mut(usize::from(header.slot)).filter(|slot| !slot.busy).ok_or(None)?;
        let args = if header.kind.sends_args_before() { slot.args.take() } else { None };
        slot.busy = true;
        let endpoint = incoming.endpoint.as_ref().ok_or(Some(Status::BadEndpoint))?;
        if !endpoint.admits(incoming.tag) {
            return Err(Some(Status::BadTag));
        }
        let segment = match header.kind {
            Kind::Long => self.endpoints.get(endpoint.number).and_then(|state| state.segment.as_ref()),
            _ => None,
        };
        check_len(&header, len, segment.map_or(0, |segment| segment.len())).map_err(Some)?;
        complete(&header, words, args).ok_or(Some(Status::BadArguments))
    }

    /// The payload of a whole message, and the arguments at its front.
    #[inline]
    fn take_in(&mut self, front: &Front, words: Words, body: Body<'_>) -> (Words, Result<Payload, Status>) {
        let header = &front.header;
        match header.kind {
            Kind::Short | Kind::ReplyShort => {
                let mut bytes = [0; WORDS_MAX * WORD_BYTES];
                let len = body.copy_to(&mut bytes);
                (read_words(words, header.kind, &bytes[..len]), Ok(Payload::None))
            }
            Kind::Medium | Kind::ReplyMedium => match self.spare.take(body.len()) {
                Some(mut bytes) => {
                    body.append_to(&mut bytes);
                    (read_words(words, header.kind, &bytes), Ok(Payload::Bytes { bytes, skip: behind(header) }))
                }
                None => (words, Err(Status::NoRoom)),
            },
            Kind::Long | Kind::ReplyLong => {
                let (offset, len) = (header.offset as usize, body.len());
                let placed = match self.landing_of(front) {
                    Some(endpoint) => self.place(endpoint, offset, body),
                    None => false,
                };
                let payload = if placed { Ok(Payload::Landed { offset, len }) } else { Err(Status::NoRoom) };
                (words, payload)
            }
            _ => (words, Ok(Payload::Offer { len: header.offset })),
        }
    }

    /// The endpoint whose segment a long message goes to.
    pub(super) fn landing_of(&mut self, front: &Front) -> Option<u32> {
        match front.header.kind {
            Kind::Long => Some(self.incoming.get(front.header.channel)?.endpoint.as_ref()?.number),
            _ => Some(self.outgoing.get(front.header.channel)?.owner.number),
        }
    }

    pub(super) fn place(&mut self, endpoint: u32, offset: usize, body: Body<'_>) -> bool {
        let segment = self.endpoints.get(endpoint).and_then(|state| state.segment.as_mut());
        segment.is_some_and(|segment| segment.place(offset, body))
    }

    #[inline]
    pub(super) fn requested(&mut self, src: Rank, header: Header, words: Words, payload: Payload) {
        let incoming = self.incoming.get(header.channel);
        let Some((Some(endpoint), reply_to)) = incoming.map(|incoming| (incoming.endpoint.clone(), incoming.reply_to))
        else {
            return self.graves.bury(payload);
        };
        let Header { kind, handler, slot, tell, channel, .. } = header;
        self.arrived(Arrival { endpoint, kind, handler, slot, tell, channel, reply_to, src, words, payload });
    }

    #[inline]
    fn reply(&mut self, front: Front, body: Body<'_>) {
        match self.expect(&front, body.len()) {
            Ok(words) => {
                let (words, payload) = self.take_in(&front, words, body);
                self.replied(&front.header, words, payload);
            }
            Err(Some(why)) => self.replied(&front.header, front.words, Err(why)),
            Err(None) => self.tally.strays += 1,
        }
    }

    /// Whether a reply is waited for; no second one is from here on.
    #[inline]
    pub(super) fn expect(&mut self, front: &Front, len: usize) -> Result<Words, Option<Status>> {
        let Front { src, header, words } = *front;
        let outgoing = self.outgoing.get(header.channel).filter(|outgoing| outgoing.dst == src).ok_or(None)?;
        let endpoint = outgoing.owner.number;
        let slot = outgoing.busy(header.slot).filter(|slot| !slot.answered).ok_or(None)?;
        slot.answered = true;
        let args = if header.kind.sends_args_before() { slot.args.take() } else { None };
        let segment = match header.kind {
            Kind::ReplyLong => self.endpoints.get(endpoint).and_then(|state| state.segment.as_ref()),
            _ => None,
        };
        check_len(&header, len, segment.map_or(0, |segment| segment.len())).map_err(Some)?;
        complete(&header, words, args).ok_or(Some(Status::BadArguments))
    }

    /// A reply is complete, or was found undeliverable: then this end's error handler hears of it.
    #[inline]
    pub(super) fn replied(&mut self, header: &Header, words: Words, payload: Result<Payload, Status>) {
        let &Header { kind, handler, slot, channel, .. } = header;
        let Some(outgoing) = self.outgoing.get(channel) else { return };
        let (endpoint, src) = (Arc::clone(&outgoing.owner), outgoing.dst);
        let tell = outgoing.busy(slot).is_some_and(|slot| slot.tell.is_some());
        let payload = payload.unwrap_or_else(|why| {
            self.tally.returned += 1;
            Payload::Returned(why)
        });
        self.arrived(Arrival { endpoint, kind, handler, slot, tell, channel, reply_to: 0, src, words, payload });
    }

    /// Arguments that come before their long message.
    fn args_before(&mut self, front: Front, body: Body<'_>) {
        let Front { src, header, words } = front;
        let mut bytes = [0; WORDS_MAX * WORD_BYTES];
        if body.len() != behind(&header) {
            self.tally.strays += 1;
            return;
        }
        let len = body.copy_to(&mut bytes);
        let words = read_words(words, header.kind, &bytes[..len]);
        let mut args = Box::new([0; WORDS_MAX]);
        args[..words.all().len()].copy_from_slice(words.all());
        let place = if header.kind == Kind::Args {
            let incoming = self.incoming.get(header.channel).filter(|incoming| incoming.src == src);
            let slot = incoming.and_then(|incoming| incoming.slots.get_mut(usize::from(header.slot)));
            slot.filter(|slot| !slot.busy).map(|slot| &mut slot.args)
        } else {
            let outgoing = self.outgoing.get(header.channel).filter(|outgoing| outgoing.dst == src);
            let slot = outgoing.and_then(|outgoing| outgoing.busy(header.slot));
            slot.filter(|slot| !slot.answered).map(|slot| &mut slot.args)
        };
        match place {
            Some(place) => *place = Some(args),
            None => self.tally.strays += 1,
        }
    }

    /// Handlers of these requests have returned. Nothing else will be said about them, unless a reply is said to be on its way.
    fn acknowledged(&mut self, front: Front, outbox: &mut Outbox) {
        let Front { src, header, words } = front;
        for slot in std::iter::once(header.slot).chain(unpack_slots(words.all())) {
            let outgoing = self.outgoing.get(header.channel).filter(|outgoing| outgoing.dst == src);
            let busy = outgoing.and_then(|outgoing| outgoing.busy(slot));
            // After a reply only a word that was asked for is expected.
            match busy.filter(|busy| !busy.answered || busy.tell.is_some()) {
                Some(busy) if header.handler == REPLY_COMES && !busy.answered => {
                    if let Some(event) = busy.tell.take() {
                        event.finish(true);
                    }
                }
                Some(_) => self.give_back(header.channel, slot, true),
                None => self.tally.strays += 1,
            }
        }
        // With the last answer to a dropped `Peer`; no handler need ever run here again.
        self.flush_unmaps(outbox);
    }

    #[inline(never)]
    fn rest(&mut self, front: Front, body: Body<'_>, outbox: &mut Outbox) {
        let Front { src, header, words } = front;
        match header.kind {
            Kind::Args | Kind::ReplyArgs => self.args_before(front, body),
            Kind::Returned => match (Status::from(header.handler), self.outgoing.get(header.channel)) {
                (Some(why), Some(outgoing)) if outgoing.dst == src => self.came_back(header.channel, header.slot, why),
                _ => self.tally.strays += 1,
            },
            Kind::Map => {
                let mut name = Vec::new();
                if body.len() <= 2 * super::NAME_MAX {
                    body.append_to(&mut name);
                    self.asked_for(src, header.channel, &words, &name, outbox);
                }
            }
            Kind::Mapped => self.mapped(src, header.channel, &words, outbox),
            Kind::Unmap => self.unmapped(src, header.channel),
            Kind::Want => self.wanted(front, outbox),
            Kind::Wanted => match self.fetching(&front, body.len()).and_then(|number| self.transfers.remove(number)) {
                Some(mut transfer) => {
                    if let Target::Fetching(landing) = &mut transfer.target
                        && let Some(place) = landing.memory().get_mut(..body.len())
                    {
                        body.copy_to(place);
                    }
                    self.end_parts(transfer, outbox);
                }
                None => self.tally.strays += 1,
            },
            _ => self.tally.strays += 1,
        }
    }
}

/// Bytes of arguments that stand in front of the payload.
pub(super) fn behind(header: &Header) -> usize {
    match header.kind.sends_args_before() {
        true => 0,
        false => usize::from(header.words).saturating_sub(header.kind.words_inline()) * WORD_BYTES,
    }
}

/// Whether a body may have this length, and its place exists.
#[inline]
fn check_len(header: &Header, len: usize, segment: usize) -> Result<(), Status> {
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

/// The words of a message, with those that came before it; what stands in its body is read later.
#[inline]
fn complete(header: &Header, words: Words, args: Option<Box<[u64; WORDS_MAX]>>) -> Option<Words> {
    let inline = header.kind.words_inline();
    if !header.kind.sends_args_before() || usize::from(header.words) <= inline {
        return Some(words);
    }
    Some(with_rest(words, inline, &*args?))
}

/// Fills in the words that stand in front of the payload.
#[inline]
pub(super) fn read_words(mut words: Words, kind: Kind, bytes: &[u8]) -> Words {
    let inline = kind.words_inline();
    for (at, word) in (inline..words.all().len()).zip(bytes.as_chunks::<WORD_BYTES>().0) {
        words.put(at, u64::from_le_bytes(*word));
    }
    words
}

impl ReceiveHandler for AmTable {
    #[inline]
    fn message(&mut self, src: Rank, header: &[u8], body: Body<'_>, _cost: u64, here: &mut Here<'_, '_>) -> Fate {
        let Some((header, words)) = Header::parse(header) else {
            self.tally.strays += 1;
            return Fate::Done;
        };
        let front = Front { src, header, words };
        match header.kind {
            Kind::Short | Kind::Medium | Kind::Long | Kind::Fetch => self.request(front, body, here.outbox),
            Kind::ReplyShort | Kind::ReplyMedium | Kind::ReplyLong => self.reply(front, body),
            Kind::Ack => self.acknowledged(front, here.outbox),
            _ => self.rest(front, body, here.outbox),
        }
        Fate::Done
    }

    fn begin(
        &mut self,
        id: TransferId,
        header: &[u8],
        total: usize,
        _asked: bool,
        _cost: u64,
        here: &mut Here<'_, '_>,
    ) -> Begin {
        let front = Header::parse(header).map(|(header, words)| Front { src: id.src, header, words });
        match front {
            Some(front) => Begin::Take(self.begin_parts(id, front, total, here.outbox).map_or(0, u64::from)),
            None => {
                self.tally.strays += 1;
                Begin::Take(0)
            }
        }
    }

    fn part(&mut self, number: u64, body: Body<'_>, _here: &mut Here<'_, '_>) {
        self.take_part(number as u32, body);
    }

    fn end(&mut self, number: u64, here: &mut Here<'_, '_>) -> Fate {
        if let Some(transfer) = self.transfers.remove(number as u32) {
            self.end_parts(transfer, here.outbox);
        }
        Fate::Done
    }

    fn withdrawn(&mut self, number: u64, _here: &mut Here<'_, '_>) {
        self.give_up_parts(number as u32);
    }

    fn peer_gone(&mut self, rank: Rank, end: End, _here: &mut Here<'_, '_>) {
        self.forget(rank, end);
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
