//! Time, addresses, version of the binary interface, and the call for profiling tools: functions that need no object.
//! Source: MPI-5.0, 5.1.5, 9.6, 15.2.4, 20.2.

use crate::abi::{Abi, Handle};
use crate::convert::{poke, text_out};
use crate::guard::{self, On, SUCCESS};
use crate::maps::Limit;
use pulc_mpi::call;
use pulc_mpi::handle::{Comm, Info};
use std::ffi::{c_int, c_void};

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
    guard::run::<A>(&"MPI_Get_version", On::None, || unsafe {
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
    guard::run::<A>(&"MPI_Abi_get_version", On::None, || unsafe {
        poke(abi_major, A::ABI_VERSION.0)?;
        poke(abi_minor, A::ABI_VERSION.1)
    })
}

/// `MPI_Get_address`
///
/// # Safety
/// `address` is null or points to an `MPI_Aint`.
pub unsafe fn get_address<A: Abi>(location: *const c_void, address: *mut i64) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Get_address", On::None, || unsafe { poke(address, location.addr() as i64) })
}

/// `MPI_Address`, its name before MPI-2.
///
/// # Safety
/// As [`get_address`].
pub unsafe fn address<A: Abi>(location: *mut c_void, address: *mut i64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { get_address::<A>(location.cast_const(), address) }
}

/// `MPI_Get_library_version`
///
/// # Safety
/// `version` has room for the longest one, `resultlen` is null or points to an int.
pub unsafe fn get_library_version<A: Abi>(version: *mut std::ffi::c_char, resultlen: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Get_library_version", On::None, || unsafe {
        text_out::<A>(version, resultlen, Limit::LibraryVersionString, &call::get_library_version())
    })
}

/// `MPI_Initialized`
///
/// # Safety
/// `flag` is null or points to an int.
pub unsafe fn initialized<A: Abi>(flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Initialized", On::None, || unsafe { poke(flag, c_int::from(call::initialized())) })
}

/// `MPI_Finalized`
///
/// # Safety
/// `flag` is null or points to an int.
pub unsafe fn finalized<A: Abi>(flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Finalized", On::None, || unsafe { poke(flag, c_int::from(call::finalized())) })
}

/// `MPI_Comm_get_parent`: nobody spawns processes yet.
///
/// # Safety
/// `parent` is null or points to a handle.
pub unsafe fn comm_get_parent<A: Abi>(parent: *mut A::Comm) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Comm_get_parent", On::None, || unsafe { poke(parent, Handle::outward(Comm::NULL)) })
}

/// `MPI_Abi_get_info`: sizes of the integers of the interface.
///
/// # Safety
/// `info` is null or points to a handle.
pub unsafe fn abi_get_info<A: Abi>(info: *mut A::Info) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Abi_get_info", On::None, || unsafe {
        let made = call::info_create()?;
        for key in ["mpi_aint_size", "mpi_count_size", "mpi_offset_size"] {
            call::info_set(made, key, "8")?;
        }
        poke(info, Handle::outward(made))
    })
}

/// `MPI_Abi_get_fortran_info`: null, as long as no Fortran layer has told anything.
///
/// # Safety
/// `info` is null or points to a handle.
pub unsafe fn abi_get_fortran_info<A: Abi>(info: *mut A::Info) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Abi_get_fortran_info", On::None, || unsafe { poke(info, Handle::outward(Info::NULL)) })
}

/// `MPI_Abi_get_fortran_booleans`: not set.
///
/// # Safety
/// `is_set` is null or points to an int.
pub unsafe fn abi_get_fortran_booleans<A: Abi>(
    _logical_size: c_int,
    _logical_true: *mut c_void,
    _logical_false: *mut c_void,
    is_set: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPI_Abi_get_fortran_booleans", On::None, || unsafe { poke(is_set, 0) })
}

macro_rules! no_devices {
    ($($name:ident, $text:literal;)*) => {$(
        #[doc = concat!("`", $text, "`: messages from and to such a device's memory are not there.\n\n# Safety\nNone is needed.")]
        pub unsafe fn $name<A: Abi>() -> c_int {
            0
        }
    )*};
}

no_devices! {
    mpix_query_cuda_support, "MPIX_Query_cuda_support";
    mpix_query_hip_support, "MPIX_Query_hip_support";
    mpix_query_ze_support, "MPIX_Query_ze_support";
}

/// `MPIX_GPU_query_support`
///
/// # Safety
/// `flag` is null or points to an int.
pub unsafe fn mpix_gpu_query_support<A: Abi>(_kind: c_int, flag: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    guard::run::<A>(&"MPIX_GPU_query_support", On::None, || unsafe { poke(flag, 0) })
}
