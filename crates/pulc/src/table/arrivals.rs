//! Messages as they arrive at a port: to the receive that was posted first, to the thread that polls if it wants them, or kept.
//! Called by the table's receive handler; never blocks.

use super::{Cost, Kept, PortTable, SMALL_BYTES, Stage, holds, place_of};
use crate::header::{Header, Kind, Passed};
use crate::transfers::Goal;
use crate::waiting::{Place, Receive, lane_of};
use pulc_base::Rank;
use pulc_handler::matching::Entry;
use pulc_handler::{Begin, Body, Fate, Hand, Here, Outbox, TransferId};

/// A message that begins to come in parts. `src` is its sender, `id` who sends the parts: the sender or an old owner of the port.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    pub id: TransferId,
    pub src: Rank,
    pub header: Header,
    pub total: usize,
    pub asked: bool,
    pub cost: Cost,
}

impl PortTable {
    // In its callers: `here` and the header are two words each, which would be stored one by one and loaded as one, and such a load
    // waits until both stores have left the store buffer.
    #[inline(always)]
    pub(super) fn data(
        &mut self,
        src: Rank,
        header: Header,
        body: Body<'_>,
        cost: Cost,
        here: &mut Here<'_, '_>,
    ) -> Fate {
        // Only datagrams are outside all credit: of them a port keeps so much and no more.
        if cost.bytes == 0 && header.kind != Kind::Datagram {
            return Fate::Done;
        }
        let place = place_of(header.port);
        let Some(Some(port)) = self.ports.get_mut(place).filter(|port| holds(port, header.port)) else {
            self.no_port(src, header.port, header.kind, here.outbox);
            return Fate::Done;
        };
        let len = body.len();
        // The first receive that accepts it and has room; those before it that are too small are told.
        while let Some((_, posted)) = port.queue.arrive(src.0, header.tag) {
            if len <= posted.capacity {
                if let Some(buffer) = here.hand.buffer_of(posted.ticket.0) {
                    body.copy_to(buffer);
                    here.hand.landed = Some((src, header.tag, len));
                    return Fate::Done;
                }
                let mut bytes = Vec::with_capacity(len);
                body.append_to(&mut bytes);
                self.receives.set(posted.ticket, Receive::Whole { src, tag: header.tag, bytes });
                return Fate::Done;
            }
            self.receives.set(posted.ticket, Receive::TooSmall { needed: len });
        }
        if here.hand.take_want(lane_of(header.port), src.0, header.tag) {
            // All receives that are posted are earlier ones, and none of them accepts it.
            if let Some(buffer) = here.hand.buffer().get_mut(..len) {
                body.copy_to(buffer);
                here.hand.landed = Some((src, header.tag, len));
                return Fate::Done;
            }
            here.hand.too_long = Some(len);
        }
        if header.kind == Kind::Datagram {
            let size = (len as u64).saturating_add(pulc_handler::MESSAGE_COST);
            if port.backlog.saturating_add(size) > self.backlog_max {
                port.dropped += 1;
                return Fate::Done;
            }
            port.backlog += size;
        }
        let kept = if len <= SMALL_BYTES {
            let mut bytes = [0; SMALL_BYTES];
            body.copy_to(&mut bytes);
            Kept::Small { bytes, len: len as u8, cost }
        } else {
            let mut bytes = self.spare.take(len).unwrap_or_default();
            body.append_to(&mut bytes);
            Kept::Whole { bytes, cost }
        };
        port.queue.keep(src.0, header.tag, kept);
        if !matches!(port.stage, Stage::Stays) {
            self.pass_on(header.port, here.outbox);
        }
        Fate::Kept
    }

    /// What the old owner of a port passes on; it counts against that one's credit.
    #[cold]
    pub(super) fn passed(
        &mut self,
        via: Rank,
        header: &[u8],
        body: Body<'_>,
        cost: u64,
        here: &mut Here<'_, '_>,
    ) -> Fate {
        match Passed::decode(header) {
            Some((Passed::Message { port, tag }, src)) if self.comes_from(port, via) => {
                self.data(src, Header { port, kind: Kind::Data, tag }, body, Cost { payer: via, bytes: cost }, here)
            }
            Some((Passed::Last { port }, src)) => {
                self.passed_last(via, port, src, here.outbox);
                Fate::Done
            }
            _ => Fate::Done,
        }
    }

    /// Whose message in parts this is, and for which port; `None`: nobody's.
    pub(super) fn beginning(&mut self, from: Rank, header: &[u8]) -> Option<(Header, Rank)> {
        if let Some(header) = Header::decode(header) {
            return matches!(header.kind, Kind::Data | Kind::Datagram).then_some((header, from));
        }
        match Passed::decode(header) {
            Some((Passed::Message { port, tag }, src)) if self.comes_from(port, from) => {
                Some((Header { port, kind: Kind::Data, tag }, src))
            }
            _ => None,
        }
    }

    /// A message in parts that no posted receive accepts: perhaps the thread that polls wants it.
    pub(super) fn begin_unposted(&mut self, coming: Coming, hand: &mut Hand<'_>) -> Begin {
        let Coming { id, src, header, total, .. } = coming;
        if hand.take_want(lane_of(header.port), src.0, header.tag) {
            if total <= hand.buffer().len() {
                let (tag, place) = (header.tag, Place::new(false));
                let ticket = self.receives.add(Receive::Coming { src, tag, total, place, done: false });
                hand.posted_as(ticket.0);
                return Begin::Take(self.transfers.add(id, Goal::Receive(ticket)));
            }
            hand.too_long = Some(total);
        }
        self.keep_parts(coming)
    }

    /// Where a message in parts goes when no receive waits for it (or the one that does is too small).
    fn keep_parts(&mut self, coming: Coming) -> Begin {
        let Coming { id, src, header, total, asked, cost } = coming;
        let fits = !asked || total <= self.budget;
        let port = match self.ports.get_mut(place_of(header.port)) {
            Some(Some(port)) => port,
            _ => return Begin::Take(self.transfers.add(id, Goal::Nowhere)),
        };
        if header.kind == Kind::Datagram {
            let size = (total as u64).saturating_add(pulc_handler::MESSAGE_COST);
            if port.backlog.saturating_add(size) > self.backlog_max {
                port.dropped += 1;
                return Begin::Take(self.transfers.add(id, Goal::Nowhere));
            }
            port.backlog += size;
        }
        // No memory is asked for a length that somebody else says and the budget forbids.
        let room = if fits { self.spare.take(total) } else { None };
        let Some(bytes) = room else {
            let transfer = self.transfers.add(id, Goal::Nowhere);
            let entry = port.queue.keep(src.0, header.tag, Kept::Asked { total, transfer, id });
            self.transfers.redirect(transfer, Goal::Kept { port: header.port, entry });
            return Begin::Hold(transfer);
        };
        let charged = if asked { total } else { 0 };
        self.budget -= charged;
        let transfer = self.transfers.add(id, Goal::Nowhere);
        let kept = Kept::Coming { bytes, total, cost, asked: charged, transfer, done: false };
        let entry = port.queue.keep(src.0, header.tag, kept);
        self.transfers.redirect(transfer, Goal::Kept { port: header.port, entry });
        Begin::Take(transfer)
    }

    /// The room for a message that was asked for and held is there now: lets it come, to be kept.
    pub fn fetch_held(&mut self, port: u32, entry: Entry, outbox: &mut Outbox) {
        let budget = self.budget;
        let Some(kept) = self.port(port).and_then(|port| port.queue.kept_mut(entry)) else { return };
        let Kept::Asked { total, transfer, id } = *kept else { return };
        let mut bytes = Vec::new();
        if total <= budget && bytes.try_reserve_exact(total).is_ok() {
            *kept = Kept::Coming {
                bytes,
                total,
                cost: Cost { payer: id.src, bytes: 0 },
                asked: total,
                transfer,
                done: false,
            };
            self.budget -= total;
            outbox.grant(id);
        }
    }
}
