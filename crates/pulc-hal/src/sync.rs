//! Where lock-free code of this crate gets its fences and, for words that also exist under loom, its atomics from. In an
//! ordinary build everything is the standard library's; with `--cfg loom` the fences are loom's, and the models bring
//! loom's words. Nothing else belongs here.

use std::sync::atomic::Ordering;

#[cfg(not(loom))]
pub use std::sync::atomic::fence;

#[cfg(loom)]
pub use loom::sync::atomic::fence;

/// A 32-bit word that threads or processes share.
pub trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
}

impl Word for std::sync::atomic::AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}

#[cfg(loom)]
impl Word for loom::sync::atomic::AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}
