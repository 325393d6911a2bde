//! Memory of this process that its job-mates on the node may read: one arena, made when somebody first asks for memory or the
//! engine first finds some. Called by interfaces and doors; a message whose bytes lie here is sent by reference.

use crate::error::Error;
use pulc_hal::device::shm::{ARENA_BYTES, Arena, Block, arena_table};
use pulc_hal::os::life;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

static ARENA: OnceLock<Arc<Arena>> = OnceLock::new();

/// The arena, made at the first call.
///
/// # Errors
/// When there is no address space or no memory for it.
pub fn arena() -> Result<&'static Arc<Arena>, Error> {
    static MAKING: Mutex<()> = Mutex::new(());
    if let Some(arena) = ARENA.get() {
        return Ok(arena);
    }
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(arena) = ARENA.get() {
        return Ok(arena);
    }
    life::watch_forks();
    let made = match arena_table::announced() {
        Some(table) => Arena::of_table(table)?,
        None => None,
    };
    let made = match made {
        Some(arena) => arena,
        None => Arena::new(ARENA_BYTES.read().value as usize)?,
    };
    Ok(ARENA.get_or_init(|| made))
}

/// Uses the arena of a preloaded allocator from the beginning, if there is one: what the program has allocated so far lies there.
pub(crate) fn adopt() {
    if arena_table::announced().is_some()
        && let Err(error) = arena()
    {
        pulc_base::log!(Warn, "handler", "the memory of the preloaded allocator is not read by others: {error}");
    }
}

/// The arena, if there is one.
#[inline]
pub fn known() -> Option<&'static Arc<Arena>> {
    ARENA.get()
}

/// A block of the arena. `Ok(None)`: it is full.
///
/// # Errors
/// As [`arena`]; in a fork of the process that has the arena, which does not inherit it.
pub fn alloc(len: usize) -> Result<Option<Block>, Error> {
    let arena = arena()?;
    if life::is_fork_child() {
        return Err(Error::ForkedMemory);
    }
    Ok(arena.alloc(len))
}

/// As [`alloc`]: memory that is given back by its address.
pub fn alloc_address(len: usize) -> Result<Option<*mut u8>, Error> {
    let arena = arena()?;
    if life::is_fork_child() {
        return Err(Error::ForkedMemory);
    }
    Ok(arena.alloc_address(len, 64))
}

/// Gives back what [`alloc_address`] gave out; false when nothing begins there.
pub fn free_address(address: *mut u8) -> bool {
    known().is_some_and(|arena| arena.free_address(address as usize))
}
