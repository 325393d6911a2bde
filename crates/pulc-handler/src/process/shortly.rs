//! The short way of a receive: a moment of polling with as little around it as possible, before anything is prepared for a wait.
//! Called by the interfaces; must never sleep.

use super::{Guard, Process, Shared};
use crate::engine::Engine;
use crate::switch::Hand;
use pulc_hal::os::cpu;
use std::sync::atomic::Ordering;

/// Rounds of a short poll, each of which looks at the hot peer for a while and then at everything once.
const SHORT_ROUNDS: u32 = 12;
const LOOKS_PER_ROUND: u32 = 16;
/// Yields to job-mates before the ladder looks whether they are of use.
const SHORT_YIELDS: u32 = 2;

/// What taking messages in batches has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swept {
    Nothing,
    /// More is wanted.
    Some,
    /// Nothing more is wanted.
    All,
}

/// Looks at one line for a while.
#[inline(always)]
fn look_for(is_there: impl Fn() -> bool) {
    for _ in 0..LOOKS_PER_ROUND {
        if is_there() {
            break;
        }
        cpu::pause();
    }
}

impl Process {
    /// Polls for a moment, as long as the core is this process's own, for a hand that wants something or has a ticket; whether
    /// something came for it. The short way of a receive: after it the caller waits as usual.
    #[inline(always)]
    pub fn poll_shortly(&self, guard: &mut Guard<'_>, hand: &mut Hand<'_>) -> bool {
        let shared = &mut **guard;
        // Beside a stranger this moment is no longer than what the ladder would poll.
        if shared.crowd.has_job_mates() {
            return self.yield_shortly(shared, hand);
        }
        for _ in 0..SHORT_ROUNDS {
            // A look at a socket takes as long as many of these.
            if !shared.engine.net_is_hot() {
                match shared.engine.awaited_of_hot() {
                    Some(is_there) => look_for(is_there),
                    None => cpu::pause(),
                }
            }
            let frames = shared.engine.progress(hand);
            if frames > 0 {
                return self.came(shared, hand, frames);
            }
            if self.wanted.load(Ordering::Relaxed) > 0 {
                return false;
            }
        }
        false
    }

    /// Takes messages in batches for as long as they come soon; whether that was all that is wanted. Otherwise the caller waits as
    /// usual. `sweep` takes what is there ([`Engine::take_batch_for`]); everything else that comes is taken as always.
    #[inline]
    pub fn sweep_shortly(&self, guard: &mut Guard<'_>, mut sweep: impl FnMut(&mut Engine) -> Swept) -> bool {
        let shared = &mut **guard;
        let mut rounds = 0;
        loop {
            let swept = sweep(&mut shared.engine);
            let frames = match swept {
                // The sender may wait for the word that there is room again.
                Swept::All if !shared.engine.has_posts() => 0,
                Swept::Some => 0,
                Swept::All | Swept::Nothing => shared.engine.progress(&mut Hand::empty()),
            };
            if swept != Swept::Nothing || frames > 0 {
                self.tell_others(shared);
            }
            rounds = if swept == Swept::Nothing { rounds + 1 } else { 0 };
            if swept == Swept::All {
                return true;
            }
            // On a core that is shared the ladder gives it away.
            let is_over = rounds >= SHORT_ROUNDS || shared.crowd.has_job_mates();
            if is_over || self.wanted.load(Ordering::Relaxed) > 0 {
                return false;
            }
            if frames == 0 && !shared.engine.net_is_hot() {
                match shared.engine.awaited_of_hot() {
                    Some(is_there) => look_for(is_there),
                    None => cpu::pause(),
                }
            }
        }
    }

    /// Frames have come: whether one of them for this hand. A lone one that has landed concerns nobody else.
    #[inline(always)]
    fn came(&self, shared: &Shared, hand: &Hand<'_>, frames: usize) -> bool {
        if frames > 1 || hand.landed.is_none() {
            self.tell_others(shared);
        }
        hand.landed.is_some()
    }

    /// Polls once if the peer that sent last has sent again, for nobody in particular; whether it has.
    #[inline]
    pub fn poll_hot(&self, guard: &mut Guard<'_>) -> bool {
        let shared = &mut **guard;
        if !shared.engine.hot_peer_waits() {
            return false;
        }
        if shared.engine.progress(&mut Hand::empty()) > 0 {
            self.tell_others(shared);
        }
        true
    }

    /// The same where a job-mate runs on this core: very likely it is the one waited for, and it has only to be given the core.
    /// Nothing is let go of meanwhile, because nobody else is there to take it: no other thread has ever wanted the engine,
    /// and the first one that does waits for the end of one yield.
    #[inline(never)]
    fn yield_shortly(&self, shared: &mut Shared, hand: &mut Hand<'_>) -> bool {
        shared.crowd.look_now_and_then(&self.board, self.my_slot);
        if !shared.crowd.has_job_mates() || !self.shared.is_biased() || !shared.crowd.patience.is_there() {
            return false;
        }
        for yields in 0..=SHORT_YIELDS {
            if yields > 0 {
                cpu::yield_now();
                shared.engine.look_at_all();
            } else if !shared.engine.net_is_hot() && !shared.engine.hot_peer_waits() {
                // On one core nothing comes before the other side has run: a look at everything would find nothing, and cost lines
                // of memory that the other side then finds gone.
                continue;
            }
            let frames = shared.engine.progress(hand);
            if frames > 0 {
                if yields > 0 {
                    shared.crowd.patience.worked();
                }
                // Loops of this very thread may be armed, though no other thread is there.
                return self.came(shared, hand, frames);
            }
        }
        false
    }
}
