//! Parts of messages, and where they go: through their handler, or straight to the memory that it names. The other half of `dispatch`,
//! with the same rules.

use super::{Broken, Floor};
use crate::incoming::Incoming;
use crate::switch::{Begin, Body, Fate, Hand, Here, ReceiveHandler, TransferId};
use crate::wire::{FREE, Head, Kind, MESSAGE_COST};
use pulc_base::{Proto, Rank};

/// The protocol whose messages land from their first byte on: the one that promises that.
const LANDS_FIRST: Proto = Proto::RAWDATA;

impl Floor {
    pub(super) fn part(&mut self, src: Rank, id: u32, body: Body<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let is_long = self.past_caches_min;
        self.next_part(src, id, body.len(), hand, |handler, number, total, here| {
            let body = if total >= is_long { body.of_long() } else { body };
            handler.part(number, body, here);
        })
    }

    /// Where the next part of the message goes that `src` is sending in parts, if that is at hand: the message's number and the memory
    /// for what is still to come of it.
    pub fn place<'a>(&'a mut self, src: Rank, hand: &'a mut Hand<'_>) -> Option<(u32, &'a mut [u8])> {
        let (id, incoming) = self.peers[src.0 as usize].incoming.latest().filter(|(_, latest)| latest.granted)?;
        let place = self.handlers.of(incoming.proto)?.place(incoming.number, hand)?;
        (place.len() as u64 == incoming.total - incoming.arrived).then_some((id, place))
    }

    /// Where the beginning of the next message from `src` goes if it is long, with the length of its protocol's header.
    pub fn place_of_first<'a>(&'a mut self, src: Rank, hand: &'a mut Hand<'_>) -> Option<(usize, &'a mut [u8])> {
        self.handlers.of(LANDS_FIRST.0)?.place_of_first(src, hand)
    }

    /// Whether the message that begins with this head and header goes there.
    pub fn goes_there(&mut self, src: Rank, head: &Head, header: &[u8], hand: &Hand<'_>) -> bool {
        let is_counted = head.proto == LANDS_FIRST.0 && head.flags & FREE == 0;
        let total = usize::try_from(head.total).ok().filter(|_| is_counted);
        total.is_some_and(|total| {
            self.handlers.of(head.proto).is_some_and(|handler| handler.goes_there(src, header, total, hand))
        })
    }

    /// The beginning of a message, or all of it: so many bytes, which are where [`Floor::place_of_first`] said and where
    /// [`Floor::goes_there`] said they belong.
    pub fn first_landed(&mut self, src: Rank, head: &Head, header: &[u8], bytes: usize, hand: &mut Hand<'_>) {
        let result = self.begin_landed(src, head, header, bytes, hand);
        if let Err(what) = result {
            self.broke(src, what);
        }
    }

    fn begin_landed(
        &mut self,
        src: Rank,
        head: &Head,
        header: &[u8],
        bytes: usize,
        hand: &mut Hand<'_>,
    ) -> Result<(), Broken> {
        let cost = head.total.saturating_add(MESSAGE_COST);
        self.charge(src, cost)?;
        if head.kind == Kind::First {
            self.room_for(src, head.id)?;
        }
        let total = usize::try_from(head.total).map_err(|_| "a length beyond this machine")?;
        let handler = self.handlers.of(head.proto).ok_or("an unknown protocol")?;
        let (id, here) = (TransferId { src, id: head.id }, &mut Here { hand, outbox: &mut self.outbox });
        let Begin::Take(number) = handler.begin(id, header, total, false, cost, here) else {
            super::out_of_promised_memory(src, total);
        };
        if head.kind == Kind::First {
            let incoming = Incoming { proto: head.proto, number, total: head.total, arrived: 0, cost, granted: true };
            self.peers[src.0 as usize].incoming.insert(head.id, incoming);
            return self.next_part(src, head.id, bytes, hand, |handler, number, _, here| {
                handler.landed(number, bytes, here.hand);
            });
        }
        handler.landed(number, bytes, here.hand);
        if handler.end(number, here) == Fate::Done {
            self.release(src, cost);
        }
        Ok(())
    }

    /// The next part of a message: so many bytes, which are where [`Floor::place`] said.
    pub fn part_landed(&mut self, src: Rank, id: u32, bytes: usize, hand: &mut Hand<'_>) {
        let result = self.next_part(src, id, bytes, hand, |handler, number, _, here| {
            handler.landed(number, bytes, here.hand);
        });
        if let Err(what) = result {
            self.broke(src, what);
        }
    }

    /// `give` is called with the handler's number for the message and the message's length.
    #[inline]
    fn next_part(
        &mut self,
        src: Rank,
        id: u32,
        bytes: usize,
        hand: &mut Hand<'_>,
        give: impl FnOnce(&mut dyn ReceiveHandler, u64, u64, &mut Here<'_, '_>),
    ) -> Result<(), Broken> {
        let list = &mut self.peers[src.0 as usize].incoming;
        let incoming = list.get_mut(id).ok_or("a part of no message")?;
        if !incoming.granted {
            return Err("a part that was not granted");
        }
        let len = bytes as u64;
        if len > incoming.total - incoming.arrived {
            return Err("more parts than the message has");
        }
        incoming.arrived += len;
        // Field by field: the whole as one would wait for what was just stored into it.
        let Incoming { proto, number, total, arrived, cost, .. } = *incoming;
        if arrived == total {
            list.remove(id);
        }
        let handler = self.handlers.of(proto).ok_or("a part of an unknown protocol")?;
        let here = &mut Here { hand, outbox: &mut self.outbox };
        give(handler, number, total, here);
        if arrived == total && handler.end(number, here) == Fate::Done {
            self.release(src, cost);
        }
        Ok(())
    }
}
