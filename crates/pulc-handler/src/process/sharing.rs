//! How the threads of a process share its engine while they wait: one sleeps on the doorbell, the others follow it, and
//! whoever polls lets the others in. Called by the wait of `process`; must never hold the lock while sleeping.

use super::{Guard, Process, Shared, Waited, Watch};
use crate::engine::Engine;
use crate::switch::Hand;
use crate::wait::Ladder;
use pulc_base::clock::{self, Nanos};
use pulc_hal::board::{Notice, Sleep, WATCHDOG, Woken, machine_time};
use pulc_hal::os::cpu;
use pulc_hal::os::knock::Knock;
use pulc_hal::os::watched::Watched;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest sleep of a thread that waits for the sleeping one.
const FOLLOWER_NAP: Duration = Duration::from_millis(250);
/// Longest sleep while messages of the engine itself wait for room.
const NAP_WITH_POSTS: Duration = Duration::from_millis(1);
/// Polls while another thread that wants the lock is waited for.
const COURTESY_POLLS: u32 = 2000;

/// How a thread waits.
pub(super) struct Waiting<'a, 'h, 'f, 'w> {
    pub hand: &'a mut Hand<'h>,
    pub deadline: Option<Nanos>,
    pub watch: Watch,
    pub ladder: &'a mut Ladder,
    pub watched: Option<&'a mut Watched<'f>>,
    pub telling: Option<&'a mut Telling<'w>>,
}

/// What a wait says of itself on the board, once a sleep has ended because nothing happened.
pub(super) struct Telling<'a> {
    pub why: &'a mut dyn FnMut(&mut Engine) -> Option<Notice>,
    /// In the time of the machine; zero: it has not taken long.
    pub since: Nanos,
}

impl Telling<'_> {
    /// A sleep of this length was in vain.
    fn slept(&mut self, nap: Nanos) {
        if self.since == Nanos(0) {
            self.since = Nanos(machine_time().since(nap).0.max(1));
        }
    }
}

/// How long nobody need look; `None`: as long as the watchdog lets. `blind`: descriptors cannot be slept beside.
pub(super) fn nap(engine: &Engine, deadline: Option<Nanos>, now: Nanos, blind: bool) -> Option<Duration> {
    let due = [deadline, engine.deadline()].into_iter().flatten().min();
    let timeout = due.map(|due| due.since(now).as_duration());
    if engine.has_posts() || blind { Some(timeout.map_or(NAP_WITH_POSTS, |t| t.min(NAP_WITH_POSTS))) } else { timeout }
}

impl Process {
    /// As [`Process::wait`], and when it takes long `why` says on the board what is waited for: who asks finds it there.
    #[inline]
    pub fn wait_telling<'p, R>(
        &'p self,
        guard: Guard<'p>,
        hand: &mut Hand<'_>,
        deadline: Option<Nanos>,
        watch: Watch,
        why: &mut dyn FnMut(&mut Engine) -> Option<Notice>,
        ready: impl FnMut(&mut Engine, &mut Hand<'_>) -> Option<R>,
    ) -> (Waited<R>, Guard<'p>) {
        let mut telling = Telling { why, since: Nanos(0) };
        let ended = self.wait_in(guard, hand, deadline, watch, Some(&mut telling), |_, _| {}, ready);
        if telling.since != Nanos(0) {
            self.board.slot(self.my_slot).tell_nothing();
        }
        ended
    }

    /// Waits until other nodes have acknowledged everything sent, at most for the linger time, and acknowledges what they sent: after the
    /// last message of all, the one who sent it would otherwise wait for somebody who has gone.
    pub fn linger(&self) {
        let mut guard = self.lock();
        if !guard.engine.all_acknowledged() {
            let deadline = clock::now() + Nanos::from_ms(guard.engine.limits().linger_ms);
            let all_told = |engine: &mut Engine, _: &mut Hand<'_>| engine.all_acknowledged().then_some(());
            (_, guard) = self.wait(guard, &mut Hand::empty(), Some(deadline), Watch::Always, all_told);
        }
        guard.engine.acknowledge_early();
    }

    /// Sleeps until something may have happened, unless `ready` has a result after all. The lock is free meanwhile. Descriptors
    /// in `watched` end the sleep too.
    #[cold]
    pub(super) fn sleep<'p, R>(
        &'p self,
        mut guard: Guard<'p>,
        waiting: Waiting<'_, '_, '_, '_>,
        ready: &mut impl FnMut(&mut Engine, &mut Hand<'_>) -> Option<R>,
    ) -> (Guard<'p>, Option<R>) {
        let Waiting { hand, deadline, watch, ladder, watched, mut telling } = waiting;
        if guard.sleeper {
            let guard = match watched {
                Some(watched) => self.follow_beside(guard, deadline, watched),
                None => self.follow(guard, deadline, watch, telling),
            };
            ladder.restart();
            return (guard, None);
        }
        let in_poll = self.sleeps_in_poll || (watched.is_some() && self.make_bell(&mut guard));
        let slot = self.board.slot(self.my_slot);
        slot.prepare_sleep(if in_poll { Sleep::Poll } else { Sleep::Futex });
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
        // Where nothing is ever due by itself the clock is not read: nothing can be due earlier than it is looked up.
        let is_timed = deadline.is_some() || self.sleeps_in_poll || shared.engine.deadline().is_some();
        let now = if is_timed { clock::now() } else { Nanos(0) };
        let timeout = nap(&shared.engine, deadline, now, watched.is_some() && !in_poll);
        let nap = Nanos::from(timeout.map_or(WATCHDOG, |nap| nap.min(WATCHDOG)));
        if let Some(telling) = &mut telling {
            self.tell(&mut shared.engine, telling);
        }
        shared.sleeper = true;
        shared.engine.sleepers.on_doorbell = if is_timed { now + nap } else { Nanos::MAX };
        drop(guard);
        let woken = if in_poll {
            let fds: Vec<BorrowedFd<'_>> = self.wait_fds.iter().map(AsFd::as_fd).collect();
            let mut none = Watched::default();
            slot.sleep_in_poll(self.bell.get().map(Arc::as_ref), &fds, watched.unwrap_or(&mut none), timeout)
        } else {
            slot.sleep(timeout)
        };
        let mut guard = self.lock();
        guard.sleeper = false;
        guard.engine.sleepers.on_doorbell = Nanos(0);
        guard.engine.look_at_all();
        // What rang may concern the others and be no frame: room for those who send.
        if guard.followers > 0 {
            self.tell_followers(&guard);
        }
        if let (Ok(Woken::Watchdog | Woken::Deadline), Some(telling)) = (&woken, telling) {
            telling.slept(nap);
        }
        match woken {
            // Short sleeps one after another leave the watchdog no time: a keeper's end is looked for after each.
            Ok(Woken::Watchdog) => {
                guard.engine.check_keeper(hand);
                guard.engine.rest();
            }
            Ok(Woken::Deadline) => guard.engine.check_keeper(hand),
            Ok(Woken::Rung) => ladder.restart(),
            Ok(Woken::Signal) => {}
            // A sleep that fails is no reason to burn the core; the watchdog's pace is kept.
            Err(_) => std::thread::sleep(NAP_WITH_POSTS),
        }
        (guard, None)
    }

    /// Whether there is a bell to sleep beside descriptors with; without one (no descriptor is left) sleeps are naps.
    fn make_bell(&self, guard: &mut Guard<'_>) -> bool {
        if self.bell.get().is_none()
            && let Ok(bell) = guard.engine.bell()
        {
            let _ = self.bell.set(bell);
        }
        self.bell.get().is_some()
    }

    /// Says on the board what a wait that takes long is for.
    fn tell(&self, engine: &mut Engine, telling: &mut Telling<'_>) {
        if telling.since != Nanos(0) {
            let Some(notice) = (telling.why)(engine) else { return };
            self.board.slot(self.my_slot).tell(telling.since, &notice);
        }
    }

    /// Waits for the thread that sleeps on the doorbell.
    fn follow<'p>(
        &'p self,
        mut guard: Guard<'p>,
        deadline: Option<Nanos>,
        watch: Watch,
        mut telling: Option<&mut Telling<'_>>,
    ) -> Guard<'p> {
        if let Some(telling) = &mut telling {
            self.tell(&mut guard.engine, telling);
        }
        guard.followers += 1;
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = *news;
        drop(guard);
        // Room comes without a frame, perhaps while the other thread polls.
        let nap = if watch == Watch::Always { NAP_WITH_POSTS } else { FOLLOWER_NAP };
        let left = deadline.map_or(nap, |deadline| deadline.since(clock::now()).as_duration().min(nap));
        let waited = self.news_came.wait_timeout_while(news, left, |news| *news == seen);
        let is_in_vain = waited.is_ok_and(|(_, waited)| waited.timed_out());
        let mut guard = self.lock();
        if let (true, Some(telling)) = (is_in_vain, telling) {
            telling.slept(left.into());
        }
        guard.followers -= 1;
        guard
    }

    /// The same beside descriptors: in poll, until one of them is ready or there is news.
    fn follow_beside<'p>(
        &'p self,
        mut guard: Guard<'p>,
        deadline: Option<Nanos>,
        watched: &mut Watched<'_>,
    ) -> Guard<'p> {
        let Ok(knock) = Knock::new().map(Arc::new) else {
            drop(guard);
            std::thread::sleep(NAP_WITH_POSTS);
            return self.lock();
        };
        guard.followers += 1;
        guard.engine.sleepers.add(&knock);
        drop(guard);
        let left = deadline.map_or(FOLLOWER_NAP, |d| d.since(clock::now()).as_duration().min(FOLLOWER_NAP));
        // What failed is found out by the next look.
        let _ = watched.wait(knock.as_fd(), left);
        let mut guard = self.lock();
        guard.followers -= 1;
        guard.engine.sleepers.remove(&knock);
        guard
    }

    /// A thread stops waiting: if nobody is on the doorbell, one of those that follow takes its place there.
    #[inline]
    pub(super) fn leave(&self, guard: &Guard<'_>) {
        if guard.followers > 0 && !guard.sleeper {
            self.tell_followers(guard);
        }
    }

    /// Something was delivered that threads which sleep may wait for.
    #[inline]
    pub(crate) fn tell_others(&self, shared: &Shared) {
        if shared.followers > 0 {
            self.tell_followers(shared);
        }
        if shared.sleeper {
            self.wake_sleeper();
        }
    }

    #[cold]
    pub(super) fn tell_followers(&self, shared: &Shared) {
        // Those in poll are counted too.
        if shared.followers as usize > shared.engine.sleepers.knocks.len() {
            *self.news.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.news_came.notify_all();
        }
        shared.engine.sleepers.knock();
    }

    #[cold]
    fn wake_sleeper(&self) {
        self.board.slot(self.my_slot).ring(self.bell.get().map(|bell| bell.ring_end()));
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
