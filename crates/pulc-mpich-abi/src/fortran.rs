//! What MPICH's Fortran libraries (`libmpichfort.so.12`, `libmpifort.so.12`) ask the C library for besides MPI functions, and the copy
//! function behind `MPI_DUP_FN`. The doors' own functions are made from the table; these have no place there.

use pulc_mpi_calls::guard::{self, On};
use pulc_mpi_calls::{Abi, Mpich};
use std::ffi::{c_int, c_void};

type Comm = <Mpich as Abi>::Comm;

/// `MPI_DUP_FN`: an attribute is copied as it is.
///
/// # Safety
/// `value_out` points to a pointer, `flag` to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIR_Dup_fn(
    _comm: Comm,
    _keyval: c_int,
    _extra_state: *mut c_void,
    value_in: *mut c_void,
    value_out: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise: MPI hands a pointer to the new value and one to the flag.
    unsafe {
        value_out.cast::<*mut c_void>().write(value_in);
        flag.write(1);
    }
    guard::SUCCESS
}

macro_rules! attributes {
    ($($get:ident, $set:ident;)*) => {$(
        /// Attributes with Fortran's view of their values.
        ///
        /// # Safety
        /// As the MPI function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            _object: c_int,
            _keyval: c_int,
            _value: *mut c_void,
            _flag: *mut c_int,
            _kind: c_int,
        ) -> c_int {
            guard::unsupported::<Mpich>(stringify!($get), On::None)
        }

        /// # Safety
        /// As the MPI function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(_object: c_int, _keyval: c_int, _value: *mut c_void, _kind: c_int) -> c_int {
            guard::unsupported::<Mpich>(stringify!($set), On::None)
        }
    )*};
}

attributes! {
    MPII_Comm_get_attr, MPII_Comm_set_attr;
    MPII_Type_get_attr, MPII_Type_set_attr;
    MPII_Win_get_attr, MPII_Win_set_attr;
}

/// Tells how the callbacks of a key that Fortran made are to be called.
///
/// # Safety
/// The functions are those of the Fortran library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Keyval_set_proxy(_keyval: c_int, _copy: *const c_void, _delete: *const c_void) {
    guard::unsupported::<Mpich>("MPII_Keyval_set_proxy", On::None);
}

/// Tells that a generalized request was started by Fortran.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Grequest_set_lang_f77(_request: c_int) {
    guard::unsupported::<Mpich>("MPII_Grequest_set_lang_f77", On::None);
}
