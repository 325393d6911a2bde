//! An arena that holds ordinary memory of a program, and a fork of that program. The mapping is shared, so a child must not have it: it
//! would write into its parent. What the parent had in it the child needs all the same. So the child gets private memory with the
//! same bytes at the same addresses, copied while the forking thread of the parent waits. Called by the door of the preloaded allocator,
//! from the handlers that the C library runs around a fork.
//!
//! Other threads of the parent go on meanwhile: what they write in that moment may or may not reach the child.

use super::arena::Arena;
use super::arena_rooms::Rooms;
use crate::error::HalError;
use crate::os::copy as memory;
use rustix::fs::SeekFrom;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

/// A fork under way: the arena's account is locked, in the parent and in the child, until this value is used up.
pub struct Forking {
    arena: &'static Arena,
    rooms: Option<MutexGuard<'static, Rooms>>,
    /// There is something to copy.
    is_used: bool,
    /// The program has closed the arena's descriptor: the child reads the mapping itself, which it inherits this once.
    inherits: bool,
    /// The parent reads the end of the first one when the child has closed the second one, or has died.
    pipe: Option<(OwnedFd, OwnedFd)>,
}

impl Forking {
    /// Before the fork, in the thread that forks.
    pub fn prepare(arena: &'static Arena) -> Forking {
        let rooms = arena.rooms();
        // Private memory, in the child of an earlier fork, is inherited like all other.
        let is_shared = !arena.is_private.load(Ordering::Relaxed);
        let is_used = is_shared && rooms.as_ref().is_some_and(|rooms| rooms.used() > 0);
        // Without a pipe the parent does not wait, and the child may see what it writes a moment later.
        let pipe = if is_used { rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok() } else { None };
        let inherits = is_used && !arena.has_its_descriptor() && arena.inherit(true);
        Forking { arena, rooms, is_used, inherits, pipe }
    }

    /// After it, in the parent. Also when there is no child because the fork failed.
    ///
    /// # Blocks
    /// Until the child has its copy or is gone.
    pub fn in_parent(mut self) {
        if let Some((read, write)) = self.pipe.take() {
            drop(write);
            while matches!(rustix::io::read(&read, &mut [0_u8; 1]), Err(rustix::io::Errno::INTR)) {}
        }
        if self.inherits {
            self.arena.inherit(false);
        }
        drop(self.rooms.take());
    }

    /// After it, in the child: from now on the arena is private memory, and its blocks are given back as before.
    ///
    /// # Errors
    /// When there is no memory for the copy; then the addresses lead nowhere, and the child cannot go on.
    pub fn in_child(mut self) -> Result<(), HalError> {
        let copied = match &self.rooms {
            Some(rooms) if self.is_used => self.arena.make_private(rooms, self.inherits),
            _ => Ok(()),
        };
        drop(self.pipe.take());
        drop(self.rooms.take());
        copied
    }
}

impl Arena {
    /// Puts private memory with the same bytes where the mapping was before the fork.
    fn make_private(&self, rooms: &Rooms, inherits: bool) -> Result<(), HalError> {
        let (base, len) = (self.map.address() as *mut c_void, self.bytes());
        let usual = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // Where the mapping is not inherited, its addresses are free.
        let (at, flags) =
            if inherits { (std::ptr::null_mut(), usual) } else { (base, usual | MapFlags::FIXED_NOREPLACE) };
        // SAFETY: a fresh mapping where nothing is.
        let copy = unsafe { rustix::mm::mmap_anonymous(at, len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let copy = copy.map_err(HalError::system("memory for the blocks of a forked process"))?;
        for (at, size) in rooms.given_out() {
            // SAFETY: rooms lie inside the arena, whose length `copy` has, and no other thread runs in this child.
            let to = unsafe { std::slice::from_raw_parts_mut(copy.cast::<u8>().add(at), size) };
            if inherits {
                // SAFETY: the mapping is there this once; `to` is private memory of the same length.
                unsafe { memory::from_shared(to.as_mut_ptr(), self.map.pointer(at, size), size) };
            } else {
                self.read_what_is_there(at, to)?;
            }
        }
        if inherits {
            // SAFETY: what is replaced is this arena's own mapping; what takes its place are the bytes that every pointer there means.
            unsafe { rustix::mm::mremap_fixed(copy, len, len, MremapFlags::MAYMOVE, base) }
                .map_err(HalError::system("put the blocks of a forked process in place"))?;
        }
        self.is_private.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the descriptor is still the arena's: programs close what they do not know.
    fn has_its_descriptor(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_ino == self.inode)
    }

    /// Whether children get the mapping; false when that cannot be changed.
    fn inherit(&self, on: bool) -> bool {
        let advice = if on { Advice::LinuxDoFork } else { Advice::LinuxDontFork };
        // SAFETY: the advice concerns exactly this arena's own mapping and changes no byte of it.
        unsafe { rustix::mm::madvise(self.map.address() as *mut c_void, self.bytes(), advice) }.is_ok()
    }

    /// Reads a part of the memory by its descriptor, leaving out what was never touched.
    fn read_what_is_there(&self, at: usize, to: &mut [u8]) -> Result<(), HalError> {
        let end = (at + to.len()) as u64;
        let mut next = at as u64;
        while next < end {
            let begin = match rustix::fs::seek(&self.fd, SeekFrom::Data(next)) {
                Ok(begin) if begin < end => begin,
                // Nothing but holes from here on.
                Ok(_) | Err(rustix::io::Errno::NXIO) => return Ok(()),
                Err(errno) => return Err(HalError::System { doing: "look into the arena", source: errno.into() }),
            };
            let stop = rustix::fs::seek(&self.fd, SeekFrom::Hole(begin)).map_or(end, |hole| hole.min(end));
            let mut place = begin;
            while place < stop {
                let part = &mut to[(place - at as u64) as usize..(stop - at as u64) as usize];
                match rustix::io::pread(self.fd.as_fd(), part, place).map_err(HalError::system("read the arena"))? {
                    0 => return Ok(()),
                    bytes => place += bytes as u64,
                }
            }
            next = stop;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_the_bytes_of_its_parent_and_neither_sees_what_the_other_writes() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new(64 << 20).unwrap()));
        let block = arena.alloc_address(3 << 20, 1).unwrap();
        // SAFETY: the block is ours alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(block, 3 << 20) };
        bytes[..1 << 20].fill(7);
        bytes[(3 << 20) - 1] = 9;
        let forking = Forking::prepare(arena);
        // SAFETY: the child touches its own memory only and leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let went_well = forking.in_child().is_ok()
                && bytes[..1 << 20].iter().all(|byte| *byte == 7)
                && bytes[(3 << 20) - 1] == 9
                && bytes[2 << 20] == 0;
            bytes[0] = 1;
            let forking = Forking::prepare(arena);
            // SAFETY: as above.
            let grandchild = unsafe { libc::fork() };
            if grandchild == 0 {
                let went_well = forking.in_child().is_ok() && bytes[0] == 1 && bytes[1] == 7;
                // SAFETY: `_exit` is allowed in a fork child.
                unsafe { libc::_exit(i32::from(!went_well)) };
            }
            forking.in_parent();
            let mut status = 1;
            // SAFETY: waits for the child made above; `status` outlives the call.
            unsafe { libc::waitpid(grandchild, &mut status, 0) };
            let went_well = went_well && status == 0;
            let again = arena.free_address(block as usize) && arena.used() == 0;
            // SAFETY: `_exit` is allowed in a fork child.
            unsafe { libc::_exit(i32::from(!(went_well && again))) };
        }
        forking.in_parent();
        bytes[1] = 8;
        let mut status = 0;
        // SAFETY: waits for the child made above; `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child found other bytes");
        assert_eq!((bytes[0], bytes[1]), (7, 8));
        assert!(arena.free_address(block as usize));
    }
}
