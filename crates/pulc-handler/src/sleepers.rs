//! Who of this process sleeps, and until when: the thread on the doorbell, and loops of the user's that wait for a descriptor
//! of ours. Whoever has the engine meanwhile and finds that something is due earlier than they will look up wakes them.
//! Used by the engine and by `process`, with the engine locked.

use crate::engine::Engine;
use pulc_base::clock::Nanos;
use pulc_hal::error::HalError;
use pulc_hal::os::bell::Bell;
use pulc_hal::os::knock::Knock;
use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Nobody sleeps.
const AWAKE: Nanos = Nanos(0);

#[derive(Default)]
pub(crate) struct Sleepers {
    /// When the thread on the doorbell looks up by itself.
    pub on_doorbell: Nanos,
    /// When the last of the user's loops does.
    pub in_loops: Cell<Nanos>,
    /// Those that wait in poll for news of any kind.
    pub knocks: Vec<Arc<Knock>>,
}

impl Sleepers {
    #[inline]
    pub fn any(&self) -> bool {
        self.on_doorbell != AWAKE || self.in_loops.get() != AWAKE
    }

    /// Tells all that wait in poll.
    pub fn knock(&self) {
        self.in_loops.set(AWAKE);
        self.knocks.iter().for_each(|knock| knock.tell());
    }

    /// From now on `knock` is told.
    pub fn add(&mut self, knock: &Arc<Knock>) {
        self.knocks.push(Arc::clone(knock));
    }

    pub fn remove(&mut self, knock: &Arc<Knock>) {
        self.knocks.retain(|other| !Arc::ptr_eq(other, knock));
    }
}

impl Engine {
    /// Wakes those who sleep longer than until something is due now.
    #[inline]
    pub(crate) fn alarm(&mut self) {
        if !self.sleepers.any() {
            return;
        }
        let last = self.sleepers.on_doorbell.max(self.sleepers.in_loops.get());
        if self.deadline().is_some_and(|due| due < last) {
            self.wake_sleepers();
        }
    }

    #[cold]
    pub(crate) fn wake_sleepers(&mut self) {
        self.sleepers.on_doorbell = AWAKE;
        self.board.slot(self.my_slot).ring(self.bell.as_deref().map(Bell::ring_end));
        self.sleepers.knock();
    }

    /// Nothing has happened for as long as the watchdog waits, and nothing is on its way: what only waits to be used again is given
    /// back. Memory that job-mates have mapped stays: its seals keep even its owner from giving single pages back.
    #[cold]
    pub(crate) fn rest(&mut self) {
        self.floor.handlers.each().for_each(|handler| handler.rest());
    }

    /// The bell of this process, made now if there is none: peers are told of it, and ring it by the keeper until they know.
    pub(crate) fn bell(&mut self) -> Result<Arc<Bell>, HalError> {
        if let Some(bell) = &self.bell {
            return Ok(Arc::clone(bell));
        }
        let bell = Arc::new(Bell::new()?);
        self.shm.device.set_bell(&bell);
        self.bell = Some(Arc::clone(&bell));
        for slot in 0..self.shm.local.len() {
            match self.shm.device.bell_offer(slot as u32) {
                Ok(Some(offer)) => {
                    if let Some(broker) = &mut self.broker {
                        broker.pass(self.shm.local[slot], offer.what, offer.fds);
                    }
                }
                Ok(None) => {}
                // Out of descriptors: this peer rings by the keeper.
                Err(error) => self.failure = Some(error),
            }
        }
        Ok(bell)
    }

    /// What must be polled beside the bell to hear of everything: once for each loop of a user.
    pub(crate) fn gate_fds<'a>(&'a self, bell: &'a Bell) -> Vec<std::os::fd::BorrowedFd<'a>> {
        let mut fds = self.wait_fds();
        fds.push(bell.as_fd());
        fds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_in_poll_are_told_until_they_leave() {
        let (mut sleepers, knocks) = (Sleepers::default(), [Knock::new(), Knock::new()]);
        let knocks = knocks.map(|knock| Arc::new(knock.unwrap()));
        knocks.iter().for_each(|knock| sleepers.add(knock));
        sleepers.in_loops.set(Nanos(9));
        sleepers.remove(&knocks[0]);
        sleepers.knock();
        let told = |knock: &Knock| {
            let mut watched = pulc_hal::os::watched::Watched::default();
            watched.add(knock.as_fd(), true, false);
            watched.look().unwrap() == 1
        };
        assert_eq!((told(&knocks[0]), told(&knocks[1]), sleepers.any()), (false, true, false));
    }
}
