//! What this process knows about active messages: bundles and what waits in them, endpoints, channels. Changed by `arrive` for
//! every frame of this protocol and by the interface between polls, always with the engine locked; never blocks, and no
//! handler of a user ever runs from here.

use super::allowance::Allowance;
use super::args::Words;
use super::arrival::{About, Arrival, Payload};
use super::channels::{Incoming, MapState, Outgoing};
use super::endpoint::Shared;
use super::graveyard::Graveyard;
use super::lookup::Lookup;
use super::places::Places;
use super::returned::Status;
use super::segment::Segment;
use super::token::Landing;
use super::wire::{Header, Kind};
use crate::spare::Spare;
use pulc_base::{Proto, Rank};
use pulc_handler::{Outbox, TransferId, leaf};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Default)]
pub(crate) struct AmTable {
    pub bundles: Places<BundleState>,
    pub endpoints: Places<EndpointState>,
    pub names: HashMap<String, u32>,
    pub outgoing: Places<Outgoing>,
    pub incoming: Places<Incoming>,
    pub transfers: Places<Transfer>,
    pub lookups: Vec<Lookup>,
    pub allowance: Allowance,
    /// Channels of others that are not needed any more, and whose they are.
    pub unmaps: Vec<(Rank, u32)>,
    /// Channels with acknowledgements that have not left.
    pub acks_due: Vec<u32>,
    /// Whoever polls now sends them afterwards.
    pub acks_wait: bool,
    pub spare: Spare,
    /// Messages that have been handled, to be used again. What changes hands is the box.
    #[expect(clippy::vec_box, reason = "a message stays where it is while it waits, runs and rests")]
    pub idle: Vec<Box<Arrival>>,
    /// What must be dropped with the engine unlocked.
    pub graves: Graveyard,
    pub credits_max: u16,
    pub tally: Tally,
}

/// What active messages of this process have done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Requests sent, of every kind.
    pub requests: u64,
    /// Replies sent, of every kind.
    pub replies: u64,
    /// Empty acknowledgements sent, each for up to 13 requests whose handlers did not reply.
    pub acks: u64,
    /// Handlers that have run.
    pub handled: u64,
    /// Messages of this process that came back to it.
    pub returned: u64,
    /// How often a request found no credit or no room.
    pub again: u64,
    /// Frames dropped because they were malformed, named nothing known, or exceeded the credit agreed on.
    pub strays: u64,
}

pub(crate) struct BundleState {
    pub inbox: VecDeque<Box<Arrival>>,
    /// One handler at a time.
    pub sequential: bool,
    /// Handlers that run now.
    pub running: u32,
    /// Leaf handlers that have run since somebody asked.
    pub leaves_ran: usize,
    /// What one of them has panicked with.
    pub panicked: Option<leaf::Panic>,
}

pub(crate) struct EndpointState {
    pub shared: Arc<Shared>,
    pub segment: Option<Segment>,
}

/// A message that comes in parts.
pub(crate) struct Transfer {
    pub id: TransferId,
    pub header: Header,
    pub words: Words,
    pub target: Target,
    pub arrived: usize,
    pub total: usize,
}

pub(crate) enum Target {
    Bytes(Vec<u8>),
    Segment { endpoint: u32, failed: bool },
    Fetching(Box<dyn Landing>),
}

impl AmTable {
    /// For a process of a job of so many ranks.
    pub fn new(credits_max: u16, ranks: u32) -> AmTable {
        AmTable { credits_max, allowance: Allowance::new(ranks), ..AmTable::default() }
    }

    /// A handler may run now, or a leaf handler has run.
    #[inline]
    pub fn is_ready(&mut self, bundle: u32) -> bool {
        let Some(state) = self.bundles.get(bundle) else { return false };
        state.leaves_ran > 0 || !state.inbox.is_empty() && (!state.sequential || state.running == 0)
    }

    /// Leaf handlers of a bundle that have run since this was last asked, and whether one has panicked.
    #[inline]
    pub fn leaves(&mut self, bundle: u32) -> (usize, bool) {
        let state = self.bundles.get(bundle);
        state.map_or((0, false), |state| (std::mem::take(&mut state.leaves_ran), state.panicked.is_some()))
    }

    /// The next message whose handler may run. The credit of an answered request comes back here, so that what waits in the
    /// inbox is bounded by what was agreed.
    #[inline(always)]
    pub fn take(&mut self, bundle: u32) -> Option<Box<Arrival>> {
        let state = self.bundles.get(bundle)?;
        if state.sequential && state.running > 0 {
            return None;
        }
        let arrival = state.inbox.pop_front()?;
        state.running += 1;
        let about = &arrival.about;
        let came_back = matches!(arrival.payload, Payload::Returned(_));
        let is_answer = matches!(about.kind, Kind::ReplyShort | Kind::ReplyMedium | Kind::ReplyLong);
        if came_back || (is_answer && !about.tell) {
            self.give_back(about.channel, about.slot, !came_back);
        }
        Some(arrival)
    }

    /// Whether something is to be sent or dropped after handlers have run.
    #[inline]
    pub fn has_chores(&self) -> bool {
        !self.acks_due.is_empty() || !self.unmaps.is_empty() || !self.graves.is_empty()
    }

    /// A request is over: its credit is back.
    pub fn give_back(&mut self, channel: u32, slot: u16, went_well: bool) {
        let Some(outgoing) = self.outgoing.get(channel) else { return };
        if let Some(busy) = outgoing.busy(slot) {
            if let Some(event) = busy.tell.take() {
                event.finish(went_well);
            }
            if let Some(offered) = busy.offered.take() {
                if let Some(event) = &offered.local {
                    event.finish(went_well);
                }
                self.graves.bury(offered);
            }
            outgoing.give_back(slot);
        }
        if outgoing.closing && outgoing.is_idle() {
            self.unmap(channel);
        }
    }

    /// A mapping is not needed any more.
    pub fn unmap(&mut self, channel: u32) {
        let Some(outgoing) = self.outgoing.remove(channel) else { return };
        if outgoing.state == MapState::Open {
            self.unmaps.push((outgoing.dst, outgoing.remote));
        }
        self.graves.bury(outgoing);
    }

    /// Tells the others which channels are not needed any more.
    #[inline]
    pub fn flush_unmaps(&mut self, outbox: &mut Outbox) {
        while let Some((dst, remote)) = self.unmaps.pop() {
            outbox.post(dst, Proto::AM, header(Kind::Unmap, remote).front(&[]).bytes(), &[]);
        }
    }

    /// A message is complete, and waits for its handler in this bundle.
    #[inline(always)]
    pub fn arrived(&mut self, bundle: u32, arrival: Box<Arrival>) {
        match self.bundles.get(bundle) {
            Some(bundle) => bundle.inbox.push_back(arrival),
            None => self.graves.bury(arrival),
        }
    }

    /// A request will not be handled: back to its sender.
    #[cold]
    pub fn refuse(&mut self, channel: u32, slot: u16, why: Status, outbox: &mut Outbox) {
        let Some(incoming) = self.incoming.get(channel) else { return };
        if let Some(slot) = incoming.slots.get_mut(usize::from(slot)) {
            slot.busy = false;
        }
        let header = header(Kind::Returned, incoming.reply_to);
        let header = Header { handler: why as u8, slot, ..header };
        outbox.post(incoming.src, Proto::AM, header.front(&[]).bytes(), &[]);
    }

    /// A message of ours was not delivered: its endpoint's error handler will hear of it.
    #[cold]
    pub fn came_back(&mut self, channel: u32, slot: u16, why: Status) {
        let mut arrival = self.fresh();
        let Some(outgoing) = self.outgoing.get(channel) else { return self.used(arrival) };
        let (endpoint, src) = (Arc::clone(&outgoing.owner), outgoing.dst);
        let Some(busy) = outgoing.busy(slot).filter(|busy| !busy.answered) else { return self.used(arrival) };
        busy.answered = true;
        let (kind, handler, words) = (busy.kind, busy.handler, busy.words);
        let bundle = endpoint.bundle;
        let endpoint = Some(endpoint);
        arrival.about = About { endpoint, kind, handler, slot, tell: false, channel, reply_to: 0, src, words };
        arrival.payload = Payload::Returned(why);
        self.tally.returned += 1;
        self.arrived(bundle, arrival);
    }

    /// Opens an endpoint; those who have asked for its name are answered. `None`: there is no number for it.
    pub fn open(&mut self, make: impl FnOnce(u32) -> Arc<Shared>, outbox: &mut Outbox) -> Option<Arc<Shared>> {
        let number = self.endpoints.add(|number| EndpointState { shared: make(number), segment: None })?;
        let shared = Arc::clone(&self.endpoints.get(number)?.shared);
        self.names.insert(shared.name.clone(), number);
        self.found(&shared, outbox);
        Some(shared)
    }

    /// Closes an endpoint: requests to it go back from now on.
    pub fn close(&mut self, shared: &Arc<Shared>) {
        shared.closed.store(true, Ordering::Relaxed);
        if let Some(state) = self.endpoints.remove(shared.number) {
            self.graves.bury(state);
        }
        self.names.remove(&shared.name);
        let is_it = |endpoint: &Option<Arc<Shared>>| endpoint.as_ref().is_some_and(|one| Arc::ptr_eq(one, shared));
        for (_, incoming) in self.incoming.iter_mut().filter(|(_, incoming)| is_it(&incoming.endpoint)) {
            incoming.endpoint = None;
        }
        // Whoever closes it still has it: it does not end here.
        for arrival in self.idle.iter_mut().filter(|arrival| is_it(&arrival.about.endpoint)) {
            arrival.about.endpoint = None;
        }
    }

    /// Nothing more comes from this rank or goes there.
    pub fn forget(&mut self, rank: Rank, end: pulc_handler::End) {
        self.lookups.retain(|lookup| lookup.src != rank);
        self.allowance.forget(rank);
        let mine = |table: &mut Places<Outgoing>| -> Vec<u32> {
            table.iter_mut().filter(|(_, outgoing)| outgoing.dst == rank).map(|(number, _)| number).collect()
        };
        for channel in mine(&mut self.outgoing) {
            let Some(outgoing) = self.outgoing.get(channel) else { continue };
            outgoing.state = MapState::Gone(end);
            let busy: Vec<(u16, bool)> = (0..)
                .zip(&outgoing.slots)
                .filter(|(_, slot)| slot.busy)
                .map(|(slot, busy)| (slot, busy.answered))
                .collect();
            for (slot, answered) in busy {
                let waits_for_word = answered && outgoing_tells(&mut self.outgoing, channel, slot);
                if waits_for_word {
                    self.give_back(channel, slot, false);
                } else {
                    self.came_back(channel, slot, Status::PeerGone);
                }
            }
        }
        let gone: Vec<u32> =
            self.incoming.iter_mut().filter(|(_, incoming)| incoming.src == rank).map(|(number, _)| number).collect();
        gone.into_iter().for_each(|number| drop(self.incoming.remove(number)));
        let fetching: Vec<u32> = self
            .transfers
            .iter_mut()
            .filter(|(_, transfer)| transfer.id.src == rank)
            .map(|(number, _)| number)
            .collect();
        let fetching = fetching.into_iter().filter_map(|number| self.transfers.remove(number));
        fetching.for_each(|transfer| self.graves.bury(transfer));
    }
}

fn outgoing_tells(table: &mut Places<Outgoing>, channel: u32, slot: u16) -> bool {
    table.get(channel).and_then(|outgoing| outgoing.busy(slot)).is_some_and(|busy| busy.tell.is_some())
}

/// A header with nothing in it but its kind and channel.
pub(crate) fn header(kind: Kind, channel: u32) -> Header {
    Header { kind, words: 0, handler: 0, slot: 0, tell: false, channel, offset: 0 }
}
