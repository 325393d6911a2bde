//! Calls on a connection while it is closed and its place is taken anew, under loom: the crate's own `Place`, one descriptor.

use super::check;
use crate::memory::AtomicU32;
use crate::place::{AWARE, Place, enter, phase};
use loom::sync::Arc;
use loom::thread;
use pulc_hal::tried;
use std::sync::atomic::Ordering;

/// What a descriptor's entry says when this place is its own.
const INDEX: u32 = 1;
/// What is in a place: nothing, the first connection, or the one after it.
const NOTHING: u64 = 0;
const FIRST: u64 = 1;
const SECOND: u64 = 2;

/// A table of one descriptor and one place. Loom complains when `inside` changes while somebody looks at it.
struct Table {
    at: AtomicU32,
    place: Place,
    inside: tried::Place,
    freed: AtomicU32,
}

impl Table {
    /// The first connection is there.
    fn new() -> Arc<Table> {
        let [at, freed] = std::array::from_fn(|_| AtomicU32::new(0));
        let table = Table { at, place: Place::default(), inside: tried::Place::new(NOTHING), freed };
        assert!(table.follow(FIRST));
        Arc::new(table)
    }

    fn follow(&self, connection: u64) -> bool {
        let taken = self.place.take();
        if taken {
            self.inside.set(connection);
            self.at.store(INDEX, Ordering::SeqCst);
        }
        taken
    }

    /// A call as the door makes it: it says what it found there, and whether it knew of a channel.
    fn call(&self, count: &AtomicU32, what: impl FnOnce(bool)) {
        if self.at.load(Ordering::Acquire) != INDEX {
            return;
        }
        if let Some(is_aware) = enter(count, &self.at, INDEX) {
            what(is_aware);
        }
        if self.place.leave(count) {
            self.place.free_if_unused(|| {
                self.inside.set(NOTHING);
                self.freed.fetch_add(1, Ordering::Relaxed);
            });
        }
    }

    /// The last descriptor is about to be closed.
    fn forget(&self) {
        self.call(&self.place.other, |_| {
            if self.at.swap(0, Ordering::SeqCst) != 0 {
                self.place.fds.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
}

#[test]
fn a_place_is_freed_once_and_not_while_a_call_uses_it() {
    check(2, || {
        let table = Table::new();
        let calls = [table.clone(), table.clone()].map(|table| {
            thread::spawn(move || table.call(&table.place.reading, |_| assert_eq!(table.inside.get(), FIRST)))
        });
        table.forget();
        calls.into_iter().for_each(|call| call.join().expect("it ends"));
        assert_eq!(table.freed.load(Ordering::SeqCst), 1, "nobody has freed it, or several");
        assert_eq!(table.place.phase(), phase::FREE);
    });
}

#[test]
fn of_several_that_close_a_descriptor_one_takes_it_away() {
    check(3, || {
        let table = Table::new();
        let other = table.clone();
        let closer = thread::spawn(move || other.forget());
        table.forget();
        closer.join().expect("it ends");
        assert_eq!(table.freed.load(Ordering::SeqCst), 1, "nobody has freed it, or several");
        assert_eq!(table.place.phase(), phase::FREE);
    });
}

#[test]
fn who_finds_a_place_that_was_taken_anew_does_not_take_it_for_the_old_one() {
    check(3, || {
        let table = Table::new();
        // The calls of the first connection know of its channel; the second one has none.
        table.place.reading.fetch_or(AWARE, Ordering::SeqCst);
        let other = table.clone();
        let call = thread::spawn(move || {
            other.call(&other.place.reading, |is_aware| {
                assert_eq!(is_aware, other.inside.get() == FIRST, "it knows of a channel that is not there");
            });
        });
        table.forget();
        let is_second = table.follow(SECOND);
        call.join().expect("it ends");
        assert_eq!(table.place.phase(), if is_second { phase::TRACKED } else { phase::FREE });
    });
}

#[test]
fn no_call_is_on_its_way_that_does_not_know_of_a_channel_that_is_used() {
    check(3, || {
        let table = Table::new();
        let kernel = Arc::new(tried::Place::new(0));
        let (other, used) = (table.clone(), kernel.clone());
        let call = thread::spawn(move || {
            other.call(&other.place.writing, |is_aware| {
                if !is_aware {
                    used.set(1);
                }
            });
        });
        table.call(&table.place.reading, |_| {
            if table.place.become_aware(&table.place.reading) {
                kernel.set(2);
            }
        });
        call.join().expect("it ends");
    });
}
