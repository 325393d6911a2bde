//! Waiting for the engine and for descriptors of the user's at once. Called by the interfaces' selections; descriptors are
//! looked at before the thread begins to poll, whenever it gives its core away, and while it sleeps. Must never keep the lock
//! while it sleeps.

use super::sharing::Waiting;
use super::{Guard, Process, Waited, Watch};
use crate::engine::Engine;
use crate::switch::Hand;
use crate::wait::{Ladder, Step};
use pulc_base::clock::{self, Nanos};
use pulc_hal::error::HalError;
use pulc_hal::os::cpu;
use pulc_hal::os::watched::Watched;
use std::sync::atomic::Ordering;

/// What ended a wait.
pub enum Beside<R> {
    Ready(R),
    /// One of the descriptors, as they say themselves.
    Descriptors,
}

impl Process {
    /// As [`Process::wait`], also ended by a descriptor in `watched`.
    ///
    /// # Errors
    /// When the kernel does not take the descriptors.
    pub fn wait_beside<'p, R>(
        &'p self,
        mut guard: Guard<'p>,
        watched: &mut Watched<'_>,
        deadline: Option<Nanos>,
        mut ready: impl FnMut(&mut Engine) -> Option<R>,
    ) -> (Result<Waited<Beside<R>>, HalError>, Guard<'p>) {
        let mut ladder = Ladder::new();
        let hand = &mut Hand::empty();
        let mut look = |engine: &mut Engine, _: &mut Hand<'_>| ready(engine).map(Beside::Ready);
        let mut ask = true;
        loop {
            let shared = &mut *guard;
            let frames = shared.engine.progress(hand);
            if frames > 0 {
                self.tell_others(shared);
            }
            if frames > 0 || ask {
                let found = match look(&mut shared.engine, hand) {
                    None if ask => watched.look().map(|count| (count > 0).then_some(Beside::Descriptors)),
                    found => Ok(found),
                };
                if let Some(found) = found.transpose() {
                    self.leave(&guard);
                    return (found.map(Waited::Ready), guard);
                }
                ask = false;
            }
            if self.wanted.load(Ordering::Relaxed) > 0 {
                guard = self.let_others_in(guard);
                ask = true;
            }
            if frames > 0 {
                ladder.restart();
                continue;
            }
            let shared = &mut *guard;
            match ladder.step(&mut shared.crowd, &self.board, self.my_slot) {
                Step::Pause => {
                    cpu::pause();
                    continue;
                }
                Step::Look(_) => {}
                Step::Yield(_) => {
                    drop(guard);
                    cpu::yield_now();
                    guard = self.lock();
                    guard.engine.look_at_all();
                    ask = true;
                }
                Step::Sleep => {
                    let watched = Some(&mut *watched);
                    let waiting =
                        Waiting { hand, deadline, watch: Watch::News, ladder: &mut ladder, watched, telling: None };
                    let (locked, found) = self.sleep(guard, waiting, &mut look);
                    guard = locked;
                    if let Some(found) = found {
                        self.leave(&guard);
                        return (Ok(Waited::Ready(found)), guard);
                    }
                    ask = true;
                }
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                self.poll(&mut guard, hand);
                let found = match look(&mut guard.engine, hand) {
                    None => watched.look().map(|count| (count > 0).then_some(Beside::Descriptors)),
                    found => Ok(found),
                };
                self.leave(&guard);
                return (found.map(|found| found.map_or(Waited::Timeout, Waited::Ready)), guard);
            }
        }
    }
}
