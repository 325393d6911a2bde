//! The door to active messages. `functions` is the list of everything that is exported, `progress` bundles and events,
//! `endpoints` endpoints and handlers, `requests` what is sent, `calls` what a handler of a C program is given.

pub mod calls;
mod endpoints;
pub mod functions;
pub mod progress;
mod requests;

use crate::guard::{self, Failed};
use pulc::am::{WORDS_MAX, Words};
use pulc_hal::os::foreign::ForeignBytes;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

/// Opaque to callers: whoever's table made one is who gets it back.
pub type Handle = c_void;

/// Back-pressure: an outcome, not an error.
pub const AGAIN: c_int = 1;

/// Memory of the caller's, lent for longer than a call.
pub struct Lent(ForeignBytes);

impl Lent {
    /// `bytes` bytes from `data`, which the caller promises to leave alone until they come back to it.
    pub fn new(data: *const c_void, bytes: usize) -> Result<Lent, Failed> {
        crate::ports::check_buffer(data, bytes)?;
        let start = NonNull::new(data.cast_mut().cast::<u8>()).unwrap_or(NonNull::dangling());
        // SAFETY: not null unless empty, not absurdly long (checked above); the C program promises the rest, as `pulc_am.h`
        // says of every function that keeps memory.
        Ok(Lent(unsafe { ForeignBytes::new(start, bytes) }))
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// The arguments of a call.
#[inline]
pub(crate) fn words_of(args: *const u64, count: usize) -> Result<Words, Failed> {
    if count > WORDS_MAX {
        let text = format!("{count} arguments; a message carries {WORDS_MAX} at most");
        return Err(Failed { code: guard::ARGUMENT, text });
    }
    if args.is_null() && count > 0 {
        return Err(Failed::null("args"));
    }
    let mut words = [0; WORDS_MAX];
    for (at, word) in words.iter_mut().enumerate().take(count) {
        // SAFETY: not null; the caller promises `count` readable arguments and `at` is smaller.
        *word = unsafe { args.add(at).read() };
    }
    Ok(Words::new(words, count))
}

/// The thing behind a handle.
#[inline]
pub(crate) fn thing_of<'a, T>(handle: *const Handle, what: &str) -> Result<&'a T, Failed> {
    // SAFETY: null, or made by the function of this table that makes such handles and not freed yet, as the caller promises.
    unsafe { handle.cast::<T>().as_ref() }.ok_or_else(|| Failed::null(what))
}

/// Takes the thing behind a handle back.
pub(crate) fn take<T>(handle: *mut Handle, what: &str) -> Result<Box<T>, Failed> {
    if handle.is_null() {
        return Err(Failed::null(what));
    }
    // SAFETY: not null, made with `Box::into_raw` by this table; the caller gives it back exactly once.
    Ok(unsafe { Box::from_raw(handle.cast::<T>()) })
}

/// Gives a thing out as a handle.
pub(crate) fn give<T>(place: *mut *mut Handle, thing: T, what: &str) -> Result<(), Failed> {
    if place.is_null() {
        return Err(Failed::null(what));
    }
    crate::machine::store(place, Box::into_raw(Box::new(thing)).cast(), what)
}

/// Negative: without limit.
pub(crate) fn patience(timeout_us: i64) -> Option<Duration> {
    u64::try_from(timeout_us).ok().map(Duration::from_micros)
}
