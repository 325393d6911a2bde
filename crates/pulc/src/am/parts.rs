//! Messages in parts and payloads that are fetched: where their parts go until they are complete. Called by `arrive` with the
//! engine locked; never blocks, and takes no more bytes than were announced and agreed to.

use super::arrive::{Front, behind, read_words};
use super::returned::Status;
use super::table::{AmTable, Payload, Target, Transfer, header};
use super::wire::{Header, Kind};
use pulc_base::Proto;
use pulc_handler::{Body, Outbox, Parcel, TransferId};

impl AmTable {
    /// A fetch is wanted: its payload leaves.
    pub(super) fn wanted(&mut self, front: Front, outbox: &mut Outbox) {
        let Front { src, header: asked, words } = front;
        let &[number] = words.all() else {
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
    pub(super) fn fetching(&mut self, front: &Front, total: usize) -> Option<u32> {
        let &[number] = front.words.all() else { return None };
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
        front: Front,
        total: usize,
        outbox: &mut Outbox,
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
        let target = match (admitted, header.kind) {
            (Ok(words), Kind::Long | Kind::ReplyLong) => {
                self.landing_of(&front).map(|endpoint| (words, Target::Segment { endpoint, failed: false }))
            }
            (Ok(words), _) => self.spare.take(total).map(|bytes| (words, Target::Bytes(bytes))),
            (Err(None), _) => {
                self.tally.strays += 1;
                return None;
            }
            (Err(Some(why)), _) => {
                self.not_taken(&front, why, outbox);
                return None;
            }
        };
        let Some((words, target)) = target else {
            self.not_taken(&front, Status::NoRoom, outbox);
            return None;
        };
        self.transfers.add(|_| Transfer { id, header, words, target, arrived: 0, total })
    }

    #[cold]
    pub(super) fn not_taken(&mut self, front: &Front, why: Status, outbox: &mut Outbox) {
        match front.header.kind {
            Kind::Medium | Kind::Long => self.refuse(front.header.channel, front.header.slot, why, outbox),
            _ => self.replied(&front.header, front.words, Err(why)),
        }
    }

    pub(super) fn end_parts(&mut self, transfer: Transfer, outbox: &mut Outbox) {
        let Transfer { id, header, mut words, target, total, .. } = transfer;
        let payload = match target {
            Target::Bytes(bytes) => {
                words = read_words(words, header.kind, &bytes);
                Ok(Payload::Bytes { bytes, skip: behind(&header) })
            }
            Target::Segment { failed: true, .. } => Err(Status::NoRoom),
            Target::Segment { .. } => Ok(Payload::Landed { offset: header.offset as usize, len: total }),
            // It took the slot when it was offered: it is a request whose handler goes on now.
            Target::Fetching(landing) => return self.requested(id.src, header, words, Payload::Fetched(landing)),
        };
        match (header.kind, payload) {
            (Kind::Medium | Kind::Long, Ok(payload)) => self.requested(id.src, header, words, payload),
            (Kind::Medium | Kind::Long, Err(why)) => self.refuse(header.channel, header.slot, why, outbox),
            (_, payload) => self.replied(&header, words, payload),
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
