//! Writes all over the node's board as fast as the memory takes it: doorbells are set, unset and rung, cores and counts are lies.

use super::Chance;
use pulc_hal::board::{Board, Sleep};
use std::sync::atomic::{AtomicBool, Ordering};

/// Until told to stop; how often.
pub fn storm(board: &Board, mut random: Chance, stop: &AtomicBool) -> u64 {
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..200 {
            let slot = board.slot(random.below(board.slots().into()) as u32);
            match random.below(8) {
                0 => slot.prepare_sleep(if random.once_in(2) { Sleep::Futex } else { Sleep::Poll }),
                1 | 2 => slot.cancel(),
                3 => drop(slot.ring(None)),
                4 => slot.announce_broker_message(),
                5 => slot.publish_core(random.below(4) as u32),
                6 => slot.made_progress(),
                _ => slot.reset(),
            }
            times += 1;
        }
        // The others shall run too where there are few cores: what is written stays written.
        std::thread::yield_now();
    }
    times
}
