//! The short way of a receive: a moment of polling with as little around it as possible, before anything is prepared for a wait.
//! Called by the interfaces; must never sleep.

use super::{Guard, Process, Shared};
use crate::switch::Hand;
use pulc_hal::os::cpu;
use std::sync::atomic::Ordering;

/// Rounds of a short poll, each of which looks at everything once and then at the hot peer only.
const SHORT_ROUNDS: u32 = 24;
const LOOKS_PER_ROUND: u32 = 8;
/// Yields to job-mates before the ladder looks whether they are of use.
const SHORT_YIELDS: u32 = 2;

impl Process {
    /// Polls for a moment, as long as the core is this process's own, for a hand that wants something or has a ticket; whether
    /// something came for it. The short way of a receive: after it the caller waits as usual.
    #[inline(always)]
    pub fn poll_shortly(&self, guard: &mut Guard<'_>, hand: &mut Hand<'_>) -> bool {
        let shared = &mut **guard;
        if shared.crowd.is_shared() {
            return self.yield_shortly(shared, hand);
        }
        for _ in 0..SHORT_ROUNDS {
            let frames = shared.engine.progress(hand);
            if frames > 0 {
                if frames > 1 || hand.landed.is_none() {
                    self.tell_others(shared);
                }
                return hand.landed.is_some();
            }
            if self.wanted.load(Ordering::Relaxed) > 0 {
                return false;
            }
            // A look at a socket takes as long as many of these.
            let looks = if shared.engine.net_is_hot() { 0 } else { LOOKS_PER_ROUND };
            for _ in 0..looks {
                cpu::pause();
                if shared.engine.hot_peer_waits() {
                    break;
                }
            }
        }
        false
    }

    /// The same where a job-mate runs on this core: very likely it is the one waited for, and it has only to be given the core.
    /// Nothing is let go of meanwhile, because nobody else is there to take it: no other thread has ever wanted the engine,
    /// and the first one that does waits for the end of one yield.
    #[inline(never)]
    fn yield_shortly(&self, shared: &mut Shared, hand: &mut Hand<'_>) -> bool {
        if !shared.crowd.has_job_mates() || !self.shared.is_biased() || !shared.crowd.patience.is_there() {
            return false;
        }
        for _ in 0..SHORT_YIELDS {
            if shared.engine.progress(hand) > 0 {
                return hand.landed.is_some();
            }
            cpu::yield_now();
            shared.engine.look_at_all();
        }
        if shared.engine.progress(hand) == 0 {
            return false;
        }
        shared.crowd.patience.worked();
        hand.landed.is_some()
    }
}
