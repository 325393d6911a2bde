//! The calls that make, copy and close descriptors: they keep the table true.

use crate::connection::Role;
use crate::promoted::leave;
use crate::table::{self, quietly};
use crate::{datagrams, next, postponed, sets, settings};
use libc::{c_char, c_int, c_uint, mode_t, sockaddr, socklen_t};
use pulc_sockets::message::Reason;

/// Of fcntl: which signal says that something arrived.
const F_SETSIG: c_int = 10;
const INET: [c_int; 2] = [libc::AF_INET, libc::AF_INET6];

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, who: *const sockaddr, wide: socklen_t) -> c_int {
    // SAFETY: the caller's promise: `wide` bytes are readable, and the family comes first.
    let family = if who.is_null() || (wide as usize) < size_of::<libc::sa_family_t>() {
        libc::AF_UNSPEC
    } else {
        // SAFETY: as above; read without assuming an alignment.
        c_int::from(unsafe { (&raw const (*who).sa_family).read_unaligned() })
    };
    if table::touch(fd).is_some_and(|call| call.connection.is_datagrams()) {
        // What comes and where it goes is another question from now on.
        quietly(|| datagrams::before_connect(fd));
        // SAFETY: the caller's promise.
        return unsafe { next::connect(fd, who, wide) };
    }
    let already = table::is_followed(fd);
    if already && family == libc::AF_UNSPEC {
        // Dissolves the connection: what the kernel has counted begins anew.
        leave(fd, Reason::HandedOver);
    }
    let is_new = already && INET.contains(&family);
    // SAFETY: the caller's promise.
    let result = unsafe { next::connect(fd, who, wide) };
    if is_new && (result == 0 || next::errno() == libc::EINPROGRESS || next::errno() == libc::EINTR) {
        quietly(|| {
            if let Some(call) = table::touch(fd) {
                call.connection.become_active();
            }
        });
    }
    result
}

/// What `accept` returned is followed; whether it is TCP is seen when it is worth a look.
fn accepted(fd: c_int) -> c_int {
    if fd >= 0 && !settings::is_off() {
        quietly(|| table::follow(fd, Role::Passive));
    }
    fd
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, who: *mut sockaddr, wide: *mut socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    accepted(unsafe { next::accept(fd, who, wide) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(fd: c_int, who: *mut sockaddr, wide: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    accepted(unsafe { next::accept4(fd, who, wide, flags) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if (table::is_followed(fd) || sets::is_set(fd)) && table::is_mine() {
        quietly(|| {
            postponed::before_close(fd);
            table::fresh(fd);
        });
    }
    // SAFETY: the caller's promise.
    unsafe { next::close(fd) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    if flags & CLOEXEC == 0 {
        table::forget_range(first, last);
    }
    // SAFETY: the caller's promise.
    unsafe { next::close_range(first, last, flags) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    table::forget_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: the caller's promise.
    unsafe { next::closefrom(first) }
}

/// `to` is about to become a copy of `fd`.
fn before_copy(fd: c_int, to: c_int) {
    if to != fd && table::is_followed(to) && table::is_mine() {
        postponed::before_close(to);
    }
}

/// `to` has become a copy of `fd`.
fn copied(fd: c_int, to: c_int) -> c_int {
    if to >= 0 && to != fd && (sets::is_set(fd) || sets::is_set(to)) && table::is_mine() {
        sets::forget(to);
        sets::alias(fd, to);
    }
    if to >= 0 && to != fd && (table::is_followed(fd) || table::is_followed(to)) {
        quietly(|| {
            if table::is_mine() {
                table::fresh(to);
                table::alias(fd, to);
            } else {
                // A child of vfork goes on with it as it likes.
                leave(fd, Reason::HandedOver);
            }
        });
    }
    to
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    copied(fd, unsafe { next::dup(fd) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    before_copy(fd, to);
    // SAFETY: the caller's promise.
    copied(fd, unsafe { next::dup2(fd, to) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    before_copy(fd, to);
    // SAFETY: the caller's promise.
    copied(fd, unsafe { next::dup3(fd, to, flags) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise; whatever stands behind the command is one word.
    let result = unsafe { next::fcntl(fd, command, argument) };
    if command == libc::F_SETFL
        && result == 0
        && let Some(call) = table::touch(fd)
    {
        call.connection.now_sleeps(argument as c_int & libc::O_NONBLOCK == 0);
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, result),
        libc::F_SETOWN | F_SETSIG | libc::F_SETFL
            if argument as c_int & libc::O_ASYNC != 0 || command != libc::F_SETFL =>
        {
            quietly(|| leave(fd, Reason::HandedOver));
            result
        }
        _ => result,
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fcntl(fd, command, argument) }
}

/// A socket is followed from its beginning: it may be put into sets before it is connected.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let fd = unsafe { next::socket(domain, kind, protocol) };
    table::fresh(fd);
    let role = match (kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK), domain) {
        (libc::SOCK_STREAM, libc::AF_INET | libc::AF_INET6) => Role::Unknown,
        (libc::SOCK_DGRAM, libc::AF_INET) if is_udp(protocol) => Role::Datagrams,
        (libc::SOCK_DGRAM, libc::AF_INET6) if is_udp(protocol) => Role::Datagrams6,
        _ => return fd,
    };
    if fd >= 0 && !settings::is_off() {
        quietly(|| table::follow(fd, role));
    }
    fd
}

fn is_udp(protocol: c_int) -> bool {
    matches!(protocol, 0 | libc::IPPROTO_UDP)
}

macro_rules! makes {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => { $(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: the caller's promise.
            let fd = unsafe { next::$name($($argument),*) };
            table::fresh(fd);
            fd
        }
    )* };
}

// A number that was closed behind our back is seen here at the latest.
makes! {
    fn eventfd(start: c_uint, flags: c_int);
    fn open(path: *const c_char, flags: c_int, mode: mode_t);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t);
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t);
}

/// Two numbers that were just given out.
///
/// # Safety
/// `pair` points to two numbers if `result` is zero.
unsafe fn fresh_pair(result: c_int, pair: *const c_int) -> c_int {
    if result == 0 {
        // SAFETY: the caller's promise.
        let (one, other) = unsafe { (pair.read(), pair.add(1).read()) };
        table::fresh(one);
        table::fresh(other);
    }
    result
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fresh_pair(next::socketpair(domain, kind, protocol, pair), pair) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pipe(pair: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fresh_pair(next::pipe(pair), pair) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pipe2(pair: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fresh_pair(next::pipe2(pair, flags), pair) }
}
