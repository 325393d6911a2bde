//! The functions behind ours: the C library's, or those of another preloaded library. Each is looked up at its first call. Called by
//! the exported functions only. Must never allocate nor lock.

use libc::{
    c_char, c_int, c_uint, c_void, epoll_event, fd_set, iovec, mmsghdr, mode_t, msghdr, nfds_t, off_t, pid_t, pollfd,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The address of the next function of this name; null where there is none.
#[inline]
pub fn find(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = at.load(Ordering::Relaxed);
    if known.is_null() { look_up(at, name) } else { known }
}

#[cold]
fn look_up(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with zero; the pseudo-handle needs no opening.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    at.store(found, Ordering::Relaxed);
    found
}

/// What a function returns whose original does not exist on this system.
pub trait Missing {
    fn missing() -> Self;
}

impl Missing for c_int {
    fn missing() -> c_int {
        set_errno(libc::ENOSYS);
        -1
    }
}

impl Missing for ssize_t {
    fn missing() -> ssize_t {
        set_errno(libc::ENOSYS);
        -1
    }
}

impl<T> Missing for *mut T {
    fn missing() -> *mut T {
        set_errno(libc::ENOSYS);
        std::ptr::null_mut()
    }
}

impl Missing for () {
    fn missing() {}
}

pub fn set_errno(number: c_int) {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() = number };
}

pub fn errno() -> c_int {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() }
}

macro_rules! originals {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => { $(
        /// # Safety
        /// As the C library's.
        #[inline]
        pub unsafe fn $name($($argument: $kind),*) -> $result {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name with a zero in it"),
            };
            let found = find(&AT, NAME);
            if found.is_null() {
                return <$result as Missing>::missing();
            }
            // SAFETY: the C library's function of this name has this type; the arguments are the caller's promise.
            unsafe {
                let call: unsafe extern "C-unwind" fn($($kind),*) -> $result = std::mem::transmute(found);
                call($($argument),*)
            }
        }
    )* };
}

originals! {
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec) -> c_int;
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> ssize_t;
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, who: *const sockaddr, wide: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t;
    fn splice(from: c_int, at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    fn connect(fd: c_int, who: *const sockaddr, wide: socklen_t) -> c_int;
    fn accept(fd: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, who: *mut sockaddr, wide: *mut socklen_t, flags: c_int) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn ioctl(fd: c_int, request: libc::Ioctl, argument: usize) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int) -> ();
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn pipe(pair: *mut c_int) -> c_int;
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int;
    fn eventfd(start: c_uint, flags: c_int) -> c_int;
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int;
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit_ms: c_int, room: size_t) -> c_int;
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, limit: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, limit: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(set: c_int, events: *mut epoll_event, max: c_int, limit_ms: c_int) -> c_int;
    fn epoll_pwait(set: c_int, events: *mut epoll_event, max: c_int, limit_ms: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(set: c_int, events: *mut epoll_event, max: c_int, limit: *const timespec, mask: *const sigset_t) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvp(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvpe(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    fn vdprintf(fd: c_int, form: *const c_char, arguments: *mut c_void) -> c_int;
}
