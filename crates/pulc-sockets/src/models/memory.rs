//! Shared memory of loom's words, as little of it as the models need. Bytes of rings are places without order of their own: loom complains
//! when one is read while it is written, or the other way round.
//!
//! Loom takes a sequentially consistent access for an acquire or a release. Here such a load stands behind a fence, which is one of the two
//! ways in which compilers make them: what is stored before is seen by others before it is loaded.

use loom::sync::atomic::fence;
use pulc_hal::tried::Place;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use loom::hint::spin_loop;
pub use loom::thread::yield_now;

macro_rules! word {
    ($name:ident, $number:ty) => {
        /// Still: one thread alone writes and reads it, or nobody writes it. It is no place at which the order could matter.
        pub enum $name {
            Live(loom::sync::atomic::$name),
            Still(std::sync::atomic::$name),
        }

        impl $name {
            /// A live one.
            pub fn new(value: $number) -> $name {
                $name::Live(loom::sync::atomic::$name::new(value))
            }

            fn of(value: $number, is_live: bool) -> $name {
                if is_live { $name::new(value) } else { $name::Still(std::sync::atomic::$name::new(value)) }
            }

            pub fn load(&self, order: Ordering) -> $number {
                match self {
                    $name::Still(word) => word.load(order),
                    $name::Live(word) => {
                        before(order);
                        word.load(if order == Ordering::SeqCst { Ordering::Acquire } else { order })
                    }
                }
            }

            pub fn store(&self, value: $number, order: Ordering) {
                match self {
                    $name::Still(word) => word.store(value, order),
                    $name::Live(word) => {
                        word.store(value, if order == Ordering::SeqCst { Ordering::Release } else { order });
                    }
                }
            }

            pub fn swap(&self, value: $number, order: Ordering) -> $number {
                match self {
                    $name::Still(word) => word.swap(value, order),
                    $name::Live(word) => {
                        before(order);
                        word.swap(value, order)
                    }
                }
            }

            pub fn fetch_add(&self, value: $number, order: Ordering) -> $number {
                match self {
                    $name::Still(word) => word.fetch_add(value, order),
                    $name::Live(word) => {
                        before(order);
                        word.fetch_add(value, order)
                    }
                }
            }

            pub fn fetch_sub(&self, value: $number, order: Ordering) -> $number {
                match self {
                    $name::Still(word) => word.fetch_sub(value, order),
                    $name::Live(word) => {
                        before(order);
                        word.fetch_sub(value, order)
                    }
                }
            }

            pub fn fetch_and(&self, value: $number, order: Ordering) -> $number {
                match self {
                    $name::Still(word) => word.fetch_and(value, order),
                    $name::Live(word) => {
                        before(order);
                        word.fetch_and(value, order)
                    }
                }
            }

            pub fn fetch_or(&self, value: $number, order: Ordering) -> $number {
                match self {
                    $name::Still(word) => word.fetch_or(value, order),
                    $name::Live(word) => {
                        before(order);
                        word.fetch_or(value, order)
                    }
                }
            }

            pub fn compare_exchange(
                &self,
                from: $number,
                to: $number,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$number, $number> {
                match self {
                    $name::Still(word) => word.compare_exchange(from, to, order, failed),
                    $name::Live(word) => {
                        before(order);
                        word.compare_exchange(from, to, order, failed)
                    }
                }
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

fn before(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

/// Seen through several mappings.
#[derive(Clone, Default)]
pub struct Memory(Arc<Places>);

/// Words by where they lie, and bytes of rings.
#[derive(Default)]
struct Places {
    words: BTreeMap<usize, AtomicU32>,
    longs: BTreeMap<usize, AtomicU64>,
    bytes: BTreeMap<usize, Place>,
}

impl Memory {
    fn places(&mut self) -> &mut Places {
        Arc::get_mut(&mut self.0).expect("it is not mapped yet")
    }

    /// A word with its first value.
    pub fn word(&mut self, at: usize, value: u32, is_live: bool) {
        self.places().words.insert(at, AtomicU32::of(value, is_live));
    }

    pub fn long(&mut self, at: usize, is_live: bool) {
        self.places().longs.insert(at, AtomicU64::of(0, is_live));
    }

    pub fn byte(&mut self, at: usize) {
        self.places().bytes.insert(at, Place::new(0));
    }

    pub fn u32_at(&self, at: usize) -> &AtomicU32 {
        self.0.words.get(&at).unwrap_or_else(|| panic!("the model has no word at {at}"))
    }

    pub fn u64_at(&self, at: usize) -> &AtomicU64 {
        self.0.longs.get(&at).unwrap_or_else(|| panic!("the model has no long word at {at}"))
    }

    /// Hints have no order.
    pub fn claim_line(&self, _: usize) {}

    pub fn expect_line(&self, _: usize) {}

    pub fn copy_in(&self, at: usize, from: &[u8]) {
        (at..).zip(from).for_each(|(at, byte)| self.0.bytes[&at].set(u64::from(*byte)));
    }
}

pub fn copy_out(memory: &Memory, at: usize, to: &mut [u8]) {
    (at..).zip(to).for_each(|(at, byte)| *byte = memory.0.bytes[&at].get() as u8);
}
