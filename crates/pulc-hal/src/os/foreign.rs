//! A piece of memory that belongs to somebody who speaks no Rust (the caller of a C door) and is lent to us for longer than a
//! call. Made by doors only; everybody else uses it like any buffer.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Memory lent by its owner's promise.
pub struct ForeignBytes {
    start: NonNull<u8>,
    len: usize,
}

impl ForeignBytes {
    /// # Safety
    /// Until the value is dropped, `len` bytes from `start` are readable and writable, initialised, and touched by nobody else.
    /// `len` does not exceed `isize::MAX`.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> ForeignBytes {
        ForeignBytes { start, len }
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }
}

// SAFETY: nothing about the memory belongs to a thread; the maker promises that nobody else touches it.
unsafe impl Send for ForeignBytes {}
// SAFETY: a shared reference only reads, and the maker promises that nobody else writes.
unsafe impl Sync for ForeignBytes {}

impl Deref for ForeignBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the maker's promise.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for ForeignBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the maker's promise; `&mut self` makes it exclusive among users of this value.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
