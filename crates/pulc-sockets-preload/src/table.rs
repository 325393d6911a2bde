//! Which descriptors are TCP connections that this process made, and which calls are on their way on each. Asked by every exported
//! function, so: no lock, no allocation, no system call. Fixed tables that cost memory only where they are touched.
//!
//! A connection enters by `connect` or `accept` and leaves with its last descriptor in this process. A descriptor that came in
//! another way (by exec, from another process) is not here and is left alone.

use crate::next;
use pulc_hal::os::life;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
/// Connections that are there.
static FOLLOWED: AtomicU32 = AtomicU32::new(0);

/// Who made the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Active,
    Passive,
}

/// What a connection is to this process; the low byte of its word.
pub mod phase {
    pub const FREE: u32 = 0;
    /// On the kernel; how it is used is being watched.
    pub const TRACKED: u32 = 1;
    /// On the kernel for good, as far as this process is concerned.
    pub const LEFT: u32 = 4;
    /// Being cleared.
    pub const DYING: u32 = 7;
}

const PHASE: u32 = 0xff;

/// One connection. Generation and phase share a word, so that whoever frees a place frees what it has seen there.
pub struct Connection {
    word: AtomicU32,
    /// Descriptors of this process.
    fds: AtomicU32,
    /// Calls on their way, by what they do.
    pub reading: AtomicU32,
    pub writing: AtomicU32,
    pub other: AtomicU32,
    /// Data calls so far; a hint, lost updates do no harm.
    calls: AtomicU32,
    is_active: AtomicU32,
    /// Bytes that calls of this process moved; hints too.
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
}

impl Connection {
    const fn new() -> Connection {
        Connection {
            word: AtomicU32::new(0),
            fds: AtomicU32::new(0),
            reading: AtomicU32::new(0),
            writing: AtomicU32::new(0),
            other: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            is_active: AtomicU32::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        }
    }

    /// Changes the phase if it is still `from`.
    pub fn turn(&self, from: u32, to: u32) -> bool {
        let word = self.word.load(Ordering::Acquire);
        // Release: what was prepared for the new phase is there for who sees it.
        word & PHASE == from
            && self.word.compare_exchange(word, word & !PHASE | to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Counts a data call without a locked instruction.
    #[inline]
    pub fn count_call(&self) -> u32 {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls
    }

    fn calls_on_their_way(&self) -> u32 {
        [&self.reading, &self.writing, &self.other].map(|count| count.load(Ordering::SeqCst)).iter().sum()
    }

    /// Gives the place back if nobody uses it any more.
    fn free_if_unused(&self) {
        let word = self.word.load(Ordering::SeqCst);
        if matches!(word & PHASE, phase::FREE | phase::DYING)
            || self.fds.load(Ordering::SeqCst) != 0
            || self.calls_on_their_way() != 0
            || self
                .word
                .compare_exchange(word, word & !PHASE | phase::DYING, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
        {
            return;
        }
        FOLLOWED.fetch_sub(1, Ordering::Relaxed);
        self.word.store((word & !PHASE).wrapping_add(PHASE + 1) | phase::FREE, Ordering::SeqCst);
    }
}

/// A call on its way on a connection: while it lives, the connection's place belongs to it.
pub struct Call {
    pub connection: &'static Connection,
    count: &'static AtomicU32,
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        if self.connection.fds.load(Ordering::SeqCst) == 0 {
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
fn enter(fd: c_int, count: fn(&'static Connection) -> &'static AtomicU32) -> Option<Call> {
    let at = place(fd)?;
    let index = at.load(Ordering::Acquire);
    if index == 0 {
        return None;
    }
    let connection = &CONNECTIONS[index as usize - 1];
    let count = count(connection);
    count.fetch_add(1, Ordering::SeqCst);
    let call = Call { connection, count };
    // Counted first and looked at again then: a place that is still this descriptor's is not freed while the count stands.
    if at.load(Ordering::SeqCst) != index {
        drop(call);
        return None;
    }
    Some(call)
}

/// A call that takes bytes from `fd`.
#[inline]
pub fn read(fd: c_int) -> Option<Call> {
    let call = enter(fd, |connection| &connection.reading)?;
    call.connection.count_call();
    Some(call)
}

/// A call that gives bytes to `fd`.
#[inline]
pub fn write(fd: c_int) -> Option<Call> {
    let call = enter(fd, |connection| &connection.writing)?;
    call.connection.count_call();
    Some(call)
}

/// Any other call.
#[inline]
pub fn touch(fd: c_int) -> Option<Call> {
    enter(fd, |connection| &connection.other)
}

/// Whether `fd` is a connection that is followed.
#[inline]
pub fn is_followed(fd: c_int) -> bool {
    place(fd).is_some_and(|at| at.load(Ordering::Relaxed) != 0)
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
        let word = connection.word.load(Ordering::SeqCst);
        if word & PHASE != phase::FREE
            || connection.fds.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err()
        {
            continue;
        }
        // Between two looks somebody else may have taken and left it: then its generation is another one.
        let taken = word & !PHASE | phase::TRACKED;
        if connection.word.compare_exchange(word, taken, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            connection.fds.store(0, Ordering::SeqCst);
            continue;
        }
        connection.calls.store(0, Ordering::Relaxed);
        connection.bytes_in.store(0, Ordering::Relaxed);
        connection.bytes_out.store(0, Ordering::Relaxed);
        connection.is_active.store(u32::from(role == Role::Active), Ordering::Relaxed);
        FOLLOWED.fetch_add(1, Ordering::Relaxed);
        at.store(index as u32 + 1, Ordering::SeqCst);
        return;
    }
}

/// `to` is another descriptor of what `fd` is.
pub fn alias(fd: c_int, to: c_int) {
    let Some(at) = place(to) else {
        // Not followable: what happens through it would not be seen.
        leave(fd);
        return;
    };
    let Some(call) = touch(fd) else { return };
    call.connection.fds.fetch_add(1, Ordering::SeqCst);
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
    if at.swap(0, Ordering::SeqCst) != 0 {
        call.connection.fds.fetch_sub(1, Ordering::SeqCst);
    }
}

/// From now on the connection of `fd` is none of our business.
pub fn leave(fd: c_int) {
    if let Some(call) = touch(fd) {
        call.connection.turn(phase::TRACKED, phase::LEFT);
    }
}

/// A descriptor number that the system has just given out: what was known of it before is over, however it was closed.
#[inline]
pub fn fresh(fd: c_int) {
    if is_followed(fd) && is_mine() {
        forget(fd);
    }
}

/// Forgets a range of numbers.
pub fn forget_range(first: u32, last: u32) {
    if FOLLOWED.load(Ordering::Relaxed) == 0 || !is_mine() {
        return;
    }
    for fd in first.min(FDS_MAX as u32)..(last.saturating_add(1)).min(FDS_MAX as u32) {
        forget(fd as c_int);
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
}

/// Keeps the error number over what is done after a call.
pub fn quietly<T>(what: impl FnOnce() -> T) -> T {
    let before = next::errno();
    let result = what();
    next::set_errno(before);
    result
}
