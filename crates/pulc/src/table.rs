//! The receive handler of the port protocol: which ports are open, what was kept for them, who waits. Called by the protocol
//! switch for every frame of this protocol and by `port` between polls, always with the engine locked; never blocks.

mod arrivals;
mod ends;
mod moves;
mod parts;
mod state;

pub(crate) use moves::{Answer, Whereabouts};
use moves::{Offer, Stage};
use state::Question;
use state::SMALL_BYTES;
pub(crate) use state::{Cost, Kept, PortState, Posted};

use crate::Error;
use crate::header::{Header, Kind};
use crate::spare::Spare;
use crate::table::arrivals::Coming;
use crate::transfers::{Goal, Transfers};
use crate::waiting::{Place, Receive, Receives};
use pulc_base::{Proto, Rank};
use pulc_handler::{Begin, Body, End, Fate, Hand, Here, Outbox, ReceiveHandler, TransferId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest port name in bytes.
pub(crate) const NAME_MAX: usize = 200;

#[derive(Default)]
pub(crate) struct PortTable {
    /// By the lower half of the number; the upper half counts how often a place was used.
    ports: Vec<Option<PortState>>,
    uses: Vec<u16>,
    names: HashMap<Arc<str>, u32>,
    pub receives: Receives,
    pub transfers: Transfers,
    lookups: Vec<(Rank, String, u64)>,
    /// Questions that wait for an answer.
    questions: HashMap<u64, Question>,
    next_question: u64,
    /// Ports of others, by rank and name.
    pub known: HashMap<(Rank, Arc<str>), Whereabouts>,
    /// Ports that were here and have moved, by name.
    elsewhere: HashMap<Arc<str>, Rank>,
    /// Ports that others offer to this process.
    offers: Vec<Offer>,
    /// Counts up whenever something known may be wrong now.
    pub epoch: Arc<AtomicU32>,
    /// Ranks of the job other than this one that have not ended.
    pub others_alive: usize,
    pub last_end: Option<(Rank, End)>,
    /// Bytes that messages may still take which are fetched before anyone receives them.
    pub budget: usize,
    pub spare: Spare,
    pub backlog_max: u64,
    pub ports_max: usize,
    /// Questions of one rank for ports that are not open yet.
    pub lookups_per_rank: usize,
}

/// Why a port was not opened.
pub(crate) enum NotOpened {
    NameTaken,
    TooMany,
}

impl NotOpened {
    pub fn into_error(self, name: &str, limit: usize) -> Error {
        match self {
            NotOpened::NameTaken => Error::NameTaken { name: name.to_owned() },
            NotOpened::TooMany => Error::TooManyPorts { limit },
        }
    }
}

impl PortTable {
    pub fn open(&mut self, name: &str, outbox: &mut Outbox) -> Result<u32, NotOpened> {
        if self.names.contains_key(name) {
            return Err(NotOpened::NameTaken);
        }
        if self.names.len() >= self.ports_max {
            return Err(NotOpened::TooMany);
        }
        let place = self.ports.iter().position(Option::is_none).unwrap_or_else(|| {
            self.ports.push(None);
            self.uses.push(0);
            self.ports.len() - 1
        });
        // Never zero, so that no number is.
        self.uses[place] = self.uses[place].checked_add(1).unwrap_or(1);
        let number = u32::from(self.uses[place]) << 16 | place as u32;
        let name: Arc<str> = name.into();
        self.ports[place] = Some(PortState::new(number, Arc::clone(&name)));
        self.names.insert(Arc::clone(&name), number);
        self.elsewhere.remove(&name);
        let (asked, rest) = std::mem::take(&mut self.lookups).into_iter().partition(|(_, wanted, _)| **wanted == *name);
        self.lookups = rest;
        for (src, _, tag) in asked {
            if let Some(port) = self.port(number) {
                port.known_by.insert(src);
            }
            outbox.post(src, Proto::PORT, &Header { port: number, kind: Kind::Found, tag }.encode(), &[]);
        }
        Ok(number)
    }

    /// Closes a port. Returns what is to be released: rank and cost.
    pub fn close(&mut self, number: u32, outbox: &mut Outbox) -> Vec<(Rank, u64)> {
        let here = self.ports.get_mut(place_of(number)).filter(|port| holds(port, number));
        let Some(mut port) = here.and_then(Option::take) else { return Vec::new() };
        // One that has moved away has no name here any more.
        if self.names.get(&port.name) == Some(&number) {
            self.names.remove(&port.name);
        }
        let mut released = Vec::new();
        for entry in port.queue.kept_entries() {
            match port.queue.take(entry) {
                Some(Kept::Small { cost, .. } | Kept::Whole { cost, .. }) => released.push((cost.payer, cost.bytes)),
                Some(Kept::Coming { cost, asked, done: true, .. }) => {
                    self.budget += asked;
                    released.push((cost.payer, cost.bytes));
                }
                // What still comes is thrown away on arrival.
                Some(Kept::Coming { asked, transfer, .. }) => {
                    self.budget += asked;
                    self.transfers.redirect(transfer, Goal::Nowhere);
                }
                Some(Kept::Asked { transfer, id, .. }) => {
                    self.transfers.redirect(transfer, Goal::Nowhere);
                    outbox.grant(id);
                }
                Some(Kept::Last) | None => {}
            }
        }
        released
    }

    #[inline]
    pub fn port(&mut self, number: u32) -> Option<&mut PortState> {
        self.ports.get_mut(place_of(number))?.as_mut().filter(|port| port.number == number)
    }

    /// Asks `owner` for the number of a port that is known by this address. The answer makes it known, or says who has it.
    pub fn ask(&mut self, owner: Rank, address: (Rank, Arc<str>), outbox: &mut Outbox) -> u64 {
        let question = self.next_question;
        self.next_question += 1;
        let header = Header { port: 0, kind: Kind::Lookup, tag: question };
        outbox.post(owner, Proto::PORT, &header.encode(), address.1.as_bytes());
        self.questions.insert(question, Question { asked: owner, address, elsewhere: None });
        question
    }

    /// Who has the port that was asked for, if it has moved.
    pub fn elsewhere(&self, question: u64) -> Option<Rank> {
        self.questions.get(&question)?.elsewhere
    }

    /// Asking was given up, or the answer taken.
    pub fn forget_question(&mut self, question: u64) {
        self.questions.remove(&question);
    }

    /// An answer has come. Nobody answers for another: it would send messages to a wrong port. What is found is known at once,
    /// before its owner can say anything more about it; what is known already knows better.
    fn answered(&mut self, question: u64, by: Rank, answer: Result<u32, Rank>) {
        let Some(open) = self.questions.get_mut(&question).filter(|open| open.asked == by) else { return };
        match answer {
            Ok(number) => {
                let place = Whereabouts { rank: by, number, via: None };
                self.known.entry(open.address.clone()).or_insert(place);
            }
            Err(rank) => open.elsewhere = Some(rank),
        }
    }

    /// Whoever remembers where a port is looks again.
    fn news_of_places(&mut self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn lookup(&mut self, src: Rank, body: Body<'_>, tag: u64, outbox: &mut Outbox) {
        if body.len() > NAME_MAX {
            return;
        }
        let mut bytes = Vec::new();
        body.append_to(&mut bytes);
        let Ok(name) = String::from_utf8(bytes) else { return };
        if let Some(number) = self.names.get(name.as_str()).copied() {
            if let Some(port) = self.port(number) {
                port.known_by.insert(src);
            }
            outbox.post(src, Proto::PORT, &Header { port: number, kind: Kind::Found, tag }.encode(), &[]);
            return;
        }
        if let Some(owner) = self.elsewhere.get(name.as_str()) {
            let header = Header { port: 0, kind: Kind::Elsewhere, tag };
            outbox.post(src, Proto::PORT, &header.encode(), &owner.0.to_le_bytes());
            return;
        }
        // Those of the same rank that gave up long ago make room for those who ask now; nobody's questions push out another's.
        if self.lookups.iter().filter(|(asker, ..)| *asker == src).count() >= self.lookups_per_rank
            && let Some(oldest) = self.lookups.iter().position(|(asker, ..)| *asker == src)
        {
            self.lookups.remove(oldest);
        }
        self.lookups.push((src, name, tag));
    }

    /// A message for a port that is not there (any more): its sender is told, so that it looks the name up again.
    #[cold]
    fn no_port(&mut self, src: Rank, number: u32, kind: Kind, outbox: &mut Outbox) {
        if kind == Kind::Data {
            outbox.post(src, Proto::PORT, &Header { port: number, kind: Kind::Closed, tag: 0 }.encode(), &[]);
        }
    }

    fn closed_elsewhere(&mut self, src: Rank, number: u32) {
        self.known.retain(|_, place| place.rank != src || place.number != number);
        self.news_of_places();
    }
}

#[inline]
fn place_of(number: u32) -> usize {
    (number & 0xffff) as usize
}

#[inline]
fn holds(port: &Option<PortState>, number: u32) -> bool {
    port.as_ref().is_some_and(|port| port.number == number)
}

impl ReceiveHandler for PortTable {
    #[inline]
    fn message(&mut self, src: Rank, header: &[u8], body: Body<'_>, cost: u64, here: &mut Here<'_, '_>) -> Fate {
        let Some(header) = Header::decode(header) else { return self.passed(src, header, body, cost, here) };
        match header.kind {
            Kind::Data | Kind::Datagram => self.data(src, header, body, Cost { payer: src, bytes: cost }, here),
            Kind::Lookup => {
                self.lookup(src, body, header.tag, here.outbox);
                Fate::Done
            }
            Kind::Found => {
                self.answered(header.tag, src, Ok(header.port));
                Fate::Done
            }
            Kind::Elsewhere => {
                if let Some(rank) = moves::rank_of(body) {
                    self.answered(header.tag, src, Err(rank));
                }
                Fate::Done
            }
            Kind::Closed => {
                self.closed_elsewhere(src, header.port);
                Fate::Done
            }
            _ => {
                self.about_moves(src, header, body, here.outbox);
                Fate::Done
            }
        }
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
        let Some((header, src)) = self.beginning(id.src, header) else {
            return Begin::Take(self.transfers.add(id, Goal::Nowhere));
        };
        // Only datagrams are outside all credit: of them a port keeps so much and no more.
        if !asked && cost == 0 && header.kind != Kind::Datagram {
            return Begin::Take(self.transfers.add(id, Goal::Nowhere));
        }
        let coming = Coming { id, src, header, total, asked, cost: Cost { payer: id.src, bytes: cost } };
        loop {
            let Some(port) = self.port(header.port) else {
                self.no_port(id.src, header.port, header.kind, here.outbox);
                return Begin::Take(self.transfers.add(id, Goal::Nowhere));
            };
            let Some((_, posted)) = port.queue.arrive(src.0, header.tag) else {
                return self.begin_unposted(coming, here.hand);
            };
            // The first receive that accepts it and has room; those before it are told why they get nothing.
            if total > posted.capacity {
                self.receives.set(posted.ticket, Receive::TooSmall { needed: total });
                continue;
            }
            let mut place = Place::new(posted.capacity == usize::MAX);
            if !place.reserve(total) {
                self.receives.set(posted.ticket, Receive::NoMemory { needed: total });
                continue;
            }
            let tag = header.tag;
            self.receives.set(posted.ticket, Receive::Coming { src, tag, total, place, done: false });
            return Begin::Take(self.transfers.add(id, Goal::Receive(posted.ticket)));
        }
    }

    fn part(&mut self, number: u64, body: Body<'_>, here: &mut Here<'_, '_>) {
        self.take_part(number, body, here.hand);
    }

    fn place<'a>(&'a mut self, number: u64, hand: &'a mut Hand<'_>) -> Option<&'a mut [u8]> {
        self.place_of_part(number, hand)
    }

    fn landed(&mut self, number: u64, bytes: usize, _hand: &mut Hand<'_>) {
        self.part_landed(number, bytes);
    }

    fn end(&mut self, number: u64, here: &mut Here<'_, '_>) -> Fate {
        match self.transfers.remove(number) {
            Some((Goal::Receive(ticket), _)) => {
                if let Some(Receive::Coming { src, tag, total, place, done }) = self.receives.of(ticket) {
                    *done = true;
                    // Its owner polls: the poll ends here, so that the next message finds its next receive and is not kept.
                    if let Some(buffer) = here.hand.buffer_of(ticket.0) {
                        place.fetch(buffer);
                        here.hand.landed = Some((*src, *tag, *total));
                        self.receives.remove(ticket);
                    }
                }
                Fate::Done
            }
            Some((Goal::Kept { port, entry }, _)) => {
                let Some(state) = self.port(port) else { return Fate::Done };
                let has_moved = matches!(state.stage, Stage::Moved(_));
                let Some(Kept::Coming { done, .. }) = state.queue.kept_mut(entry) else { return Fate::Done };
                *done = true;
                if has_moved {
                    self.pass_on(port, here.outbox);
                }
                Fate::Kept
            }
            Some((Goal::Nowhere, _)) | None => Fate::Done,
        }
    }

    fn withdrawn(&mut self, number: u64, here: &mut Here<'_, '_>) {
        match self.transfers.remove(number) {
            Some((Goal::Receive(ticket), _)) => self.receives.set(ticket, Receive::Again),
            Some((Goal::Kept { port, entry }, _)) => {
                if let Some(Kept::Coming { asked, .. }) = self.port(port).and_then(|port| port.queue.take(entry)) {
                    self.budget += asked;
                }
                // What stood behind it may go on now.
                self.pass_on(port, here.outbox);
            }
            Some((Goal::Nowhere, _)) | None => {}
        }
    }

    fn is_settled(&self) -> bool {
        self.all_moved_wholly()
    }

    fn peer_gone(&mut self, rank: Rank, end: End, here: &mut Here<'_, '_>) {
        self.others_alive = self.others_alive.saturating_sub(1);
        self.last_end = Some((rank, end));
        self.lookups.retain(|(asker, _, _)| *asker != rank);
        self.end_moves(rank, end, here.outbox);
        self.news_of_places();
        let nobody_left = self.others_alive == 0;
        for port in self.ports.iter_mut().flatten() {
            // Its messages may still be on their way by the port's old owner.
            if port.from.is_some() {
                continue;
            }
            for entry in port.queue.posted_entries() {
                let hopeless = match port.queue.posted_pattern(entry) {
                    Some(pattern) => pattern.src == Some(rank.0) || (nobody_left && pattern.src.is_none()),
                    None => false,
                };
                if hopeless && let Some(posted) = port.queue.unpost(entry) {
                    self.receives.set(posted.ticket, Receive::Hopeless { rank, end });
                }
            }
        }
    }

    fn rest(&mut self) {
        self.spare.clear();
    }
}
