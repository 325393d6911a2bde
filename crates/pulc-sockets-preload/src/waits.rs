//! The calls that wait for several descriptors: which of them have to do with a ring is decided here, the rest is the kernel's.

use crate::asleep::Asleep;
use crate::connection::FOLLOWED;
use crate::polls::Deadline;
use crate::postponed::{self, Waiting};
use crate::table::{self, quietly};
use crate::{next, polls, sets};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The entries of a `poll` that has to do with rings. `sleeps`: it does not only look.
///
/// # Safety
/// `fds` are `count` entries, or null.
unsafe fn concerned<'a>(fds: *mut pollfd, count: nfds_t, sleeps: bool) -> Option<&'a mut [pollfd]> {
    if fds.is_null() || count as usize > table::FDS_MAX {
        return None;
    }
    // SAFETY: the caller's promise.
    let entries = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    entries.iter().any(|entry| table::may_have_ring(entry.fd, sleeps) || sets::is_set(entry.fd)).then_some(entries)
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
        match concerned(fds, count, limit_ms != 0) {
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
        match concerned(fds, count, wanted != Some(Some(Duration::ZERO))) {
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
        match concerned(fds, count, limit_ms != 0) {
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

/// How long the kernel is to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Look,
    /// As the program has said.
    Sleep,
    /// What is left of that.
    Left(Duration),
}

impl Ask {
    fn milliseconds(self, whole: c_int) -> c_int {
        match self {
            Ask::Look => 0,
            Ask::Sleep => whole,
            // Not shorter than was said.
            Ask::Left(left) => c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX),
        }
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
/// rings, and the kernel. What only a bell made readable is not told, and waited on.
///
/// # Safety
/// `events` has room for `max` events; `kernel` waits as long as it is told, and writes as many events as it says.
unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    limit: Option<Duration>,
    kernel: impl Fn(Ask) -> c_int,
) -> c_int {
    let length = Length::of(limit);
    let number = sets::number(set);
    let room = usize::try_from(max).unwrap_or(0);
    // SAFETY: below `max`, the caller's promise.
    let put = |at: usize, event: epoll_event| unsafe { events.add(at).write_unaligned(event) };
    // `None`: there were only bells.
    let kernel = |ask| {
        let waiting = Waiting::enter(number);
        let found = kernel(ask);
        drop(waiting);
        let count = usize::try_from(found).unwrap_or(0);
        if count == 0 || !sets::has_members(number) {
            return Some(found);
        }
        // SAFETY: the kernel has written so many.
        let found = unsafe { std::slice::from_raw_parts_mut(events, count) };
        let left = quietly(|| sets::without_bells(number, found));
        (left > 0).then_some(left as c_int)
    };
    let look = || kernel(Ask::Look).unwrap_or(0);
    let has_members = sets::has_members(number) && room > 0 && !events.is_null();
    if has_members {
        if sets::is_kernels_turn(number) {
            let found = look();
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
        return look();
    }
    if has_members && length == Length::Long {
        if sets::is_kernel_first(number) {
            let found = look();
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
    let deadline = Deadline::after(limit.filter(|_| FOLLOWED.load(Ordering::Relaxed) != 0));
    let mut ask = Ask::Sleep;
    loop {
        // Anew for each sleep: whoever has rung for this one rings for the next.
        let asleep = Asleep::enter(number);
        if has_members {
            let found = sets::collect(number, room, put);
            if found > 0 {
                return found as c_int;
            }
        }
        let found = kernel(ask);
        quietly(|| drop(asleep));
        match (found, deadline.left()) {
            (Some(found), _) => return found,
            (None, Some(Duration::ZERO)) => return 0,
            (None, Some(left)) => ask = Ask::Left(left),
            // The first connections of the process have come meanwhile, and the wait began without a look at the clock.
            (None, None) if limit.is_some() => return look(),
            (None, None) => {}
        }
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(set: c_int, events: *mut epoll_event, max: c_int, limit_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        wait(set, events, max, milliseconds(limit_ms), |ask| {
            next::epoll_wait(set, events, max, ask.milliseconds(limit_ms))
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
    // SAFETY: the caller's promise.
    let kernel = |ask: Ask| unsafe { next::epoll_pwait(set, events, max, ask.milliseconds(limit_ms), mask) };
    // SAFETY: the caller's promise.
    unsafe { wait(set, events, max, milliseconds(limit_ms), kernel) }
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
    // SAFETY: the caller's promise.
    let wanted = unsafe { limit.as_ref() }.map(polls::duration);
    let kernel = |ask| {
        let other = match ask {
            Ask::Look => Some(polls::time(Duration::ZERO)),
            Ask::Sleep => None,
            Ask::Left(left) => Some(polls::time(left)),
        };
        let limit = other.as_ref().map_or(limit, |time| &raw const *time);
        // SAFETY: the caller's promise.
        unsafe { next::epoll_pwait2(set, events, max, limit, mask) }
    };
    if wanted == Some(None) {
        // Nonsense, which the kernel refuses.
        return kernel(Ask::Sleep);
    }
    // SAFETY: the caller's promise.
    unsafe { wait(set, events, max, wanted.flatten(), kernel) }
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
