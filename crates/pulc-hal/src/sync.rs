//! Where lock-free code of this crate gets its fences and, for words that also exist under loom, its atomics from. In an
//! ordinary build everything is the standard library's; with `--cfg loom` the fences are loom's, and the models bring
//! loom's words. Nothing else belongs here.

use std::sync::atomic::Ordering;

#[cfg(not(loom))]
pub use std::sync::atomic::fence;

#[cfg(loom)]
pub use loom::sync::atomic::fence;

/// A full barrier of this thread: everything before it is visible to others before anything after it is read. What
/// `fence(SeqCst)` promises; but the compiler makes `mfence` of that, which empties the store buffer and lets nothing overlap,
/// and so allows one message for each hand-over of a line. A locked instruction on the own stack orders the same.
#[cfg(all(not(loom), not(miri), target_arch = "x86_64"))]
#[inline(always)]
pub fn full_barrier() {
    // SAFETY: or-ing zero changes nothing, and the word at the stack pointer is always mapped. Locked instructions order all
    // earlier stores of ordinary memory before all later loads (Intel SDM vol. 3, 8.2.3.9; AMD APM vol. 2, 7.1).
    unsafe { std::arch::asm!("lock or dword ptr [rsp], 0", options(nostack)) };
}

#[cfg(not(all(not(loom), not(miri), target_arch = "x86_64")))]
#[inline(always)]
pub fn full_barrier() {
    fence(Ordering::SeqCst);
}

/// Half of an asymmetric fence: free for this side, because the other side makes all threads pass a barrier.
#[cfg(not(loom))]
#[inline(always)]
pub fn compiler_barrier() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The other half: on return every thread of this process has passed a full barrier since the call. Only after
/// [`prepare_barrier_of_all_threads`] has said that there is one.
#[cfg(not(loom))]
pub fn barrier_of_all_threads() {
    fence(Ordering::SeqCst);
    if let Err(error) = rustix::thread::membarrier(rustix::thread::MembarrierCommand::PrivateExpedited) {
        // A sandbox that forbids it only now. Going on would let two threads write the same memory.
        eprintln!("pulc: the kernel refuses membarrier, which it had agreed to: {error}");
        std::process::abort();
    }
}

/// Asks the kernel for it; whether it will do it (Linux 4.14, and allowed by a sandbox).
#[cfg(not(loom))]
pub fn prepare_barrier_of_all_threads() -> bool {
    rustix::thread::membarrier(rustix::thread::MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

/// Loom knows no asymmetric fences; two ordinary ones promise the same.
#[cfg(loom)]
pub fn compiler_barrier() {
    fence(Ordering::SeqCst);
}

#[cfg(loom)]
pub fn barrier_of_all_threads() {
    fence(Ordering::SeqCst);
}

#[cfg(loom)]
pub fn prepare_barrier_of_all_threads() -> bool {
    true
}

/// A 32-bit word that threads or processes share.
pub trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
    fn swap(&self, value: u32, order: Ordering) -> u32;
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    fn compare_exchange(&self, from: u32, to: u32, order: Ordering, failed: Ordering) -> Result<u32, u32>;
}

/// Words of 64 bits that threads or processes share, by number.
pub trait Words {
    fn load(&self, at: usize, order: Ordering) -> u64;
    fn store(&self, at: usize, word: u64, order: Ordering);
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

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_add(value, order)
    }

    fn compare_exchange(&self, from: u32, to: u32, order: Ordering, failed: Ordering) -> Result<u32, u32> {
        self.compare_exchange(from, to, order, failed)
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

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_add(value, order)
    }

    fn compare_exchange(&self, from: u32, to: u32, order: Ordering, failed: Ordering) -> Result<u32, u32> {
        self.compare_exchange(from, to, order, failed)
    }
}
