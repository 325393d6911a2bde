//! From C's arguments to values and back: pointers, arrays, strings. Used by the made bodies and by those written by hand. A null
//! pointer where the standard asks for memory is an error, not a crash; an array of length zero may be null.

use crate::abi::{Abi, Handle};
use crate::maps::{Limit, Set};
use pulc_mpi::error::{Class, Error, Result};
use pulc_mpi::memory::Ints;
use pulc_mpi::status::Status;
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int};

/// Counts or displacements that C gives, in either width.
#[derive(Clone, Copy)]
pub enum InInts {
    Small(*const c_int),
    Large(*const i64),
}

impl InInts {
    /// # Safety
    /// The array has `length` elements that nobody changes during the call.
    #[inline]
    pub unsafe fn take<'a>(self, length: usize) -> Result<Ints<'a>> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                InInts::Small(start) => slice_in(start, length).map(Ints::Small),
                InInts::Large(start) => slice_in(start, length).map(Ints::Large),
            }
        }
    }
}

/// A count or several that are written for C, in either width.
#[derive(Clone, Copy)]
pub enum OutInts {
    Small(*mut c_int),
    Large(*mut i64),
}

impl OutInts {
    /// # Safety
    /// The pointer is null or points to a number.
    #[inline]
    pub unsafe fn get(self) -> Result<i64> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                OutInts::Small(at) => peek(at.cast_const()).map(i64::from),
                OutInts::Large(at) => peek(at.cast_const()),
            }
        }
    }

    /// Writes `value`; what does not fit an int becomes `MPI_UNDEFINED`, as the standard has it for sizes and counts.
    ///
    /// # Safety
    /// The pointer is null or points to a number.
    #[inline]
    pub unsafe fn put(self, value: i64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                OutInts::Small(at) => poke(at, c_int::try_from(value).unwrap_or(pulc_mpi::consts::UNDEFINED)),
                OutInts::Large(at) => poke(at, value),
            }
        }
    }
}

/// Where a length is not asked for.
pub const NOWHERE: *mut c_int = std::ptr::null_mut();

#[cold]
fn null() -> Error {
    Error::new(Class::ARG, "an argument is a null pointer; give the address of memory for it")
}

/// # Safety
/// The pointer is null or points to a value.
#[inline]
pub unsafe fn peek<T: Copy>(at: *const T) -> Result<T> {
    if at.is_null() {
        return Err(null());
    }
    // SAFETY: not null, so the caller's value.
    Ok(unsafe { at.read() })
}

/// # Safety
/// The pointer is null or points to memory for a value.
#[inline]
pub unsafe fn poke<T>(at: *mut T, value: T) -> Result<()> {
    if at.is_null() {
        return Err(null());
    }
    // SAFETY: not null, so the caller's memory.
    unsafe { at.write(value) };
    Ok(())
}

/// # Safety
/// The array has `length` elements that nobody changes during the call.
#[inline]
pub unsafe fn slice_in<'a, T>(start: *const T, length: usize) -> Result<&'a [T]> {
    match (start.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null()),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(start, length) }),
    }
}

/// # Safety
/// The array has `length` elements that are left to this call.
#[inline]
pub unsafe fn slice_in_out<'a, T>(start: *mut T, length: usize) -> Result<&'a mut [T]> {
    match (start.is_null(), length) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null()),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(start, length) }),
    }
}

/// Handles as neutral ones: the array itself where both look the same.
///
/// # Safety
/// The array has `length` elements that nobody changes during the call.
pub unsafe fn handles_in<'a, H: Handle<N>, N: Copy>(start: *const H, length: usize) -> Result<Cow<'a, [N]>>
where
    [N]: ToOwned<Owned = Vec<N>>,
{
    if H::IS_NEUTRAL {
        const { assert!(size_of::<H>() >= size_of::<N>()) };
        // SAFETY: the caller's promise; a neutral handle is a transparent int.
        return unsafe { slice_in(start.cast::<N>(), length) }.map(Cow::Borrowed);
    }
    // SAFETY: the caller's promise.
    let handles = unsafe { slice_in(start, length) }?;
    Ok(Cow::Owned(handles.iter().map(|one| one.inward()).collect()))
}

/// # Safety
/// The array has `length` elements.
pub unsafe fn bools_in(start: *const c_int, length: usize) -> Result<Vec<bool>> {
    // SAFETY: the caller's promise.
    Ok(unsafe { slice_in(start, length) }?.iter().map(|&one| one != 0).collect())
}

/// # Safety
/// The array has `length` elements.
pub unsafe fn constants_in<A: Abi>(set: Set, start: *const c_int, length: usize) -> Result<Vec<c_int>> {
    // SAFETY: the caller's promise.
    Ok(unsafe { slice_in(start, length) }?.iter().map(|&one| A::constant_in(set, one)).collect())
}

/// Writes as many values as there are and as fit.
///
/// # Safety
/// The array has room for `length` values.
pub unsafe fn fill<T: Copy>(start: *mut T, length: usize, values: &[T]) -> Result<()> {
    let fitting = &values[..values.len().min(length)];
    // SAFETY: the caller's promise, for fewer.
    unsafe { slice_in_out(start, fitting.len()) }?.copy_from_slice(fitting);
    Ok(())
}

/// # Safety
/// The array has room for `length` values.
pub unsafe fn fill_constants<A: Abi>(set: Set, start: *mut c_int, length: usize, values: &[c_int]) -> Result<()> {
    let values: Vec<c_int> = values.iter().map(|&one| A::constant_out(set, one)).collect();
    // SAFETY: the caller's promise.
    unsafe { fill(start, length, &values) }
}

/// # Safety
/// The array has room for `length` values.
pub unsafe fn fill_bools(start: *mut c_int, length: usize, values: &[bool]) -> Result<()> {
    let values: Vec<c_int> = values.iter().map(|&one| c_int::from(one)).collect();
    // SAFETY: the caller's promise.
    unsafe { fill(start, length, &values) }
}

/// A string of the program; bytes that are not UTF-8 are replaced.
///
/// # Safety
/// The pointer is null or points to a string that ends with zero.
pub unsafe fn text_in<'a>(text: *const c_char) -> Result<Cow<'a, str>> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// Writes a string with its terminating zero, cut to the limit between two characters, and its length.
///
/// # Safety
/// `at` is null or has room for the limit; `length` is null or points to an int.
pub unsafe fn text_out<A: Abi>(at: *mut c_char, length: *mut c_int, limit: Limit, text: &str) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { text_cut(at, A::limit(limit), length, text) }
}

/// # Safety
/// `at` is null or has room for `room` bytes; `length` is null or points to an int.
pub unsafe fn text_cut(at: *mut c_char, room: usize, length: *mut c_int, text: &str) -> Result<()> {
    if at.is_null() {
        return Err(null());
    }
    let mut cut = room.saturating_sub(1).min(text.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    // SAFETY: the caller's promise: the text is cut so that it and the zero fit.
    unsafe {
        at.copy_from_nonoverlapping(text.as_ptr().cast(), cut);
        at.add(cut).write(0);
    }
    if !length.is_null() {
        // SAFETY: not null, so the caller's int.
        unsafe { length.write(cut as c_int) };
    }
    Ok(())
}

/// # Safety
/// The pointer is null, ignored, or points to a status.
pub unsafe fn status_in<A: Abi>(status: *const A::Status) -> Result<Status> {
    if status.is_null() || A::ignores(status) {
        return Err(Error::new(
            Class::ARG,
            "the status is MPI_STATUS_IGNORE; give one that a completion has filled in",
        ));
    }
    // SAFETY: neither null nor ignored, so the caller's status.
    Ok(A::status_in(unsafe { &*status }))
}

/// Writes back a status that a function changed, its error included.
///
/// # Safety
/// As [`status_in`], which came before.
pub unsafe fn status_change<A: Abi>(at: *mut A::Status, status: &Status) {
    // SAFETY: the caller's promise.
    unsafe { A::status_out(status, at, true) }
}
