//! Reads of a socket that has an inbox, with the meaning that the kernel's calls have. Called by the exported functions.

use crate::addresses;
use crate::asleep::Asleep;
use crate::connection::Role;
use crate::datagrams::socket;
use crate::kernel::{Socket, result};
use crate::moving;
use crate::next::{self, set_errno};
use crate::promoted::is_nonblocking;
use crate::table::Call;
use libc::{c_int, c_void, iovec, msghdr, sockaddr, socklen_t, ssize_t};
use pulc_sockets::Wait;
use pulc_sockets::datagrams::{Inbox, SIGNAL_BYTES, Taken};
use pulc_sockets::message::Place;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;

/// Flags with which the ring can receive. `MSG_WAITALL` means nothing here.
const RECEIVE: c_int = libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_TRUNC
    | libc::MSG_CMSG_CLOEXEC;
/// Parts of a read as a rule, and at most, as the kernel has it.
const PARTS: usize = 16;
const PARTS_MAX: usize = 1024;

/// Where a read wants to be told who has sent.
#[derive(Clone, Copy)]
pub enum Whose {
    Nobody,
    Address(*mut sockaddr, *mut socklen_t),
    Message(*mut msghdr),
}

/// Receives a datagram; `None` when the kernel is to do it alone.
///
/// # Safety
/// As for `recvmsg` with these parts.
#[inline]
pub unsafe fn receive(
    call: &Call,
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    whose: Whose,
) -> Option<ssize_t> {
    if flags & !RECEIVE != 0 {
        return None;
    }
    if count <= PARTS {
        // SAFETY: the caller's promise.
        unsafe { receive_parts::<PARTS>(call, fd, parts, count, flags, whose) }
    } else if count <= PARTS_MAX {
        // SAFETY: the caller's promise.
        unsafe { receive_many(call, fd, parts, count, flags, whose) }
    } else {
        None
    }
}

/// Apart, for its room on the stack.
///
/// # Safety
/// As for `recvmsg` with these parts.
#[cold]
#[inline(never)]
unsafe fn receive_many(
    call: &Call,
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    whose: Whose,
) -> Option<ssize_t> {
    // SAFETY: the caller's promise.
    unsafe { receive_parts::<PARTS_MAX>(call, fd, parts, count, flags, whose) }
}

/// # Safety
/// As for `recvmsg` with these parts, at most `N`.
#[inline]
unsafe fn receive_parts<const N: usize>(
    call: &Call,
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    whose: Whose,
) -> Option<ssize_t> {
    let inbox = call.connection.inbox()?;
    let kernel = socket(fd);
    let mut room = [const { MaybeUninit::uninit() }; N];
    // SAFETY: the caller's promise.
    let to = unsafe { moving::writable(parts, count, &mut room) };
    let is_v6 = call.connection.role() == Role::Datagrams6;
    Some(match once(call, inbox, &kernel, to, (parts, count), flags, whose) {
        Ok(Taken::Ring(datagram)) => {
            // SAFETY: the caller's promise.
            unsafe { tell(whose, &datagram.source, is_v6, flags, datagram.bytes > datagram.copied) };
            (if flags & libc::MSG_TRUNC != 0 { datagram.bytes } else { datagram.copied }) as ssize_t
        }
        Ok(Taken::Kernel(got)) => got,
        Ok(Taken::Empty) => failed(libc::EAGAIN),
        Ok(Taken::Failed(number)) | Err(number) => failed(number),
    })
}

fn failed(number: c_int) -> ssize_t {
    set_errno(number);
    -1
}

/// Takes one datagram, after a sleep where that is wanted.
fn once(
    call: &Call,
    inbox: &Inbox,
    kernel: &Socket,
    to: &mut [IoSliceMut<'_>],
    parts: (*const iovec, usize),
    flags: c_int,
    whose: Whose,
) -> Result<Taken<ssize_t>, i32> {
    let may_sleep = flags & libc::MSG_DONTWAIT == 0;
    if may_sleep && inbox.is_dry() {
        // Nothing is gained by asking the kernel first: the sleep finds out the same.
        wait(call, inbox, kernel)?;
    }
    loop {
        let by_kernel = || take_from_kernel(kernel.fd, parts, flags, whose);
        match inbox.take(kernel, to, flags & libc::MSG_PEEK != 0, by_kernel) {
            Taken::Empty if may_sleep => wait(call, inbox, kernel)?,
            taken => return Ok(taken),
        }
    }
}

/// Sleeps until the kernel's socket becomes readable, as a read would.
fn wait(call: &Call, inbox: &Inbox, kernel: &Socket) -> Result<(), i32> {
    let may_look = call.connection.sleeps(|| !is_nonblocking(kernel.fd));
    if may_look && pulc_sockets::look_around(&[inbox], kernel) {
        return Ok(());
    }
    let asleep = Asleep::enter(0);
    if inbox.may_wait() == Wait::No {
        return Ok(());
    }
    let mut byte = 0u8;
    // SAFETY: room for one byte, which is looked at and not taken.
    let got = unsafe { next::recv(kernel.fd, (&raw mut byte).cast::<c_void>(), 1, libc::MSG_PEEK) };
    drop(asleep);
    if got >= 0 { Ok(()) } else { Err(next::errno()) }
}

/// Takes what stands first in the kernel's queue, and shows what may be a signal.
pub fn take_from_kernel(
    fd: c_int,
    (parts, count): (*const iovec, usize),
    flags: c_int,
    whose: Whose,
) -> Result<(ssize_t, Option<[u8; SIGNAL_BYTES]>), i32> {
    // SAFETY: all zeroes is a valid header; a program's own was valid when it called, as were parts and the room for an address.
    let (got, header, room) = unsafe {
        let mut header: msghdr = std::mem::zeroed();
        match whose {
            Whose::Nobody => {}
            Whose::Address(who, wide) => {
                header.msg_name = who.cast();
                header.msg_namelen = if wide.is_null() { 0 } else { wide.read() };
            }
            Whose::Message(message) => header = message.read(),
        }
        (header.msg_iov, header.msg_iovlen) = (parts.cast_mut(), count as _);
        // By its whole length a signal is known.
        let all = flags | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let got = result(libc::syscall(libc::SYS_recvmsg, fd, &raw mut header, all))?;
        let room: usize = (0..count).map(|index| (*parts.add(index)).iov_len).sum();
        (got, header, room)
    };
    // SAFETY: as above.
    unsafe {
        match whose {
            Whose::Nobody => {}
            Whose::Address(_, wide) => {
                if !wide.is_null() {
                    wide.write(header.msg_namelen);
                }
            }
            Whose::Message(message) => {
                (*message).msg_namelen = header.msg_namelen;
                (*message).msg_controllen = header.msg_controllen;
                (*message).msg_flags = header.msg_flags;
            }
        }
    }
    let told = if flags & libc::MSG_TRUNC != 0 { got } else { got.min(room) };
    // SAFETY: as above; the kernel has written that much of them.
    let shown = (got == SIGNAL_BYTES && room >= got).then(|| unsafe { beginning(parts, count) });
    Ok((told as ssize_t, shown))
}

/// What these parts begin with.
///
/// # Safety
/// `parts` are `count` readable parts.
unsafe fn beginning(parts: *const iovec, count: usize) -> [u8; SIGNAL_BYTES] {
    let mut bytes = [0; SIGNAL_BYTES];
    let mut done = 0;
    for index in 0..count {
        // SAFETY: the caller's promise.
        let part = unsafe { parts.add(index).read() };
        let len = part.iov_len.min(SIGNAL_BYTES - done);
        if len > 0 {
            // SAFETY: as above; no more than there is room for.
            unsafe { std::ptr::copy_nonoverlapping(part.iov_base.cast::<u8>(), bytes[done..].as_mut_ptr(), len) };
            done += len;
        }
    }
    bytes
}

/// Says who has sent a datagram of the ring.
///
/// # Safety
/// What `whose` points to is the program's promise.
unsafe fn tell(whose: Whose, source: &Place, is_v6: bool, flags: c_int, is_cut: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        match whose {
            Whose::Nobody => {}
            Whose::Address(who, wide) => {
                if !who.is_null() && !wide.is_null() {
                    addresses::write(source, is_v6, who, &mut *wide);
                }
            }
            Whose::Message(message) => {
                if (*message).msg_name.is_null() {
                    (*message).msg_namelen = 0;
                } else {
                    addresses::write(source, is_v6, (*message).msg_name.cast(), &mut (*message).msg_namelen);
                }
                (*message).msg_controllen = 0;
                let cut = if is_cut { libc::MSG_TRUNC } else { 0 };
                (*message).msg_flags = cut | flags & libc::MSG_CMSG_CLOEXEC;
            }
        }
    }
}
