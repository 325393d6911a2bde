//! Messages in parts and payloads that are fetched: where their parts go until they are complete. Called by `arrive` with the
//! engine locked; never blocks, and takes no more bytes than were announced and agreed to.

use super::args::Words;
use super::arrival::Payload;
use super::front::{Front, behind, fill, read_words};
use super::returned::Status;
use super::table::{AmTable, Target, Transfer, header};
use super::wire::{Header, Kind};
use pulc_base::Proto;
use pulc_handler::{Body, Here, Outbox, Parcel, TransferId};

impl AmTable {
    /// A fetch is wanted: its payload leaves.
    pub(super) fn wanted(&mut self, front: Front<'_>, outbox: &mut Outbox) {
        let Front { src, header: asked, inline } = front;
        let &[number] = inline.words().all() else {
            self.tally.strays += 1;
            return;
        };
        let outgoing = self.outgoing.get(asked.channel).filter(|outgoing| outgoing.dst == src);
        let remote = outgoing.as_ref().map_or(0, |outgoing| outgoing.remote);
        let slot = outgoing.and_then(|outgoing| outgoing.busy(asked.slot)).filter(|slot| !slot.answered);
        let Some(offered) = slot.and_then(|slot| slot.offered.take()) else {
            self.tally.strays += 1;
            return;
        };
        let front = Header { slot: asked.slot, words: 1, ..header(Kind::Wanted, remote) }.front(&[number]);
        let parcel = Parcel::new(src, Proto::AM, front.bytes(), offered.bytes);
        outbox.send(Box::new(match offered.local {
            Some(event) => parcel.telling(event),
            None => parcel,
        }));
    }

    /// The transfer that a wanted payload belongs to.
    pub(super) fn fetching(&mut self, front: &Front<'_>, total: usize) -> Option<u32> {
        let &[number] = front.inline.words().all() else { return None };
        let number = u32::try_from(number).ok()?;
        let transfer = self.transfers.get(number)?;
        let is_it = transfer.id.src == front.src
            && transfer.header.channel == front.header.channel
            && transfer.header.slot == front.header.slot
            && matches!(transfer.target, Target::Fetching(_))
            && transfer.total == total
            && transfer.arrived == 0;
        is_it.then_some(number)
    }

    /// A message in parts may begin; its transfer's number.
    pub(super) fn begin_parts(
        &mut self,
        id: TransferId,
        front: Front<'_>,
        total: usize,
        here: &mut Here<'_, '_>,
    ) -> Option<u32> {
        let header = front.header;
        if header.kind == Kind::Wanted {
            let number = self.fetching(&front, total)?;
            self.transfers.get(number)?.id = id;
            return Some(number);
        }
        let admitted = match header.kind {
            Kind::Medium | Kind::Long => self.admit(&front, total),
            Kind::ReplyMedium | Kind::ReplyLong => self.expect(&front, total),
            _ => Err(None),
        };
        let before = match admitted {
            Ok(before) => before,
            Err(None) => {
                self.tally.strays += 1;
                return None;
            }
            Err(Some(why)) => {
                self.not_taken(&front, why, here);
                return None;
            }
        };
        let target = match header.kind {
            Kind::Long | Kind::ReplyLong => {
                self.landing_of(&front).map(|endpoint| Target::Segment { endpoint, failed: false })
            }
            _ => self.spare.take(total).map(Target::Bytes),
        };
        let Some(target) = target else {
            self.not_taken(&front, Status::NoRoom, here);
            return None;
        };
        let mut words = Words::none();
        fill(&mut words, &front, before);
        self.transfers.add(|_| Transfer { id, header, words, target, arrived: 0, total })
    }

    #[cold]
    fn not_taken(&mut self, front: &Front<'_>, why: Status, here: &mut Here<'_, '_>) {
        match front.header.kind {
            Kind::Medium | Kind::Long => self.refuse(front.header.channel, front.header.slot, why, here.outbox),
            _ => self.reply_lost(front, why, here.hand),
        }
    }

    pub(super) fn end_parts(&mut self, transfer: Transfer, here: &mut Here<'_, '_>) {
        let Transfer { id, header, mut words, target, total, .. } = transfer;
        let payload = match target {
            Target::Bytes(bytes) => {
                read_words(&mut words, header.kind, &bytes);
                Ok(Payload::Bytes { bytes, skip: behind(&header) })
            }
            Target::Segment { failed: true, .. } => Err(Status::NoRoom),
            Target::Segment { .. } => Ok(Payload::Landed { offset: header.offset as usize, len: total }),
            // It took the slot when it was offered: it is a request whose handler goes on now.
            Target::Fetching(landing) => Ok(Payload::Fetched(landing)),
        };
        let is_request = matches!(header.kind, Kind::Medium | Kind::Long | Kind::Fetch);
        let mut arrival = self.fresh();
        arrival.about.words = words;
        match payload {
            Ok(payload) => arrival.payload = payload,
            Err(why) if is_request => {
                self.used(arrival);
                return self.refuse(header.channel, header.slot, why, here.outbox);
            }
            Err(why) => self.is_lost(&mut arrival, why),
        }
        if is_request {
            self.requested(id.src, header, arrival, here.hand);
        } else {
            self.replied(&header, arrival, here.hand);
        }
    }

    /// The next part of a message.
    pub(super) fn take_part(&mut self, number: u32, body: Body<'_>) {
        let Some(transfer) = self.transfers.get(number) else { return };
        let (at, total) = (transfer.arrived, transfer.total);
        if body.len() > total - at {
            return;
        }
        transfer.arrived += body.len();
        match &mut transfer.target {
            Target::Bytes(bytes) => body.append_to(bytes),
            Target::Fetching(landing) => {
                if let Some(place) = landing.memory().get_mut(at..at + body.len()) {
                    body.copy_to(place);
                }
            }
            Target::Segment { endpoint, failed } if !*failed => {
                let (endpoint, offset) = (*endpoint, transfer.header.offset as usize + at);
                if !self.place(endpoint, offset, body)
                    && let Some(transfer) = self.transfers.get(number)
                    && let Target::Segment { failed, .. } = &mut transfer.target
                {
                    *failed = true;
                }
            }
            Target::Segment { .. } => {}
        }
    }

    /// The rest of a message will not come.
    pub(super) fn give_up_parts(&mut self, number: u32) {
        let Some(transfer) = self.transfers.remove(number) else { return };
        let Header { kind, channel, slot, .. } = transfer.header;
        if matches!(kind, Kind::ReplyMedium | Kind::ReplyLong)
            && let Some(busy) = self.outgoing.get(channel).and_then(|outgoing| outgoing.busy(slot))
        {
            busy.answered = false;
        }
        self.graves.bury(transfer);
    }
}
