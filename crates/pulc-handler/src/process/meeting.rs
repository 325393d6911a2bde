//! Waiting for what job-mates write into memory that all of them map, and waking those who wait for it. No frame tells of it, so the
//! waiting thread looks for itself: first for a moment with nothing around it, then between polls as everybody waits.
//! Called by interfaces for collective operations; must never hold the lock while it gives the core away.

use super::Process;
use pulc_hal::os::cpu;

/// Looks of a process that has its core for itself, before the engine is asked as well.
const LOOKS: u32 = 256;
/// Yields of one that shares it at most: every job-mate has had its turn twice.
const YIELDS_MAX: u32 = 64;

impl Process {
    /// Looks for a moment whether something has come; on a shared core it is given to the job-mates, who are very likely those waited
    /// for. After it the caller waits as usual.
    #[inline]
    pub fn look_shortly(&self, mut has_come: impl FnMut() -> bool) -> bool {
        if has_come() {
            return true;
        }
        let guard = self.lock();
        let mates = guard.crowd.job_mates();
        drop(guard);
        // A stranger on this core is left to the ladder: he would keep it for a time slice.
        if mates > 0 {
            return (0..(2 * mates + 2).min(YIELDS_MAX)).any(|_| {
                cpu::yield_now();
                has_come()
            });
        }
        (0..LOOKS).any(|_| {
            cpu::pause();
            has_come()
        })
    }

    /// Wakes those in these places of the board who sleep. To be called after what they shall find has been written and a full barrier
    /// has passed, which pairs with that of those who announce their sleep and look once more.
    #[inline]
    pub fn wake(&self, slots: impl Iterator<Item = u32>) {
        for slot in slots {
            if self.board.slot(slot).sleeping() {
                self.lock().engine.ring(slot);
            }
        }
    }
}
