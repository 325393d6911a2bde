//! The calls that move several messages, and single ones of datagrams with their headers. Called by programs and by `data.rs`.

use crate::data::recvmsg;
use crate::outboxes::{self, To};
use crate::polls::{self, Deadline};
use crate::promoted::end_of;
use crate::table::{self, Call, quietly};
use crate::{datagrams, moving, next};
use libc::{c_int, c_uint, mmsghdr, msghdr, ssize_t, timespec};

/// Messages of one call, as the kernel has it.
const MESSAGES_MAX: c_uint = 1024;

/// By a ring; `None`: to be sent by the kernel.
///
/// # Safety
/// As for `sendmsg`.
pub unsafe fn send_datagram(call: &Call, fd: c_int, message: *const msghdr, flags: c_int) -> Option<ssize_t> {
    // SAFETY: the caller's promise.
    unsafe {
        let to = match (*message).msg_name {
            name if name.is_null() => To::Peer,
            name => To::Address(name.cast(), (*message).msg_namelen),
        };
        if !(*message).msg_control.is_null() && (*message).msg_controllen > 0 {
            outboxes::leave(call, fd, to);
            return None;
        }
        outboxes::send(call, fd, (*message).msg_iov, (*message).msg_iovlen, flags, to)
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
        if count > 0 && table::touch(fd).is_some_and(|call| datagrams::has_inbox(&call)) {
            return receive_datagrams(fd, messages, count, flags, limit);
        }
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
        if call.connection.is_datagrams() && !messages.is_null() {
            return send_datagrams(&call, fd, messages, count, flags);
        }
        moving::send_past(&call, fd, || next::sendmmsg(fd, messages, count, flags) as ssize_t) as c_int
    }
}

/// Several datagrams, one after the other: the first may be waited for, the others too unless that is not wanted.
///
/// # Safety
/// As for `recvmmsg`.
unsafe fn receive_datagrams(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let wanted = limit.as_ref().map(polls::duration);
        if wanted == Some(None) {
            return next::recvmmsg(fd, messages, count, flags, limit);
        }
        let deadline = Deadline::after(wanted.flatten());
        let mut done = 0;
        let mut flags = flags;
        let only_one = flags & libc::MSG_WAITFORONE != 0;
        flags &= !libc::MSG_WAITFORONE;
        while done < count {
            let message = messages.add(done as usize);
            let got = recvmsg(fd, &raw mut (*message).msg_hdr, flags);
            if got < 0 {
                return if done > 0 { done as c_int } else { -1 };
            }
            (*message).msg_len = got as c_uint;
            done += 1;
            if only_one {
                flags |= libc::MSG_DONTWAIT;
            }
            // As the kernel has it: looked at after each, and not while one is waited for.
            let left = deadline.left();
            if let (Some(limit), Some(left)) = (limit.as_mut(), left) {
                *limit = polls::time(left);
            }
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
        }
        done as c_int
    }
}

/// Several datagrams: by the ring as long as it takes them, the rest by the kernel at once.
///
/// # Safety
/// As for `sendmmsg`.
unsafe fn send_datagrams(call: &Call, fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let count = count.min(MESSAGES_MAX);
        let mut done = 0;
        while done < count {
            let message = messages.add(done as usize);
            let Some(sent) = send_datagram(call, fd, &raw const (*message).msg_hdr, flags) else { break };
            (*message).msg_len = sent as c_uint;
            done += 1;
        }
        if done == count && count > 0 {
            return done as c_int;
        }
        quietly(|| outboxes::leave_all(call.connection, fd));
        let sent = next::sendmmsg(fd, messages.add(done as usize), count - done, flags);
        if sent < 0 && done > 0 { done as c_int } else { sent + done as c_int }
    }
}
