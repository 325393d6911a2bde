//! Memory of any owner, looked up once: what `AsRef` and `AsMut` of a program's own types answer is remembered, so that it can be
//! used later where no code of a program may run, for one with a lock held. Used by the interfaces. Never calls its owner again,
//! except to drop it or hand it back.

use std::ptr::NonNull;
use std::sync::Arc;

/// An owner and the memory that it gave out.
pub struct Settled<M> {
    /// From a box; nobody refers to what is there while this lives, but through `bytes`.
    owner: NonNull<M>,
    bytes: NonNull<[u8]>,
}

// SAFETY: a `Settled` is the owner and a mutable borrow of it; both may go to another thread if the owner may.
unsafe impl<M: Send> Send for Settled<M> {}

impl<M: AsMut<[u8]>> Settled<M> {
    /// Asks the owner where its memory is.
    pub fn new(owner: M) -> Settled<M> {
        let owner = NonNull::from(Box::leak(Box::new(owner)));
        // From here on it is dropped even if it panics.
        let mut settled = Settled { owner, bytes: NonNull::slice_from_raw_parts(NonNull::dangling(), 0) };
        // SAFETY: the owner was boxed above and nobody else knows of it. The borrow is given no end: it lasts until the owner is
        // handed back or dropped, and the owner is neither moved nor called in between.
        settled.bytes = NonNull::from(unsafe { settled.owner.as_mut() }.as_mut());
        settled
    }
}

impl<M> Settled<M> {
    /// Hands the owner back.
    pub fn into_owner(self) -> M {
        let settled = std::mem::ManuallyDrop::new(self);
        // SAFETY: `owner` came from a box, is read once, and `bytes` ends here.
        *unsafe { Box::from_raw(settled.owner.as_ptr()) }
    }
}

impl<M> AsMut<[u8]> for Settled<M> {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mutable borrow taken in `new` still lasts; `&mut self` keeps others off meanwhile.
        unsafe { self.bytes.as_mut() }
    }
}

impl<M> Drop for Settled<M> {
    fn drop(&mut self) {
        // SAFETY: as in `into_owner`, which does not come here.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}

/// The same for memory that is only read, of an owner that may be shared.
pub struct SettledShared {
    _owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    bytes: NonNull<[u8]>,
}

// SAFETY: it is a shared owner that may go to other threads, and a shared borrow of bytes.
unsafe impl Send for SettledShared {}
// SAFETY: as above.
unsafe impl Sync for SettledShared {}

impl SettledShared {
    /// Asks the owner where its memory is.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> SettledShared {
        let bytes = NonNull::from((*owner).as_ref());
        SettledShared { _owner: owner, bytes }
    }
}

impl AsRef<[u8]> for SettledShared {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a shared borrow of the owner that lasts as long as this: the owner is kept, so nobody gets it mutably, and it
        // stays where it is.
        unsafe { self.bytes.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Asked<'a>(Vec<u8>, &'a AtomicU32);

    impl AsMut<[u8]> for Asked<'_> {
        fn as_mut(&mut self) -> &mut [u8] {
            self.1.fetch_add(1, Ordering::Relaxed);
            &mut self.0
        }
    }

    impl AsRef<[u8]> for Asked<'static> {
        fn as_ref(&self) -> &[u8] {
            self.1.fetch_add(1, Ordering::Relaxed);
            &self.0
        }
    }

    impl Drop for Asked<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(100, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_owner_is_asked_once_and_handed_back_or_dropped_once() {
        let calls = AtomicU32::new(0);
        let mut settled = Settled::new(Asked(vec![1, 2, 3], &calls));
        settled.as_mut()[1] = 9;
        assert_eq!(settled.as_mut(), [1, 9, 3]);
        let mut moved = Box::new(settled);
        moved.as_mut().as_mut()[0] = 7;
        let owner = moved.into_owner();
        assert_eq!((owner.0.as_slice(), calls.load(Ordering::Relaxed)), (&[7, 9, 3][..], 1));
        drop(Settled::new(owner));
        assert_eq!(calls.load(Ordering::Relaxed), 102);
    }

    #[test]
    fn an_owner_that_panics_when_asked_is_dropped() {
        struct Panics<'a>(&'a AtomicU32);
        impl AsMut<[u8]> for Panics<'_> {
            fn as_mut(&mut self) -> &mut [u8] {
                panic!("it has none")
            }
        }
        impl Drop for Panics<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let drops = AtomicU32::new(0);
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Settled::new(Panics(&drops))));
        assert!(asked.is_err() && drops.load(Ordering::Relaxed) == 1);
    }

    #[test]
    fn shared_owners_are_asked_once_however_often_their_bytes_are_read() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let owner = Arc::new(Asked(vec![4, 5], &CALLS));
        let settled = SettledShared::new(Arc::clone(&owner) as Arc<dyn AsRef<[u8]> + Send + Sync>);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(settled.as_ref(), [4, 5]));
            assert_eq!(settled.as_ref(), [4, 5]);
        });
        drop(owner);
        assert_eq!((settled.as_ref(), CALLS.load(Ordering::Relaxed)), (&[4, 5][..], 1));
        drop(settled);
        assert_eq!(CALLS.load(Ordering::Relaxed), 101);
    }
}
