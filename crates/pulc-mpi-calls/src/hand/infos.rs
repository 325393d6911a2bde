//! Hints whose values go into buffers of the program. Source: MPI-5.0, chapter 10.

use crate::abi::{Abi, Handle};
use crate::convert::{NOWHERE, peek, poke, text_cut, text_in};
use crate::guard::{self, On};
use crate::lengths;
use pulc_mpi::call;
use pulc_mpi::error::Result;
use std::ffi::{c_char, c_int};

/// # Safety
/// `key` is a string or null.
unsafe fn value_of<A: Abi>(info: A::Info, key: *const c_char) -> Result<Option<String>> {
    // SAFETY: the caller's promise.
    call::info_get(info.inward(), &unsafe { text_in(key) }?)
}

/// `MPI_Info_get`: at most `valuelen` characters and a terminating zero.
///
/// # Safety
/// `value` has room for that, `flag` is null or points to an int.
pub unsafe fn info_get<A: Abi>(
    info: A::Info,
    key: *const c_char,
    valuelen: c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Info_get", On::None, || unsafe {
        let found = value_of::<A>(info, key)?;
        poke(flag, c_int::from(found.is_some()))?;
        match found {
            Some(found) => text_cut(value, lengths::of(valuelen.into())? + 1, NOWHERE, &found),
            None => Ok(()),
        }
    })
}

/// `MPI_Info_get_valuelen`
///
/// # Safety
/// The pointers are null or point to ints.
pub unsafe fn info_get_valuelen<A: Abi>(
    info: A::Info,
    key: *const c_char,
    valuelen: *mut c_int,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Info_get_valuelen", On::None, || unsafe {
        let found = value_of::<A>(info, key)?;
        poke(flag, c_int::from(found.is_some()))?;
        found.map_or(Ok(()), |found| poke(valuelen, found.len() as c_int))
    })
}

/// `MPI_Info_get_string`: `buflen` is the room, and becomes the room that the whole value needs.
///
/// # Safety
/// `value` has room for `buflen` bytes, the pointers are null or point to ints.
pub unsafe fn info_get_string<A: Abi>(
    info: A::Info,
    key: *const c_char,
    buflen: *mut c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Info_get_string", On::None, || unsafe {
        let found = value_of::<A>(info, key)?;
        poke(flag, c_int::from(found.is_some()))?;
        let Some(found) = found else { return Ok(()) };
        let room = lengths::of(peek(buflen.cast_const())?.into())?;
        if room > 0 {
            text_cut(value, room, NOWHERE, &found)?;
        }
        poke(buflen, found.len() as c_int + 1)
    })
}
