//! Which descriptors are TCP connections that this process made, and which calls are on their way on each. Asked by every exported
//! function, so: no lock, no allocation, no system call. Fixed tables that cost memory only where they are touched.
//!
//! A connection enters by `connect` or `accept` and leaves with its last descriptor in this process. A descriptor that came in
//! another way (by exec, from another process) is not here and is left alone.

use crate::connection::{AWARE, Connection, FOLLOWED, Role, phase};
use crate::{next, outboxes, postponed, promoted, sets};
use pulc_hal::os::life;
use pulc_sockets::message::Reason;
use pulc_sockets::place::{self, Place};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Descriptors above are left alone.
pub const FDS_MAX: usize = 1 << 16;
/// Connections of one process that are followed at a time; more are left alone.
pub const CONNECTIONS_MAX: usize = 1 << 14;

static FDS: [AtomicU32; FDS_MAX] = [const { AtomicU32::new(0) }; FDS_MAX];
static CONNECTIONS: [Connection; CONNECTIONS_MAX] = [const { Connection::new() }; CONNECTIONS_MAX];
/// Where the search for a free place begins.
static SEARCH: AtomicU32 = AtomicU32::new(0);
/// The process that these tables are of, see [`is_mine`].
static OWNER: AtomicU32 = AtomicU32::new(0);
static FORKED: AtomicBool = AtomicBool::new(false);

/// A call on its way on a connection: while it lives, the connection's place belongs to it.
pub struct Call {
    pub connection: &'static Connection,
    count: &'static AtomicU32,
    is_aware: bool,
}

impl Call {
    /// Whether this call began knowing of the channel.
    #[inline]
    pub fn is_aware(&self) -> bool {
        self.is_aware
    }

    pub fn count(&self) -> &'static AtomicU32 {
        self.count
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if self.connection.place.leave(self.count) {
            self.connection.free_if_unused();
        }
    }
}

#[inline]
fn place(fd: c_int) -> Option<&'static AtomicU32> {
    FDS.get(fd as usize)
}

/// Enters a call on `fd`; `None` for everything that is left alone.
#[inline]
fn enter(fd: c_int, count: fn(&'static Place) -> &'static AtomicU32) -> Option<Call> {
    let at = place(fd)?;
    let index = at.load(Ordering::Acquire);
    if index == 0 {
        return None;
    }
    let connection = &CONNECTIONS[index as usize - 1];
    let count = count(&connection.place);
    let entered = place::enter(count, at, index);
    let call = Call { connection, count, is_aware: entered == Some(true) };
    entered.map(|_| call)
}

/// A call that takes bytes from `fd`.
#[inline]
pub fn read(fd: c_int) -> Option<Call> {
    let call = enter(fd, |place| &place.reading)?;
    if call.connection.is_due() {
        return Some(advanced(call, fd));
    }
    Some(call)
}

/// A call that gives bytes to `fd`.
#[inline]
pub fn write(fd: c_int) -> Option<Call> {
    let call = enter(fd, |place| &place.writing)?;
    // Who only sends datagrams needs no inbox.
    if !call.connection.is_datagrams() && call.connection.is_due() {
        return Some(advanced(call, fd));
    }
    Some(call)
}

/// A call that may have made its connection aware is one that knows.
#[cold]
fn advanced(mut call: Call, fd: c_int) -> Call {
    promoted::progress(&call, fd);
    call.is_aware = call.count.load(Ordering::SeqCst) & AWARE != 0;
    call
}

/// Any other call.
#[inline]
pub fn touch(fd: c_int) -> Option<Call> {
    enter(fd, |place| &place.other)
}

/// Whether `fd` is a connection that is followed.
#[inline]
pub fn is_followed(fd: c_int) -> bool {
    place(fd).is_some_and(|at| at.load(Ordering::Relaxed) != 0)
}

/// Whether a wait for `fd` has to do with a ring: it has one, or may get one while somebody sleeps. Not so where a connection is left alone for good,
/// for example because its port is excluded, nor where nobody `sleeps` and there is none yet.
#[inline]
pub fn may_have_ring(fd: c_int, sleeps: bool) -> bool {
    let Some(index) = place(fd).map(|at| at.load(Ordering::Acquire)).filter(|index| *index != 0) else { return false };
    let connection = &CONNECTIONS[index as usize - 1];
    connection.place.reading.load(Ordering::SeqCst) & AWARE != 0 || sleeps && connection.phase() != phase::LEFT
}

/// Follows a connection from now on.
pub fn follow(fd: c_int, role: Role) {
    let Some(at) = place(fd) else { return };
    if !is_mine() {
        return;
    }
    forget(fd);
    let start = SEARCH.fetch_add(1, Ordering::Relaxed) as usize;
    for step in 0..CONNECTIONS_MAX {
        let index = (start + step) % CONNECTIONS_MAX;
        let connection = &CONNECTIONS[index];
        if !connection.place.take() {
            continue;
        }
        connection.begin(role);
        FOLLOWED.fetch_add(1, Ordering::Relaxed);
        at.store(index as u32 + 1, Ordering::SeqCst);
        return;
    }
}

/// `to` is another descriptor of what `fd` is.
pub fn alias(fd: c_int, to: c_int) {
    let Some(at) = place(to) else {
        // Not followable: what happens through it would not be seen.
        promoted::leave(fd, Reason::HandedOver);
        return;
    };
    let Some(call) = touch(fd) else { return };
    call.connection.place.fds.fetch_add(1, Ordering::SeqCst);
    let index = place(fd).map_or(0, |at| at.load(Ordering::SeqCst));
    at.store(index, Ordering::SeqCst);
}

/// `fd` is about to be closed or has become something else.
pub fn forget(fd: c_int) {
    let Some(at) = place(fd) else { return };
    if at.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(call) = touch(fd) else { return };
    let is_last = call.connection.place.fds.load(Ordering::SeqCst) == 1;
    sets::closed(call.connection, fd, !is_last);
    if is_last {
        promoted::before_close(&call, fd);
    }
    if at.swap(0, Ordering::SeqCst) != 0 {
        call.connection.place.fds.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A descriptor number that the system has just given out: what was known of it before is over, however it was closed.
#[inline]
pub fn fresh(fd: c_int) {
    if is_followed(fd) && is_mine() {
        quietly(|| forget(fd));
    }
    if sets::is_set(fd) && is_mine() {
        sets::forget(fd);
    }
}

/// Forgets a range of numbers.
pub fn forget_range(first: u32, last: u32) {
    if !is_mine() {
        return;
    }
    for fd in first.min(FDS_MAX as u32)..(last.saturating_add(1)).min(FDS_MAX as u32) {
        postponed::before_close(fd as c_int);
        forget(fd as c_int);
        sets::forget(fd as c_int);
    }
}

/// Every descriptor that is followed.
pub fn each(mut what: impl FnMut(c_int)) {
    if FOLLOWED.load(Ordering::Relaxed) == 0 {
        return;
    }
    for fd in 0..FDS_MAX as c_int {
        if is_followed(fd) {
            what(fd);
        }
    }
}

/// The number of a connection's place.
pub fn index(connection: &Connection) -> usize {
    (std::ptr::from_ref(connection) as usize - CONNECTIONS.as_ptr() as usize) / size_of::<Connection>()
}

/// The process that these tables are of.
#[inline]
pub fn owner() -> u32 {
    OWNER.load(Ordering::Relaxed)
}

/// Whether this process, or the one that it is a fork of, has forked since it was started: then others may have its descriptors.
pub fn has_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Whether the tables are this process's own. Not so in a child of `vfork`, which works in its parent's memory with descriptors of
/// its own: there nothing may be changed. A child of `fork`, by whatever call, has a copy and makes it its own.
pub fn is_mine() -> bool {
    let me = std::process::id();
    if OWNER.load(Ordering::Relaxed) == me {
        return true;
    }
    if OWNER.load(Ordering::Relaxed) != 0 && !life::is_fork_child() {
        return false;
    }
    OWNER.store(me, Ordering::Relaxed);
    true
}

/// Called when the library is loaded.
pub fn start() {
    life::watch_forks();
    OWNER.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: functions of this library that stays loaded; they take no lock that a thread may hold for long.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
    life::at_exit(promoted::before_exit);
}

extern "C" fn before_fork() {
    FORKED.store(true, Ordering::Relaxed);
    promoted::before_fork();
}

extern "C" fn in_child() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
    sets::unlock_all();
    outboxes::unlock_all();
}

/// Keeps the error number over what is done after a call.
pub fn quietly<T>(what: impl FnOnce() -> T) -> T {
    let before = next::errno();
    let result = what();
    next::set_errno(before);
    result
}
