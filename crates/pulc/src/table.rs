//! The receive handler of the port protocol: which ports are open, what was kept for them, who waits. Called by the protocol
//! switch for every frame of this protocol and by `port` between polls, always with the engine locked; never blocks.

mod arrivals;

use crate::header::{Header, Kind};
use crate::spare::Spare;
use crate::transfers::{Goal, Transfers};
use crate::waiting::{Place, Receive, Receives, Ticket};
use pulc_base::{Proto, Rank};
use pulc_handler::matching::Matching;
use pulc_handler::{Begin, Body, End, Fate, Here, Outbox, ReceiveHandler, TransferId};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Questions of one rank for ports that are not open yet, at most.
const LOOKUPS_MAX: usize = 256;
/// Longest port name in bytes.
pub(crate) const NAME_MAX: usize = 200;
/// Bytes kept without an allocation.
const SMALL_BYTES: usize = 40;

/// A receive that waits in a port's queue.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    pub ticket: Ticket,
    pub capacity: usize,
}

/// A message that nobody waited for.
pub(crate) enum Kept {
    Small {
        bytes: [u8; SMALL_BYTES],
        len: u8,
        cost: u64,
    },
    Whole {
        bytes: Vec<u8>,
        cost: u64,
    },
    /// Comes in parts; complete when `done`. `asked` bytes count against the budget for messages that were asked for.
    Coming {
        bytes: Vec<u8>,
        total: usize,
        cost: u64,
        asked: usize,
        transfer: u64,
        done: bool,
    },
    /// Its sender waits for a grant.
    Asked {
        total: usize,
        transfer: u64,
        id: TransferId,
    },
}

impl Kept {
    pub fn len(&self) -> usize {
        match self {
            Kept::Small { len, .. } => usize::from(*len),
            Kept::Whole { bytes, .. } => bytes.len(),
            Kept::Coming { total, .. } | Kept::Asked { total, .. } => *total,
        }
    }
}

/// One open port.
pub(crate) struct PortState {
    pub number: u32,
    pub name: Arc<str>,
    pub queue: Matching<Posted, Kept>,
    /// Bytes of kept datagrams.
    pub backlog: u64,
    pub dropped: u64,
}

#[derive(Default)]
pub(crate) struct PortTable {
    /// By the lower half of the number; the upper half counts how often a place was used.
    ports: Vec<Option<PortState>>,
    uses: Vec<u16>,
    names: HashMap<Arc<str>, u32>,
    pub receives: Receives,
    pub transfers: Transfers,
    lookups: Vec<(Rank, String, u64)>,
    /// Questions that wait for an answer: who was asked, and what he said.
    questions: HashMap<u64, (Rank, Option<u32>)>,
    next_question: u64,
    /// Ports of others, by rank and name.
    pub known: HashMap<(Rank, Arc<str>), u32>,
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
}

/// Why a port was not opened.
pub(crate) enum NotOpened {
    NameTaken,
    TooMany,
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
        self.ports[place] =
            Some(PortState { number, name: Arc::clone(&name), queue: Matching::default(), backlog: 0, dropped: 0 });
        self.names.insert(Arc::clone(&name), number);
        let (asked, rest) = std::mem::take(&mut self.lookups).into_iter().partition(|(_, wanted, _)| **wanted == *name);
        self.lookups = rest;
        for (src, _, tag) in asked {
            outbox.post(src, Proto::PORT, &Header { port: number, kind: Kind::Found, tag }.encode(), &[]);
        }
        Ok(number)
    }

    /// Takes a posted receive out of its port's queue.
    pub fn unpost(&mut self, ticket: Ticket) {
        for port in self.ports.iter_mut().flatten() {
            for entry in port.queue.posted_entries() {
                if port.queue.posted_mut(entry).is_some_and(|posted| posted.ticket == ticket) {
                    port.queue.unpost(entry);
                    return;
                }
            }
        }
    }

    /// Closes a port. Returns what is to be released: rank and cost.
    pub fn close(&mut self, number: u32, outbox: &mut Outbox) -> Vec<(Rank, u64)> {
        let Some(mut port) = self.ports.get_mut(place_of(number)).and_then(Option::take) else { return Vec::new() };
        self.names.remove(&port.name);
        let mut released = Vec::new();
        for entry in port.queue.kept_entries() {
            let Some((src, _)) = port.queue.envelope(entry) else { continue };
            match port.queue.take(entry) {
                Some(Kept::Small { cost, .. } | Kept::Whole { cost, .. }) => released.push((Rank(src), cost)),
                Some(Kept::Coming { cost, asked, done: true, .. }) => {
                    self.budget += asked;
                    released.push((Rank(src), cost));
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
                None => {}
            }
        }
        released
    }

    #[inline]
    pub fn port(&mut self, number: u32) -> Option<&mut PortState> {
        self.ports.get_mut(place_of(number))?.as_mut().filter(|port| port.number == number)
    }

    /// Asks `dst` for the number of a port; see [`PortTable::answer`].
    pub fn ask(&mut self, dst: Rank, name: &str, outbox: &mut Outbox) -> u64 {
        let question = self.next_question;
        self.next_question += 1;
        self.questions.insert(question, (dst, None));
        outbox.post(dst, Proto::PORT, &Header { port: 0, kind: Kind::Lookup, tag: question }.encode(), name.as_bytes());
        question
    }

    /// The number that was asked for, once it is known.
    pub fn answer(&self, question: u64) -> Option<u32> {
        self.questions.get(&question)?.1
    }

    /// Asking was given up, or the answer taken.
    pub fn forget_question(&mut self, question: u64) {
        self.questions.remove(&question);
    }

    fn lookup(&mut self, src: Rank, body: Body<'_>, tag: u64, outbox: &mut Outbox) {
        if body.len() > NAME_MAX {
            return;
        }
        let mut bytes = Vec::new();
        body.append_to(&mut bytes);
        let Ok(name) = String::from_utf8(bytes) else { return };
        match self.names.get(name.as_str()) {
            Some(number) => {
                outbox.post(src, Proto::PORT, &Header { port: *number, kind: Kind::Found, tag }.encode(), &[]);
            }
            None => {
                // What a rank gave up long ago makes room for what it asks now; nobody takes another's room.
                let mut own = self.lookups.iter().enumerate().filter(|(_, (asker, _, _))| *asker == src);
                let oldest = own.next().map(|(at, _)| at);
                if let Some(oldest) = oldest.filter(|_| own.count() + 1 >= LOOKUPS_MAX) {
                    self.lookups.remove(oldest);
                }
                self.lookups.push((src, name, tag));
            }
        }
    }

    /// A message for a port that is not there (any more): its sender is told, so that it looks the name up again.
    #[cold]
    fn no_port(&mut self, src: Rank, number: u32, kind: Kind, outbox: &mut Outbox) {
        if kind == Kind::Data {
            outbox.post(src, Proto::PORT, &Header { port: number, kind: Kind::Closed, tag: 0 }.encode(), &[]);
        }
    }

    fn closed_elsewhere(&mut self, src: Rank, number: u32) {
        self.known.retain(|(rank, _), known| *rank != src || *known != number);
        self.epoch.fetch_add(1, Ordering::Relaxed);
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
        let Some(header) = Header::decode(header) else { return Fate::Done };
        match header.kind {
            Kind::Data | Kind::Datagram => self.data(src, header, body, cost, here),
            Kind::Lookup => {
                self.lookup(src, body, header.tag, here.outbox);
                Fate::Done
            }
            Kind::Found => {
                // Nobody answers for another: it would send messages to a wrong port.
                if let Some((asked, answer)) = self.questions.get_mut(&header.tag)
                    && *asked == src
                {
                    *answer = Some(header.port);
                }
                Fate::Done
            }
            Kind::Closed => {
                self.closed_elsewhere(src, header.port);
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
        let header = Header::decode(header).filter(|header| matches!(header.kind, Kind::Data | Kind::Datagram));
        // Only datagrams are outside all credit: of them a port keeps so much and no more.
        let header = header.filter(|header| asked || cost > 0 || header.kind == Kind::Datagram);
        let Some(header) = header else { return Begin::Take(self.transfers.add(id, Goal::Nowhere)) };
        loop {
            let Some(port) = self.port(header.port) else {
                self.no_port(id.src, header.port, header.kind, here.outbox);
                return Begin::Take(self.transfers.add(id, Goal::Nowhere));
            };
            let Some((_, posted)) = port.queue.arrive(id.src.0, header.tag) else {
                return self.begin_unposted(id, header, total, asked, cost, here.hand);
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
            let (src, tag) = (id.src, header.tag);
            self.receives.set(posted.ticket, Receive::Coming { src, tag, total, place, done: false });
            return Begin::Take(self.transfers.add(id, Goal::Receive(posted.ticket)));
        }
    }

    fn part(&mut self, number: u64, body: Body<'_>, here: &mut Here<'_, '_>) {
        match self.transfers.goal(number) {
            Some(Goal::Receive(ticket)) => {
                if let Some(Receive::Coming { place, .. }) = self.receives.of(ticket) {
                    place.take(body, here.hand.buffer_of(ticket.0));
                }
            }
            Some(Goal::Kept { port, entry }) => {
                if let Some(Kept::Coming { bytes, .. }) = self.port(port).and_then(|port| port.queue.kept_mut(entry)) {
                    body.append_to(bytes);
                }
            }
            Some(Goal::Nowhere) | None => {}
        }
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
                match self.port(port).and_then(|port| port.queue.kept_mut(entry)) {
                    Some(Kept::Coming { done, .. }) => {
                        *done = true;
                        Fate::Kept
                    }
                    _ => Fate::Done,
                }
            }
            Some((Goal::Nowhere, _)) | None => Fate::Done,
        }
    }

    fn withdrawn(&mut self, number: u64, _here: &mut Here<'_, '_>) {
        match self.transfers.remove(number) {
            Some((Goal::Receive(ticket), _)) => self.receives.set(ticket, Receive::Again),
            Some((Goal::Kept { port, entry }, _)) => {
                if let Some(Kept::Coming { asked, .. }) = self.port(port).and_then(|port| port.queue.take(entry)) {
                    self.budget += asked;
                }
            }
            Some((Goal::Nowhere, _)) | None => {}
        }
    }

    fn peer_gone(&mut self, rank: Rank, end: End, _here: &mut Here<'_, '_>) {
        self.others_alive = self.others_alive.saturating_sub(1);
        self.last_end = Some((rank, end));
        self.lookups.retain(|(asker, _, _)| *asker != rank);
        self.known.retain(|(owner, _), _| *owner != rank);
        self.epoch.fetch_add(1, Ordering::Relaxed);
        let nobody_left = self.others_alive == 0;
        for port in self.ports.iter_mut().flatten() {
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

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
