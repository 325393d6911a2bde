//! A word that one thread sets and others read: a text that lasts for ever, by one store and one load. Called by interfaces on every call
//! of the program, so it must stay one instruction.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Holds a text, or nothing.
pub struct Label(AtomicPtr<&'static str>);

impl Label {
    pub const fn new() -> Label {
        Label(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline(always)]
    pub fn set(&self, text: &'static &'static str) {
        self.0.store(std::ptr::from_ref(text).cast_mut(), Ordering::Relaxed);
    }

    #[inline]
    pub fn get(&self) -> Option<&'static str> {
        // SAFETY: null, or made from a reference that lasts for ever to what nobody changes.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }.copied()
    }
}

impl Default for Label {
    fn default() -> Label {
        Label::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_what_was_set_last() {
        let label = Label::default();
        assert_eq!(label.get(), None);
        label.set(&"one");
        label.set(&"two");
        assert_eq!(label.get(), Some("two"));
    }
}
