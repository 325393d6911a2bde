//! What the engine knows about each rank: how to reach it, what either side may still send unasked, and which messages are
//! under way. Plain data with its own arithmetic; never communicates.

use crate::error::End;
use crate::incoming::IncomingList;
use crate::wire::CREDIT_UNIT;
use pulc_base::clock::Nanos;
use pulc_hal::device::Peer;

/// How a rank is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// Not yet: made by the first message.
    Unopened,
    /// This process itself.
    Own,
    Shm(Peer),
    /// Index of a link.
    Net(u32),
    Gone(End),
}

pub(crate) struct PeerState {
    pub route: Route,
    /// Bytes that may still be sent there without asking.
    pub credit: u64,
    /// Bytes by which that rank has used up its credit here, as this side counts.
    pub charged: u64,
    /// Part of `charged` that is free again but has not been told.
    pub owed: u64,
    pub next_id: u32,
    /// Transfers that were asked for there and not granted yet.
    pub asked: Vec<u32>,
    /// And those that were.
    pub granted: Vec<u32>,
    /// Messages in parts under way there that its side still counts.
    pub leaving: usize,
    /// Messages in parts that come from there, by its number for them.
    pub incoming: IncomingList,
    /// What its messages to protocols without a handler take.
    pub parked: u64,
    /// It has ended; what it sent is still being received, until this time at least.
    pub ending: Option<(End, Nanos)>,
}

impl PeerState {
    pub fn new(route: Route, credit: u64) -> PeerState {
        PeerState {
            route,
            credit,
            charged: 0,
            owed: 0,
            next_id: 0,
            asked: Vec::new(),
            granted: Vec::new(),
            leaving: 0,
            incoming: IncomingList::default(),
            parked: 0,
            ending: None,
        }
    }

    pub fn end(&self) -> Option<End> {
        match self.route {
            Route::Gone(end) => Some(end),
            _ => None,
        }
    }

    /// A number for the next transfer to this rank.
    pub fn take_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    /// The last part of a message has left, or it was withdrawn.
    pub fn left(&mut self) {
        self.leaving = self.leaving.saturating_sub(1);
    }

    /// Charges an arriving message; false when the sender exceeds what it was given.
    #[inline]
    pub fn charge(&mut self, cost: u64, window: u64) -> bool {
        self.charged = self.charged.saturating_add(cost);
        self.charged <= window
    }

    /// Frees the room of a message. Returns the units of credit to tell the sender, once enough have come together.
    #[inline]
    pub fn release(&mut self, cost: u64, window: u64) -> Option<u32> {
        self.owed += cost;
        if self.owed < window / 4 {
            return None;
        }
        let units = self.owed / CREDIT_UNIT;
        self.owed -= units * CREDIT_UNIT;
        self.charged = self.charged.saturating_sub(units * CREDIT_UNIT);
        u32::try_from(units).ok()
    }

    /// Whether a grant for `id` came; it is forgotten then.
    pub fn take_grant(&mut self, id: u32) -> bool {
        match self.granted.iter().position(|granted| *granted == id) {
            Some(at) => {
                self.granted.swap_remove(at);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_given_back_never_exceeds_what_was_charged() {
        let window = 4096;
        let mut sender = PeerState::new(Route::Unopened, window);
        let mut receiver = PeerState::new(Route::Unopened, window);
        for cost in (0..2000).map(|step| 64 + step * 7 % 500) {
            assert!(sender.credit >= cost, "everything was released, so a quarter of the window at most is missing");
            sender.credit -= cost;
            assert!(receiver.charge(cost, window));
            if let Some(units) = receiver.release(cost, window) {
                sender.credit += u64::from(units) * CREDIT_UNIT;
            }
            assert!(sender.credit <= window);
            assert_eq!(sender.credit + receiver.charged, window);
        }
    }

    #[test]
    fn a_sender_beyond_its_credit_is_noticed() {
        let mut receiver = PeerState::new(Route::Unopened, 1000);
        assert!(receiver.charge(1000, 1000));
        assert!(!receiver.charge(1, 1000));
        assert!(!receiver.charge(u64::MAX, 1000), "a sum must not wrap around");
    }
}
