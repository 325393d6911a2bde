//! Sending and receiving on a connection that has a channel, with the meaning that the kernel's calls have. Whatever the ring does not
//! know (urgent data, control data, waiting for the kernel to have sent) goes to the kernel.

use crate::asleep::{self, Asleep};
use crate::kernel::Socket;
use crate::next::{self, set_errno};
use crate::outboxes;
use crate::promoted::{end_of, is_nonblocking, retire, socket};
use crate::table::{Call, quietly};
use libc::{c_int, c_void, iovec, msghdr, off_t, ssize_t};
use pulc_sockets::message::Reason;
use pulc_sockets::{End, Flag, Incoming, Outgoing, Wait};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Parts of a message that are taken at a time; what is behind them comes with the next call.
const PARTS: usize = 64;
/// Flags with which the ring can receive.
const RECEIVE: c_int = libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_TRUNC
    | libc::MSG_CMSG_CLOEXEC;
/// Flags with which the ring can send.
const SEND: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR;
/// Bytes of a file that are copied rather than sent by the kernel.
const FILE_BYTES: usize = 8192;
/// Bytes that are dropped at a time.
const SCRATCH: usize = 4096;

/// What `parts` point to, as slices.
///
/// # Safety
/// `parts` are `count` parts of writable memory that nobody else touches for `'a`.
pub unsafe fn writable<'a, const N: usize>(
    parts: *const iovec,
    count: usize,
    room: &'a mut [MaybeUninit<IoSliceMut<'a>>; N],
) -> &'a mut [IoSliceMut<'a>] {
    let count = count.min(N);
    let mut filled = 0;
    for index in 0..count {
        // SAFETY: the caller's promise.
        let part = unsafe { parts.add(index).read() };
        if part.iov_len > 0 && !part.iov_base.is_null() {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len) };
            room[filled].write(IoSliceMut::new(bytes));
            filled += 1;
        }
    }
    // SAFETY: the first `filled` are written, and `MaybeUninit` has the layout of what is in it.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), filled) }
}

/// The same for bytes that are read, and how many there are.
///
/// # Safety
/// `parts` are `count` parts of readable memory for `'a`, at most [`PARTS`].
pub unsafe fn readable<'a>(
    parts: *const iovec,
    count: usize,
    room: &'a mut [MaybeUninit<IoSlice<'a>>; PARTS],
) -> (&'a [IoSlice<'a>], usize) {
    let (mut filled, mut total) = (0, 0);
    for index in 0..count.min(PARTS) {
        // SAFETY: the caller's promise.
        let part = unsafe { parts.add(index).read() };
        if part.iov_len > 0 && !part.iov_base.is_null() {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            room[filled].write(IoSlice::new(bytes));
            filled += 1;
            total += part.iov_len;
        }
    }
    // SAFETY: the first `filled` are written, and `MaybeUninit` has the layout of what is in it.
    (unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), filled) }, total)
}

/// Receives by the channel; `None` when the kernel is to do it alone.
///
/// # Safety
/// As for `recvmsg` with these parts.
pub unsafe fn receive(call: &Call, fd: c_int, parts: *const iovec, count: usize, flags: c_int) -> Option<ssize_t> {
    let end = end_of(call)?;
    if flags & !RECEIVE != 0 {
        return None;
    }
    let kernel = socket(call, fd);
    if flags & libc::MSG_TRUNC != 0 {
        // SAFETY: only the lengths are read.
        let wanted = (0..count).map(|index| unsafe { (*parts.add(index)).iov_len }).sum();
        return Some(discard(call, end, &kernel, wanted, flags));
    }
    let mut room = [const { MaybeUninit::uninit() }; PARTS];
    // SAFETY: the caller's promise.
    let mut to: &mut [IoSliceMut<'_>] = unsafe { writable(parts, count, &mut room) };
    let mut missing: usize = to.iter().map(|part| part.len()).sum();
    if missing == 0 {
        return None;
    }
    let (peek, mut done) = (flags & libc::MSG_PEEK != 0, 0);
    let wants_all = flags & libc::MSG_WAITALL != 0 && !peek;
    loop {
        match once(call, end, &kernel, to, peek, flags, done) {
            Ok(0) => return Some(done as ssize_t),
            Ok(got) => {
                done += got;
                missing -= got;
                if !wants_all || missing == 0 {
                    return Some(done as ssize_t);
                }
                IoSliceMut::advance_slices(&mut to, got);
            }
            Err(_) if done > 0 => return Some(done as ssize_t),
            Err(number) => {
                set_errno(number);
                return Some(-1);
            }
        }
        if end.is(Flag::Barred) && end.is_over() {
            retire(call);
        }
    }
}

/// Takes bytes and drops them.
fn discard(call: &Call, end: &End, kernel: &Socket, wanted: usize, flags: c_int) -> ssize_t {
    let mut done = 0;
    while done < wanted {
        let mut scratch = [0; SCRATCH];
        let mut parts = [IoSliceMut::new(&mut scratch[..(wanted - done).min(SCRATCH)])];
        let only = if done > 0 { libc::MSG_DONTWAIT } else { 0 };
        match once(call, end, kernel, &mut parts, flags & libc::MSG_PEEK != 0, flags | only, done) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(_) if done > 0 => break,
            Err(number) => {
                set_errno(number);
                return -1;
            }
        }
        if flags & libc::MSG_PEEK != 0 {
            break;
        }
    }
    done as ssize_t
}

/// Some bytes, the end (0), or an error number. `done`: so many are there already, so an error is told later.
fn once(
    call: &Call,
    end: &End,
    kernel: &Socket,
    to: &mut [IoSliceMut<'_>],
    peek: bool,
    flags: c_int,
    done: usize,
) -> Result<usize, i32> {
    let may_sleep = flags & libc::MSG_DONTWAIT == 0;
    if may_sleep && end.is_dry() {
        // Nothing is gained by asking the kernel first: the sleep finds out the same.
        wait(call, end, kernel)?;
    }
    loop {
        match end.receive(kernel, to, peek) {
            Incoming::Got(got) => return Ok(got),
            Incoming::Ended => return Ok(0),
            Incoming::Failed(number) => {
                if done > 0 {
                    end.keep_error(number);
                }
                return Err(number);
            }
            Incoming::Empty => {}
        }
        if !may_sleep {
            return Err(libc::EAGAIN);
        }
        wait(call, end, kernel)?;
    }
}

/// Sleeps until the kernel's socket becomes readable, as a read would: time limits, signals and restarts are the kernel's, and that
/// nobody sleeps on a descriptor that does not block.
fn wait(call: &Call, end: &End, kernel: &Socket) -> Result<(), i32> {
    if call.connection.sleeps(|| !is_nonblocking(kernel.fd)) && end.look_around(kernel) {
        return Ok(());
    }
    let asleep = Asleep::enter(0);
    if end.may_wait(kernel) == Wait::No {
        return Ok(());
    }
    let mut byte = 0u8;
    // SAFETY: room for one byte, which is looked at and not taken.
    let got = unsafe { next::recv(kernel.fd, (&raw mut byte).cast::<c_void>(), 1, libc::MSG_PEEK) };
    drop(asleep);
    if got >= 0 {
        return Ok(());
    }
    match next::errno() {
        number @ (libc::EAGAIN | libc::EINTR) => Err(number),
        number => {
            // What stands in the ring comes first.
            end.keep_error(number);
            Ok(())
        }
    }
}

/// Sends by the channel. What is left for the kernel is sent by `by_kernel`, which gets the number of bytes that are gone already.
///
/// # Safety
/// As for `sendmsg` with these parts.
pub unsafe fn send(
    call: &Call,
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    by_kernel: impl FnOnce(usize) -> ssize_t,
) -> Option<ssize_t> {
    let end = end_of(call)?;
    let board = asleep::any_board()?;
    let kernel = socket(call, fd);
    if flags & !SEND != 0 || count > PARTS {
        if flags & libc::MSG_OOB != 0 {
            end.bar(Reason::Urgent as u32);
        }
        return Some(past(end, &kernel, || by_kernel(0)));
    }
    let mut room = [const { MaybeUninit::uninit() }; PARTS];
    // SAFETY: the caller's promise.
    let (from, total) = unsafe { readable(parts, count, &mut room) };
    if total == 0 {
        return Some(past(end, &kernel, || by_kernel(0)));
    }
    match end.send(board, &kernel, from) {
        Outgoing::Ring(sent) => Some(sent as ssize_t),
        Outgoing::Kernel(gone) if gone == total => {
            end.kernel_done();
            Some(gone as ssize_t)
        }
        Outgoing::Kernel(gone) => {
            let done = Done(end);
            let sent = by_kernel(gone);
            drop(done);
            if end.is(Flag::Barred) && end.is_over() {
                retire(call);
            }
            Some(if gone == 0 { sent } else { gone as ssize_t + sent.max(0) })
        }
        Outgoing::Failed(number) => {
            set_errno(number);
            Some(-1)
        }
    }
}

/// Ends the kernel's turn also when the thread is cancelled in it.
struct Done<'a>(&'a End);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.kernel_done();
    }
}

/// A call that only the kernel can do, in its place among the bytes.
fn past(end: &End, kernel: &Socket, call: impl FnOnce() -> ssize_t) -> ssize_t {
    if let Err(number) = end.send_by_kernel(kernel) {
        set_errno(number);
        return -1;
    }
    let _done = Done(end);
    call()
}

/// The same for callers that have no parts: `sendfile`, `splice`.
pub fn send_past(call: &Call, fd: c_int, by_kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    match end_of(call) {
        Some(end) => past(end, &socket(call, fd), by_kernel),
        None => {
            if call.connection.is_datagrams() {
                quietly(|| outboxes::leave_all(call.connection, fd));
            }
            by_kernel()
        }
    }
}

/// Sends a short piece of a file by the ring, as servers do with small files: `sendfile` by the kernel would leave the ring for each. `None` when
/// the kernel is to do it alone: when it is long, since there no byte is copied, where the file's own position is meant, and wherever
/// something is unusual, because the kernel knows what to say then.
///
/// # Safety
/// As for `sendfile`.
pub unsafe fn send_file(
    call: &Call,
    fd: c_int,
    from: c_int,
    at: *mut off_t,
    len: usize,
    by_kernel: impl Fn(*mut off_t, usize) -> ssize_t,
) -> Option<ssize_t> {
    let is_by_ring = call.is_aware() && end_of(call).is_some_and(End::sends_by_ring);
    if !is_by_ring || at.is_null() || len == 0 || len > FILE_BYTES {
        return None;
    }
    // SAFETY: the caller's promise.
    let start = unsafe { at.read() };
    let mut bytes = [MaybeUninit::<u8>::uninit(); FILE_BYTES];
    // SAFETY: room for `len` bytes, which are at most as many as there are.
    let got = quietly(|| unsafe { libc::syscall(libc::SYS_pread64, from, bytes.as_mut_ptr(), len, start) });
    // The end of the file is less than was asked for, and the kernel sends as little.
    let got = usize::try_from(got).ok().filter(|got| (1..=len).contains(got))?;
    let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: got };
    let rest = |gone: usize| {
        let mut place = start + gone as off_t;
        by_kernel(&raw mut place, got - gone)
    };
    // SAFETY: the first `got` bytes are written.
    let sent = unsafe { send(call, fd, &raw const part, 1, 0, rest) }?;
    // SAFETY: the caller's promise.
    unsafe { at.write(start + sent.max(0) as off_t) };
    Some(sent)
}

/// Parts without their first `gone` bytes, at most `PARTS` of them.
///
/// # Safety
/// `parts` are `count` readable parts.
pub unsafe fn rest(parts: *const iovec, count: usize, gone: usize) -> ([iovec; PARTS], usize) {
    let mut left = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
    let (mut skip, mut filled) = (gone, 0);
    for index in 0..count.min(PARTS) {
        // SAFETY: the caller's promise.
        let part = unsafe { parts.add(index).read() };
        let skipped = skip.min(part.iov_len);
        skip -= skipped;
        if part.iov_len > skipped {
            left[filled] =
                iovec { iov_base: part.iov_base.wrapping_byte_add(skipped), iov_len: part.iov_len - skipped };
            filled += 1;
        }
    }
    (left, filled)
}

/// What `recvmsg` tells of a stream's message: no address, no control data, no flags.
///
/// # Safety
/// `message` is a valid header.
pub unsafe fn plain(message: *mut msghdr) {
    // SAFETY: the caller's promise.
    unsafe {
        (*message).msg_namelen = 0;
        (*message).msg_controllen = 0;
        (*message).msg_flags = 0;
    }
}
