//! Variables that `libmpi.so.12` exports: sentinels by address or by value. A program may hold its own copy of each (a copy relocation),
//! so nothing here is ever read by us: what counts is the value that a program passes on. The Fortran ones are written by Fortran libraries.
//! Source: the public headers of MPICH; MPI-5.0, 19.3.5 for the Fortran ones.

use std::ffi::{c_int, c_void};

/// A pointer that never changes.
#[repr(transparent)]
pub struct Sentinel(*const c_void);

// SAFETY: nobody follows or changes it.
unsafe impl Sync for Sentinel {}

const fn value(number: usize) -> Sentinel {
    Sentinel(std::ptr::without_provenance(number))
}

/// The same values as in the standard ABI.
#[unsafe(no_mangle)]
pub static MPI_UNWEIGHTED: Sentinel = value(10);
#[unsafe(no_mangle)]
pub static MPI_WEIGHTS_EMPTY: Sentinel = value(11);
#[unsafe(no_mangle)]
pub static MPI_T_PVAR_ALL_HANDLES: Sentinel = value(1);

/// Statuses that Fortran programs pass to ask for none.
#[repr(transparent)]
pub struct FortranStatus([c_int; 5]);

#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_STATUS_IGNORE_OBJ: FortranStatus = FortranStatus([0; 5]);
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_STATUSES_IGNORE_OBJ: [FortranStatus; 1] = [FortranStatus([0; 5])];
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_IN_PLACE: c_int = 0;
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_BOTTOM: c_int = 0;

/// Set by the Fortran library when it starts, to the addresses of its own sentinels.
#[unsafe(no_mangle)]
pub static mut MPI_F_STATUS_IGNORE: *mut c_int = std::ptr::null_mut();
#[unsafe(no_mangle)]
pub static mut MPI_F_STATUSES_IGNORE: *mut c_int = std::ptr::null_mut();
#[unsafe(no_mangle)]
pub static mut MPI_F08_STATUS_IGNORE: *const FortranStatus = &raw const MPIR_F08_MPI_STATUS_IGNORE_OBJ;
#[unsafe(no_mangle)]
pub static mut MPI_F08_STATUSES_IGNORE: *const FortranStatus = (&raw const MPIR_F08_MPI_STATUSES_IGNORE_OBJ).cast();
