//! The calls that ask about a socket or change how it behaves.

use crate::promoted::{before_shutdown, end_of, leave};
use crate::table::{self, Call, quietly};
use crate::{datagrams, next};
use libc::{c_int, c_void, socklen_t};
use pulc_sockets::Flag;
use pulc_sockets::message::Reason;
use std::sync::atomic::Ordering;

/// Options of the socket's level that say something about bytes in the kernel's queues.
const OF_KERNEL: &[c_int] = &[
    libc::SO_RCVLOWAT,
    libc::SO_OOBINLINE,
    libc::SO_TIMESTAMP,
    libc::SO_TIMESTAMPNS,
    libc::SO_TIMESTAMPING,
    libc::SO_ATTACH_FILTER,
    libc::SO_ATTACH_BPF,
    libc::SO_ZEROCOPY,
];
/// The same of TCP's level.
const OF_TCP: &[c_int] = &[libc::TCP_ULP, libc::TCP_REPAIR];

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let call = table::touch(fd);
    if let Some(call) = &call
        && (how != libc::SHUT_RD || call.connection.is_datagrams())
    {
        before_shutdown(call, fd);
    }
    // SAFETY: the caller's promise.
    unsafe { next::shutdown(fd, how) }
}

/// The int at `value`, if there is one.
///
/// # Safety
/// `value` is null or points to `len` readable bytes.
unsafe fn number(value: *const c_void, len: socklen_t) -> Option<c_int> {
    // SAFETY: the caller's promise.
    (!value.is_null() && len as usize >= size_of::<c_int>()).then(|| unsafe { value.cast::<c_int>().read_unaligned() })
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
    if table::is_followed(fd) {
        let is_of_kernel = table::touch(fd).is_some_and(|call| datagrams::are_changed(&call, level, name))
            || level == libc::SOL_SOCKET && OF_KERNEL.contains(&name)
            || level == libc::IPPROTO_TCP && OF_TCP.contains(&name);
        if is_of_kernel {
            quietly(|| leave(fd, Reason::Option));
        } else if let Some(call) = table::touch(fd) {
            // SAFETY: the caller's promise.
            let first = unsafe { number(value, len) };
            if first.is_some_and(|value| is_kept(&call, level, name, value)) {
                return 0;
            }
            if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER)
                && let Some(end) = end_of(&call)
            {
                // SAFETY: the caller's promise; two ints.
                let second = unsafe { number(value.wrapping_byte_add(4), len.saturating_sub(4)) };
                end.set(Flag::Abort, first.is_some_and(|on| on != 0) && second == Some(0));
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { next::setsockopt(fd, level, name, value, len) }
}

/// Whether an option is kept here and the kernel is not to hear of it.
fn is_kept(call: &Call, level: c_int, name: c_int, value: c_int) -> bool {
    let connection = call.connection;
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY) && connection.has_nodelay.load(Ordering::Relaxed) {
        connection.nodelay.store(u32::from(value != 0), Ordering::Relaxed);
        return end_of(call).is_some_and(|end| !end.is_over());
    }
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CORK)
        && let Some(end) = connection.end()
    {
        // A ring hands everything on at once, and so may a kernel that it goes back to meanwhile: a cork promises nobody that bytes wait.
        if value != 0 && !end.is(Flag::Corked) && end.is_ready() && !end.is_over() {
            connection.has_cork.store(true, Ordering::Relaxed);
            return true;
        }
        if connection.has_cork.load(Ordering::Relaxed) {
            connection.has_cork.store(value != 0, Ordering::Relaxed);
            return true;
        }
        // The next bytes go to the kernel, and stay there until it is pulled.
        end.set(Flag::Corked, value != 0);
    }
    false
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
    let call = table::touch(fd);
    // SAFETY: the caller's promise.
    let result = unsafe { next::getsockopt(fd, level, name, value, len) };
    if let Some(call) = call
        && result == 0
        && let Some(kept) = kept(&call, level, name)
    {
        // SAFETY: the kernel has written an int there, or as many bytes of it as there is room.
        unsafe {
            if !len.is_null() && *len as usize >= size_of::<c_int>() {
                value.cast::<c_int>().write_unaligned(kept);
            }
        }
    }
    result
}

/// What the program has set and the kernel was not told.
fn kept(call: &Call, level: c_int, name: c_int) -> Option<c_int> {
    let connection = call.connection;
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
            connection.has_nodelay.load(Ordering::Relaxed).then(|| connection.nodelay.load(Ordering::Relaxed) as c_int)
        }
        (libc::IPPROTO_TCP, libc::TCP_CORK) => connection.has_cork.load(Ordering::Relaxed).then_some(1),
        _ => None,
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: libc::Ioctl, argument: usize) -> c_int {
    let call = table::touch(fd);
    // SAFETY: the caller's promise; whatever stands behind the request is one word.
    let result = unsafe { next::ioctl(fd, request, argument) };
    if result == 0
        && request == libc::FIONBIO
        && let Some(call) = &call
    {
        // SAFETY: the kernel has read an int there.
        call.connection.now_sleeps(unsafe { (argument as *const c_int).read_unaligned() } == 0);
    }
    if result == 0
        && argument != 0
        && request == libc::FIONREAD
        && let Some(call) = &call
        && let Some(bytes) = datagrams::next_bytes(call, fd)
    {
        // SAFETY: the kernel has written an int there.
        unsafe { (argument as *mut c_int).write_unaligned(c_int::try_from(bytes).unwrap_or(c_int::MAX)) };
    }
    if result == 0
        && argument != 0
        && (request == libc::FIONREAD || request == libc::TIOCOUTQ)
        && let Some(call) = call
        && let Some(end) = end_of(&call)
    {
        let at = argument as *mut c_int;
        // SAFETY: the kernel has written an int there.
        unsafe {
            let bytes = match request {
                libc::FIONREAD => end.readable_bytes(at.read_unaligned() as usize),
                _ => at.read_unaligned() as usize + end.unheard_bytes(),
            };
            at.write_unaligned(c_int::try_from(bytes).unwrap_or(c_int::MAX));
        }
    }
    result
}
