//! A port that moves to another process. Part of the receive handler; the calls are in `transfer`. Called with the engine locked;
//! never blocks.
//!
//! ```text
//!  old owner                     new owner                    a sender
//!   OFFER (name) ──────────────►
//!   ◄────────────── TAKEN (its number of the port)
//!   YOURS ─────────────────────►
//!   MOVED (rank, number) ───────────────────────────────────►  sends nothing there for the moment
//!   ◄─────────────────────────────────────────────────── LAST  behind everything it has sent
//!   PASSED … PASSED_LAST ──────►  in the order of arrival
//!                                 COME ─────────────────────►  sends there from now on
//!   WHOLE ─────────────────────►  all senders have been passed on
//! ```
//! What the old owner passes on keeps its order, a sender's own messages come behind what was passed on of it, and nothing is sent
//! twice: so the order and number of its messages are as if the port had always been there. `VOID` answers a `TAKEN` for an offer
//! that was taken back (`OFFER_BACK`). A port can move on before it is whole; what comes for it is passed on again.

use super::{Kept, PortTable};
use crate::header::{Header, Kind, Passed};
use crate::waiting::Receive;
use pulc_base::{Proto, Rank};
use pulc_handler::{Body, End, MESSAGE_COST, Outbox, Parcel};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Offers of one rank that wait here, at most.
const OFFERS_PER_RANK: usize = 64;
/// Ports that have moved away and for which messages are still passed on, at most.
const MOVED_MAX: usize = 1024;

/// Where a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Whereabouts {
    pub rank: Rank,
    pub number: u32,
    /// It has moved, and what this process sent to it by way of its old owner may not have come yet.
    pub via: Option<Rank>,
}

/// Whether a port stays.
#[derive(Default)]
pub(crate) enum Stage {
    #[default]
    Stays,
    Offered {
        to: Rank,
        answer: Option<Answer>,
    },
    Moved(Moved),
}

/// What an offer came to.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// With the new owner's number.
    Taken(u32),
    Refused,
    Gone(End),
}

/// A port that has another owner now.
pub(crate) struct Moved {
    pub(super) to: Rank,
    number: u32,
    /// Senders that have been told.
    told: BTreeSet<Rank>,
    /// Those of them that may still have something on its way here.
    pub(super) open: BTreeSet<Rank>,
    /// The new owner has everything.
    is_whole: bool,
}

/// A port that somebody offers to this process.
pub(crate) struct Offer {
    pub from: Rank,
    pub name: Arc<str>,
    /// At the old owner.
    number: u32,
    pub is_datagram: bool,
    /// Our number of it, once we have taken it.
    pub taken: Option<u32>,
    pub is_ours: bool,
}

impl PortTable {
    /// Offers a port to another process.
    pub fn offer(&mut self, number: u32, to: Rank, is_datagram: bool, outbox: &mut Outbox) {
        let Some(port) = self.port(number) else { return };
        port.stage = Stage::Offered { to, answer: None };
        let header = Header { port: number, kind: Kind::Offer, tag: u64::from(is_datagram) };
        outbox.post(to, Proto::PORT, &header.encode(), port.name.as_bytes());
    }

    /// What has become of the offer.
    pub fn answer_to_offer(&mut self, number: u32) -> Option<Answer> {
        match self.port(number)?.stage {
            Stage::Offered { answer, .. } => answer,
            _ => None,
        }
    }

    /// The port stays here after all.
    pub fn take_offer_back(&mut self, number: u32, outbox: &mut Outbox) {
        let Some(port) = self.port(number) else { return };
        if let Stage::Offered { to, .. } = std::mem::take(&mut port.stage) {
            let header = Header { port: number, kind: Kind::OfferBack, tag: 0 };
            outbox.post(to, Proto::PORT, &header.encode(), &[]);
        }
    }

    /// Makes the offer good: from now on the port is the other process's.
    pub fn hand_over(&mut self, number: u32, outbox: &mut Outbox) {
        self.forget_oldest_move();
        let Some(port) = self.ports.get_mut(super::place_of(number)).and_then(Option::as_mut) else { return };
        let Stage::Offered { to, answer: Some(Answer::Taken(theirs)) } = port.stage else { return };
        let told = std::mem::take(&mut port.known_by);
        let yours = Header { port: theirs, kind: Kind::Yours, tag: 0 };
        outbox.send(in_order(to, &yours.encode(), Vec::new()));
        for sender in &told {
            tell_move(*sender, number, to, theirs, outbox);
        }
        port.stage = Stage::Moved(Moved { to, number: theirs, open: told.clone(), told, is_whole: false });
        self.names.remove(&port.name);
        self.elsewhere.insert(Arc::clone(&port.name), to);
        self.pass_on(number, outbox);
    }

    /// Whether the new owner has everything, or is gone.
    pub fn has_moved_wholly(&mut self, number: u32) -> bool {
        match self.port(number).map(|port| &port.stage) {
            Some(Stage::Moved(moved)) => moved.is_whole,
            _ => true,
        }
    }

    /// Whether everything that was promised to new owners has been sent to them.
    pub fn all_moved_wholly(&self) -> bool {
        self.ports.iter().flatten().all(|port| !matches!(&port.stage, Stage::Moved(moved) if !moved.is_whole))
    }

    fn forget_oldest_move(&mut self) {
        let is_over = |port: &super::PortState| matches!(&port.stage, Stage::Moved(moved) if moved.is_whole);
        let over = self.ports.iter().flatten().filter(|port| is_over(port));
        if over.clone().count() < MOVED_MAX {
            return;
        }
        if let Some(number) = over.map(|port| port.number).next() {
            self.ports[super::place_of(number)] = None;
        }
        if self.elsewhere.len() >= 2 * MOVED_MAX {
            self.elsewhere.clear();
        }
    }

    /// Sends on what has come for a port that has moved, as far as each sender's messages are complete, in their order.
    #[cold]
    pub(super) fn pass_on(&mut self, number: u32, outbox: &mut Outbox) {
        let Some(Some(port)) = self.ports.get_mut(super::place_of(number)).filter(|p| super::holds(p, number)) else {
            return;
        };
        let Stage::Moved(moved) = &mut port.stage else { return };
        let mut held_up = Vec::new();
        for entry in port.queue.kept_entries() {
            let Some((src, tag)) = port.queue.envelope(entry) else { continue };
            match port.queue.kept(entry) {
                // Its sender calls it off, and sends it to the new place.
                None | Some(Kept::Asked { .. }) => continue,
                Some(Kept::Coming { done: false, .. }) => {
                    held_up.push(src);
                    continue;
                }
                Some(_) if held_up.contains(&src) => continue,
                // Something of it may still come by the owner before us, and must not come behind this.
                Some(Kept::Last) if port.from.is_some() && !port.came.contains(&Rank(src)) => {
                    held_up.push(src);
                    continue;
                }
                Some(_) => {}
            }
            let (bytes, cost, asked) = match port.queue.take(entry) {
                Some(Kept::Small { bytes, len, cost }) => (bytes[..usize::from(len)].to_vec(), cost, 0),
                Some(Kept::Whole { bytes, cost }) => (bytes, cost, 0),
                Some(Kept::Coming { bytes, cost, asked, .. }) => (bytes, cost, asked),
                Some(Kept::Last) => {
                    moved.open.remove(&Rank(src));
                    let last = Passed::Last { port: moved.number }.encode(Rank(src));
                    outbox.send(in_order(moved.to, &last, Vec::new()));
                    continue;
                }
                Some(Kept::Asked { .. }) | None => continue,
            };
            // It sent here without having been told. Of those whose messages were passed on to us their last word will come.
            if cost.payer == Rank(src) && moved.told.insert(Rank(src)) {
                moved.open.insert(Rank(src));
                tell_move(Rank(src), number, moved.to, moved.number, outbox);
            }
            if cost.bytes == 0 && asked == 0 {
                port.backlog = port.backlog.saturating_sub(bytes.len() as u64 + MESSAGE_COST);
            }
            self.budget += asked;
            outbox.release(cost.payer, cost.bytes);
            let header = Passed::Message { port: moved.number, tag }.encode(Rank(src));
            // It takes its receiver's room like any message.
            outbox.send(Box::new(in_order(moved.to, &header, bytes).counted()));
        }
        if port.queue.kept_len() == 0 && moved.open.is_empty() && port.from.is_none() && !moved.is_whole {
            moved.is_whole = true;
            let tag = u64::from(port.broken.is_some());
            let whole = Header { port: moved.number, kind: Kind::Whole, tag };
            outbox.send(in_order(moved.to, &whole.encode(), Vec::new()));
        }
    }

    /// Takes what `from` offers under this name, or what was taken before; our number of it. `Err`: the name is in use here.
    pub fn take_offer(&mut self, from: Rank, name: &str, outbox: &mut Outbox) -> Result<Option<u32>, super::NotOpened> {
        let of_name = |offer: &Offer| offer.from == from && *offer.name == *name;
        if let Some(taken) = self.offers.iter().find(|offer| of_name(offer) && offer.taken.is_some()) {
            return Ok(taken.taken);
        }
        let Some(at) = self.offers.iter().position(of_name) else { return Ok(None) };
        let number = self.open(name, outbox)?;
        let offer = &mut self.offers[at];
        offer.taken = Some(number);
        let header = Header { port: offer.number, kind: Kind::Taken, tag: u64::from(number) };
        outbox.post(from, Proto::PORT, &header.encode(), &[]);
        Ok(Some(number))
    }

    /// A port that was taken and has become ours: its number, and whether it sends datagrams.
    pub fn take_ours(&mut self, from: Rank, name: &str) -> Option<(u32, bool)> {
        let is_it = |offer: &Offer| offer.is_ours && offer.from == from && *offer.name == *name;
        let at = self.offers.iter().position(is_it)?;
        let offer = self.offers.remove(at);
        offer.taken.map(|number| (number, offer.is_datagram))
    }

    /// Words about moves.
    #[cold]
    pub(super) fn about_moves(&mut self, src: Rank, header: Header, body: Body<'_>, outbox: &mut Outbox) {
        let Header { port, kind, tag } = header;
        match kind {
            Kind::Offer => self.offered(src, port, tag != 0, body, outbox),
            Kind::OfferBack => {
                self.offers.retain(|offer| offer.from != src || offer.number != port || offer.taken.is_some());
            }
            Kind::Taken => match self.port(port).map(|port| &mut port.stage) {
                Some(Stage::Offered { to, answer: answer @ None }) if *to == src => {
                    *answer = Some(Answer::Taken(tag as u32));
                }
                _ => {
                    let void = Header { port: tag as u32, kind: Kind::Void, tag: 0 };
                    outbox.post(src, Proto::PORT, &void.encode(), &[]);
                }
            },
            Kind::Yours => {
                let offer = self.offers.iter_mut().find(|offer| offer.from == src && offer.taken == Some(port));
                if let Some(offer) = offer {
                    offer.is_ours = true;
                    if let Some(port) = self.port(port) {
                        port.from = Some(src);
                        port.before = Some(src);
                    }
                }
            }
            Kind::Void => self.voided(src, port, outbox),
            Kind::Moved => self.moved(src, port, tag as u32, body, outbox),
            Kind::Last => {
                if let Some(state) = self.port(port)
                    && let Stage::Moved(_) = state.stage
                {
                    state.queue.keep(src.0, 0, Kept::Last);
                    self.pass_on(port, outbox);
                }
            }
            Kind::Come => {
                let here = self.known.values_mut().filter(|place| place.rank == src && place.number == port);
                here.for_each(|place| place.via = None);
            }
            Kind::Whole => self.whole(src, port, tag != 0, outbox),
            _ => {}
        }
    }

    fn offered(&mut self, src: Rank, number: u32, is_datagram: bool, body: Body<'_>, outbox: &mut Outbox) {
        let name = (body.len() <= super::NAME_MAX).then(|| {
            let mut bytes = Vec::new();
            body.append_to(&mut bytes);
            String::from_utf8(bytes).ok()
        });
        let many = self.offers.iter().filter(|offer| offer.from == src).count() >= OFFERS_PER_RANK;
        match name.flatten() {
            Some(name) if !many => {
                let name = name.into();
                self.offers.push(Offer { from: src, name, number, is_datagram, taken: None, is_ours: false });
            }
            // Its port stays with it.
            _ => outbox.post(src, Proto::PORT, &Header { port: number, kind: Kind::Void, tag: 1 }.encode(), &[]),
        }
    }

    /// An offer is void: of ours, because the other side has too many of them; or one that we had taken too late.
    fn voided(&mut self, src: Rank, number: u32, outbox: &mut Outbox) {
        let taken = self.offers.iter().position(|offer| offer.from == src && offer.taken == Some(number));
        match taken {
            Some(at) if !self.offers[at].is_ours => {
                self.offers.remove(at);
                self.close_and_release(number, outbox);
            }
            Some(_) => {}
            None => {
                if let Some(Stage::Offered { to, answer: answer @ None }) =
                    self.port(number).map(|port| &mut port.stage)
                    && *to == src
                {
                    *answer = Some(Answer::Refused);
                }
            }
        }
    }

    /// A port that this process sends to is elsewhere. What was sent to it has left already: all of it lies before our word.
    fn moved(&mut self, src: Rank, old: u32, new: u32, body: Body<'_>, outbox: &mut Outbox) {
        let Some(rank) = rank_of(body) else { return };
        let there = self.known.values_mut().filter(|place| place.rank == src && place.number == old);
        there.for_each(|place| *place = Whereabouts { rank, number: new, via: Some(src) });
        self.news_of_places();
        outbox.post(src, Proto::PORT, &Header { port: old, kind: Kind::Last, tag: 0 }.encode(), &[]);
    }

    /// A port of ours has got everything that its old owner had.
    fn whole(&mut self, src: Rank, number: u32, is_broken: bool, outbox: &mut Outbox) {
        let Some(port) = self.port(number).filter(|port| port.from == Some(src)) else { return };
        port.from = None;
        port.came.clear();
        if is_broken {
            port.broken = Some((src, End::BrokenRules("an earlier owner ended before it had handed everything over")));
        }
        self.look_again(number);
        self.pass_on(number, outbox);
    }

    /// What waits at this port asks anew whether there is hope.
    pub(super) fn look_again(&mut self, number: u32) {
        let Some(port) = self.port(number) else { return };
        let tickets: Vec<_> = port.queue.posted_entries().into_iter().filter_map(|e| port.queue.unpost(e)).collect();
        tickets.into_iter().for_each(|posted| self.receives.set(posted.ticket, Receive::Again));
    }

    /// Something that was passed on: whether the port came from there. Also when it is whole: those who find it by its old place send
    /// there once.
    pub(super) fn comes_from(&mut self, number: u32, via: Rank) -> bool {
        self.port(number).is_some_and(|port| port.before == Some(via))
    }

    /// A sender has nothing more on its way by the old owner.
    #[cold]
    pub(super) fn passed_last(&mut self, via: Rank, number: u32, src: Rank, outbox: &mut Outbox) {
        if !self.comes_from(number, via) {
            return;
        }
        let Some(port) = self.port(number) else { return };
        port.came.insert(src);
        if let Stage::Moved(moved) = &mut port.stage {
            // It has moved on: the sender says once more when nothing is on its way, to us.
            if moved.told.insert(src) {
                moved.open.insert(src);
                tell_move(src, number, moved.to, moved.number, outbox);
            }
            return self.pass_on(number, outbox);
        }
        port.known_by.insert(src);
        outbox.post(src, Proto::PORT, &Header { port: number, kind: Kind::Come, tag: 0 }.encode(), &[]);
    }
}

/// A rank as the body of a message.
pub(super) fn rank_of(body: Body<'_>) -> Option<Rank> {
    let mut bytes = [0; 4];
    (body.len() == bytes.len()).then(|| {
        body.copy_to(&mut bytes);
        Rank(u32::from_le_bytes(bytes))
    })
}

fn tell_move(sender: Rank, old: u32, to: Rank, new: u32, outbox: &mut Outbox) {
    let header = Header { port: old, kind: Kind::Moved, tag: u64::from(new) };
    outbox.post(sender, Proto::PORT, &header.encode(), &to.0.to_le_bytes());
}

fn in_order(to: Rank, header: &[u8], bytes: Vec<u8>) -> Box<Parcel> {
    Box::new(Parcel::new(to, Proto::PORT, header, Arc::new(bytes)).in_order())
}
