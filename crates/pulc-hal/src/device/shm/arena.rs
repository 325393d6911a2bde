//! Memory of this process that its peers may read: a frame whose body lies here is not copied at all by the sender and
//! once by the receiver. Called by whoever hands out such memory to programs; the device finds out by address whether a
//! body lies inside.
//!
//! The memfd is sealed against every writer but the one mapping made here, so that peers read and never write, and slices
//! of it are ordinary memory for this process. What a program changes while a frame is under way arrives changed or not:
//! it is told by a token when no peer reads any more. A fork does not inherit the mapping: it would write into its parent.
//!
//! A process has one arena. Where a preloaded allocator has made it (`arena_table`), this library uses that one.

use super::arena_rooms::{PAGE, Rooms};
use super::arena_table::{ArenaPlace, ArenaTable};
use super::layout::Reference;
use crate::error::HalError;
use crate::os::life;
use crate::os::memfd::{self, WriteMap, create_produced};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One process's readable memory, cut into blocks on request.
pub struct Arena {
    pub(super) map: WriteMap,
    pub(super) fd: OwnedFd,
    /// Of the memory behind the descriptor.
    pub(super) inode: u64,
    /// In the child of a fork (`arena_forks`): nobody else has this memory any more.
    pub(super) is_private: AtomicBool,
    keeper: Keeper,
}

/// Who knows which parts are given out.
enum Keeper {
    Own(Box<Mutex<Rooms>>),
    Foreign(&'static ArenaTable),
}

impl Arena {
    /// Reserves `bytes` (rounded up to pages) of address space; memory is taken when first written.
    pub fn new(bytes: usize) -> Result<Arc<Arena>, HalError> {
        let len = bytes.max(1).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        let (map, fd) = create_produced("pulc-arena", len)?;
        map.leave_out_of_forks()?;
        let inode = memfd::inode(fd.as_fd())?;
        Ok(Arc::new(Arena {
            map,
            fd,
            inode,
            is_private: AtomicBool::new(false),
            keeper: Keeper::Own(Box::new(Mutex::new(Rooms::new(len)))),
        }))
    }

    /// The arena that another library of this process keeps. `None`: it can make none.
    ///
    /// # Errors
    /// When what it says about it makes no sense.
    pub fn of_table(table: &'static ArenaTable) -> Result<Option<Arc<Arena>>, HalError> {
        let mut place = ArenaPlace::NOWHERE;
        if (table.place)(&mut place) != 0 {
            return Ok(None);
        }
        let (map, fd) = place.open()?;
        let (inode, keeper) = (place.inode, Keeper::Foreign(table));
        let arena = Arc::new(Arena { map, fd, inode, is_private: AtomicBool::new(false), keeper });
        // Its mapping is another library's and must never be undone.
        std::mem::forget(Arc::clone(&arena));
        Ok(Some(arena))
    }

    /// Length of the whole arena.
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// Bytes in blocks, as they are rounded up; zero where another library keeps the account.
    pub fn used(&self) -> usize {
        self.rooms().map_or(0, |rooms| rooms.used())
    }

    /// A block of `len` bytes with unspecified content, aligned to 64 bytes, long ones to pages; `None` when no free range is
    /// long enough.
    pub fn alloc(self: &Arc<Arena>, len: usize) -> Option<Block> {
        let offset = self.take(len, 1)?;
        Some(Block { arena: self.clone(), offset, len })
    }

    /// Gives out memory that is given back by address.
    pub fn alloc_address(&self, len: usize, align: usize) -> Option<*mut u8> {
        let offset = self.take(len, align)?;
        Some(self.map.pointer(offset, len))
    }

    /// As [`Arena::alloc_address`], and whether the memory is zero because nobody has had it before.
    pub fn alloc_knowing(&self, len: usize, align: usize) -> Option<(*mut u8, bool)> {
        let (offset, untouched) = self.rooms()?.take_knowing(len, align)?;
        Some((self.map.pointer(offset, len), untouched))
    }

    /// Whether an address lies in the arena, given out or not.
    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.map.address()) < self.map.len()
    }

    /// Length of the block that begins at an address; `None` when none does.
    pub fn room_at(&self, address: usize) -> Option<usize> {
        self.rooms()?.room_at(address.checked_sub(self.map.address())?)
    }

    /// Takes back what [`Arena::alloc_address`] gave out; false when no block begins there.
    pub fn free_address(&self, address: usize) -> bool {
        let Some(offset) = address.checked_sub(self.map.address()) else { return false };
        self.give_back(offset)
    }

    fn take(&self, len: usize, align: usize) -> Option<usize> {
        match &self.keeper {
            Keeper::Own(_) => self.rooms()?.take(len, align),
            Keeper::Foreign(table) => {
                let given = (table.take)(len, align) as usize;
                let offset = given.checked_sub(self.map.address())?;
                (offset <= self.map.len() && len <= self.map.len() - offset).then_some(offset)
            }
        }
    }

    fn give_back(&self, offset: usize) -> bool {
        match &self.keeper {
            Keeper::Own(_) => self.rooms().is_some_and(|mut rooms| rooms.give_back(offset).is_some()),
            Keeper::Foreign(table) => {
                offset < self.map.len() && (table.give_back)(self.map.pointer(offset, 0).cast()) == 0
            }
        }
    }

    /// Where in the arena `bytes` lie, if they do.
    #[inline]
    pub(super) fn locate(&self, bytes: &[u8]) -> Option<Reference> {
        let offset = self.offset_of(bytes)?;
        Some(Reference { offset, len: u32::try_from(bytes.len()).ok()? })
    }

    /// Offset of `bytes` from the arena's beginning, if they lie inside.
    #[inline]
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.map.address())?;
        let inside = offset <= self.map.len() && bytes.len() <= self.map.len() - offset;
        inside.then_some(offset as u64)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where it lies, for other libraries of this process.
    pub fn place(&self) -> ArenaPlace {
        let base = self.map.pointer(0, self.map.len()).cast();
        ArenaPlace { base, len: self.map.len(), inode: self.inode, fd: self.fd.as_raw_fd() }
    }

    /// Our own account, locked.
    pub(super) fn rooms(&self) -> Option<MutexGuard<'_, Rooms>> {
        match &self.keeper {
            // Its methods do not panic half-way.
            Keeper::Own(rooms) => Some(rooms.lock().unwrap_or_else(PoisonError::into_inner)),
            Keeper::Foreign(_) => None,
        }
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
}

impl Block {
    /// Where it lies in its arena.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is this block's alone (the allocator gives out every range once), stays mapped as long as the
        // arena lives, and nobody else can write it: the memfd is sealed and this process has the only writable mapping.
        unsafe { std::slice::from_raw_parts(self.arena.map.pointer(self.offset, self.len), self.len) }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it exclusive in this process.
        unsafe { std::slice::from_raw_parts_mut(self.arena.map.pointer(self.offset, self.len), self.len) }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block of {} bytes", self.len)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A fork's child has no arena, and the lock may be held by a thread that it does not have.
        if !life::is_fork_child() {
            self.arena.give_back(self.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_bytes_and_a_full_arena_says_so() {
        let arena = Arena::new(64 * PAGE).unwrap();
        let mut blocks: Vec<Block> = (0..8).map(|i| arena.alloc(PAGE + i * 1000).unwrap()).collect();
        assert!(arena.alloc(64 * PAGE).is_none());
        for (i, block) in blocks.iter_mut().enumerate() {
            block.fill(i as u8);
        }
        assert!(blocks.iter().enumerate().all(|(i, block)| block.iter().all(|byte| *byte == i as u8)));
        drop(blocks);
        assert_eq!(arena.used(), 0);
        assert_eq!(arena.alloc(64 * PAGE).map(|block| block.len()), Some(64 * PAGE));
    }

    #[test]
    fn only_memory_inside_is_located() {
        let arena = Arena::new(64 * PAGE).unwrap();
        let block = arena.alloc(100).unwrap();
        assert_eq!(arena.locate(&block[10..20]), Some(Reference { offset: block.offset() + 10, len: 10 }));
        assert_eq!(arena.locate(&[1, 2, 3]), None);
    }

    #[test]
    fn memory_is_given_back_by_its_address_once() {
        let arena = Arena::new(64 * PAGE).unwrap();
        let address = arena.alloc_address(5000, 64).unwrap() as usize;
        assert!(!arena.free_address(address + 64));
        assert!(arena.free_address(address));
        assert!(!arena.free_address(address));
    }
}
