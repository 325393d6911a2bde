//! Looking at the ring for a moment before sleeping: only while the other end was last on another core, and only as long as it pays. A
//! sleep and its end cost more than a short look, but a look that takes the core from who would send costs more than both.

use crate::channel::End;
use crate::kernel::Kernel;
use crate::layout::{end, rx};
use std::sync::atomic::Ordering;

/// Looks of one wait: some microseconds.
const LOOKS: u32 = 400;
/// What a look that has paid is worth, against one that has not.
const GAIN: u32 = 2;
const LUCK_MAX: u32 = 32;
/// Without luck, one wait of so many tries again.
const EVERY: u64 = 64;

impl End {
    /// Says which core this end is on.
    #[inline]
    pub(crate) fn say_core(&self, kernel: &impl Kernel) {
        let core = kernel.cpu() + 1;
        let said = self.mine(end::CPU);
        if said.load(Ordering::Relaxed) != core {
            said.store(core, Ordering::Relaxed);
        }
    }

    /// True when something came.
    pub fn look_around(&self, kernel: &impl Kernel) -> bool {
        self.say_core(kernel);
        let theirs = self.theirs(end::CPU).load(Ordering::Relaxed);
        if theirs == 0 || theirs == kernel.cpu() + 1 {
            return false;
        }
        let luck = self.in_rx(rx::LUCK);
        let known = luck.load(Ordering::Relaxed).min(LUCK_MAX);
        let got = self.in_rx64(rx::GOT).load(Ordering::Relaxed);
        if known == 0 && !got.is_multiple_of(EVERY) {
            return false;
        }
        for _ in 0..LOOKS {
            if self.arrived() != got {
                luck.store((known + GAIN).min(LUCK_MAX), Ordering::Relaxed);
                return true;
            }
            std::hint::spin_loop();
        }
        luck.store(known.saturating_sub(1), Ordering::Relaxed);
        false
    }
}
