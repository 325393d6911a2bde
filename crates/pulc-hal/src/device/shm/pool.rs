//! The bounded memory for frames that do not fit in cells: one memfd per process, cut into equal slots that are lent to
//! peers and come back through credit. Used by this device only.
//!
//! Memory is a budget: however many peers there are, a process has this one pool. A peer may hold as many slots as are
//! still free, so that one that is busy gets half of the pool, several share it, and one that hoards starves nobody.

use super::layout::LINE;
use super::stores::Chooser;
use crate::error::HalError;
use crate::os::cpu;
use crate::os::memfd::{WriteMap, create_produced};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Room in a slot beside its nominal size, so that a frame can carry a whole power of two and a head, and a reader whose processor fetches
/// beyond the end of what it reads does not take the lines of the next slot from the writer. Only parts of long messages use more of it
/// than a few lines.
pub const SLOT_EXTRA: usize = 4 << 10;

/// Frames up to so long are worth asking for their lines, and go to another place of their slots in each tour through the pool.
const SHORT_MAX_BYTES: usize = 4 << 10;
/// So far apart are the places.
const PLACE_BYTES: usize = 4 << 10;

pub struct Pool {
    map: WriteMap,
    fd: OwnedFd,
    /// Length of a slot.
    slot_bytes: usize,
    /// Free slots; taken at the front, given back at the end, so that use rotates through the whole pool: memory that
    /// was written long ago has left the core's own cache, and its lines are faster to take and to hand over.
    free: VecDeque<u32>,
    /// How often all slots have been lent, and how many have been since.
    tours: usize,
    lent: usize,
}

/// Slots that lie one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    pub first: u32,
    pub count: u32,
}

impl Slots {
    #[inline]
    pub fn len(self) -> usize {
        self.count as usize
    }
}

impl Pool {
    /// Makes a pool of `bytes / slot_bytes` slots, each with [`SLOT_EXTRA`] bytes more. Its memory is not touched before it is used.
    pub fn new(bytes: usize, slot_bytes: usize) -> Result<Pool, HalError> {
        let slots = (bytes / slot_bytes).max(1);
        let slot_bytes = slot_bytes + SLOT_EXTRA;
        let (map, fd) = create_produced("pulc-pool", slots * slot_bytes)?;
        map.leave_out_of_forks()?;
        Ok(Pool { map, fd, slot_bytes, free: (0..slots as u32).collect(), tours: 0, lent: 0 })
    }

    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Slots that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Lends a slot to a peer that already holds `held`.
    #[inline]
    pub fn take(&mut self, held: usize) -> Option<u32> {
        if held > self.free.len() {
            return None;
        }
        self.lent += 1;
        if self.lent * self.slot_bytes >= self.map.len() {
            (self.tours, self.lent) = (self.tours.wrapping_add(1), 0);
        }
        self.free.pop_front()
    }

    /// Lends slots that lie one behind the other to a peer that already holds `held`: as many as are next to each other at the front,
    /// `wanted` at most.
    #[inline]
    pub fn take_run(&mut self, held: usize, wanted: u32) -> Option<Slots> {
        let first = self.take(held)?;
        let mut run = Slots { first, count: 1 };
        while run.count < wanted
            && self.free.front() == Some(&(first + run.count))
            && self.take(held + run.len()).is_some()
        {
            run.count += 1;
        }
        Some(run)
    }

    pub fn give_back(&mut self, slots: Slots) {
        for slot in slots.first..slots.first + slots.count {
            debug_assert!(!self.free.contains(&slot), "slot {slot} came back twice");
            self.free.push_back(slot);
        }
    }

    /// How many bytes lie in so many slots.
    pub fn bytes_of(&self, slots: Slots) -> usize {
        slots.len() * self.slot_bytes
    }

    /// Asks for the lines of the slot that is lent next, for a frame as long as the last one if that was short: its last reader still
    /// has them, and a longer frame is not waited for line by line. Changes nothing.
    #[inline]
    pub fn claim_next(&self, bytes: usize) {
        if bytes > SHORT_MAX_BYTES {
            return;
        }
        let Some(slot) = self.free.front() else { return };
        let offset = *slot as usize * self.slot_bytes + self.place(self.slot_bytes, bytes);
        let whole_lines = self.slot_bytes & !(LINE - 1);
        (0..bytes.min(whole_lines)).step_by(LINE).for_each(|at| self.map.claim_line(offset + at));
    }

    /// Where a frame of `bytes` bytes goes in lent slots.
    #[inline]
    pub fn place_of(&self, slots: Slots, bytes: usize) -> u64 {
        (slots.first as usize * self.slot_bytes + self.place(self.bytes_of(slots), bytes)) as u64
    }

    /// How far behind the beginning of `room` bytes the next frame of `bytes` bytes goes: each time that all slots have been lent it is
    /// another place. Short frames that always came to the beginnings of their slots would use only those, and all of that stays in the
    /// nearest caches of both cores, where each line that one has written is waited for by the other, both ways. Longer ones use enough
    /// of the pool as they are.
    #[inline]
    fn place(&self, room: usize, bytes: usize) -> usize {
        if bytes > SHORT_MAX_BYTES {
            return 0;
        }
        // Mostly a slot has four places: a mask, where a division would cost as much as a line.
        let places = room.saturating_sub(SLOT_EXTRA + bytes) / PLACE_BYTES + 1;
        PLACE_BYTES * if places.is_power_of_two() { self.tours & (places - 1) } else { self.tours % places }
    }

    /// Fills lent slots from `offset` on, which [`Pool::place_of`] has told.
    #[inline]
    pub fn fill(&self, offset: u64, parts: [&[u8]; 2], chooser: &mut Chooser) {
        let offset = offset as usize;
        let choice = chooser.choose(parts[1].len());
        if !parts[0].is_empty() {
            self.map.copy_in(offset, parts[0]);
        }
        let start = if choice.timed { cpu::ticks() } else { 0 };
        self.map.copy_in_with(offset + parts[0].len(), parts[1], choice.stores);
        if choice.timed {
            chooser.learn(choice.stores, parts[1].len(), cpu::ticks().saturating_sub(start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_as_long_as_slots_lie_next_to_each_other_and_as_the_peers_share_allows() {
        let mut pool = Pool::new(12 * 4096, 4096).unwrap();
        let run = |first, count| Some(Slots { first, count });
        let lent = [pool.take_run(0, 4), pool.take_run(4, 4), pool.take_run(7, 1)];
        assert_eq!(lent, [run(0, 4), run(4, 3), None], "a peer holds one more than are free at most");
        assert_eq!((pool.take_run(0, 2), pool.take_run(2, 2)), (run(7, 2), run(9, 1)), "another's");
        // What lies apart is not one run, and the end of the pool is no neighbour of its beginning.
        for slots in [Slots { first: 9, count: 1 }, Slots { first: 0, count: 4 }, Slots { first: 4, count: 3 }] {
            pool.give_back(slots);
        }
        assert_eq!(pool.take_run(0, 4), run(10, 2));
        assert_eq!(pool.take_run(0, 4), run(9, 1));
        assert_eq!(pool.take_run(0, 9), run(0, 4), "of seven that are free");
        assert_eq!(pool.bytes_of(Slots { first: 0, count: 3 }), 3 * (4096 + SLOT_EXTRA));
    }

    #[test]
    fn short_frames_go_to_another_place_in_each_tour_and_stay_inside_of_their_slots() {
        for (slot_bytes, places) in [(4 << 10, 1), (12 << 10, 3), (16 << 10, 4)] {
            let mut pool = Pool::new(5 * slot_bytes, slot_bytes).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for lent in 0..5 * 12 {
                let slots = pool.take_run(0, 1).unwrap();
                let begin = pool.bytes_of(Slots { first: 0, count: 1 }) as u64 * u64::from(slots.first);
                for bytes in [0, 1, 1000, SHORT_MAX_BYTES, SHORT_MAX_BYTES + 1, slot_bytes + SLOT_EXTRA] {
                    let at = pool.place_of(slots, bytes) - begin;
                    assert!(at as usize + bytes <= slot_bytes + SLOT_EXTRA, "{bytes} bytes at {at}, {lent} lent");
                    assert!(bytes <= SHORT_MAX_BYTES || at == 0, "{bytes} bytes at {at}");
                }
                seen.insert(pool.place_of(slots, 1000) - begin);
                pool.give_back(slots);
            }
            assert_eq!(seen.len(), places, "places in slots of {slot_bytes} bytes: {seen:?}");
        }
    }
}
