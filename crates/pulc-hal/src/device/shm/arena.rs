//! Memory of this process that its peers may read: a frame whose body lies here is not copied at all by the sender and
//! once by the receiver. Called by whoever hands out such memory to programs; the device finds out by address whether a
//! body lies inside.
//!
//! The memfd is sealed against every writer but the one mapping made here, so that peers read and never write, and slices
//! of it are ordinary memory for this process. What a program changes while a frame is under way arrives changed or not:
//! it is told by a token when no peer reads any more.

use super::layout::Reference;
use crate::error::HalError;
use crate::os::memfd::{WriteMap, create_produced};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Blocks begin at and are rounded up to this many bytes.
const GRAIN: usize = 4096;

/// One process's readable memory, cut into blocks on request.
pub struct Arena {
    map: WriteMap,
    fd: OwnedFd,
    /// Free ranges, offset to length, never adjacent to each other.
    free: Mutex<BTreeMap<usize, usize>>,
}

impl Arena {
    /// Reserves `bytes` (rounded up to pages) of address space; memory is taken when first written.
    pub fn new(bytes: usize) -> Result<Arc<Arena>, HalError> {
        let len = bytes.max(1).checked_next_multiple_of(GRAIN).unwrap_or(usize::MAX);
        let (map, fd) = create_produced("pulc-arena", len)?;
        Ok(Arc::new(Arena { map, fd, free: Mutex::new(BTreeMap::from([(0, len)])) }))
    }

    /// Length of the whole arena.
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// A block of `len` bytes with unspecified content, page-aligned; `None` when no free range is long enough.
    pub fn alloc(self: &Arc<Arena>, len: usize) -> Option<Block> {
        let size = len.max(1).checked_next_multiple_of(GRAIN)?;
        let mut free = self.free();
        let (&offset, &room) = free.iter().find(|(_, room)| **room >= size)?;
        free.remove(&offset);
        if room > size {
            free.insert(offset + size, room - size);
        }
        drop(free);
        Some(Block { arena: self.clone(), offset, len, size })
    }

    /// Where in the arena `bytes` lie, if they do.
    #[inline]
    pub(super) fn locate(&self, bytes: &[u8]) -> Option<Reference> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.map.address())?;
        let inside = offset <= self.map.len() && bytes.len() <= self.map.len() - offset;
        inside.then_some(Reference { offset: offset as u64, len: u32::try_from(bytes.len()).ok()? })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        // A panic while the lock was held cannot leave the map half-changed: its updates do not panic.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, mut offset: usize, mut size: usize) {
        let mut free = self.free();
        if let Some(next) = free.remove(&(offset + size)) {
            size += next;
        }
        if let Some((&before, &len)) = free.range(..offset).next_back()
            && before + len == offset
        {
            offset = before;
            size += len;
        }
        free.insert(offset, size);
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// Memory in an arena, given back on drop. Do not drop it while a frame out of it is under way.
pub struct Block {
    arena: Arc<Arena>,
    offset: usize,
    len: usize,
    size: usize,
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is this block's alone (the allocator gives out every range once), stays mapped as long as the
        // arena lives, and nobody else can write it: the memfd is sealed and this process has the only writable mapping.
        unsafe { std::slice::from_raw_parts(self.arena.map.pointer(self.offset, self.len), self.len) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it exclusive in this process.
        unsafe { std::slice::from_raw_parts_mut(self.arena.map.pointer(self.offset, self.len), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.arena.give_back(self.offset, self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_never_overlap_and_come_back_as_one_range() {
        let arena = Arena::new(16 * GRAIN).unwrap();
        let mut blocks: Vec<Block> = (0..8).map(|i| arena.alloc(GRAIN + i).unwrap()).collect();
        assert!(arena.alloc(2 * GRAIN).is_none(), "one grain is left at most");
        for (i, block) in blocks.iter_mut().enumerate() {
            block.fill(i as u8);
        }
        assert!(blocks.iter().enumerate().all(|(i, block)| block.iter().all(|byte| *byte == i as u8)));
        for at in [3, 1, 4, 0, 2, 1, 1, 0] {
            blocks.remove(at.min(blocks.len() - 1));
        }
        assert_eq!(arena.alloc(16 * GRAIN).map(|block| block.len()), Some(16 * GRAIN));
    }

    #[test]
    fn only_memory_inside_is_located() {
        let arena = Arena::new(4 * GRAIN).unwrap();
        let block = arena.alloc(100).unwrap();
        assert_eq!(arena.locate(&block[10..20]), Some(Reference { offset: block.offset as u64 + 10, len: 10 }));
        assert_eq!(arena.locate(&[1, 2, 3]), None);
    }
}
