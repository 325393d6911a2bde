//! A descriptor for loops of the user's own (epoll, an event library): it is readable when something of the engine may be there
//! to be fetched. Called by the interfaces. Must never lose a wake-up: who is armed counts as a thread that follows the one on
//! the doorbell, and is told whenever such a thread would be.
//!
//! The order for its user: fetch everything, arm, wait for the descriptor, and again. Arming looks at everything once more with
//! the doorbell set, so that whatever comes later either rings or is told by the thread that finds it.

use super::sharing::nap;
use super::{Process, Shared};
use crate::engine::Engine;
use crate::error::Error;
use crate::switch::Hand;
use pulc_base::clock::{self, Nanos};
use pulc_hal::board::{Sleep, WATCHDOG};
use pulc_hal::os::bell::Bell;
use pulc_hal::os::knock::{Knock, Timer};
use pulc_hal::os::watched::Gate;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One loop's descriptor. Readable is a hint: it may be readable for nothing, at least four times a second while it is armed.
pub struct Wakeup {
    process: &'static Process,
    gate: Gate,
    knock: Arc<Knock>,
    timer: Timer,
    bell: Arc<Bell>,
    /// Counted among those that follow the sleeping thread. Changed with the engine locked.
    counted: AtomicBool,
}

/// What arming came to.
pub enum Armed<R> {
    /// Something is there already: fetch it, then arm again.
    Ready(R),
    /// Wait for the descriptor now.
    Wait,
}

impl Wakeup {
    /// # Errors
    /// In a fork of the attached process, or when no descriptor is left.
    pub fn new(process: &'static Process) -> Result<Wakeup, Error> {
        process.check_fork()?;
        let (knock, timer) = (Arc::new(Knock::new()?), Timer::new()?);
        let mut guard = process.lock();
        let bell = guard.engine.bell()?;
        let _ = process.bell.set(Arc::clone(&bell));
        let mut fds = guard.engine.gate_fds(&bell);
        fds.extend([knock.as_fd(), timer.as_fd()]);
        let gate = Gate::new(fds)?;
        drop(guard);
        Ok(Wakeup { process, gate, knock, timer, bell, counted: AtomicBool::new(false) })
    }

    /// Looks whether `ready` has a result, which is asked with the engine locked; if not, the descriptor becomes readable when
    /// it may have one.
    ///
    /// # Errors
    /// In a fork of the attached process.
    pub fn arm<R>(&self, mut ready: impl FnMut(&mut Engine) -> Option<R>) -> Result<Armed<R>, Error> {
        let process = self.process;
        process.check_fork()?;
        let mut guard = process.lock();
        self.knock.empty();
        process.poll(&mut guard, &mut Hand::empty());
        if let Some(result) = ready(&mut guard.engine) {
            self.count(&mut guard, false);
            return Ok(Armed::Ready(result));
        }
        self.count(&mut guard, true);
        // The bell may have rung for another loop, or for a thread that has left it to us.
        if self.bell.drain() && !guard.sleeper {
            process.tell_followers(&guard);
            self.knock.empty();
        }
        if self.bell.is_mute() {
            // A job-mate has shut it for good; the timer wakes the loop instead.
            self.gate.leave_out(self.bell.as_fd());
        }
        // A thread that sleeps tells when it wakes.
        if !guard.sleeper {
            process.board.slot(process.my_slot).prepare_sleep(Sleep::Poll);
            process.poll(&mut guard, &mut Hand::empty());
            if let Some(result) = ready(&mut guard.engine) {
                self.count(&mut guard, false);
                return Ok(Armed::Ready(result));
            }
        }
        let now = clock::now();
        let nap = nap(&guard.engine, None, now, false).map_or(WATCHDOG, |nap| nap.min(WATCHDOG));
        self.timer.set(nap)?;
        let until = now + Nanos::from(nap);
        let in_loops = &guard.engine.sleepers.in_loops;
        in_loops.set(in_loops.get().max(until));
        Ok(Armed::Wait)
    }

    fn count(&self, shared: &mut Shared, counted: bool) {
        if self.counted.swap(counted, Ordering::Relaxed) == counted {
            return;
        }
        if counted {
            shared.followers += 1;
            shared.engine.sleepers.add(&self.knock);
        } else {
            shared.followers -= 1;
            shared.engine.sleepers.remove(&self.knock);
        }
    }
}

impl AsFd for Wakeup {
    /// Readable: fetch and arm again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.gate.as_fd()
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        if self.process.check_fork().is_ok() {
            let mut guard = self.process.lock();
            self.count(&mut guard, false);
            // Another loop may have relied on what woke this one.
            self.process.leave(&guard);
        }
    }
}
