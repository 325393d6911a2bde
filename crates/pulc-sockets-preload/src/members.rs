//! Where sets of descriptors are kept: who is in each, as the program sees it and as the kernel knows it, and who may be waiting in the
//! kernel for it. Used by `sets.rs` and `postponed.rs`, which say what all of it means. Fixed places, one lock each; nothing here sleeps.

use crate::kernel::me;
use libc::c_int;
use pulc_sockets::board::WORDS;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers 1 and up are words of the board; set 0 are all those for which there is none.
pub const SETS: usize = WORDS as usize;
/// Of one set; more are parked.
pub const MEMBERS: usize = 256;

pub static ALL: [Set; SETS] = [const { Set::new() }; SETS];

/// One descriptor of a set. The kernel has it too, perhaps with other events, and until it is told otherwise also if the program has
/// taken it out.
#[derive(Clone, Copy)]
pub struct Member {
    pub fd: c_int,
    /// Whether it is in the set as far as the program knows, for what, and what it is called there.
    pub is_wanted: bool,
    pub events: u32,
    pub data: u64,
    /// The same as the kernel has it.
    pub kernel_events: u32,
    pub kernel_data: u64,
    /// What had arrived when an edge was told last.
    pub told: u64,
}

impl Member {
    /// Whether the kernel has to be told something before it is asked.
    pub fn is_postponed(&self) -> bool {
        !self.is_wanted || (self.events, self.data) != (self.kernel_events, self.kernel_data)
    }
}

pub struct Set {
    lock: AtomicU32,
    pub is_taken: AtomicU32,
    /// A descriptor of it, and one more; there may be others.
    pub fd: AtomicU32,
    /// Waited for through another set.
    pub is_nested: AtomicU32,
    /// Other processes may wait for it: nothing is postponed.
    pub is_shared: AtomicU32,
    /// Members, also those that only the kernel still has.
    pub count: AtomicU32,
    /// Of them, those of which the kernel has to be told something.
    pub postponed: AtomicU32,
    /// Calls of the kernel that wait for it, or look at it, just now.
    pub waiters: AtomicU32,
    pub turns: AtomicU32,
    /// How well looking has done; and the descriptor, and one more, of what was found last.
    pub luck: AtomicU32,
    pub sender: AtomicU32,
    /// Waits for which the kernel has its turn first: it had something lately.
    pub busy: AtomicU32,
    members: UnsafeCell<[Member; MEMBERS]>,
}

// SAFETY: `members` is reached only by who holds `lock`.
unsafe impl Sync for Set {}

const NOBODY: Member =
    Member { fd: 0, is_wanted: false, events: 0, data: 0, kernel_events: 0, kernel_data: 0, told: 0 };

impl Set {
    const fn new() -> Set {
        Set {
            lock: AtomicU32::new(0),
            is_taken: AtomicU32::new(0),
            fd: AtomicU32::new(0),
            is_nested: AtomicU32::new(0),
            is_shared: AtomicU32::new(0),
            count: AtomicU32::new(0),
            postponed: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            turns: AtomicU32::new(0),
            luck: AtomicU32::new(0),
            sender: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            members: UnsafeCell::new([NOBODY; MEMBERS]),
        }
    }

    /// A set that has just been given this place.
    pub fn begin(&self, fd: c_int) {
        for word in [
            &self.is_nested,
            &self.is_shared,
            &self.count,
            &self.postponed,
            &self.waiters,
            &self.luck,
            &self.sender,
            &self.busy,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.fd.store(fd as u32 + 1, Ordering::Relaxed);
    }

    /// Calls `what` with the members and their number. `None` where a signal handler has interrupted another such call of its thread.
    pub fn with<T>(&self, what: impl FnOnce(&mut [Member; MEMBERS], &mut usize) -> T) -> Option<T> {
        let _held = Held::take(&self.lock)?;
        let mut count = self.count.load(Ordering::Relaxed) as usize;
        // SAFETY: the lock is held.
        let result = what(unsafe { &mut *self.members.get() }, &mut count);
        self.count.store(count as u32, Ordering::Release);
        Some(result)
    }

    /// A fork's child has one thread, which holds no lock and waits for nothing.
    pub fn is_of_one_thread(&self) {
        self.lock.store(0, Ordering::Relaxed);
        self.waiters.store(0, Ordering::Relaxed);
    }
}

/// A lock of this process.
pub struct Held<'a>(&'a AtomicU32);

impl Held<'_> {
    pub fn take(word: &AtomicU32) -> Option<Held<'_>> {
        let me = me();
        while let Err(holder) = word.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
            if holder == me {
                return None;
            }
            std::thread::yield_now();
        }
        Some(Held(word))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
