//! The calls that ask about a socket or change how it behaves.

use crate::{next, table};
use libc::{c_int, c_void, socklen_t};

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let _call = table::touch(fd);
    // SAFETY: the caller's promise.
    unsafe { next::shutdown(fd, how) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let _call = table::touch(fd);
    // SAFETY: the caller's promise.
    unsafe { next::setsockopt(fd, level, name, value, len) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let _call = table::touch(fd);
    // SAFETY: the caller's promise.
    unsafe { next::getsockopt(fd, level, name, value, len) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: libc::Ioctl, argument: usize) -> c_int {
    let _call = table::touch(fd);
    // SAFETY: the caller's promise; whatever stands behind the request is one word.
    unsafe { next::ioctl(fd, request, argument) }
}
