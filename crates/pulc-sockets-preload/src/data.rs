//! The calls that move bytes. A connection that is left alone costs a look into a table; one that is followed, a count up and down; one
//! with a channel goes to `moving.rs`.

use crate::promoted::{end_of, leave};
use crate::table::{self, quietly};
use crate::{moving, next, postponed, sets};
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use pulc_sockets::message::Reason;

const fn part(base: *mut c_void, len: size_t) -> iovec {
    iovec { iov_base: base, iov_len: len }
}

/// One buffer to be filled: by the channel, or by `kernel`.
///
/// # Safety
/// As for `recv`.
#[inline]
unsafe fn take(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some(call) = table::read(fd) else { return kernel() };
    if !call.is_aware() {
        return kernel();
    }
    let part = part(to, len);
    // SAFETY: the caller's promise.
    unsafe { moving::receive(&call, fd, &part, 1, flags) }.unwrap_or_else(kernel)
}

/// # Safety
/// As for `readv`.
#[inline]
unsafe fn take_parts(
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(call) = table::read(fd) else { return kernel() };
    if !call.is_aware() {
        return kernel();
    }
    // SAFETY: the caller's promise.
    unsafe { moving::receive(&call, fd, parts, count, flags) }.unwrap_or_else(kernel)
}

/// One buffer to be sent: by the channel, or from the byte it is given on by `kernel`.
///
/// # Safety
/// As for `send`.
#[inline]
unsafe fn give(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    kernel: impl Fn(*const c_void, size_t) -> ssize_t,
) -> ssize_t {
    let Some(call) = table::write(fd) else { return kernel(from, len) };
    if !call.is_aware() {
        return kernel(from, len);
    }
    let part = part(from.cast_mut(), len);
    let rest = |gone: usize| kernel(from.wrapping_byte_add(gone), len - gone);
    // SAFETY: the caller's promise.
    unsafe { moving::send(&call, fd, &part, 1, flags, rest) }.unwrap_or_else(|| kernel(from, len))
}

/// # Safety
/// As for `writev`.
#[inline]
unsafe fn give_parts(
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    kernel: impl Fn(*const iovec, usize) -> ssize_t,
) -> ssize_t {
    let Some(call) = table::write(fd) else { return kernel(parts, count) };
    if !call.is_aware() {
        return kernel(parts, count);
    }
    let rest = |gone: usize| {
        if gone == 0 {
            return kernel(parts, count);
        }
        // SAFETY: the caller's promise.
        let (left, count) = unsafe { moving::rest(parts, count, gone) };
        kernel(left.as_ptr(), count)
    };
    // SAFETY: the caller's promise.
    unsafe { moving::send(&call, fd, parts, count, flags, rest) }.unwrap_or_else(|| kernel(parts, count))
}

macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $body:expr;)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { $body }
        }
    )* };
}

/// Parts of a scattered call; nonsense is left to the kernel to refuse.
fn many(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0)
}

calls! {
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = take(fd, to, len, 0, || next::read(fd, to, len));
    fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        take(fd, to, len, flags, || next::recv(fd, to, len, flags));
    fn recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> ssize_t =
        take(fd, to, len, flags, || next::recvfrom(fd, to, len, flags, who, wide));
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t =
        if len > room { next::__read_chk(fd, to, len, room) } else { take(fd, to, len, 0, || next::read(fd, to, len)) };
    fn __recv_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t =
        if len > room { next::__recv_chk(fd, to, len, room, flags) } else { take(fd, to, len, flags, || next::recv(fd, to, len, flags)) };
    fn __recvfrom_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> ssize_t =
        take(fd, to, len.min(room), flags, || next::__recvfrom_chk(fd, to, len, room, flags, who, wide));
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t =
        take_parts(fd, parts, many(count), 0, || next::readv(fd, parts, count));
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t =
        if at == -1 && flags == 0 { readv(fd, parts, count) } else { next::preadv2(fd, parts, count, at, flags) };
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = receive_message(fd, message, flags);
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t =
        give(fd, from, len, 0, |from, len| next::write(fd, from, len));
    fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        give(fd, from, len, flags, |from, len| next::send(fd, from, len, flags));
    fn sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, who: *const sockaddr, wide: socklen_t) -> ssize_t =
        give(fd, from, len, flags, |from, len| next::sendto(fd, from, len, flags, who, wide));
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t =
        give_parts(fd, parts, many(count), 0, |parts, count| next::writev(fd, parts, count as c_int));
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t =
        if at == -1 && flags == 0 { writev(fd, parts, count) } else { next::pwritev2(fd, parts, count, at, flags) };
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = send_message(fd, message, flags);
    fn sendfile(fd: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t = {
        let kernel = || next::sendfile(fd, from, at, len);
        let by_kernel = |at: *mut off_t, len| next::sendfile(fd, from, at, len);
        match table::write(fd) {
            Some(call) => moving::send_file(&call, fd, from, at, len, by_kernel)
                .unwrap_or_else(|| moving::send_past(&call, fd, kernel)),
            None => kernel(),
        }
    };
    fn sendfile64(fd: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t = sendfile(fd, from, at, len);
}

/// # Safety
/// As for `recvmsg`.
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe {
        let kernel = || next::recvmsg(fd, message, flags);
        let Some(call) = table::read(fd) else { return kernel() };
        if !call.is_aware() || message.is_null() {
            return kernel();
        }
        let (parts, count) = ((*message).msg_iov, (*message).msg_iovlen);
        match moving::receive(&call, fd, parts, count, flags) {
            Some(got) => {
                if got >= 0 {
                    moving::plain(message);
                }
                got
            }
            None => kernel(),
        }
    }
}

/// # Safety
/// As for `sendmsg`.
unsafe fn send_message(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe {
        let kernel = || next::sendmsg(fd, message, flags);
        if message.is_null() {
            return kernel();
        }
        let has_control = !(*message).msg_control.is_null() && (*message).msg_controllen > 0;
        if has_control {
            hand_over(message);
        }
        let Some(call) = table::write(fd) else { return kernel() };
        if !call.is_aware() {
            return kernel();
        }
        if has_control || !(*message).msg_name.is_null() {
            return moving::send_past(&call, fd, kernel);
        }
        let (parts, count) = ((*message).msg_iov.cast_const(), (*message).msg_iovlen);
        let rest = |gone: usize| {
            if gone == 0 {
                return kernel();
            }
            let (mut left, count) = moving::rest(parts, count, gone);
            let mut header = message.read();
            (header.msg_iov, header.msg_iovlen) = (left.as_mut_ptr(), count as _);
            next::sendmsg(fd, &raw const header, flags)
        };
        moving::send(&call, fd, parts, count, flags, rest).unwrap_or_else(kernel)
    }
}

/// Descriptors on their way to another process become ordinary connections before.
///
/// # Safety
/// `message` is a valid header with control data.
unsafe fn hand_over(message: *const msghdr) {
    // SAFETY: the caller's promise; the macros of the C library stay within the control data.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds = libc::CMSG_DATA(header).cast::<c_int>();
                for index in 0..bytes / size_of::<c_int>() {
                    let fd = fds.add(index).read_unaligned();
                    if table::is_followed(fd) {
                        quietly(|| leave(fd, Reason::HandedOver));
                    }
                    postponed::share(sets::known(fd));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// Whether the connection of `fd` has a channel.
fn has_channel(fd: c_int) -> bool {
    table::touch(fd).is_some_and(|call| end_of(&call).is_some())
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
    // SAFETY: the caller's promise.
    unsafe {
        if !has_channel(fd) || count == 0 {
            let _call = table::read(fd);
            return next::recvmmsg(fd, messages, count, flags, limit);
        }
        // One message of a stream is as good as several.
        let got = recvmsg(fd, &raw mut (*messages).msg_hdr, flags & !libc::MSG_WAITFORONE);
        if got < 0 {
            return -1;
        }
        (*messages).msg_len = got as c_uint;
        1
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(call) = table::write(fd) else { return next::sendmmsg(fd, messages, count, flags) };
        moving::send_past(&call, fd, || next::sendmmsg(fd, messages, count, flags) as ssize_t) as c_int
    }
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
    if table::is_followed(from) {
        // Pages come from the kernel's queue only.
        quietly(|| leave(from, Reason::HandedOver));
    }
    // SAFETY: the caller's promise.
    let kernel = || unsafe { next::splice(from, at, to, to_at, len, flags) };
    let _reading = table::read(from);
    table::write(to).map_or_else(kernel, |call| moving::send_past(&call, to, kernel))
}
