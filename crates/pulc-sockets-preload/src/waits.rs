//! The calls that wait for several descriptors: which of them have to do with a ring is decided here, the rest is the kernel's.

use crate::asleep::Asleep;
use crate::postponed::{self, Waiting};
use crate::table::{self, quietly};
use crate::{next, polls, sets};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use std::time::Duration;

/// The entries of a `poll` that has to do with followed connections.
///
/// # Safety
/// `fds` are `count` entries, or null.
unsafe fn concerned<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if fds.is_null() || count as usize > table::FDS_MAX {
        return None;
    }
    // SAFETY: the caller's promise.
    let entries = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    entries.iter().any(|entry| table::is_followed(entry.fd) || sets::is_set(entry.fd)).then_some(entries)
}

/// A limit in milliseconds; negative: none.
fn milliseconds(limit: c_int) -> Option<Duration> {
    u64::try_from(limit).ok().map(Duration::from_millis)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match concerned(fds, count) {
            Some(entries) => polls::poll(entries, milliseconds(limit_ms), std::ptr::null()),
            None => next::poll(fds, count, limit_ms),
        }
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let wanted = limit.as_ref().map(polls::duration);
        match concerned(fds, count) {
            Some(entries) if wanted != Some(None) => polls::poll(entries, wanted.flatten(), mask),
            _ => next::ppoll(fds, count, limit, mask),
        }
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit_ms: c_int, room: size_t) -> c_int {
    // SAFETY: the caller's promise; the original complains about too little room.
    unsafe {
        match concerned(fds, count) {
            Some(entries) if room / size_of::<pollfd>() >= count as usize => {
                polls::poll(entries, milliseconds(limit_ms), std::ptr::null())
            }
            _ => next::__poll_chk(fds, count, limit_ms, room),
        }
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: the caller's promise; the original complains about too little room.
    unsafe {
        if room / size_of::<pollfd>() >= count as usize {
            return ppoll(fds, count, limit, mask);
        }
        next::__ppoll_chk(fds, count, limit, mask, room)
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    other: *mut fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise; of the limit, as Linux has it, is left what is left.
    unsafe {
        let wanted = limit.as_ref().map(|limit| {
            let (seconds, micros) = (u64::try_from(limit.tv_sec).ok()?, u64::try_from(limit.tv_usec).ok()?);
            Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
        });
        if !polls::concerns(count, read) || wanted == Some(None) {
            return next::select(count, read, write, other, limit);
        }
        let (found, left) = polls::select(count, [read, write, other], wanted.flatten(), std::ptr::null());
        if let (Some(limit), Some(left)) = (limit.as_mut(), left) {
            limit.tv_sec = left.as_secs() as _;
            limit.tv_usec = left.subsec_micros() as _;
        }
        found
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    other: *mut fd_set,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let wanted = limit.as_ref().map(polls::duration);
        if !polls::concerns(count, read) || wanted == Some(None) {
            return next::pselect(count, read, write, other, limit, mask);
        }
        polls::select(count, [read, write, other], wanted.flatten(), mask).0
    }
}

/// Of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    None,
    /// Against a look at the rings.
    Short,
    Long,
}

impl Length {
    fn of(limit: Option<Duration>) -> Length {
        match limit {
            Some(Duration::ZERO) => Length::None,
            limit if polls::is_long(limit) => Length::Long,
            _ => Length::Short,
        }
    }
}

/// A wait for a set: the rings first, but for the kernel's turns; then, if that has paid, a look around; then asleep, once more the
/// rings, and the kernel.
///
/// # Safety
/// `events` has room for `max` events; `kernel` waits, or only looks if told so.
unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    length: Length,
    kernel: impl Fn(bool) -> c_int,
) -> c_int {
    let number = sets::number(set);
    let room = usize::try_from(max).unwrap_or(0);
    // SAFETY: below `max`, the caller's promise.
    let put = |at: usize, event: epoll_event| unsafe { events.add(at).write_unaligned(event) };
    let kernel = |look| {
        let _waiting = Waiting::enter(number);
        kernel(look)
    };
    let has_members = sets::has_members(number) && room > 0 && !events.is_null();
    if has_members {
        if sets::is_kernels_turn(number) {
            let found = kernel(true);
            if found != 0 {
                return found;
            }
        }
        let found = sets::collect(number, room, put);
        if found > 0 {
            return found as c_int;
        }
    }
    if length == Length::None {
        return kernel(true);
    }
    if has_members && length == Length::Long {
        if sets::is_kernel_first(number) {
            let found = kernel(true);
            if found != 0 {
                sets::kernel_was_busy(number);
                return found;
            }
        }
        let found = sets::look_around(number, room, put);
        if found > 0 {
            return found as c_int;
        }
    }
    let asleep = Asleep::enter(number);
    if has_members {
        let found = sets::collect(number, room, put);
        if found > 0 {
            return found as c_int;
        }
    }
    let found = kernel(false);
    quietly(|| drop(asleep));
    found
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(set: c_int, events: *mut epoll_event, max: c_int, limit_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        wait(set, events, max, Length::of(milliseconds(limit_ms)), |look| {
            next::epoll_wait(set, events, max, if look { 0 } else { limit_ms })
        })
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    limit_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    let kernel = |look| {
        let limit_ms = if look { 0 } else { limit_ms };
        // SAFETY: the caller's promise.
        unsafe { next::epoll_pwait(set, events, max, limit_ms, mask) }
    };
    // SAFETY: the caller's promise.
    unsafe { wait(set, events, max, Length::of(milliseconds(limit_ms)), kernel) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    static NONE: timespec = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the caller's promise.
    let wanted = unsafe { limit.as_ref() }.map(polls::duration);
    let length = match wanted {
        // The kernel refuses it.
        Some(None) => Length::Short,
        wanted => Length::of(wanted.flatten()),
    };
    let kernel = |look| {
        let limit = if look { &raw const NONE } else { limit };
        // SAFETY: the caller's promise.
        unsafe { next::epoll_pwait2(set, events, max, limit, mask) }
    };
    // SAFETY: the caller's promise.
    unsafe { wait(set, events, max, length, kernel) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(result) = unsafe { postponed::postpone(sets::known(set), what, fd, event) } {
        return result.map_or_else(
            |number| {
                next::set_errno(number);
                -1
            },
            |()| 0,
        );
    }
    // SAFETY: the caller's promise.
    let result = unsafe { next::epoll_ctl(set, what, fd, event) };
    if result == 0 && (table::is_followed(fd) || sets::is_set(fd)) {
        // SAFETY: the kernel has read it.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        quietly(|| sets::changed(set, what, fd, event));
    }
    result
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let set = unsafe { next::epoll_create(size) };
    table::fresh(set);
    sets::made(set);
    set
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let set = unsafe { next::epoll_create1(flags) };
    table::fresh(set);
    sets::made(set);
    set
}
