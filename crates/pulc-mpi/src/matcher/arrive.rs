//! Messages as they arrive: to the receive that was posted first, to the thread that polls if it wants them, or kept. Called by the
//! protocol switch; never blocks and never trusts what a frame says.

use super::{Goal, Kept, Matcher, SMALL_BYTES, peer_gone};
use crate::envelope::Envelope;
use crate::error::{Class, Error};
use pulc_base::Rank;
use pulc_handler::{Begin, Body, End, Fate, Hand, Here, ReceiveHandler, TransferId};

impl ReceiveHandler for Matcher {
    #[inline]
    fn message(&mut self, src: Rank, header: &[u8], body: Body<'_>, cost: u64, here: &mut Here<'_, '_>) -> Fate {
        let Some(Envelope { context, tag }) = Envelope::decode(header) else { return Fate::Done };
        let wire_tag = u64::from(tag as u32);
        if let Some((_, request)) = self.lane(context).queue.arrive(src.0, wire_tag) {
            self.requests.whole(request, src, tag, body);
            return Fate::Done;
        }
        let len = body.len();
        // All receives that are posted are earlier ones, and none of them accepts it.
        if here.hand.take_want(context.into(), src.0, wire_tag)
            && let Some(buffer) = here.hand.buffer().get_mut(..len)
        {
            body.copy_to(buffer);
            here.hand.landed = Some((src, wire_tag, len));
            return Fate::Done;
        }
        let kept = if len <= SMALL_BYTES {
            let mut bytes = [0; SMALL_BYTES];
            body.copy_to(&mut bytes);
            Kept::Small { bytes, len: len as u8, cost }
        } else {
            let mut bytes = self.spare.take(len);
            bytes.reserve_exact(len);
            body.append_to(&mut bytes);
            Kept::Whole { bytes, cost }
        };
        self.lane(context).queue.keep(src.0, wire_tag, kept);
        Fate::Kept
    }

    fn begin(
        &mut self,
        id: TransferId,
        header: &[u8],
        total: usize,
        asked: bool,
        cost: u64,
        here: &mut Here<'_, '_>,
    ) -> Begin {
        let Some(Envelope { context, tag }) = Envelope::decode(header) else {
            return Begin::Take(self.transfers.add(Goal::Nowhere));
        };
        let wire_tag = u64::from(tag as u32);
        if let Some((_, request)) = self.lane(context).queue.arrive(id.src.0, wire_tag) {
            if let Some(recv) = self.requests.recv(request) {
                (recv.src, recv.tag, recv.total, recv.entry) = (id.src, tag, total, None);
            }
            return Begin::Take(self.transfers.add(Goal::Request(request)));
        }
        if let Some(thrown_away) = self.leaving.as_mut().filter(|_| asked) {
            thrown_away.push(context);
            return Begin::Take(self.transfers.add(Goal::Nowhere));
        }
        // The thread that polls finds it among the kept ones; nothing later may land in its hand first.
        here.hand.take_want(context.into(), id.src.0, wire_tag);
        let transfer = self.transfers.add(Goal::Nowhere);
        let kept = if asked {
            Kept::Asked { total, transfer, id }
        } else {
            Kept::Coming { bytes: self.spare.take(total), total, cost, transfer, done: false }
        };
        let entry = self.lane(context).queue.keep(id.src.0, wire_tag, kept);
        self.transfers.redirect(transfer, Goal::Kept { context, entry });
        if asked { Begin::Hold(transfer) } else { Begin::Take(transfer) }
    }

    fn part(&mut self, number: u64, body: Body<'_>, _here: &mut Here<'_, '_>) {
        match self.transfers.goal(number) {
            Goal::Request(request) => self.requests.part(request, body),
            goal @ (Goal::Kept { .. } | Goal::Probed(_)) => {
                if let Some(Kept::Coming { bytes, .. }) = self.kept_mut(goal) {
                    body.append_to(bytes);
                }
            }
            Goal::Nowhere => {}
        }
    }

    fn place<'a>(&'a mut self, number: u64, _hand: &'a mut Hand<'_>) -> Option<&'a mut [u8]> {
        match self.transfers.goal(number) {
            Goal::Request(request) => self.requests.place_of_part(request),
            _ => None,
        }
    }

    fn landed(&mut self, number: u64, bytes: usize, _hand: &mut Hand<'_>) {
        if let Goal::Request(request) = self.transfers.goal(number) {
            self.requests.part_landed(request, bytes);
        }
    }

    fn end(&mut self, number: u64, _here: &mut Here<'_, '_>) -> Fate {
        match self.transfers.remove(number) {
            Goal::Request(request) => {
                self.requests.received(request);
                Fate::Done
            }
            goal @ (Goal::Kept { .. } | Goal::Probed(_)) => match self.kept_mut(goal) {
                Some(Kept::Coming { done, .. }) => {
                    *done = true;
                    Fate::Kept
                }
                _ => Fate::Done,
            },
            Goal::Nowhere => Fate::Done,
        }
    }

    fn withdrawn(&mut self, number: u64, _here: &mut Here<'_, '_>) {
        match self.transfers.remove(number) {
            Goal::Request(request) => {
                let error = Error::new(Class::PROC_ABORTED, "the sender of a message ended while it was sending");
                self.requests.fail(request, error);
            }
            Goal::Kept { context, entry } => {
                self.lane(context).queue.take(entry);
            }
            Goal::Probed(_) | Goal::Nowhere => {}
        }
    }

    fn peer_gone(&mut self, rank: Rank, end: End, _here: &mut Here<'_, '_>) {
        self.gone.push((rank, end));
        for lane in &mut self.lanes {
            for entry in lane.queue.posted_entries() {
                let waits_for_it = lane.queue.posted_pattern(entry).is_some_and(|pattern| pattern.src == Some(rank.0));
                if waits_for_it && let Some(request) = lane.queue.unpost(entry) {
                    self.requests.fail(request, peer_gone(rank, end));
                }
            }
        }
    }
}

impl Matcher {
    fn kept_mut(&mut self, goal: Goal) -> Option<&mut Kept> {
        match goal {
            Goal::Kept { context, entry } => self.lane(context).queue.kept_mut(entry),
            Goal::Probed(place) => self.probed.get_mut(place as usize)?.as_mut().map(|probed| &mut probed.kept),
            Goal::Request(_) | Goal::Nowhere => None,
        }
    }
}
