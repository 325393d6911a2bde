//! Memory that job-mates on this node may read: messages out of it are not copied by their sender.

use crate::Error;
pub use pulc_hal::device::shm::Block;
use pulc_handler::memory;

/// Memory of `len` bytes with unspecified content, which processes of this job on this node may read and nobody else may write.
/// A long message out of it is copied once, by its receiver. Given back when dropped.
///
/// A fork does not inherit it: its child must not touch the block.
///
/// # Errors
/// [`Error::NoMemory`] when the process's share is used up (`PULC_ARENA_BYTES`).
pub fn alloc(len: usize) -> Result<Block, Error> {
    memory::alloc(len)?.ok_or_else(|| full(len))
}

pub(crate) fn full(len: usize) -> Error {
    Error::NoMemory(format!("{len} bytes find no room in the memory that job-mates read; raise PULC_ARENA_BYTES"))
}

/// As [`alloc`] for callers of other languages: the address of memory that [`free_address`] takes back.
pub fn alloc_address(len: usize) -> Result<*mut u8, Error> {
    memory::alloc_address(len)?.ok_or_else(|| full(len))
}

/// Gives back what [`alloc_address`] gave out; false when nothing begins there.
pub fn free_address(address: *mut u8) -> bool {
    memory::free_address(address)
}
