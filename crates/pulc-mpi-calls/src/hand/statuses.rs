//! The public fields of a status, and statuses between C and Fortran. The Fortran forms of the MPICH ABI are the C status word by word.
//! Source: MPI-5.0, 3.2.5 and 19.3.5.

use crate::abi::Abi;
use crate::convert::{poke, status_change, status_in};
use crate::guard::{self, On};
use crate::maps::Set;
use pulc_mpi::error::{Class, Error, Result};
use pulc_mpi::status::Status;
use std::ffi::c_int;

macro_rules! fields {
    ($($get:ident, $set:ident, $read:literal, $written:literal, $field:ident, $map:ident;)*) => {$(
        #[doc = concat!("`", $read, "`\n\n# Safety\n`status` points to a status, `value` is null or points to an int.")]
        pub unsafe fn $get<A: Abi>(status: *const A::Status, value: *mut c_int) -> c_int {
            // SAFETY: the caller's promise.
            guard::run::<A>(&$read, On::None, || unsafe {
                poke(value, A::constant_out(Set::$map, status_in::<A>(status)?.$field))
            })
        }

        #[doc = concat!("`", $written, "`\n\n# Safety\n`status` points to a status.")]
        pub unsafe fn $set<A: Abi>(status: *mut A::Status, value: c_int) -> c_int {
            // SAFETY: the caller's promise.
            guard::run::<A>(&$written, On::None, || unsafe {
                change::<A>(status, |neutral| neutral.$field = A::constant_in(Set::$map, value))
            })
        }
    )*};
}

fields! {
    status_get_error, status_set_error, "MPI_Status_get_error", "MPI_Status_set_error", error, ErrorClass;
    status_get_source, status_set_source, "MPI_Status_get_source", "MPI_Status_set_source", source, Rank;
    status_get_tag, status_set_tag, "MPI_Status_get_tag", "MPI_Status_set_tag", tag, Tag;
}

/// # Safety
/// `status` points to a status.
unsafe fn change<A: Abi>(status: *mut A::Status, what: impl FnOnce(&mut Status)) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut neutral = status_in::<A>(status)?;
        what(&mut neutral);
        status_change::<A>(status, &neutral);
    }
    Ok(())
}

/// `MPI_Test_cancelled`
///
/// # Safety
/// `status` points to a status, `flag` is null or points to an int.
pub unsafe fn test_cancelled<A: Abi>(status: *const A::Status, flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Test_cancelled", On::None, || unsafe {
        poke(flag, c_int::from(status_in::<A>(status)?.cancelled))
    })
}

/// `MPI_Status_set_cancelled`
///
/// # Safety
/// `status` points to a status.
pub unsafe fn status_set_cancelled<A: Abi>(status: *mut A::Status, flag: c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Status_set_cancelled", On::None, || unsafe {
        change::<A>(status, |neutral| neutral.cancelled = flag != 0)
    })
}

macro_rules! copies {
    ($($name:ident, $text:literal, $from:ty, $to:ty;)*) => {$(
        #[doc = concat!("`", $text, "`\n\n# Safety\nBoth point to a status of the size that the function's name says.")]
        pub unsafe fn $name<A: Abi>(from: *const $from, to: *mut $to) -> c_int {
            guard::run::<A>(&$text, On::None, || {
                if from.is_null() || to.is_null() || A::ignores(from.cast()) || A::ignores(to.cast_const().cast()) {
                    return Err(Error::new(Class::ARG, "MPI_STATUS_IGNORE can't be converted; give a status"));
                }
                // SAFETY: the caller's promise; all forms have the C status's size and no demand on their bits.
                unsafe { std::ptr::copy(from.cast::<A::Status>(), to.cast::<A::Status>(), 1) };
                Ok(())
            })
        }
    )*};
}

copies! {
    status_c2f, "MPI_Status_c2f", A::Status, c_int;
    status_f2c, "MPI_Status_f2c", c_int, A::Status;
    status_c2f08, "MPI_Status_c2f08", A::Status, c_int;
    status_f082c, "MPI_Status_f082c", c_int, A::Status;
    status_f082f, "MPI_Status_f082f", c_int, c_int;
    status_f2f08, "MPI_Status_f2f08", c_int, c_int;
}
