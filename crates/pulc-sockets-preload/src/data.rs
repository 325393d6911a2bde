//! The calls that move bytes. A connection that is left alone costs a look into a table; one that is followed, a count up and down; one
//! with a channel goes to `moving.rs`.

use crate::letters::{self, Whose};
use crate::outboxes::{self, To};
use crate::promoted::leave;
use crate::table::{self, quietly};
use crate::{messages, moving, next, postponed, sets};
use libc::{c_int, c_uint, c_void, iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use pulc_sockets::message::Reason;

const fn part(base: *mut c_void, len: size_t) -> iovec {
    iovec { iov_base: base, iov_len: len }
}

/// One buffer to be filled: by the channel, or by `kernel`.
///
/// # Safety
/// As for `recv`.
#[inline]
unsafe fn take(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
    whose: Whose,
    kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(call) = table::read(fd) else { return kernel() };
    if !call.is_aware() {
        return kernel();
    }
    let part = part(to, len);
    if call.connection.is_datagrams() {
        // SAFETY: the caller's promise.
        return unsafe { letters::receive(&call, fd, &part, 1, flags, whose) }.unwrap_or_else(kernel);
    }
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
    if call.connection.is_datagrams() {
        // A read of nothing takes nothing.
        // SAFETY: the caller's promise.
        let is_nothing = (0..count).all(|index| unsafe { (*parts.add(index)).iov_len } == 0);
        // SAFETY: as above.
        let taken = (!is_nothing).then(|| unsafe { letters::receive(&call, fd, parts, count, flags, Whose::Nobody) });
        return taken.flatten().unwrap_or_else(kernel);
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
    to: To,
    kernel: impl Fn(*const c_void, size_t) -> ssize_t,
) -> ssize_t {
    let Some(call) = table::write(fd) else { return kernel(from, len) };
    if call.connection.is_datagrams() {
        let part = part(from.cast_mut(), len);
        // SAFETY: the caller's promise.
        return unsafe { outboxes::send(&call, fd, &part, 1, flags, to) }.unwrap_or_else(|| kernel(from, len));
    }
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
    if call.connection.is_datagrams() {
        // SAFETY: the caller's promise.
        return unsafe { outboxes::send(&call, fd, parts, count, flags, To::Peer) }
            .unwrap_or_else(|| kernel(parts, count));
    }
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
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = if len == 0 { next::read(fd, to, len) } else { take(fd, to, len, 0, Whose::Nobody, || next::read(fd, to, len)) };
    fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        take(fd, to, len, flags, Whose::Nobody, || next::recv(fd, to, len, flags));
    fn recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> ssize_t =
        take(fd, to, len, flags, Whose::Address(who, wide), || next::recvfrom(fd, to, len, flags, who, wide));
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t =
        if len > room { next::__read_chk(fd, to, len, room) } else { read(fd, to, len) };
    fn __recv_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t =
        if len > room { next::__recv_chk(fd, to, len, room, flags) } else { recv(fd, to, len, flags) };
    fn __recvfrom_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> ssize_t =
        take(fd, to, len.min(room), flags, Whose::Address(who, wide), || next::__recvfrom_chk(fd, to, len, room, flags, who, wide));
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t =
        take_parts(fd, parts, many(count), 0, || next::readv(fd, parts, count));
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t =
        if at == -1 && flags == 0 { readv(fd, parts, count) } else { next::preadv2(fd, parts, count, at, flags) };
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = receive_message(fd, message, flags);
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t =
        give(fd, from, len, 0, To::Peer, |from, len| next::write(fd, from, len));
    fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        give(fd, from, len, flags, To::Peer, |from, len| next::send(fd, from, len, flags));
    fn sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, who: *const sockaddr, wide: socklen_t) -> ssize_t =
        give(fd, from, len, flags, if who.is_null() { To::Peer } else { To::Address(who, wide) }, |from, len| next::sendto(fd, from, len, flags, who, wide));
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
        if call.connection.is_datagrams() {
            return letters::receive(&call, fd, parts, count, flags, Whose::Message(message)).unwrap_or_else(kernel);
        }
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
        if call.connection.is_datagrams() {
            return messages::send_datagram(&call, fd, message, flags).unwrap_or_else(kernel);
        }
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
