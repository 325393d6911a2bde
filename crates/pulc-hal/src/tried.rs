//! A place in memory under loom, which complains when two threads are there without order between them. For models of this crate and of
//! those above it, which have no `unsafe` of their own; in no program.

use loom::cell::UnsafeCell;

/// Holds one number, with no order of its own.
pub struct Place(UnsafeCell<u64>);

// SAFETY: loom runs one thread at a time and checks that every access is ordered after the one before.
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for Place {}

impl Place {
    pub fn new(value: u64) -> Place {
        Place(UnsafeCell::new(value))
    }

    pub fn get(&self) -> u64 {
        // SAFETY: loom itself checks that nobody writes there meanwhile.
        self.0.with(|place| unsafe { *place })
    }

    pub fn set(&self, value: u64) {
        // SAFETY: loom itself checks that nobody else is there.
        self.0.with_mut(|place| unsafe { *place = value });
    }
}
