//! Messages that come in parts: where each part goes. The other half of `table`, with the same callers and the same rules.

use super::kept::Kept;
use super::state::{Coming, PostState};
use super::table::{RawTable, is_of, place_of_ticket};
use pulc_base::Rank;
use pulc_handler::{Begin, Body, Fate, Hand, Outbox, TransferId};

/// Where the parts of a message go.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    /// To the blocked receive with this ticket.
    Blocked(u64),
    /// To a posted or a kept place of this channel that knows the transfer.
    Posted(u32),
    Kept(u32),
    Nowhere,
}

impl RawTable {
    pub(super) fn add_goal(&mut self, goal: Goal) -> u64 {
        match self.goals_free.pop() {
            Some(at) => {
                self.goals[at as usize] = Some(goal);
                at.into()
            }
            None => {
                self.goals.push(Some(goal));
                self.goals.len() as u64 - 1
            }
        }
    }

    fn take_goal(&mut self, number: u64) -> Option<Goal> {
        let goal = self.goals.get_mut(number as usize)?.take()?;
        self.goals_free.push(number as u32);
        Some(goal)
    }

    /// The first kept message has begun to arrive or waits for a grant: from now on it comes to the blocked receive.
    pub fn fetch_blocked(&mut self, place: u32, ticket: u64, outbox: &mut Outbox) {
        let state = &mut self.states[place as usize];
        let (total, stored, transfer) = match state.kept.pop_front() {
            Some(Kept::Coming { bytes, total, transfer, .. }) => (total, bytes, transfer),
            Some(Kept::Asked { total, transfer, id }) => {
                outbox.grant(id);
                (total, Vec::new(), transfer)
            }
            _ => return,
        };
        state.coming += 1;
        self.coming.push(Coming { ticket, total, landed: 0, stored, done: false, withdrawn: false });
        self.goals[transfer as usize] = Some(Goal::Blocked(ticket));
    }

    /// The blocked receive's message that comes in parts.
    #[inline]
    pub(super) fn coming_of(&mut self, ticket: u64) -> Option<&mut Coming> {
        self.coming.iter_mut().find(|coming| coming.ticket == ticket)
    }

    /// Forgets it, when it is done or withdrawn.
    pub fn end_coming(&mut self, place: u32, ticket: u64) {
        self.coming.retain(|coming| coming.ticket != ticket);
        let state = &mut self.states[place as usize];
        state.coming = state.coming.saturating_sub(1);
    }

    /// A message in parts: to the blocked receive that polls, to a posted buffer, or kept.
    pub(super) fn begins(
        &mut self,
        place: u32,
        id: TransferId,
        total: usize,
        asked: bool,
        cost: u64,
        hand: &Hand<'_>,
    ) -> Begin {
        let transfer = self.add_goal(Goal::Nowhere);
        let state = &mut self.states[place as usize];
        if state.closed {
            return Begin::Take(transfer);
        }
        if state.kept.is_empty() {
            let for_this_hand = !state.has_waiting()
                && state.coming == 0
                && is_of(hand, place)
                && hand.landed.is_none()
                && total <= hand.room();
            if for_this_hand {
                let ticket = hand.ticket();
                state.coming += 1;
                self.goals[transfer as usize] = Some(Goal::Blocked(ticket));
                let stored = Vec::new();
                self.coming.push(Coming { ticket, total, landed: 0, stored, done: false, withdrawn: false });
                return Begin::Take(transfer);
            }
            if let Some(at) = state.next_fitting(total) {
                state.posted[at].state = PostState::Coming { transfer, landed: 0, total };
                self.goals[transfer as usize] = Some(Goal::Posted(place));
                return Begin::Take(transfer);
            }
        }
        self.goals[transfer as usize] = Some(Goal::Kept(place));
        // What its sender asks for first is left where it is until somebody receives it.
        let bytes = if asked { None } else { self.spare.take(total) };
        match bytes {
            Some(bytes) => {
                state.kept.push_back(Kept::Coming { bytes, total, cost, transfer, done: false });
                Begin::Take(transfer)
            }
            None => {
                state.kept.push_back(Kept::Asked { total, transfer, id });
                Begin::Hold(transfer)
            }
        }
    }

    /// The next part, to wherever its message goes.
    pub(super) fn take_part(&mut self, number: u64, body: Body<'_>, hand: &mut Hand<'_>) {
        match self.goals.get(number as usize).copied().flatten() {
            Some(Goal::Blocked(ticket)) => {
                if let Some(coming) = self.coming_of(ticket) {
                    coming.take(body, hand.buffer_of(ticket));
                }
            }
            Some(Goal::Posted(place)) => {
                let state = &mut self.states[place as usize];
                if let Some(at) = state.posted_of(number)
                    && let PostState::Coming { landed, .. } = &mut state.posted[at].state
                {
                    let from = *landed;
                    *landed += body.len();
                    body.copy_to(&mut state.posted[at].buffer[from..]);
                }
            }
            Some(Goal::Kept(place)) => {
                let state = &mut self.states[place as usize];
                if let Some(at) = state.kept_of(number)
                    && let Kept::Coming { bytes, .. } = &mut state.kept[at]
                {
                    body.append_to(bytes);
                }
            }
            Some(Goal::Nowhere) | None => {}
        }
    }

    /// Where the rest of a message goes whose buffer is at hand.
    pub(super) fn place_of_part<'a>(&'a mut self, number: u64, hand: &'a mut Hand<'_>) -> Option<&'a mut [u8]> {
        match self.goals.get(number as usize).copied().flatten()? {
            Goal::Blocked(ticket) => {
                let buffer = hand.buffer_of(ticket)?;
                let coming = self.coming_of(ticket)?;
                coming.fetch(buffer);
                buffer.get_mut(coming.landed..coming.total)
            }
            Goal::Posted(place) => {
                let state = &mut self.states[place as usize];
                let at = state.posted_of(number)?;
                let PostState::Coming { landed, total, .. } = state.posted[at].state else { return None };
                state.posted[at].buffer.get_mut(landed..total)
            }
            Goal::Kept(_) | Goal::Nowhere => None,
        }
    }

    /// The channel whose buffer the next message from this rank most likely goes to: that of the blocked receive that polls, or the one
    /// where a buffer was posted last.
    fn next_channel(&mut self, src: Rank, hand: &Hand<'_>) -> Option<(u32, bool)> {
        let blocked = place_of_ticket(hand.ticket());
        let is_blocked = (blocked as usize) < self.states.len() && is_of(hand, blocked) && hand.landed.is_none();
        let (place, blocked) = if is_blocked { (blocked, true) } else { (self.posted_last, false) };
        let state = self.states.get(place as usize)?;
        let is_free = state.peer == src && state.open && state.kept.is_empty();
        let fits = if blocked { !state.has_waiting() && state.coming == 0 } else { state.has_waiting() };
        (is_free && fits).then_some((place, blocked))
    }

    /// Its buffer.
    pub(super) fn place_of_next<'a>(&'a mut self, src: Rank, hand: &'a mut Hand<'_>) -> Option<&'a mut [u8]> {
        let (place, blocked) = self.next_channel(src, hand)?;
        let state = &mut self.states[place as usize];
        if blocked { Some(hand.buffer()) } else { Some(state.posted_mut(state.taken)) }
    }

    /// Whether a message with this number and length goes there.
    pub(super) fn goes_to_next(&mut self, src: Rank, number: u16, total: usize, hand: &Hand<'_>) -> bool {
        let Some((place, blocked)) = self.next_channel(src, hand) else { return false };
        let state = &self.states[place as usize];
        let room = if blocked { hand.room() } else { state.posted[state.taken].buffer.len() };
        state.number == number && total <= room
    }

    /// So many bytes are there.
    pub(super) fn part_landed(&mut self, number: u64, bytes: usize) {
        match self.goals.get(number as usize).copied().flatten() {
            Some(Goal::Blocked(ticket)) => {
                if let Some(coming) = self.coming_of(ticket) {
                    coming.landed += bytes;
                }
            }
            Some(Goal::Posted(place)) => {
                let state = &mut self.states[place as usize];
                if let Some(at) = state.posted_of(number)
                    && let PostState::Coming { landed, .. } = &mut state.posted[at].state
                {
                    *landed += bytes;
                }
            }
            Some(Goal::Kept(_) | Goal::Nowhere) | None => {}
        }
    }

    /// All parts have come.
    pub(super) fn end_parts(&mut self, number: u64, hand: &mut Hand<'_>) -> Fate {
        match self.take_goal(number) {
            Some(Goal::Blocked(ticket)) => {
                if let Some(coming) = self.coming_of(ticket) {
                    coming.done = true;
                    // Its owner polls: it goes no further, so that the next message finds its next receive.
                    if let Some(buffer) = hand.buffer_of(ticket) {
                        coming.fetch(buffer);
                        let total = coming.total;
                        let place = place_of_ticket(ticket);
                        self.end_coming(place, ticket);
                        hand.landed = Some((self.state(place).peer, 0, total));
                    }
                }
                Fate::Done
            }
            Some(Goal::Posted(place)) => {
                let state = &mut self.states[place as usize];
                if let Some(at) = state.posted_of(number)
                    && let PostState::Coming { landed, .. } = state.posted[at].state
                {
                    state.posted[at].state = PostState::Done(Ok(landed));
                }
                Fate::Done
            }
            Some(Goal::Kept(place)) => {
                let state = &mut self.states[place as usize];
                match state.kept_of(number).map(|at| &mut state.kept[at]) {
                    Some(Kept::Coming { done, .. }) => {
                        *done = true;
                        Fate::Kept
                    }
                    _ => Fate::Done,
                }
            }
            Some(Goal::Nowhere) | None => Fate::Done,
        }
    }

    /// The rest will not come.
    pub(super) fn withdraw_parts(&mut self, number: u64, outbox: &mut Outbox) {
        match self.take_goal(number) {
            Some(Goal::Blocked(ticket)) => {
                if let Some(coming) = self.coming_of(ticket) {
                    coming.withdrawn = true;
                }
            }
            Some(Goal::Posted(place)) => {
                self.states[place as usize].wait_again(number);
                self.serve_posted(place, outbox);
            }
            Some(Goal::Kept(place)) => {
                let state = &mut self.states[place as usize];
                if let Some(at) = state.kept_of(number) {
                    state.kept.remove(at);
                }
            }
            Some(Goal::Nowhere) | None => {}
        }
    }
}
