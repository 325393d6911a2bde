//! How the one arena of a process is shared between libraries that know nothing of each other: whoever could make it first (a
//! preloaded allocator) announces a table of three functions in the registry (`os::registry`); an engine that starts later uses that arena
//! instead of one of its own. The binary interface between builds: entries are only ever added at the end.

use crate::error::HalError;
use crate::os::memfd::{self, WriteMap};
use crate::os::registry::{self, Announced};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Kind of announcement in the registry.
pub const ARENA_KIND: u32 = 3;
/// 0xMMmm; another major version is not used.
pub const ARENA_VERSION: u32 = 0x0001;

/// What is announced.
#[repr(C)]
pub struct ArenaTable {
    /// Size of the table where it was made, in bytes.
    pub bytes: u32,
    pub version: u32,
    /// Where the arena lies; it is made if there is none yet. Not zero: there is none.
    pub place: extern "C" fn(*mut ArenaPlace) -> c_int,
    /// Memory of so many bytes at a multiple of a power of two; null when there is none.
    pub take: extern "C" fn(usize, usize) -> *mut c_void,
    /// Gives it back. Not zero: nothing begins there.
    pub give_back: extern "C" fn(*mut c_void) -> c_int,
}

/// Where an arena lies.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArenaPlace {
    pub base: *mut c_void,
    pub len: usize,
    /// Number of the inode behind the descriptor: a program may have closed it, and the number may be another file's by now.
    pub inode: u64,
    pub fd: c_int,
}

impl ArenaPlace {
    pub const NOWHERE: ArenaPlace = ArenaPlace { base: std::ptr::null_mut(), len: 0, inode: 0, fd: -1 };

    /// The mapping and a descriptor of our own.
    pub(super) fn open(&self) -> Result<(WriteMap, OwnedFd), HalError> {
        let base = NonNull::new(self.base.cast::<u8>()).filter(|_| self.fd >= 0).ok_or(HalError::NotSharedMemory)?;
        // SAFETY: borrowed for the length of this call; a number that is no descriptor makes the calls below fail.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(HalError::system("copy the arena's descriptor"))?;
        if memfd::inode(fd.as_fd())? != self.inode || memfd::size(fd.as_fd())? != self.len as u64 {
            return Err(HalError::NotSharedMemory);
        }
        // SAFETY: the table's maker is the allocator of this process, which has mapped these bytes for the process's life and sealed
        // them; forks do not use them (the maker refuses to place an arena there).
        let map = unsafe { WriteMap::of_another(base, self.len) };
        Ok((map, fd))
    }
}

/// The table of this process, if a library has announced one that this build understands.
pub fn announced() -> Option<&'static ArenaTable> {
    let found = registry::with(|registry| registry.first(ARENA_KIND)).ok()??;
    if found.version >> 8 != ARENA_VERSION >> 8 {
        return None;
    }
    // SAFETY: this process's own registry names it, and only a preloaded allocator announces this kind, a static table of this layout up
    // to its `bytes`; it is never unloaded.
    let table = unsafe { &*(found.address as *const ArenaTable) };
    (table.bytes as usize >= size_of::<ArenaTable>()).then_some(table)
}

/// Announces the table of this process; false when there is one already or the registry is full.
pub fn announce(table: &'static ArenaTable) -> bool {
    let own = Announced { kind: ARENA_KIND, version: ARENA_VERSION, address: std::ptr::from_ref(table) as usize };
    registry::with(|registry| registry.first(ARENA_KIND).is_none() && registry.announce(own)).unwrap_or(false)
}
