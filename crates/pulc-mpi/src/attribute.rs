//! Attributes: values that programs and libraries hang on communicators, datatypes and windows, with callbacks that decide what
//! happens when the object is duplicated or freed. An [`AttrSet`] is a part of each such object. No lock is held in a callback.
//!
//! Source: MPI-5.0, section 7.7.

use crate::callback::AttrCallbacks;
use crate::error::{Class, Error, Result};
use crate::handle::{Keyval, Kind};
use crate::table::Table;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which kind of objects a key is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyvalOf {
    Comm,
    Type,
    Win,
}

struct Key {
    of: KeyvalOf,
    callbacks: Arc<dyn AttrCallbacks>,
}

static KEYS: Table<Key> = Table::new(Kind::Keyval);

pub fn create_keyval(of: KeyvalOf, callbacks: Arc<dyn AttrCallbacks>) -> Keyval {
    Keyval(KEYS.insert(Key { of, callbacks }))
}

/// Frees the handle, which becomes invalid. Attributes with this key stay where they are, with their callbacks.
pub fn free_keyval(of: KeyvalOf, keyval: &mut Keyval) -> Result<()> {
    known(of, *keyval)?;
    KEYS.remove(keyval.0);
    *keyval = Keyval::NULL;
    Ok(())
}

fn known(of: KeyvalOf, keyval: Keyval) -> Result<Arc<Key>> {
    KEYS.get(keyval.0).filter(|key| key.of == of).ok_or_else(|| {
        let text =
            format!("keyval {:#010x} is not one of a {of:?}: it was never made, was freed, or is predefined", keyval.0);
        Error::new(Class::KEYVAL, text)
    })
}

struct Attribute {
    keyval: Keyval,
    key: Arc<Key>,
    value: usize,
}

/// The attributes of one object, in the order in which they were set.
#[derive(Default)]
pub struct AttrSet {
    all: Mutex<Vec<Attribute>>,
}

/// Attributes on their way to a new object.
#[derive(Default)]
pub struct Copies(Vec<Attribute>);

impl AttrSet {
    pub fn new() -> AttrSet {
        AttrSet::default()
    }

    /// Sets a value; a value that is there already is deleted first, as its callback allows.
    pub fn set(&self, of: KeyvalOf, object: i32, keyval: Keyval, value: usize) -> Result<()> {
        let key = self.key(of, keyval)?;
        if let Some(old) = self.value_of(&key) {
            delete_allowed(&key, object, keyval, old)?;
        }
        let mut all = self.lock();
        match all.iter_mut().find(|attribute| Arc::ptr_eq(&attribute.key, &key)) {
            Some(attribute) => attribute.value = value,
            None => all.push(Attribute { keyval, key, value }),
        }
        Ok(())
    }

    pub fn value(&self, of: KeyvalOf, keyval: Keyval) -> Result<Option<usize>> {
        Ok(self.value_of(&self.key(of, keyval)?))
    }

    pub fn delete(&self, of: KeyvalOf, object: i32, keyval: Keyval) -> Result<()> {
        let key = self.key(of, keyval)?;
        let Some(value) = self.value_of(&key) else {
            let text = format!("no attribute with keyval {:#010x} to delete: it was never set, or deleted", keyval.0);
            return Err(Error::new(Class::KEYVAL, text));
        };
        delete_allowed(&key, object, keyval, value)?;
        self.lock().retain(|attribute| !Arc::ptr_eq(&attribute.key, &key));
        Ok(())
    }

    /// What a duplicate of the object gets. A failing callback ends the duplication with its code.
    pub fn copied(&self, object: i32) -> Result<Copies> {
        let all: Vec<_> = self.lock().iter().map(|entry| (entry.keyval, entry.key.clone(), entry.value)).collect();
        let mut copies = Vec::new();
        for (keyval, key, value) in all {
            match key.callbacks.copy(object, keyval, value) {
                Ok(Some(value)) => copies.push(Attribute { keyval, key, value }),
                Ok(None) => {}
                Err(code) => return Err(refused("copy", keyval, code)),
            }
        }
        Ok(Copies(copies))
    }

    /// Takes the attributes over, into a new object.
    pub fn fill(&self, copies: Copies) {
        self.lock().extend(copies.0);
    }

    /// Deletes all attributes, the youngest first, before the object is freed. The first callback that refuses ends it.
    pub fn clear(&self, object: i32) -> Result<()> {
        loop {
            let youngest = self.lock().last().map(|entry| (entry.keyval, entry.key.clone(), entry.value));
            let Some((keyval, key, value)) = youngest else { return Ok(()) };
            delete_allowed(&key, object, keyval, value)?;
            self.lock().retain(|attribute| !Arc::ptr_eq(&attribute.key, &key));
        }
    }

    /// The key: of the table, or if its handle was freed, of an attribute that was set with it before.
    fn key(&self, of: KeyvalOf, keyval: Keyval) -> Result<Arc<Key>> {
        known(of, keyval).or_else(|error| {
            let all = self.lock();
            let kept = all.iter().find(|attribute| attribute.keyval == keyval && attribute.key.of == of);
            kept.map(|attribute| attribute.key.clone()).ok_or(error)
        })
    }

    fn value_of(&self, key: &Arc<Key>) -> Option<usize> {
        self.lock().iter().find(|attribute| Arc::ptr_eq(&attribute.key, key)).map(|attribute| attribute.value)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Attribute>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for AttrSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AttrSet({})", self.lock().len())
    }
}

fn delete_allowed(key: &Key, object: i32, keyval: Keyval, value: usize) -> Result<()> {
    key.callbacks.delete(object, keyval, value).map_err(|code| refused("delete", keyval, code))
}

fn refused(what: &str, keyval: Keyval, code: i32) -> Error {
    Error::new(Class(code), format!("the {what} callback of keyval {:#010x} returned error {code}", keyval.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies values plus one, refuses to delete the value 13, and notes what was deleted.
    #[derive(Default)]
    struct Noting(Mutex<Vec<usize>>);

    impl AttrCallbacks for Noting {
        fn copy(&self, _: i32, _: Keyval, value: usize) -> std::result::Result<Option<usize>, i32> {
            match value {
                7 => Err(99),
                8 => Ok(None),
                _ => Ok(Some(value + 1)),
            }
        }

        fn delete(&self, _: i32, _: Keyval, value: usize) -> std::result::Result<(), i32> {
            if value == 13 {
                return Err(98);
            }
            self.0.lock().unwrap().push(value);
            Ok(())
        }
    }

    /// The number of a freed key may be given out again at once: the tests, which share the table, take turns.
    fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_value_is_set_replaced_read_and_deleted() {
        let _turn = turn();
        let noting = Arc::new(Noting::default());
        let keyval = create_keyval(KeyvalOf::Type, noting.clone());
        let set = AttrSet::new();
        assert_eq!(set.value(KeyvalOf::Type, keyval), Ok(None));
        set.set(KeyvalOf::Type, 1, keyval, 5).unwrap();
        set.set(KeyvalOf::Type, 1, keyval, 6).unwrap();
        assert_eq!(set.value(KeyvalOf::Type, keyval), Ok(Some(6)));
        set.delete(KeyvalOf::Type, 1, keyval).unwrap();
        assert_eq!(set.value(KeyvalOf::Type, keyval), Ok(None));
        assert_eq!(*noting.0.lock().unwrap(), [5, 6]);
        assert_eq!(set.delete(KeyvalOf::Type, 1, keyval).unwrap_err().class, Class::KEYVAL);
    }

    #[test]
    fn a_key_of_one_kind_of_objects_is_refused_for_another() {
        let _turn = turn();
        let keyval = create_keyval(KeyvalOf::Comm, Arc::new(Noting::default()));
        assert_eq!(AttrSet::new().set(KeyvalOf::Type, 1, keyval, 5).unwrap_err().class, Class::KEYVAL);
    }

    #[test]
    fn callbacks_decide_what_a_duplicate_gets() {
        let _turn = turn();
        let (first, second) = (Arc::new(Noting::default()), Arc::new(Noting::default()));
        let (plain, not_copied) = (create_keyval(KeyvalOf::Comm, first), create_keyval(KeyvalOf::Comm, second));
        let set = AttrSet::new();
        set.set(KeyvalOf::Comm, 1, plain, 1).unwrap();
        set.set(KeyvalOf::Comm, 1, not_copied, 8).unwrap();
        let copy = AttrSet::new();
        copy.fill(set.copied(1).unwrap());
        assert_eq!(copy.value(KeyvalOf::Comm, plain), Ok(Some(2)));
        assert_eq!(copy.value(KeyvalOf::Comm, not_copied), Ok(None));
        set.set(KeyvalOf::Comm, 1, plain, 7).unwrap();
        assert_eq!(set.copied(1).map(|_| ()).unwrap_err().class, Class(99));
    }

    #[test]
    fn a_freed_key_serves_the_attributes_that_it_has_and_a_refusal_stops_clearing() {
        let _turn = turn();
        let noting = Arc::new(Noting::default());
        let (keyval, other) =
            (create_keyval(KeyvalOf::Comm, noting.clone()), create_keyval(KeyvalOf::Comm, noting.clone()));
        let set = AttrSet::new();
        set.set(KeyvalOf::Comm, 1, other, 13).unwrap();
        set.set(KeyvalOf::Comm, 1, keyval, 4).unwrap();
        let mut handle = keyval;
        free_keyval(KeyvalOf::Comm, &mut handle).unwrap();
        assert_eq!(handle, Keyval::NULL);
        assert_eq!(set.value(KeyvalOf::Comm, keyval), Ok(Some(4)));
        assert!(AttrSet::new().value(KeyvalOf::Comm, keyval).is_err());
        assert_eq!(set.clear(1).unwrap_err().class, Class(98));
        assert_eq!(*noting.0.lock().unwrap(), [4]);
    }
}
