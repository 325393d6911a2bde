//! What MPICH's Fortran libraries (`libmpichfort.so.12`, `libmpifort.so.12`) ask the C library for besides MPI functions, and the copy
//! function behind `MPI_DUP_FN`. The doors' own functions are made from the table; these have no place there.

use pulc_mpi_calls::guard::{self, On};
use pulc_mpi_calls::{self as calls, Abi, Handle, Mpich};
use std::ffi::{c_int, c_void};

type Comm = <Mpich as Abi>::Comm;
type Datatype = <Mpich as Abi>::Datatype;
type Win = <Mpich as Abi>::Win;

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

/// An attribute with Fortran's view of its value.
///
/// # Safety
/// `value` points to room for an address, `flag` to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Comm_get_attr(
    comm: Comm,
    keyval: c_int,
    value: *mut c_void,
    flag: *mut c_int,
    _kind: c_int,
) -> c_int {
    // SAFETY: passed on as the caller gave them.
    unsafe { calls::comm_get_attr_fortran::<Mpich>(comm, keyval, value, flag) }
}

/// # Safety
/// None is needed: the value is kept, not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Comm_set_attr(comm: Comm, keyval: c_int, value: *mut c_void, _kind: c_int) -> c_int {
    // SAFETY: passed on as the caller gave them.
    unsafe { calls::comm_set_attr::<Mpich>(comm, keyval, value) }
}

/// # Safety
/// `value` points to room for an address, `flag` to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Type_get_attr(
    datatype: Datatype,
    keyval: c_int,
    value: *mut c_void,
    flag: *mut c_int,
    _kind: c_int,
) -> c_int {
    // SAFETY: passed on as the caller gave them.
    unsafe { calls::type_get_attr::<Mpich>(datatype, keyval, value, flag) }
}

/// # Safety
/// None is needed: the value is kept, not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Type_set_attr(
    datatype: Datatype,
    keyval: c_int,
    value: *mut c_void,
    _kind: c_int,
) -> c_int {
    // SAFETY: passed on as the caller gave them.
    unsafe { calls::type_set_attr::<Mpich>(datatype, keyval, value) }
}

/// Windows are not there yet.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Win_get_attr(
    win: Win,
    _keyval: c_int,
    _value: *mut c_void,
    _flag: *mut c_int,
    _kind: c_int,
) -> c_int {
    guard::unsupported::<Mpich>("MPI_Win_get_attr", On::Win(win.inward()))
}

/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Win_set_attr(win: Win, _keyval: c_int, _value: *mut c_void, _kind: c_int) -> c_int {
    guard::unsupported::<Mpich>("MPI_Win_set_attr", On::Win(win.inward()))
}

/// Tells how the callbacks of a key that Fortran made are to be called.
///
/// # Safety
/// The functions are those of the Fortran library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Keyval_set_proxy(keyval: c_int, copy: calls::CopyProxy, delete: calls::DeleteProxy) {
    calls::set_proxies(keyval, copy, delete);
}

/// Generalized requests of Fortran programs: their functions would have to be called by address.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPII_Grequest_set_lang_f77(_request: c_int) {
    guard::unsupported::<Mpich>("MPI_Grequest_start of Fortran", On::None);
}
