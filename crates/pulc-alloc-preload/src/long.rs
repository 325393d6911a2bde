//! Long blocks: the process's arena, made with the first of them, and the table by which an engine that starts later finds it. Called by
//! the exported functions and by engines of this process; must never allocate a long block itself.

use pulc_hal::device::shm::arena_table::{self, ARENA_VERSION, ArenaPlace, ArenaTable};
use pulc_hal::device::shm::{ALLOC_MIN_BYTES, ARENA_BYTES, Arena};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// None: there is no address space for one, or this is a fork.
static ARENA: OnceLock<Option<&'static Arena>> = OnceLock::new();
/// This process is a fork: what it has stays, and nothing new is put there.
static IS_FORK: AtomicBool = AtomicBool::new(false);
/// Shortest long block; before the parameter is read no block is one.
static SHORTEST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Where the arena lies, for a quick look at every block that is given back.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

static TABLE: ArenaTable = ArenaTable {
    bytes: size_of::<ArenaTable>() as u32,
    version: ARENA_VERSION,
    place,
    take: take_for_engine,
    give_back: give_back_for_engine,
};

/// To be called once, when the library is loaded.
pub fn start() {
    pulc_hal::calibration::load();
    arena_table::announce(&TABLE);
    SHORTEST.store(ALLOC_MIN_BYTES.read().value as usize, Ordering::Release);
}

/// Nothing new is put into the arena from now on.
pub fn close() {
    IS_FORK.store(true, Ordering::Relaxed);
    SHORTEST.store(usize::MAX, Ordering::Relaxed);
}

/// Whether a block of so many bytes belongs here.
#[inline]
pub fn is_long(bytes: usize) -> bool {
    bytes >= SHORTEST.load(Ordering::Relaxed)
}

/// Whether a block is one of ours.
#[inline]
pub fn has(block: *const c_void) -> bool {
    (block as usize).wrapping_sub(BEGIN.load(Ordering::Relaxed)) < BYTES.load(Ordering::Relaxed)
}

/// The arena, if it has been made.
pub fn known() -> Option<&'static Arena> {
    ARENA.get().copied().flatten()
}

fn arena() -> Option<&'static Arena> {
    *ARENA.get_or_init(|| {
        if IS_FORK.load(Ordering::Relaxed) {
            return None;
        }
        let arena: &'static Arc<Arena> = Box::leak(Box::new(Arena::new(ARENA_BYTES.read().value as usize).ok()?));
        let place = arena.place();
        BEGIN.store(place.base as usize, Ordering::Relaxed);
        BYTES.store(place.len, Ordering::Relaxed);
        Some(&**arena)
    })
}

/// A block, and whether it is zero; `None` when the arena is full or there is none.
pub fn take(bytes: usize, align: usize) -> Option<(*mut c_void, bool)> {
    let (block, untouched) = arena()?.alloc_knowing(bytes, align)?;
    Some((block.cast(), untouched))
}

/// Length of one of our blocks.
pub fn room_of(block: *const c_void) -> usize {
    known().and_then(|arena| arena.room_at(block as usize)).unwrap_or(0)
}

/// Gives one of our blocks back; false when nothing begins there.
pub fn give_back(block: *mut c_void) -> bool {
    let Some(arena) = known() else { return false };
    if IS_FORK.load(Ordering::Relaxed) {
        let room = arena.room_at(block as usize).unwrap_or(0);
        if room > 0 {
            // SAFETY: whole pages of this process's private copy (see `forks`) that its program has just given back.
            unsafe { libc::madvise(block, room & !4095, libc::MADV_DONTNEED) };
        }
    }
    arena.free_address(block as usize)
}

extern "C" fn place(to: *mut ArenaPlace) -> c_int {
    let arena = if IS_FORK.load(Ordering::Relaxed) { None } else { arena() };
    let Some(arena) = arena else { return -1 };
    if to.is_null() {
        return -1;
    }
    // SAFETY: the engine that asks has room for a place there.
    unsafe { to.write(arena.place()) };
    0
}

extern "C" fn take_for_engine(bytes: usize, align: usize) -> *mut c_void {
    let taken = if IS_FORK.load(Ordering::Relaxed) { None } else { take(bytes, align) };
    taken.map_or(std::ptr::null_mut(), |(block, _)| block)
}

extern "C" fn give_back_for_engine(block: *mut c_void) -> c_int {
    if give_back(block) { 0 } else { -1 }
}
