//! The short way of a receive: a moment of polling with as little around it as possible, before anything is prepared for a wait.
//! Called by the interfaces; must never let go of the lock.

use super::{Guard, Process};
use crate::switch::Hand;
use pulc_hal::os::cpu;
use std::sync::atomic::Ordering;

/// Rounds of a short poll, each of which looks at everything once and then at the hot peer only.
const SHORT_ROUNDS: u32 = 24;
const LOOKS_PER_ROUND: u32 = 8;

impl Process {
    /// Polls for a moment, as long as the core is this process's own, for a hand that wants something or has a ticket; whether
    /// something came for it. The short way of a receive: after it the caller waits as usual.
    #[inline(always)]
    pub fn poll_shortly(&self, guard: &mut Guard<'_>, hand: &mut Hand<'_>) -> bool {
        let shared = &mut **guard;
        if shared.crowd.is_shared() {
            return false;
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
            for _ in 0..LOOKS_PER_ROUND {
                cpu::pause();
                if shared.engine.hot_peer_waits() {
                    break;
                }
            }
        }
        false
    }
}
