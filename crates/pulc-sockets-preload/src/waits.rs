//! The calls that wait for several descriptors.

use crate::{next, table};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

macro_rules! waits {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { next::$name($($argument),*) }
        }
    )* };
}

waits! {
    fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int);
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t);
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit_ms: c_int, room: size_t);
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t, room: size_t);
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, limit: *mut timeval);
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, limit: *const timespec, mask: *const sigset_t);
    fn epoll_wait(set: c_int, events: *mut epoll_event, max: c_int, limit_ms: c_int);
    fn epoll_pwait(set: c_int, events: *mut epoll_event, max: c_int, limit_ms: c_int, mask: *const sigset_t);
    fn epoll_pwait2(set: c_int, events: *mut epoll_event, max: c_int, limit: *const timespec, mask: *const sigset_t);
    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event);
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let set = unsafe { next::epoll_create(size) };
    table::fresh(set);
    set
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let set = unsafe { next::epoll_create1(flags) };
    table::fresh(set);
    set
}
