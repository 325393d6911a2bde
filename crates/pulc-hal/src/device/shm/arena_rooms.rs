//! Who has which part of an arena: small blocks by size class out of slabs, longer ones in whole pages, neighbours that are free
//! joined again. Knows offsets only and touches no memory, so that nobody who scribbles over a block can spoil it. Used by
//! `arena`, under its lock.

use std::collections::{BTreeMap, BTreeSet};

/// Longer blocks are rounded up to this many bytes and begin at a multiple of it.
pub const PAGE: usize = 4096;
/// Small blocks of one class lie together in slabs of this many bytes, which begin at a multiple of it.
const SLAB: usize = 64 << 10;
/// Smallest and largest class: powers of two.
const CLASS_MIN: usize = 64;
const CLASS_MAX: usize = 2048;
const CLASSES: usize = (CLASS_MAX / CLASS_MIN).ilog2() as usize + 1;

pub struct Rooms {
    /// Free ranges, offset to length, never adjacent to each other; and the same by length.
    free: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    /// Ranges given out, offset to length: long blocks and slabs.
    taken: BTreeMap<usize, usize>,
    slabs: BTreeMap<usize, Slab>,
    /// Slabs with free places, by class.
    roomy: [BTreeSet<usize>; CLASSES],
    used: usize,
    /// Everything from here on has never been given out.
    untouched_from: usize,
}

struct Slab {
    class: usize,
    /// Free places.
    free: Vec<u16>,
}

impl Rooms {
    pub fn new(len: usize) -> Rooms {
        let mut rooms = Rooms {
            free: BTreeMap::new(),
            by_length: BTreeSet::new(),
            taken: BTreeMap::new(),
            slabs: BTreeMap::new(),
            roomy: Default::default(),
            used: 0,
            untouched_from: 0,
        };
        rooms.insert_free(0, len);
        rooms
    }

    /// Bytes given out, rounded up as they are.
    pub fn used(&self) -> usize {
        self.used
    }

    /// A room for `len` bytes at a multiple of `align` (a power of two). `None`: no free range is long enough.
    pub fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        let small = len.max(align).max(CLASS_MIN).checked_next_power_of_two()?;
        if small <= CLASS_MAX { self.take_small(small) } else { self.take_long(len, align) }
    }

    /// As [`Rooms::take`], and whether nobody has had the room before.
    pub fn take_knowing(&mut self, len: usize, align: usize) -> Option<(usize, bool)> {
        let untouched_from = self.untouched_from;
        let at = self.take(len, align)?;
        Some((at, at >= untouched_from))
    }

    /// What is given out, in order: offset and length of long rooms and of slabs.
    pub fn given_out(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.taken.iter().map(|(at, size)| (*at, *size))
    }

    fn take_small(&mut self, size: usize) -> Option<usize> {
        let class = (size / CLASS_MIN).ilog2() as usize;
        let at = match self.roomy[class].first() {
            Some(at) => *at,
            None => {
                let at = self.take_range(SLAB, SLAB)?;
                self.slabs.insert(at, Slab { class, free: (0..(SLAB / size) as u16).rev().collect() });
                self.roomy[class].insert(at);
                at
            }
        };
        let slab = self.slabs.get_mut(&at)?;
        let place = slab.free.pop()?;
        if slab.free.is_empty() {
            self.roomy[class].remove(&at);
        }
        self.used += size;
        Some(at + usize::from(place) * size)
    }

    fn take_long(&mut self, len: usize, align: usize) -> Option<usize> {
        let size = len.checked_next_multiple_of(PAGE)?;
        let at = self.take_range(size, align.max(PAGE))?;
        self.used += size;
        Some(at)
    }

    /// The shortest free range that is long enough, or one in which an aligned piece fits.
    fn take_range(&mut self, size: usize, align: usize) -> Option<usize> {
        let fits = |&&(room, at): &&(usize, usize)| {
            at.checked_next_multiple_of(align).is_some_and(|begin| begin - at <= room - size)
        };
        let &(room, at) = self.by_length.range((size, 0)..).find(fits)?;
        self.remove_free(at, room);
        let begin = at.next_multiple_of(align);
        if begin > at {
            self.insert_free(at, begin - at);
        }
        if at + room > begin + size {
            self.insert_free(begin + size, at + room - begin - size);
        }
        self.taken.insert(begin, size);
        self.untouched_from = self.untouched_from.max(begin + size);
        Some(begin)
    }

    /// Length of the room that begins here, as it was given out; `None` when none does.
    pub fn room_at(&self, offset: usize) -> Option<usize> {
        let slab_at = offset & !(SLAB - 1);
        if let Some(slab) = self.slabs.get(&slab_at) {
            let size = CLASS_MIN << slab.class;
            let place = (offset - slab_at) / size;
            let is_taken = offset.is_multiple_of(size) && !slab.free.contains(&(place as u16));
            return is_taken.then_some(size);
        }
        self.taken.get(&offset).copied()
    }

    /// Gives a room back. `None`: no room begins here.
    pub fn give_back(&mut self, offset: usize) -> Option<usize> {
        let size = self.room_at(offset)?;
        let slab_at = offset & !(SLAB - 1);
        match self.slabs.get_mut(&slab_at) {
            Some(slab) => {
                slab.free.push(((offset - slab_at) / size) as u16);
                let class = slab.class;
                if slab.free.len() == SLAB / size {
                    self.slabs.remove(&slab_at);
                    self.roomy[class].remove(&slab_at);
                    self.give_back_range(slab_at);
                } else {
                    self.roomy[class].insert(slab_at);
                }
            }
            None => self.give_back_range(offset),
        }
        self.used -= size;
        Some(size)
    }

    fn give_back_range(&mut self, mut offset: usize) {
        let Some(mut size) = self.taken.remove(&offset) else { return };
        if let Some(&next) = self.free.get(&(offset + size)) {
            self.remove_free(offset + size, next);
            size += next;
        }
        if let Some((&before, &len)) = self.free.range(..offset).next_back()
            && before + len == offset
        {
            self.remove_free(before, len);
            offset = before;
            size += len;
        }
        self.insert_free(offset, size);
    }

    fn insert_free(&mut self, offset: usize, size: usize) {
        self.free.insert(offset, size);
        self.by_length.insert((size, offset));
    }

    fn remove_free(&mut self, offset: usize, size: usize) {
        self.free.remove(&offset);
        self.by_length.remove(&(size, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_of_all_sizes_never_overlap_and_come_back_as_one_range() {
        const LEN: usize = 16 << 20;
        let mut rooms = Rooms::new(LEN);
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut seed = 7_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        for _ in 0..20_000 {
            if random() % 3 > 0 {
                let len = 1 << (random() % 19);
                let len = len + random() % len;
                let align = 1 << (random() % 15);
                if let Some(at) = rooms.take(len, align) {
                    assert!(at.is_multiple_of(align) && at + len <= LEN, "{len} bytes at {at}");
                    assert!(rooms.room_at(at).is_some_and(|room| room >= len));
                    assert!(
                        held.iter().all(|(other, size)| at + len <= *other || other + size <= at),
                        "{len} bytes at {at} overlap another room"
                    );
                    held.push((at, len));
                }
            } else if !held.is_empty() {
                let (at, _) = held.swap_remove(random() % held.len());
                assert!(rooms.give_back(at).is_some());
                assert!(rooms.give_back(at).is_none(), "a room came back twice");
            }
        }
        assert!(held.len() > 100);
        for (at, _) in held {
            rooms.give_back(at);
        }
        assert_eq!((rooms.used(), rooms.free.len(), rooms.by_length.len()), (0, 1, 1));
        assert_eq!(rooms.take(LEN, 1), Some(0));
        assert_eq!(rooms.take(1, 1), None);
    }

    #[test]
    fn a_room_is_known_to_be_untouched_only_the_first_time() {
        let mut rooms = Rooms::new(1 << 20);
        let (first, untouched) = rooms.take_knowing(100_000, 1).unwrap();
        assert!(untouched);
        rooms.give_back(first);
        assert_eq!(rooms.take_knowing(50_000, 1), Some((first, false)));
        let (second, untouched) = rooms.take_knowing(200_000, 1).unwrap();
        assert!(second > first && !untouched, "its beginning was given out before");
        let (third, untouched) = rooms.take_knowing(10_000, 1).unwrap();
        assert!(third > first && !untouched || third >= second);
        assert_eq!(rooms.given_out().map(|(_, size)| size).sum::<usize>(), rooms.used());
    }

    #[test]
    fn what_was_never_given_out_is_not_taken_back() {
        let mut rooms = Rooms::new(1 << 20);
        let small = rooms.take(100, 1).unwrap();
        let long = rooms.take(10_000, 1).unwrap();
        for wrong in [small + 1, small + 128, long + PAGE, 1 << 19, 1 << 20, usize::MAX] {
            assert_eq!(rooms.give_back(wrong), None, "offset {wrong}");
        }
        assert_eq!(rooms.take(usize::MAX, 1), None);
        assert_eq!(rooms.take(8, 1 << 40), None);
    }
}
