//! The receive handler of the rawdata protocol: which channels there are, what is posted, what was kept. Called by the protocol
//! switch for every frame of this protocol and by `channel` between polls, always with the engine locked; never blocks.

use super::buffer::{Buffer, Landed};
use super::kept::{Kept, Lent, SMALL_BYTES};
use super::parts::Goal;
use super::state::{Coming, PostState, Posted, State};
use super::wire::{DATA, HEADER_BYTES, LOAN, LOAN_BYTES, RETURN, header_of_return, parse};
use crate::spare::Spare;
use crate::{Block, Error};
use pulc_base::{Proto, Rank};
use pulc_handler::{Begin, Body, End, Fate, Hand, Here, Outbox, ReceiveHandler, TransferId};

/// Tickets of blocked receives: this bit, a count, and the channel's place.
const TICKET: u64 = 1 << 63;
const PLACE_BITS: u32 = 24;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Channels one process may have, open or written to by others; the last place is never used, so that no ticket equals that
/// of an empty hand.
const PLACES_MAX: usize = PLACE_MASK as usize;

#[derive(Default)]
pub(crate) struct RawTable {
    pub(super) states: Vec<State>,
    /// By rank and number: one more than the place, zero for none.
    places: Vec<Vec<u32>>,
    pub(super) goals: Vec<Option<Goal>>,
    /// Empty ones among them.
    pub(super) goals_free: Vec<u32>,
    pub(super) coming: Vec<Coming>,
    next_ticket: u64,
    /// Where a buffer was posted last.
    pub(super) posted_last: u32,
    pub(super) spare: Spare,
    /// What others read at the moment, by the number told to them.
    lent: Vec<Option<(Rank, Block)>>,
    /// Costs of kept messages that posted buffers have taken.
    pub(super) to_release: Vec<(Rank, u64)>,
}

impl RawTable {
    pub fn new(ranks: usize) -> RawTable {
        RawTable { places: vec![Vec::new(); ranks], ..RawTable::default() }
    }

    /// The place of a channel, made if there is none. `None`: the rank does not exist, or there are too many.
    #[inline]
    fn place_of(&mut self, src: Rank, number: u16) -> Option<u32> {
        match self.places.get(src.0 as usize)?.get(usize::from(number)) {
            Some(place) if *place > 0 => Some(place - 1),
            _ => self.make_place(src, number),
        }
    }

    #[cold]
    fn make_place(&mut self, peer: Rank, number: u16) -> Option<u32> {
        if self.states.len() >= PLACES_MAX {
            return None;
        }
        let row = self.places.get_mut(peer.0 as usize)?;
        if row.len() <= usize::from(number) {
            row.resize(usize::from(number) + 1, 0);
        }
        self.states.push(State::new(peer, number));
        row[usize::from(number)] = self.states.len() as u32;
        Some(self.states.len() as u32 - 1)
    }

    /// Opens this end. `Err(true)`: it is open already; `Err(false)`: no room for another channel.
    pub fn open(&mut self, peer: Rank, number: u16) -> Result<u32, bool> {
        let place = self.place_of(peer, number).ok_or(false)?;
        let state = &mut self.states[place as usize];
        if state.open {
            return Err(true);
        }
        state.open = true;
        state.closed = false;
        Ok(place)
    }

    /// Closes this end: posted buffers are gone, kept messages are dropped. Returns what is to be released.
    pub fn close(&mut self, place: u32, outbox: &mut Outbox) -> (Rank, Vec<u64>) {
        let state = &mut self.states[place as usize];
        state.open = false;
        state.closed = true;
        state.taken = 0;
        let mut costs = Vec::new();
        for posted in state.posted.drain(..) {
            if let PostState::Coming { transfer, .. } = posted.state {
                self.goals[transfer as usize] = Some(Goal::Nowhere);
            }
        }
        for kept in state.kept.drain(..) {
            match kept {
                Kept::Coming { transfer, done: false, .. } => self.goals[transfer as usize] = Some(Goal::Nowhere),
                Kept::Asked { transfer, id, .. } => {
                    self.goals[transfer as usize] = Some(Goal::Nowhere);
                    outbox.grant(id);
                }
                Kept::Lent { lent, cost } => {
                    outbox.post(state.peer, Proto::RAWDATA, &header_of_return(state.number), &lent.id.to_le_bytes());
                    costs.push(cost);
                }
                whole => costs.push(whole.cost()),
            }
        }
        (state.peer, costs)
    }

    #[inline]
    pub(super) fn state(&mut self, place: u32) -> &mut State {
        &mut self.states[place as usize]
    }

    /// A name for one blocked receive.
    #[inline]
    pub fn ticket(&mut self, place: u32) -> u64 {
        self.next_ticket = self.next_ticket.wrapping_add(1 << PLACE_BITS);
        TICKET | self.next_ticket | u64::from(place)
    }

    /// Takes a kept message's memory back.
    pub(super) fn spare(&mut self, kept: Kept) {
        if let Some(bytes) = kept.into_bytes() {
            self.spare.give(bytes);
        }
    }

    /// Posts a buffer; what was kept goes there first.
    pub fn post(&mut self, place: u32, buffer: Buffer, token: u64, outbox: &mut Outbox) {
        self.posted_last = place;
        let state = &mut self.states[place as usize];
        state.posted.push_back(Posted { buffer, token, state: PostState::Waiting });
        self.serve_posted(place, outbox);
    }

    /// The first posted buffer, if it is done.
    pub fn take_posted(&mut self, place: u32) -> Option<Landed> {
        self.states[place as usize].take_posted()
    }

    /// Gives kept messages to waiting buffers.
    pub(super) fn serve_posted(&mut self, place: u32, outbox: &mut Outbox) {
        let state = &mut self.states[place as usize];
        while let Some(needed) = state.kept.front().map(Kept::len) {
            if matches!(state.kept.front(), Some(Kept::Lent { .. })) {
                return;
            }
            let Some(at) = state.next_fitting(needed) else { return };
            let posted = &mut state.posted[at];
            let (transfer, landed) = match state.kept.pop_front() {
                Some(Kept::Coming { bytes, transfer, done: false, .. }) => {
                    posted.buffer[..bytes.len()].copy_from_slice(&bytes);
                    (transfer, bytes.len())
                }
                Some(Kept::Asked { transfer, id, .. }) => {
                    outbox.grant(id);
                    (transfer, 0)
                }
                Some(whole) => {
                    let bytes = whole.whole().unwrap_or_default();
                    posted.buffer[..bytes.len()].copy_from_slice(bytes);
                    posted.state = PostState::Done(Ok(bytes.len()));
                    self.to_release.push((state.peer, whole.cost()));
                    continue;
                }
                None => return,
            };
            posted.state = PostState::Coming { transfer, landed, total: needed };
            self.goals[transfer as usize] = Some(Goal::Posted(place));
        }
    }

    /// Lends memory to a rank; the number to tell it.
    pub(super) fn lend(&mut self, to: Rank, block: Block) -> u32 {
        let at = self.lent.iter().position(Option::is_none).unwrap_or_else(|| {
            self.lent.push(None);
            self.lent.len() - 1
        });
        self.lent[at] = Some((to, block));
        at as u32
    }

    /// A rank reads no longer what was lent to it.
    pub(super) fn returned(&mut self, by: Rank, id: u32) {
        if let Some(place) = self.lent.get_mut(id as usize)
            && place.as_ref().is_some_and(|(to, _)| *to == by)
        {
            *place = None;
        }
    }

    /// Takes the first kept message if it is a loan; with its cost.
    pub(super) fn take_first_loan(&mut self, place: u32) -> Option<(Lent, u64)> {
        let state = &mut self.states[place as usize];
        let Some(Kept::Lent { lent, cost }) = state.kept.front() else { return None };
        let found = (*lent, *cost);
        state.kept.pop_front();
        Some(found)
    }

    /// The posted buffer that the loan which is the first kept message goes to, and the loan's length.
    pub(super) fn loan_for_posted(&mut self, place: u32) -> Option<(usize, usize)> {
        let state = &mut self.states[place as usize];
        let Some(Kept::Lent { lent, .. }) = state.kept.front() else { return None };
        let needed = lent.len;
        state.next_fitting(needed).map(|at| (at, needed))
    }

    /// A posted buffer has its message, or there is none for it.
    pub(super) fn finish_posted(&mut self, place: u32, at: usize, result: Result<usize, Error>) {
        self.states[place as usize].posted[at].state = PostState::Done(result);
    }

    /// Whatever is wrong with a loan is found when it is read.
    #[cold]
    fn loan(&mut self, place: u32, body: Body<'_>, cost: u64) -> Fate {
        let mut bytes = [0; LOAN_BYTES];
        if self.states[place as usize].closed || body.len() != LOAN_BYTES {
            return Fate::Done;
        }
        body.copy_to(&mut bytes);
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let id = u32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
        let lent = Lent { offset: word(0), len: usize::try_from(word(8)).unwrap_or(usize::MAX), id };
        self.states[place as usize].kept.push_back(Kept::Lent { lent, cost });
        Fate::Kept
    }

    #[cold]
    fn give_back(&mut self, src: Rank, body: Body<'_>) {
        let mut id = [0; 4];
        if body.len() == id.len() {
            body.copy_to(&mut id);
            self.returned(src, u32::from_le_bytes(id));
        }
    }

    #[inline]
    fn arrived(&mut self, place: u32, body: Body<'_>, cost: u64, hand: &mut Hand<'_>) -> Fate {
        let state = &mut self.states[place as usize];
        let len = body.len();
        if is_of(hand, place)
            && state.kept.is_empty()
            && !state.has_waiting()
            && state.coming == 0
            && hand.landed.is_none()
            && len <= hand.room()
        {
            body.copy_to(hand.buffer());
            hand.landed = Some((state.peer, 0, len));
            return Fate::Done;
        }
        self.arrived_for_nobody_here(place, body, cost)
    }

    /// To a posted buffer, or kept.
    fn arrived_for_nobody_here(&mut self, place: u32, body: Body<'_>, cost: u64) -> Fate {
        let state = &mut self.states[place as usize];
        let len = body.len();
        if state.closed {
            return Fate::Done;
        }
        if state.kept.is_empty()
            && let Some(at) = state.next_fitting(len)
        {
            let posted = &mut state.posted[at];
            body.copy_to(&mut posted.buffer);
            posted.state = PostState::Done(Ok(len));
            return Fate::Done;
        }
        state.kept.push_back(if len <= SMALL_BYTES {
            let mut bytes = [0; SMALL_BYTES];
            body.copy_to(&mut bytes);
            Kept::Small { bytes, len: len as u8, cost }
        } else {
            let mut bytes = self.spare.take(len).unwrap_or_default();
            body.append_to(&mut bytes);
            Kept::Whole { bytes, cost }
        });
        Fate::Kept
    }
}

/// The channel of a blocked receive.
pub(super) fn place_of_ticket(ticket: u64) -> u32 {
    (ticket & PLACE_MASK) as u32
}

/// Whether this thread waits at that channel.
#[inline]
pub(super) fn is_of(hand: &Hand<'_>, place: u32) -> bool {
    hand.ticket() & (TICKET | PLACE_MASK) == TICKET | u64::from(place)
}

impl ReceiveHandler for RawTable {
    #[inline]
    fn message(&mut self, src: Rank, header: &[u8], body: Body<'_>, cost: u64, here: &mut Here<'_, '_>) -> Fate {
        let Some((number, kind)) = parse(header) else { return Fate::Done };
        if kind == RETURN {
            self.give_back(src, body);
            return Fate::Done;
        }
        // Nothing that may be kept is outside all credit.
        if cost == 0 {
            return Fate::Done;
        }
        match self.place_of(src, number) {
            Some(place) if kind == DATA => self.arrived(place, body, cost, here.hand),
            Some(place) if kind == LOAN => self.loan(place, body, cost),
            _ => Fate::Done,
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
        let counted = asked || cost > 0;
        let number = parse(header).and_then(|(number, kind)| (kind == DATA && counted).then_some(number));
        match number.and_then(|number| self.place_of(id.src, number)) {
            Some(place) => self.begins(place, id, total, asked, cost, here.hand),
            None => Begin::Take(self.add_goal(Goal::Nowhere)),
        }
    }

    fn part(&mut self, number: u64, body: Body<'_>, here: &mut Here<'_, '_>) {
        self.take_part(number, body, here.hand);
    }

    fn place<'a>(&'a mut self, number: u64, hand: &'a mut Hand<'_>) -> Option<&'a mut [u8]> {
        self.place_of_part(number, hand)
    }

    fn place_of_first<'a>(&'a mut self, src: Rank, hand: &'a mut Hand<'_>) -> Option<(usize, &'a mut [u8])> {
        self.place_of_next(src, hand).map(|place| (HEADER_BYTES, place))
    }

    fn goes_there(&mut self, src: Rank, header: &[u8], total: usize, hand: &Hand<'_>) -> bool {
        match parse(header) {
            Some((number, DATA)) => self.goes_to_next(src, number, total, hand),
            _ => false,
        }
    }

    fn landed(&mut self, number: u64, bytes: usize, _hand: &mut Hand<'_>) {
        self.part_landed(number, bytes);
    }

    fn end(&mut self, number: u64, here: &mut Here<'_, '_>) -> Fate {
        self.end_parts(number, here.hand)
    }

    fn withdrawn(&mut self, number: u64, here: &mut Here<'_, '_>) {
        self.withdraw_parts(number, here.outbox);
    }

    fn borrows_from(&self, rank: Rank) -> bool {
        let mut states = self.states.iter().filter(|state| state.peer == rank);
        states.any(|state| state.kept.iter().any(|kept| matches!(kept, Kept::Lent { .. })))
    }

    fn peer_gone(&mut self, rank: Rank, end: End, _here: &mut Here<'_, '_>) {
        // Nobody reads any more what was lent to it.
        self.lent
            .iter_mut()
            .filter(|lent| lent.as_ref().is_some_and(|(to, _)| *to == rank))
            .for_each(|lent| *lent = None);
        for state in self.states.iter_mut().filter(|state| state.peer == rank) {
            state.end(end);
        }
    }

    fn rest(&mut self) {
        self.spare.clear();
    }
}
