//! The two ends of a mapping. The end that maps has slots, one per credit: a slot holds what is needed to bring its request
//! back. The other end knows which slots are in use, so that it never takes more than was agreed. Owned by the table; plain
//! data, no calls.

use super::args::{WORDS_MAX, Words};
use super::endpoint::Shared;
use super::event::EventState;
use super::peer::Bytes;
use super::returned::Status;
use super::wire::{ACKS_MAX, Kind};
use pulc_base::Rank;
use pulc_handler::End;
use std::sync::Arc;

/// The end that maps: where requests go.
pub(crate) struct Outgoing {
    pub dst: Rank,
    pub owner: Arc<Shared>,
    /// The other end's number for this channel, once it is open.
    pub remote: u32,
    pub state: MapState,
    pub slots: Vec<SlotOut>,
    /// Credits that are left.
    pub free: Vec<u16>,
    /// Its `Peer` was dropped while requests were under way: removed when the last one is answered.
    pub closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapState {
    Asked,
    Open,
    Refused(Status),
    Gone(End),
}

/// One request under way.
pub(crate) struct SlotOut {
    pub busy: bool,
    /// Its reply (or itself) has come back and waits for a handler.
    pub answered: bool,
    pub kind: Kind,
    pub handler: u8,
    pub words: Words,
    /// Told when the receiver's handler has returned; then the credit comes back with that word.
    pub tell: Option<Arc<EventState>>,
    /// Arguments of a long reply that came before it.
    pub args: Option<Box<[u64; WORDS_MAX]>>,
    /// What a fetch offers.
    pub offered: Option<Offered>,
}

/// A payload that its receiver may fetch.
#[derive(Clone)]
pub(crate) struct Offered {
    pub bytes: Bytes,
    pub local: Option<Arc<EventState>>,
}

impl SlotOut {
    fn new() -> SlotOut {
        let words = Words::new([0; WORDS_MAX], 0);
        SlotOut {
            busy: false,
            answered: false,
            kind: Kind::Short,
            handler: 0,
            words,
            tell: None,
            args: None,
            offered: None,
        }
    }
}

impl Outgoing {
    pub fn new(dst: Rank, owner: Arc<Shared>) -> Outgoing {
        let state = MapState::Asked;
        Outgoing { dst, owner, remote: 0, state, slots: Vec::new(), free: Vec::new(), closing: false }
    }

    pub fn open(&mut self, remote: u32, credits: u16) {
        self.remote = remote;
        self.state = MapState::Open;
        self.slots = (0..credits).map(|_| SlotOut::new()).collect();
        self.free = (0..credits).rev().collect();
    }

    /// A request that waits for its answer.
    pub fn busy(&mut self, slot: u16) -> Option<&mut SlotOut> {
        self.slots.get_mut(usize::from(slot)).filter(|slot| slot.busy)
    }

    /// The answer has come: the credit is back.
    #[inline]
    pub fn give_back(&mut self, slot: u16) {
        if let Some(state) = self.slots.get_mut(usize::from(slot))
            && state.busy
        {
            state.busy = false;
            state.answered = false;
            self.free.push(slot);
        }
    }

    pub fn credits(&self) -> u16 {
        self.slots.len() as u16
    }

    pub fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

/// The other end: where requests come from.
pub(crate) struct Incoming {
    pub src: Rank,
    /// Name of the endpoint that maps.
    pub src_name: Arc<str>,
    /// Their number for this channel: answers go there.
    pub reply_to: u32,
    pub tag: u64,
    /// `None` once the endpoint is closed: requests go back.
    pub endpoint: Option<Arc<Shared>>,
    pub slots: Vec<SlotIn>,
    /// Slots whose handlers have returned and that are not told yet.
    pub acks: Acks,
}

#[derive(Default)]
pub(crate) struct SlotIn {
    pub busy: bool,
    /// Arguments of a long message that came before it.
    pub args: Option<Box<[u64; WORDS_MAX]>>,
}

/// Acknowledgements that leave together.
#[derive(Default)]
pub(crate) struct Acks {
    slots: [u16; ACKS_MAX],
    count: usize,
}

impl Acks {
    /// Returns whether it is full now.
    #[inline]
    pub fn add(&mut self, slot: u16) -> bool {
        self.slots[self.count] = slot;
        self.count += 1;
        self.count == ACKS_MAX
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn take(&mut self) -> ([u16; ACKS_MAX], usize) {
        (self.slots, std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_taken_as_they_were_added() {
        let mut acks = Acks::default();
        for slot in 0..ACKS_MAX as u16 {
            assert_eq!(acks.add(slot), usize::from(slot) + 1 == ACKS_MAX);
        }
        let (slots, count) = acks.take();
        assert_eq!((slots[ACKS_MAX - 1], count, acks.count()), (12, 13, 0));
    }
}
