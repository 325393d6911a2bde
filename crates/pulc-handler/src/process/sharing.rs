//! How the threads of a process share its engine while they wait: one sleeps on the doorbell, the others follow it, and
//! whoever polls lets the others in. Called by the wait of `process`; must never hold the lock while sleeping.

use super::{Guard, Process, Shared, Watch};
use crate::engine::Engine;
use crate::switch::Hand;
use crate::wait::Ladder;
use pulc_base::clock::{self, Nanos};
use pulc_hal::board::{Sleep, Woken};
use pulc_hal::os::cpu;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest sleep of a thread that waits for the sleeping one.
const FOLLOWER_NAP: Duration = Duration::from_millis(250);
/// Longest sleep while messages of the engine itself wait for room.
const NAP_WITH_POSTS: Duration = Duration::from_millis(1);
/// Polls while another thread that wants the lock is waited for.
const COURTESY_POLLS: u32 = 2000;

impl Process {
    /// Sleeps until something may have happened, unless `ready` has a result after all. The lock is free meanwhile.
    #[cold]
    pub(super) fn sleep<'p, R>(
        &'p self,
        mut guard: Guard<'p>,
        hand: &mut Hand<'_>,
        deadline: Option<Nanos>,
        watch: Watch,
        ladder: &mut Ladder,
        ready: &mut impl FnMut(&mut Engine, &mut Hand<'_>) -> Option<R>,
    ) -> (Guard<'p>, Option<R>) {
        if guard.sleeper {
            let guard = self.follow(guard, deadline, watch);
            ladder.restart();
            return (guard, None);
        }
        let slot = self.board.slot(self.my_slot);
        slot.prepare_sleep(if self.bell.is_some() { Sleep::Poll } else { Sleep::Futex });
        let shared = &mut *guard;
        shared.engine.prepare_sleep();
        let frames = shared.engine.progress(hand);
        if frames > 0 {
            self.tell_others(shared);
        }
        if let Some(result) = ready(&mut shared.engine, hand) {
            slot.cancel();
            return (guard, Some(result));
        }
        if frames > 0 {
            slot.cancel();
            ladder.restart();
            return (guard, None);
        }
        let now = clock::now();
        let due = [deadline, shared.engine.deadline()].into_iter().flatten().min();
        let mut timeout = due.map(|due| due.since(now).as_duration());
        if shared.engine.has_posts() {
            timeout = Some(timeout.map_or(NAP_WITH_POSTS, |t| t.min(NAP_WITH_POSTS)));
        }
        shared.sleeper = true;
        drop(guard);
        let woken = match &self.bell {
            Some(bell) => {
                let fds: Vec<BorrowedFd<'_>> = self.wait_fds.iter().map(AsFd::as_fd).collect();
                slot.sleep_in_poll(bell, &fds, timeout)
            }
            None => slot.sleep(timeout),
        };
        let mut guard = self.lock();
        guard.sleeper = false;
        guard.engine.look_at_all();
        // What rang may concern the others and be no frame: room for those who send.
        if guard.followers > 0 {
            self.tell_followers();
        }
        match woken {
            // Short sleeps one after another leave the watchdog no time: a keeper's end is looked for after each.
            Ok(Woken::Watchdog | Woken::Deadline) => guard.engine.check_keeper(hand),
            Ok(Woken::Rung) => ladder.restart(),
            Ok(Woken::Signal) => {}
            // A sleep that fails is no reason to burn the core; the watchdog's pace is kept.
            Err(_) => std::thread::sleep(NAP_WITH_POSTS),
        }
        (guard, None)
    }

    /// Waits for the thread that sleeps on the doorbell.
    fn follow<'p>(&'p self, mut guard: Guard<'p>, deadline: Option<Nanos>, watch: Watch) -> Guard<'p> {
        guard.followers += 1;
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = *news;
        drop(guard);
        // Room comes without a frame, perhaps while the other thread polls.
        let nap = if watch == Watch::Always { NAP_WITH_POSTS } else { FOLLOWER_NAP };
        let left = deadline.map_or(nap, |deadline| deadline.since(clock::now()).as_duration().min(nap));
        let _ = self.news_came.wait_timeout_while(news, left, |news| *news == seen);
        let mut guard = self.lock();
        guard.followers -= 1;
        guard
    }

    /// A thread stops waiting: if nobody is on the doorbell, one of those that follow takes its place there.
    #[inline]
    pub(super) fn leave(&self, guard: &Guard<'_>) {
        if guard.followers > 0 && !guard.sleeper {
            self.tell_followers();
        }
    }

    /// Something was delivered that threads which sleep may wait for.
    #[inline]
    pub(crate) fn tell_others(&self, shared: &Shared) {
        if shared.followers > 0 {
            self.tell_followers();
        }
        if shared.sleeper {
            self.wake_sleeper();
        }
    }

    #[cold]
    fn tell_followers(&self) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.news_came.notify_all();
    }

    #[cold]
    fn wake_sleeper(&self) {
        self.board.slot(self.my_slot).ring(self.bell_ring.as_ref().map(AsFd::as_fd));
    }

    /// Lets go of the lock until the threads that want it have had it.
    #[cold]
    pub(super) fn let_others_in<'p>(&'p self, guard: Guard<'p>) -> Guard<'p> {
        drop(guard);
        for poll in 0..COURTESY_POLLS {
            if self.wanted.load(Ordering::Relaxed) == 0 {
                break;
            }
            if poll % 64 == 63 {
                cpu::yield_now();
            }
            cpu::pause();
        }
        self.lock()
    }
}
