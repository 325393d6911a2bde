//! Time, addresses, version of the binary interface, and the call for profiling tools: functions that need no object.
//! Source: MPI-5.0, 5.1.5, 9.6, 15.2.4, 20.2.

use crate::abi::Abi;
use crate::convert::{poke, text_out};
use crate::guard::{self, On, SUCCESS};
use crate::maps::Limit;
use pulc_mpi::call;
use std::ffi::c_int;

/// `MPI_Wtime`
///
/// # Safety
/// None is needed.
pub unsafe fn wtime<A: Abi>() -> f64 {
    call::wtime()
}

/// `MPI_Wtick`
///
/// # Safety
/// None is needed.
pub unsafe fn wtick<A: Abi>() -> f64 {
    call::wtick()
}

/// `MPI_Aint_add`
///
/// # Safety
/// None is needed.
pub unsafe fn aint_add<A: Abi>(base: i64, disp: i64) -> i64 {
    base.wrapping_add(disp)
}

/// `MPI_Aint_diff`
///
/// # Safety
/// None is needed.
pub unsafe fn aint_diff<A: Abi>(addr1: i64, addr2: i64) -> i64 {
    addr1.wrapping_sub(addr2)
}

/// `MPI_Pcontrol`: only tools do something with it.
///
/// # Safety
/// None is needed.
pub unsafe fn pcontrol<A: Abi>(_level: c_int) -> c_int {
    SUCCESS
}

/// `MPI_Get_version`
///
/// # Safety
/// The pointers are null or point to ints.
pub unsafe fn get_version<A: Abi>(version: *mut c_int, subversion: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>("MPI_Get_version", On::None, || unsafe {
        let (major, minor) = call::get_version();
        poke(version, major)?;
        poke(subversion, minor)
    })
}

/// `MPI_Abi_get_version`
///
/// # Safety
/// The pointers are null or point to ints.
pub unsafe fn abi_get_version<A: Abi>(abi_major: *mut c_int, abi_minor: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>("MPI_Abi_get_version", On::None, || unsafe {
        poke(abi_major, A::ABI_VERSION.0)?;
        poke(abi_minor, A::ABI_VERSION.1)
    })
}

/// `MPI_Get_address`
///
/// # Safety
/// `address` is null or points to an `MPI_Aint`.
pub unsafe fn get_address<A: Abi>(location: *const std::ffi::c_void, address: *mut i64) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>("MPI_Get_address", On::None, || unsafe { poke(address, location.addr() as i64) })
}

/// `MPI_Address`, its name before MPI-2.
///
/// # Safety
/// As [`get_address`].
pub unsafe fn address<A: Abi>(location: *mut std::ffi::c_void, address: *mut i64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { get_address::<A>(location.cast_const(), address) }
}

/// `MPI_Get_library_version`
///
/// # Safety
/// `version` has room for the longest one, `resultlen` is null or points to an int.
pub unsafe fn get_library_version<A: Abi>(version: *mut std::ffi::c_char, resultlen: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>("MPI_Get_library_version", On::None, || unsafe {
        text_out::<A>(version, resultlen, Limit::LibraryVersionString, &call::get_library_version())
    })
}

/// `MPI_Initialized`
///
/// # Safety
/// `flag` is null or points to an int.
pub unsafe fn initialized<A: Abi>(flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>("MPI_Initialized", On::None, || unsafe { poke(flag, c_int::from(call::initialized())) })
}

/// `MPI_Finalized`
///
/// # Safety
/// `flag` is null or points to an int.
pub unsafe fn finalized<A: Abi>(flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>("MPI_Finalized", On::None, || unsafe { poke(flag, c_int::from(call::finalized())) })
}
