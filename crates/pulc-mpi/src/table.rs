//! A table of objects by handle: for everything that is made and freed seldom. Static, so that objects can be made before MPI is
//! initialised. Its lock is the innermost: nothing is called and nothing else is locked while it is held.

use crate::handle::{self, Kind};
use std::sync::{Arc, PoisonError, RwLock};

/// Objects of one kind that the program made.
pub struct Table<T> {
    kind: Kind,
    places: RwLock<Places<T>>,
}

struct Places<T> {
    objects: Vec<Option<Arc<T>>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub const fn new(kind: Kind) -> Table<T> {
        Table { kind, places: RwLock::new(Places { objects: Vec::new(), free: Vec::new() }) }
    }

    /// Adds an object; its handle.
    ///
    /// # Panics
    /// When there are 2^26 objects of this kind.
    pub fn insert(&self, object: T) -> i32 {
        self.insert_arc(Arc::new(object))
    }

    pub fn insert_arc(&self, object: Arc<T>) -> i32 {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let place = match places.free.pop() {
            Some(place) => {
                places.objects[place as usize] = Some(object);
                place
            }
            None => {
                assert!(places.objects.len() < handle::INDEX_MAX, "more objects than handles");
                places.objects.push(Some(object));
                places.objects.len() as u32 - 1
            }
        };
        handle::made(self.kind, place)
    }

    pub fn get(&self, handle: i32) -> Option<Arc<T>> {
        let index = handle::made_index(self.kind, handle)?;
        self.places.read().unwrap_or_else(PoisonError::into_inner).objects.get(index)?.clone()
    }

    /// Takes an object out; those who still hold it keep it.
    pub fn remove(&self, handle: i32) -> Option<Arc<T>> {
        let index = handle::made_index(self.kind, handle)?;
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let object = places.objects.get_mut(index)?.take()?;
        places.free.push(index as u32);
        Some(object)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.objects.len() - places.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_object_is_gone_and_its_place_is_used_again() {
        static TABLE: Table<&str> = Table::new(Kind::Op);
        let (first, second) = (TABLE.insert("first"), TABLE.insert("second"));
        assert_eq!(TABLE.remove(first).as_deref(), Some(&"first"));
        assert!(TABLE.get(first).is_none());
        assert!(TABLE.remove(first).is_none());
        let third = TABLE.insert("third");
        assert_eq!(third, first);
        assert_eq!(TABLE.get(second).as_deref(), Some(&"second"));
        assert_eq!(TABLE.len(), 2);
    }
}
