//! A lock that costs the first thread that takes it next to nothing, as long as no other thread wants it: no atomic
//! exchange, two plain stores and a load. The handler keeps its engine in one, because most processes use it from one thread
//! and the two exchanges of a mutex are a fifth of the way between two cores.
//!
//! The owner says *busy* and looks whether the bias was *revoked*; another thread revokes once and for all: it says so,
//! makes every thread of the process pass a full barrier (`membarrier`), and waits until the owner is not busy. From then on
//! it is an ordinary mutex. Where the kernel has no such barrier it is one from the beginning.
//!
//! Must never be locked twice by one thread, and never from a signal handler.
//! Source: biased locking after Kawachiya et al., OOPSLA 2002; membarrier(2).

use crate::bias;
use crate::sync::prepare_barrier_of_all_threads;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Looks at a busy owner before the first nap.
const LOOKS: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

pub struct Biased<T> {
    /// The thread that may use the short way; 0: nobody yet.
    owner: AtomicUsize,
    /// The owner is inside by the short way. Written by the owner only.
    busy: AtomicU32,
    /// There is no short way any more.
    revoked: AtomicU32,
    /// The mutex's own guard, while somebody is inside by the long way. It lies here and not in [`BiasedGuard`] because its
    /// flag of one byte would be stored, and loaded again as part of a word, by every caller of the short way: such a load
    /// waits until the store has left the store buffer, behind every line that is still on its way from another core.
    held: UnsafeCell<Option<MutexGuard<'static, ()>>>,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: as for a mutex: the value and `held` are reached by one thread at a time (see `deref`), and the value may change
// threads; the guard in `held` is put there and taken out by the same thread.
unsafe impl<T: Send> Sync for Biased<T> {}
// SAFETY: nothing is in `held` while nobody has a guard, and a guard borrows the lock.
unsafe impl<T: Send> Send for Biased<T> {}

/// The value, locked.
pub struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    /// Whether the mutex is held, else it is the owner's short way. A word, so that it is loaded as it was stored.
    by_mutex: usize,
    /// It is unlocked by the thread that locked it.
    not_send: std::marker::PhantomData<*mut ()>,
}

impl<T> Biased<T> {
    pub fn new(value: T) -> Biased<T> {
        let revoked = !prepare_barrier_of_all_threads();
        Biased {
            owner: AtomicUsize::new(0),
            busy: AtomicU32::new(0),
            revoked: AtomicU32::new(u32::from(revoked)),
            held: UnsafeCell::new(None),
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, unless another thread has it.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        if self.owner.load(Ordering::Relaxed) == super::cpu::this_thread() && self.enter() {
            return Some(self.short());
        }
        self.try_lock_slowly()
    }

    /// Whether no second thread has ever taken the lock. Only a hint: one may come at any time.
    #[inline(always)]
    pub fn is_biased(&self) -> bool {
        !bias::is_revoked(&self.revoked)
    }

    /// The owner's short way in.
    #[inline(always)]
    fn enter(&self) -> bool {
        // Already inside, which is a mistake of the caller: the long way makes it wait for itself, as a mutex would.
        self.busy.load(Ordering::Relaxed) == 0 && bias::enter(&self.busy, &self.revoked)
    }

    #[inline(never)]
    fn try_lock_slowly(&self) -> Option<BiasedGuard<'_, T>> {
        let mutex = match self.mutex.try_lock() {
            Ok(mutex) => mutex,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.claim() {
            return Some(self.short());
        }
        self.may_pass().then(|| self.long(mutex))
    }

    /// The value, waited for.
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        let mutex = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        if self.claim() {
            return self.short();
        }
        let mut looks = 0;
        while !self.may_pass() {
            looks += 1;
            if looks < LOOKS {
                super::cpu::pause();
            } else {
                std::thread::sleep(NAP);
            }
        }
        self.long(mutex)
    }

    /// For the holder of the mutex: the first thread becomes the owner, and is inside by its short way.
    fn claim(&self) -> bool {
        if bias::is_revoked(&self.revoked) || self.owner.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.owner.store(super::cpu::this_thread(), Ordering::Relaxed);
        self.enter()
    }

    /// Whether the holder of the mutex is alone: it takes the owner's right away, and must wait until the owner has left.
    fn may_pass(&self) -> bool {
        if !bias::is_revoked(&self.revoked) {
            bias::revoke(&self.revoked);
        }
        !bias::is_inside(&self.busy)
    }

    /// For the owner inside by the short way.
    #[inline(always)]
    fn short(&self) -> BiasedGuard<'_, T> {
        BiasedGuard { lock: self, by_mutex: 0, not_send: std::marker::PhantomData }
    }

    /// For the holder of the mutex, once the owner is outside for good.
    fn long(&self, mutex: MutexGuard<'_, ()>) -> BiasedGuard<'_, T> {
        // SAFETY: only the lifetime changes. The mutex lies in `self` like the guard; the guard is dropped by that of the
        // returned value, which borrows `self`, or with `self`, whose field it is.
        let mutex = unsafe { std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(mutex) };
        // SAFETY: whoever holds the mutex and has passed is alone (`deref`).
        unsafe { *self.held.get() = Some(mutex) };
        BiasedGuard { lock: self, by_mutex: 1, not_send: std::marker::PhantomData }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: guards exist one at a time: one with the mutex only while the owner is not busy and can't become so
        // (`may_pass`), one without it only while the owner is busy and nobody has passed.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.by_mutex == 0 {
            bias::leave(&self.lock.busy);
        } else {
            // SAFETY: this thread holds the mutex and has put its guard there; it is taken out before it unlocks.
            drop(unsafe { (*self.lock.held.get()).take() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn many_threads_count_without_losing_any() {
        for _ in 0..20 {
            let counter = Arc::new(Biased::new(0u64));
            let count = |counter: &Biased<u64>, times: u64| {
                for _ in 0..times {
                    let mut guard = counter.lock();
                    let seen = *guard;
                    std::hint::black_box(&mut *guard);
                    *guard = seen + 1;
                }
            };
            let others: Vec<_> = (0..3)
                .map(|_| {
                    let counter = Arc::clone(&counter);
                    std::thread::spawn(move || count(&counter, 20_000))
                })
                .collect();
            count(&counter, 50_000);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(*counter.lock(), 110_000);
        }
    }

    #[test]
    fn the_owner_inside_keeps_others_out_and_they_get_in_when_it_leaves() {
        let lock = Arc::new(Biased::new(1));
        let first = lock.lock();
        assert!(lock.try_lock().is_none(), "nor in its first time");
        drop(first);
        let inside = lock.try_lock().expect("the owner's short way");
        assert!(lock.try_lock().is_none(), "one thread must not be inside twice");
        let other = {
            let lock = Arc::clone(&lock);
            std::thread::spawn(move || {
                assert!(lock.try_lock().is_none());
                *lock.lock() += 1;
            })
        };
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(*inside, 1);
        drop(inside);
        other.join().unwrap();
        assert_eq!(*lock.lock(), 2);
    }
}
