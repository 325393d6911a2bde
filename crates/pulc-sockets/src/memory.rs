//! Where the rooms of this crate get shared memory and its words from: a mapping and the standard library's atomics, or with `--cfg loom`
//! what the models bring. Nothing else belongs here.

#[cfg(loom)]
pub use crate::models::memory::{AtomicU32, AtomicU64, Memory, copy_out, spin_loop, yield_now};
#[cfg(not(loom))]
pub use {
    pulc_hal::os::memfd::WriteMap as Memory,
    std::hint::spin_loop,
    std::sync::atomic::{AtomicU32, AtomicU64},
    std::thread::yield_now,
};

/// Copies what the other end has written.
#[cfg(not(loom))]
#[inline(always)]
pub fn copy_out(memory: &Memory, at: usize, to: &mut [u8]) {
    memory.shared(at, to.len()).copy_to(0, to);
}
