//! Nameless shared memory with seals. The type tells who may do what: a [`WriteMap`] is the producer's view, a [`ReadMap`]
//! the consumer's, a *constant* is written once and never again. Called by the board, the shm device and the keeper.
//!
//! Must never form a reference to shared bytes: other processes change them at any time. They are reached through
//! atomics or through [`crate::os::copy`]. Must never accept memory that its maker could still shrink (`SIGBUS`) or that
//! others could write.
//!
//! A read-only descriptor would not be enough: whoever holds one can open it again for writing through procfs. So the
//! producer maps first and then seals `FUTURE_WRITE`: its own map stays writable, every later one is refused.

use crate::error::HalError;
use crate::os::copy::{self, Stores};
use crate::os::life;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Seals of memory that only its producer writes.
const PRODUCER_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
/// Seals of memory that all who get the descriptor may write.
const COMMON_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// Seals of memory that nobody writes any more.
const CONSTANT_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// Longest mapping that is made, against absurd sizes in offers.
pub const MAP_MAX: usize = 1 << 40;

/// `f_type` of tmpfs in `statfs`. A memfd on hugetlbfs could raise `SIGBUS` when the pool of huge pages is empty.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Makes memory that this process writes and others only read. The descriptor is sealed and ready to be passed.
pub fn create_produced(name: &str, len: usize) -> Result<(WriteMap, OwnedFd), HalError> {
    create_mapped(name, len, PRODUCER_SEALS)
}

/// Makes memory that everyone who gets the descriptor may read and write.
pub fn create_common(name: &str, len: usize) -> Result<(WriteMap, OwnedFd), HalError> {
    create_mapped(name, len, COMMON_SEALS)
}

/// Makes memory with these bytes, which no one can change any more.
pub fn create_constant(name: &str, bytes: &[u8]) -> Result<OwnedFd, HalError> {
    let fd = create(name)?;
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::io::pwrite(&fd, &bytes[done..], done as u64).map_err(HalError::system("write a constant"))?;
    }
    rustix::fs::fcntl_add_seals(&fd, CONSTANT_SEALS).map_err(HalError::system("seal a constant"))?;
    Ok(fd)
}

/// Reads a constant made by [`create_constant`], at most `max` bytes. Refuses memory that can still change.
pub fn read_constant(fd: BorrowedFd<'_>, max: usize) -> Result<Vec<u8>, HalError> {
    check_seals(fd, CONSTANT_SEALS)?;
    let len = size(fd)?;
    if len > max as u64 {
        return Err(HalError::Limit { what: "a constant's size in bytes", value: len, max: max as u64 });
    }
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[done..], done as u64).map_err(HalError::system("read a constant"))? {
            0 => return Err(HalError::WrongSize { found: done as u64, expected: len }),
            read => done += read,
        }
    }
    Ok(bytes)
}

/// Maps what a peer produces; refuses it unless fully sealed and exactly `len` bytes long. The descriptor is closed.
pub fn map_produced(fd: OwnedFd, len: usize) -> Result<ReadMap, HalError> {
    check_seals(fd.as_fd(), PRODUCER_SEALS)?;
    check_size(fd.as_fd(), len)?;
    Ok(ReadMap { bytes: Bytes::map(fd.as_fd(), len, ProtFlags::READ)? })
}

/// Maps memory made by [`create_common`]; refuses another size or memory that can shrink.
pub fn map_common(fd: BorrowedFd<'_>, len: usize) -> Result<WriteMap, HalError> {
    check_seals(fd, COMMON_SEALS)?;
    check_size(fd, len)?;
    Ok(WriteMap { bytes: Bytes::map(fd, len, ProtFlags::READ | ProtFlags::WRITE)? })
}

/// Length in bytes of the memory behind a descriptor.
pub fn size(fd: BorrowedFd<'_>) -> Result<u64, HalError> {
    let stat = rustix::fs::fstat(fd).map_err(HalError::system("fstat of shared memory"))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// What tells the memory behind a descriptor from all other memory.
pub(crate) fn inode(fd: BorrowedFd<'_>) -> Result<u64, HalError> {
    Ok(rustix::fs::fstat(fd).map_err(HalError::system("fstat of shared memory"))?.st_ino)
}

fn create(name: &str) -> Result<OwnedFd, HalError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // NOEXEC_SEAL exists since Linux 6.3; older kernels answer EINVAL.
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }
    .map_err(HalError::system("memfd_create"))
}

fn create_mapped(name: &str, len: usize, seals: SealFlags) -> Result<(WriteMap, OwnedFd), HalError> {
    let fd = create(name)?;
    rustix::fs::ftruncate(&fd, len as u64).map_err(HalError::system("size of shared memory"))?;
    let bytes = Bytes::map(fd.as_fd(), len, ProtFlags::READ | ProtFlags::WRITE)?;
    rustix::fs::fcntl_add_seals(&fd, seals).map_err(HalError::system("seal shared memory"))?;
    Ok((WriteMap { bytes }, fd))
}

fn check_seals(fd: BorrowedFd<'_>, required: SealFlags) -> Result<(), HalError> {
    // Not a memfd at all: EINVAL.
    let found = rustix::fs::fcntl_get_seals(fd).map_err(|_| HalError::NotSharedMemory)?;
    if !found.contains(required) {
        return Err(HalError::NotSealed { found: found.bits(), required: required.bits() });
    }
    let stat = rustix::fs::fstatfs(fd).map_err(HalError::system("fstatfs of shared memory"))?;
    if stat.f_type as u64 != TMPFS_MAGIC {
        return Err(HalError::NotSharedMemory);
    }
    Ok(())
}

fn check_size(fd: BorrowedFd<'_>, expected: usize) -> Result<(), HalError> {
    let found = size(fd)?;
    if found != expected as u64 {
        return Err(HalError::WrongSize { found, expected: expected as u64 });
    }
    Ok(())
}

/// A shared mapping, unmapped on drop. Invariant: `base..base + len` stays mapped, with the protection it was made with,
/// as long as the value lives; the memory behind it cannot shrink (sealed).
struct Bytes {
    base: NonNull<u8>,
    len: usize,
    /// A fork's child does not have it: what lies there in the child is something else.
    left_out: AtomicBool,
}

// SAFETY: plain memory of the process, reached only through atomics and the copy routines; no thread affinity.
unsafe impl Send for Bytes {}
// SAFETY: as above; concurrent access is what the mapping exists for.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn map(fd: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> Result<Bytes, HalError> {
        if len == 0 || len > MAP_MAX {
            return Err(HalError::Limit { what: "a mapping's size in bytes", value: len as u64, max: MAP_MAX as u64 });
        }
        // SAFETY: a fresh mapping at an address the kernel picks touches no existing memory.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }
            .map_err(HalError::system("map shared memory"))?;
        let base = NonNull::new(base.cast()).ok_or(HalError::NotSharedMemory)?;
        Ok(Bytes { base, len, left_out: AtomicBool::new(false) })
    }

    /// Address of `offset..offset + len`, which must lie inside: callers check what comes from peers before.
    #[inline(always)]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        if offset > self.len || len > self.len - offset {
            outside(offset, len, self.len);
        }
        // SAFETY: the assertion keeps the result inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    #[inline(always)]
    fn aligned<T>(&self, offset: usize) -> *mut T {
        if !offset.is_multiple_of(align_of::<T>()) {
            unaligned(offset);
        }
        self.at(offset, size_of::<T>()).cast()
    }
}

/// Apart from the check, so that nothing of its text is prepared on the way of a message.
#[cold]
#[inline(never)]
fn outside(offset: usize, len: usize, bytes: usize) -> ! {
    panic!("{offset}+{len} lies outside {bytes} bytes")
}

#[cold]
#[inline(never)]
fn unaligned(offset: usize) -> ! {
    panic!("offset {offset} is not aligned")
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if self.left_out.load(Ordering::Relaxed) && life::is_fork_child() {
            return;
        }
        // SAFETY: made by `map` with this length, unmapped only here; borrows of it end before.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Memory that this process may write. Offsets and lengths are the caller's own, never a peer's: outside is a panic.
pub struct WriteMap {
    bytes: Bytes,
}

impl WriteMap {
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len
    }

    #[inline(always)]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned (checked), mapped writable, shared only as atomics.
        unsafe { AtomicU32::from_ptr(self.bytes.aligned(offset)) }
    }

    #[inline(always)]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `u32_at`.
        unsafe { AtomicU64::from_ptr(self.bytes.aligned(offset)) }
    }

    /// One cache line.
    #[inline(always)]
    pub fn line_at(&self, offset: usize) -> &[AtomicU64; 8] {
        let line = self.bytes.aligned::<[u64; 8]>(offset).cast::<[AtomicU64; 8]>();
        // SAFETY: inside the mapping and aligned (checked), mapped writable, shared only as atomics.
        unsafe { &*line }
    }

    /// Asks for a cache line that will be written soon: it is this core's own by then. Changes nothing.
    #[inline(always)]
    pub fn claim_line(&self, offset: usize) {
        copy::claim_line(self.bytes.at(offset, 64));
    }

    /// Copies private bytes into the mapping.
    #[inline(always)]
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        self.copy_in_with(offset, from, Stores::Ordinary);
    }

    /// The same with a choice of how.
    #[inline(always)]
    pub(crate) fn copy_in_with(&self, offset: usize, from: &[u8], stores: Stores) {
        let to = self.bytes.at(offset, from.len());
        // SAFETY: `to` is valid for writes of `from.len()` bytes (checked), and `from` is private memory.
        unsafe { copy::to_shared(to, from.as_ptr(), from.len(), stores) }
    }

    /// A mapping that another library of this process has made. The value must never be dropped.
    ///
    /// # Safety
    /// `len` bytes from `base` are mapped shared and writable until the process ends, and nobody but this process can write them.
    pub(crate) unsafe fn of_another(base: NonNull<u8>, len: usize) -> WriteMap {
        WriteMap { bytes: Bytes { base, len, left_out: AtomicBool::new(false) } }
    }

    /// A fork does not get this mapping: its child would write into its parent's memory.
    pub(crate) fn leave_out_of_forks(&self) -> Result<(), HalError> {
        life::watch_forks();
        self.bytes.left_out.store(true, Ordering::Relaxed);
        // SAFETY: the advice concerns exactly this value's own mapping and changes no byte of it.
        unsafe {
            rustix::mm::madvise(self.bytes.base.as_ptr().cast(), self.bytes.len, rustix::mm::Advice::LinuxDontFork)
        }
        .map_err(HalError::system("leave shared memory out of forks"))
    }

    /// Address of the mapping, to be compared with others.
    pub(crate) fn address(&self) -> usize {
        self.bytes.base.as_ptr() as usize
    }

    /// Address of a range, for memory that only this mapping can write.
    pub(crate) fn pointer(&self, offset: usize, len: usize) -> *mut u8 {
        self.bytes.at(offset, len)
    }

    /// The same bytes for reading, for instance to look at what was written.
    pub fn shared(&self, offset: usize, len: usize) -> SharedBytes<'_> {
        SharedBytes { base: self.bytes.at(offset, len), len, map: PhantomData }
    }
}

/// Memory that another process writes at any time and this one only reads.
pub struct ReadMap {
    bytes: Bytes,
}

impl ReadMap {
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len
    }

    /// Loads once; pairs with the producer's release store to the same place when `order` is `Acquire`.
    #[inline(always)]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: inside the mapping and aligned (checked); an atomic load of word size never writes, so a read-only
        // page is enough.
        unsafe { AtomicU64::from_ptr(self.bytes.aligned(offset)) }.load(order)
    }

    /// The same for half as many bytes.
    pub fn load_u32(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: as in `load_u64`.
        unsafe { AtomicU32::from_ptr(self.bytes.aligned(offset)) }.load(order)
    }
    /// Loads a word again and again; each time pairs with the producer's release store to it.
    #[inline(always)]
    pub fn watch_u64(&self, offset: usize) -> impl Fn() -> u64 {
        // SAFETY: inside the mapping and aligned (checked), and only loaded (see `load_u64`).
        let word = unsafe { AtomicU64::from_ptr(self.bytes.aligned(offset)) };
        move || word.load(Ordering::Acquire)
    }

    /// Loads the first word of a cache line (acquire) and, if it is `wanted`, the other seven, each once; if that one says that `few`
    /// mean anything, only three of them, and zero for the rest.
    #[inline(always)]
    pub fn load_line(
        &self,
        offset: usize,
        wanted: impl FnOnce(u64) -> bool,
        few: impl FnOnce(u64) -> bool,
    ) -> Option<(u64, [u64; 7])> {
        let line = self.bytes.aligned::<[u64; 8]>(offset).cast::<u64>();
        // SAFETY: all eight words lie inside the mapping and are aligned (checked); an atomic load of word size never
        // writes, so a read-only page is enough.
        let word = |index, order| unsafe { AtomicU64::from_ptr(line.add(index)) }.load(order);
        let first = word(0, Ordering::Acquire);
        if !wanted(first) {
            return None;
        }
        let at = |index| word(index, Ordering::Relaxed);
        let words = match few(first) {
            true => [at(1), at(2), at(3), 0, 0, 0, 0],
            false => [at(1), at(2), at(3), at(4), at(5), at(6), at(7)],
        };
        Some((first, words))
    }

    /// Copies bytes out of the mapping.
    #[inline(always)]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        let from = self.bytes.at(offset, to.len());
        // SAFETY: `from` is valid for reads of `to.len()` bytes (checked), `to` is exclusive private memory.
        unsafe { copy::from_shared(to.as_mut_ptr(), from, to.len()) }
    }

    /// A range chosen by a peer: `None` when it lies outside.
    #[inline(always)]
    pub fn shared(&self, offset: u64, len: u64) -> Option<SharedBytes<'_>> {
        let end = offset.checked_add(len)?;
        if end > self.bytes.len as u64 {
            return None;
        }
        Some(SharedBytes { base: self.bytes.at(offset as usize, len as usize), len: len as usize, map: PhantomData })
    }
}

/// A checked range of shared bytes, readable only by copying. Their content may change between two copies.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    base: *const u8,
    len: usize,
    map: PhantomData<&'a ()>,
}

impl<'a> SharedBytes<'a> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, for those who bear that the bytes change under their hands.
    pub fn as_ptr(&self) -> *const u8 {
        self.base
    }

    /// Copies `to.len()` bytes from `offset`.
    ///
    /// # Panics
    /// When the range lies outside.
    #[inline(always)]
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) {
        self.copy_to_with(offset, to, Stores::Ordinary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_producer_writes_the_consumer_reads_and_cannot_write() {
        let (map, fd) = create_produced("test", 8192).unwrap();
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err(), "the descriptor must not write");
        assert!(rustix::fs::ftruncate(&fd, 0).is_err(), "the memory must not shrink");
        assert!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE).is_err(), "the seals must not change");
        assert!(Bytes::map(fd.as_fd(), 8192, ProtFlags::READ | ProtFlags::WRITE).is_err(), "no second writer");
        // Opening the memory anew through procfs gives a writable descriptor, and it is of no use.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        if let Ok(again) = std::fs::OpenOptions::new().read(true).write(true).open(path) {
            assert!(rustix::io::pwrite(&again, b"x", 0).is_err());
            assert!(Bytes::map(again.as_fd(), 8192, ProtFlags::READ | ProtFlags::WRITE).is_err());
        }
        let read = map_produced(fd, 8192).unwrap();
        map.copy_in(100, b"hello");
        map.u64_at(4096).store(7, Ordering::Release);
        let mut bytes = [0; 5];
        read.copy_out(100, &mut bytes);
        assert_eq!((&bytes, read.load_u64(4096, Ordering::Acquire)), (b"hello", 7));
    }

    #[test]
    fn memory_that_could_change_shape_or_writer_is_refused() {
        let bare = create("test").unwrap();
        rustix::fs::ftruncate(&bare, 4096).unwrap();
        let copy = || bare.try_clone().unwrap();
        assert!(matches!(map_produced(copy(), 4096), Err(HalError::NotSealed { .. })));
        assert!(matches!(map_common(bare.as_fd(), 4096), Err(HalError::NotSealed { .. })));
        assert!(matches!(read_constant(bare.as_fd(), 4096), Err(HalError::NotSealed { .. })));
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
            let fd = create("test").unwrap();
            rustix::fs::ftruncate(&fd, 4096).unwrap();
            rustix::fs::fcntl_add_seals(&fd, PRODUCER_SEALS.difference(missing)).unwrap();
            assert!(matches!(map_produced(fd, 4096), Err(HalError::NotSealed { .. })), "{missing:?}");
        }
        let (_map, short) = create_produced("test", 4096).unwrap();
        assert!(matches!(map_produced(short, 8192), Err(HalError::WrongSize { found: 4096, expected: 8192 })));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(map_produced(null.into(), 4096), Err(HalError::NotSharedMemory)));
    }

    #[test]
    fn a_constant_is_read_whole_and_only_within_the_limit() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let fd = create_constant("test", &bytes).unwrap();
        assert_eq!(read_constant(fd.as_fd(), 10_000).unwrap(), bytes);
        assert!(matches!(read_constant(fd.as_fd(), 9_999), Err(HalError::Limit { value: 10_000, .. })));
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
    }

    #[test]
    fn ranges_from_a_peer_are_checked_without_overflow() {
        let (_map, fd) = create_produced("test", 4096).unwrap();
        let read = map_produced(fd, 4096).unwrap();
        assert!(read.shared(0, 4096).is_some() && read.shared(4096, 0).is_some());
        for (offset, len) in [(0, 4097), (4096, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert!(read.shared(offset, len).is_none(), "{offset}+{len}");
        }
    }

    #[test]
    fn memory_for_all_is_written_by_all() {
        let (a, fd) = create_common("test", 4096).unwrap();
        let b = map_common(fd.as_fd(), 4096).unwrap();
        b.u32_at(4).store(5, Ordering::Relaxed);
        assert_eq!(a.u32_at(4).load(Ordering::Relaxed), 5);
        assert!(matches!(map_common(fd.as_fd(), 8192), Err(HalError::WrongSize { .. })));
    }
}
