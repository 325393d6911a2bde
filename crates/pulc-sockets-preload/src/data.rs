//! The calls that move bytes. A connection that is left alone costs a look into a table; one that is followed, a count up and down.

use crate::{next, table};
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use std::sync::atomic::Ordering;

/// Counts what a call of this process took.
#[inline]
fn took(call: &table::Call, bytes: ssize_t) -> ssize_t {
    let sum = &call.connection.bytes_in;
    if bytes > 0 {
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(bytes as u64), Ordering::Relaxed);
    }
    bytes
}

/// Counts what a call of this process gave.
#[inline]
fn gave(call: &table::Call, bytes: ssize_t) -> ssize_t {
    let sum = &call.connection.bytes_out;
    if bytes > 0 {
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(bytes as u64), Ordering::Relaxed);
    }
    bytes
}

macro_rules! takes {
    ($(fn $name:ident($fd:ident: c_int $(, $argument:ident: $kind:ty)*);)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $kind)*) -> ssize_t {
            let call = table::read($fd);
            // SAFETY: the caller's promise.
            let bytes = unsafe { next::$name($fd $(, $argument)*) };
            match call {
                Some(call) => took(&call, bytes),
                None => bytes,
            }
        }
    )* };
}

macro_rules! gives {
    ($(fn $name:ident($fd:ident: c_int $(, $argument:ident: $kind:ty)*);)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $kind)*) -> ssize_t {
            let call = table::write($fd);
            // SAFETY: the caller's promise.
            let bytes = unsafe { next::$name($fd $(, $argument)*) };
            match call {
                Some(call) => gave(&call, bytes),
                None => bytes,
            }
        }
    )* };
}

takes! {
    fn read(fd: c_int, to: *mut c_void, len: size_t);
    fn readv(fd: c_int, parts: *const iovec, count: c_int);
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int);
    fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int);
    fn recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t);
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int);
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t);
    fn __recv_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int);
    fn __recvfrom_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t);
}

gives! {
    fn write(fd: c_int, from: *const c_void, len: size_t);
    fn writev(fd: c_int, parts: *const iovec, count: c_int);
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int);
    fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int);
    fn sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, who: *const sockaddr, wide: socklen_t);
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int);
    fn sendfile(fd: c_int, from: c_int, at: *mut off_t, len: size_t);
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(fd: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    // SAFETY: the same function where files are 64 bits long anyway; the caller's promise.
    unsafe { sendfile(fd, from, at, len) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    let _call = table::read(fd);
    // SAFETY: the caller's promise.
    unsafe { next::recvmmsg(fd, messages, count, flags, limit) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    let _call = table::write(fd);
    // SAFETY: the caller's promise.
    unsafe { next::sendmmsg(fd, messages, count, flags) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let (_reading, _writing) = (table::read(from), table::write(to));
    // SAFETY: the caller's promise.
    unsafe { next::splice(from, at, to, to_at, len, flags) }
}
