//! The receive handler of active messages: from a frame to a message that waits for its handler. Called by the protocol switch
//! with the engine locked; never blocks, never runs a user's handler, and trusts no field of a frame: what names nothing, or
//! exceeds what was agreed, is dropped and counted, what is honest but not deliverable goes back.

use super::args::WORDS_MAX;
use super::arrival::{Arrival, Payload};
use super::front::{Before, Front, WORD_BYTES, behind, check_len, fill, is_complete, read_words};
use super::returned::Status;
use super::table::{AmTable, Target};
use super::wire::{Header, Kind, REPLY_COMES, unpack_slots};
use pulc_base::{Proto, Rank};
use pulc_handler::{Begin, Body, End, Fate, Hand, Here, Outbox, ReceiveHandler, TransferId};

/// What a thread watches that waits for this bundle.
#[inline]
pub(super) fn lane_of(bundle: u32) -> u64 {
    u64::from(Proto::AM.0) << 32 | u64::from(bundle)
}

impl AmTable {
    #[inline(always)]
    fn request(&mut self, front: Front<'_>, body: Body<'_>, here: &mut Here<'_, '_>) {
        let Front { src, header, .. } = front;
        let why = match self.admit(&front, body.len()) {
            Ok(_) if header.kind == Kind::Short && self.leaf_request(&front, body, here) => return,
            Ok(before) => {
                let mut arrival = self.fresh();
                let Err(why) = self.take_in(&front, before, body, &mut arrival) else {
                    return self.requested(src, header, arrival, here.hand);
                };
                self.used(arrival);
                why
            }
            Err(Some(why)) => why,
            Err(None) => {
                self.tally.strays += 1;
                return;
            }
        };
        self.refuse(header.channel, header.slot, why, here.outbox);
    }

    /// Whether a request may come in; takes its slot. `Err(None)`: nothing honest sends this.
    #[inline(always)]
    pub(super) fn admit(&mut self, front: &Front<'_>, len: usize) -> Result<Before, Option<Status>> {
        let Front { src, header, .. } = *front;
        let incoming = self.incoming.get(header.channel).filter(|incoming| incoming.src == src).ok_or(None)?;
        let slot = incoming.slots.get_mut(usize::from(header.slot)).filter(|slot| !slot.busy).ok_or(None)?;
        let before = if header.kind.sends_args_before() { slot.args.take() } else { None };
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
        if is_complete(&header, &before) { Ok(before) } else { Err(Some(Status::BadArguments)) }
    }

    /// The arguments and the payload of a whole message.
    #[inline(always)]
    fn take_in(
        &mut self,
        front: &Front<'_>,
        before: Before,
        body: Body<'_>,
        arrival: &mut Arrival,
    ) -> Result<(), Status> {
        let header = &front.header;
        fill(&mut arrival.about.words, front, before);
        match header.kind {
            Kind::Short | Kind::ReplyShort => {
                if !body.is_empty() {
                    let mut bytes = [0; WORDS_MAX * WORD_BYTES];
                    let len = body.copy_to(&mut bytes);
                    read_words(&mut arrival.about.words, header.kind, &bytes[..len]);
                }
            }
            Kind::Medium | Kind::ReplyMedium => {
                let mut bytes = self.spare.take(body.len()).ok_or(Status::NoRoom)?;
                body.append_to(&mut bytes);
                read_words(&mut arrival.about.words, header.kind, &bytes);
                arrival.payload = Payload::Bytes { bytes, skip: behind(header) };
            }
            Kind::Long | Kind::ReplyLong => {
                let (offset, len) = (header.offset as usize, body.len());
                let placed = match self.landing_of(front) {
                    Some(endpoint) => self.place(endpoint, offset, body),
                    None => false,
                };
                if !placed {
                    return Err(Status::NoRoom);
                }
                arrival.payload = Payload::Landed { offset, len };
            }
            _ => arrival.payload = Payload::Offer { len: header.offset },
        }
        Ok(())
    }

    /// The endpoint whose segment a long message goes to.
    pub(super) fn landing_of(&mut self, front: &Front<'_>) -> Option<u32> {
        match front.header.kind {
            Kind::Long => Some(self.incoming.get(front.header.channel)?.endpoint.as_ref()?.number),
            _ => Some(self.outgoing.get(front.header.channel)?.owner.number),
        }
    }

    pub(super) fn place(&mut self, endpoint: u32, offset: usize, body: Body<'_>) -> bool {
        let segment = self.endpoints.get(endpoint).and_then(|state| state.segment.as_mut());
        segment.is_some_and(|segment| segment.place(offset, body))
    }

    /// A request is here with its arguments and its payload.
    #[inline(always)]
    pub(super) fn requested(&mut self, src: Rank, header: Header, mut arrival: Box<Arrival>, hand: &mut Hand<'_>) {
        let incoming = self.incoming.get(header.channel);
        let Some((Some(endpoint), reply_to)) = incoming.map(|incoming| (&incoming.endpoint, incoming.reply_to)) else {
            return self.graves.bury(arrival);
        };
        let bundle = endpoint.bundle;
        let about = &mut arrival.about;
        about.is_for(endpoint);
        (about.kind, about.handler, about.slot, about.tell) = (header.kind, header.handler, header.slot, header.tell);
        (about.channel, about.reply_to, about.src) = (header.channel, reply_to, src);
        self.arrived(bundle, arrival);
        hand.found(lane_of(bundle), src);
    }

    #[inline(always)]
    fn reply(&mut self, front: Front<'_>, body: Body<'_>, here: &mut Here<'_, '_>) {
        match self.expect(&front, body.len()) {
            Ok(_) if front.header.kind == Kind::ReplyShort && self.leaf_reply(&front, body, here) => {}
            Ok(before) => {
                let mut arrival = self.fresh();
                if let Err(why) = self.take_in(&front, before, body, &mut arrival) {
                    self.is_lost(&mut arrival, why);
                }
                self.replied(&front.header, arrival, here.hand);
            }
            Err(Some(why)) => self.reply_lost(&front, why, here.hand),
            Err(None) => self.tally.strays += 1,
        }
    }

    /// A reply that cannot be delivered: this end's error handler hears of it.
    #[cold]
    pub(super) fn reply_lost(&mut self, front: &Front<'_>, why: Status, hand: &mut Hand<'_>) {
        let mut arrival = self.fresh();
        fill(&mut arrival.about.words, front, None);
        self.is_lost(&mut arrival, why);
        self.replied(&front.header, arrival, hand);
    }

    #[cold]
    pub(super) fn is_lost(&mut self, arrival: &mut Arrival, why: Status) {
        self.tally.returned += 1;
        arrival.payload = Payload::Returned(why);
    }

    /// Whether a reply is waited for; no second one is from here on.
    #[inline(always)]
    pub(super) fn expect(&mut self, front: &Front<'_>, len: usize) -> Result<Before, Option<Status>> {
        let Front { src, header, .. } = *front;
        let outgoing = self.outgoing.get(header.channel).filter(|outgoing| outgoing.dst == src).ok_or(None)?;
        let endpoint = outgoing.owner.number;
        let slot = outgoing.busy(header.slot).filter(|slot| !slot.answered).ok_or(None)?;
        slot.answered = true;
        let before = if header.kind.sends_args_before() { slot.args.take() } else { None };
        let segment = match header.kind {
            Kind::ReplyLong => self.endpoints.get(endpoint).and_then(|state| state.segment.as_ref()),
            _ => None,
        };
        check_len(&header, len, segment.map_or(0, |segment| segment.len())).map_err(Some)?;
        if is_complete(&header, &before) { Ok(before) } else { Err(Some(Status::BadArguments)) }
    }

    /// A reply is complete, or will never be.
    #[inline(always)]
    pub(super) fn replied(&mut self, header: &Header, mut arrival: Box<Arrival>, hand: &mut Hand<'_>) {
        let Some(outgoing) = self.outgoing.get(header.channel) else { return self.used(arrival) };
        let (bundle, src) = (outgoing.owner.bundle, outgoing.dst);
        let about = &mut arrival.about;
        about.is_for(&outgoing.owner);
        about.tell = outgoing.busy(header.slot).is_some_and(|slot| slot.tell.is_some());
        (about.kind, about.handler, about.slot) = (header.kind, header.handler, header.slot);
        (about.channel, about.reply_to, about.src) = (header.channel, 0, src);
        self.arrived(bundle, arrival);
        hand.found(lane_of(bundle), src);
    }

    /// Arguments that come before their long message.
    fn args_before(&mut self, front: Front<'_>, body: Body<'_>) {
        let Front { src, header, .. } = front;
        let mut bytes = [0; WORDS_MAX * WORD_BYTES];
        if body.len() != behind(&header) {
            self.tally.strays += 1;
            return;
        }
        let len = body.copy_to(&mut bytes);
        let mut words = front.inline.words();
        read_words(&mut words, header.kind, &bytes[..len]);
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
    fn acknowledged(&mut self, front: Front<'_>, outbox: &mut Outbox) {
        let (Front { src, header, .. }, words) = (front, front.inline.words());
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
    fn control(&mut self, front: Front<'_>, body: Body<'_>, here: &mut Here<'_, '_>) {
        let (Front { src, header, .. }, words, outbox) = (front, front.inline.words(), &mut *here.outbox);
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
                    self.end_parts(transfer, here);
                }
                None => self.tally.strays += 1,
            },
            _ => self.tally.strays += 1,
        }
    }
}

impl ReceiveHandler for AmTable {
    #[inline]
    fn message(&mut self, src: Rank, header: &[u8], body: Body<'_>, _cost: u64, here: &mut Here<'_, '_>) -> Fate {
        let Some((header, inline)) = Header::parse(header) else {
            self.tally.strays += 1;
            return Fate::Done;
        };
        let front = Front { src, header, inline };
        match header.kind {
            Kind::Short | Kind::Medium | Kind::Long | Kind::Fetch => self.request(front, body, here),
            Kind::ReplyShort | Kind::ReplyMedium | Kind::ReplyLong => self.reply(front, body, here),
            Kind::Ack => self.acknowledged(front, here.outbox),
            _ => self.control(front, body, here),
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
        let front = Header::parse(header).map(|(header, inline)| Front { src: id.src, header, inline });
        match front {
            Some(front) => Begin::Take(self.begin_parts(id, front, total, here).map_or(0, u64::from)),
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
            self.end_parts(transfer, here);
        }
        Fate::Done
    }

    fn withdrawn(&mut self, number: u64, _here: &mut Here<'_, '_>) {
        self.give_up_parts(number as u32);
    }

    fn after_poll(&mut self, outbox: &mut Outbox) {
        self.say_the_rest(outbox);
    }

    fn peer_gone(&mut self, rank: Rank, end: End, _here: &mut Here<'_, '_>) {
        self.forget(rank, end);
    }

    fn rest(&mut self) {
        self.spare.clear();
        self.forget_idle();
    }
}
