//! Connections that have a channel: how they get there, what a call finds, and how they leave. The steps are: *tracked*, used often
//! enough, *joined* (the channel is mapped, nothing else has changed), *aware* (the other end has joined too, and no call that knows
//! nothing of the channel is on its way any more; from now on none begins).

use crate::connection::{AWARE, Connection, Held, Ring, Role, phase};
use crate::kernel::{Socket, borrowed, flags, option, result, set_option};
use crate::table::{self, Call, quietly};
use crate::{datagrams, joining, postponed, sets, settings};
use libc::c_int;
use pulc_hal::os::tcp_counts;
use pulc_sockets::message::Reason;
use pulc_sockets::{End, Flag, Parting, TOGETHER};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;

/// A call on its way has seen that its connection is not yet what it could be.
#[cold]
pub fn progress(call: &Call, fd: c_int) {
    quietly(|| {
        let connection = call.connection;
        if connection.is_datagrams() {
            return datagrams::progress(call, fd);
        }
        if connection.phase() == phase::TRACKED {
            ask(connection, fd);
        }
        if connection.phase() == phase::JOINED {
            become_aware(call, fd);
        }
    });
}

/// Asks for a channel. Who gets none for a reason that may pass asks again later.
fn ask(connection: &Connection, fd: c_int) {
    if !settings::promotes() {
        return;
    }
    if !joining::is_time() {
        connection.ask_soon();
        return;
    }
    if !connection.turn(phase::TRACKED, phase::JOINING) {
        return;
    }
    if let Some(reason) = connection.forbidden() {
        joining::report(fd, connection.role(), reason);
        connection.turn(phase::JOINING, phase::LEFT);
        return;
    }
    match joining::join(fd, connection.role()) {
        Ok(end) => connection.keep(Held::Stream(end)),
        Err(reason) if reason.may_pass() => {
            connection.ask_later();
            connection.turn(phase::JOINING, phase::TRACKED);
        }
        Err(reason) => {
            if reason == Reason::Excluded {
                joining::report(fd, connection.role(), reason);
            }
            connection.turn(phase::JOINING, phase::LEFT);
        }
    }
}

fn become_aware(call: &Call, fd: c_int) {
    let connection = call.connection;
    let Some(end) = connection.end() else { return };
    // A fork while the broker was asked, for example: its child has the connection and not the channel. A fork from here on finds a
    // connection that is joined, and does this itself.
    if let Some(reason) = connection.forbidden() {
        if connection.turn(phase::JOINED, phase::LEFT) {
            end.bar(reason as u32);
        }
        return;
    }
    if !end.is_met() {
        if end.is(Flag::Barred) {
            connection.turn(phase::JOINED, phase::LEFT);
        }
        return;
    }
    // Bells must not wait for acknowledgements. What the program wants is kept for when it asks.
    if !connection.has_nodelay.swap(true, Ordering::Relaxed) {
        let nodelay = option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY).unwrap_or(0);
        connection.nodelay.store(nodelay as u32, Ordering::Relaxed);
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    }
    // Only if the one call on its way is this one.
    if !connection.place.become_aware(call.count()) {
        return;
    }
    end.keep_fd(fd as u32);
    connection.aware_in.store(table::owner(), Ordering::Relaxed);
    sets::refresh(connection);
    // Not if the stream has ended already: then nothing is gained, and the kernel counts differently.
    if !tcp_counts::is_established(borrowed(fd)) || end.make_ready(&socket(call, fd)).is_err() {
        end.bar(Reason::Closed as u32);
    }
    connection.turn(phase::JOINED, phase::AWARE);
}

/// The channel of a connection whose calls know of it.
#[inline]
pub fn end_of(call: &Call) -> Option<&'static End> {
    if call.connection.place.reading.load(Ordering::SeqCst) & AWARE == 0 { None } else { call.connection.end() }
}

/// Its ring, whatever goes through it.
#[inline]
pub fn ring_of(call: &Call) -> Option<&'static dyn Ring> {
    let is_aware = call.connection.place.reading.load(Ordering::SeqCst) & AWARE != 0;
    if is_aware { call.connection.held().map(Held::ring) } else { None }
}

/// Makes the kernel call a socket readable whose ring has something that nobody was rung for. A stream cannot ring for itself, and goes back
/// to the kernel.
#[cold]
pub fn ring_for_unread(call: &Call, fd: c_int) {
    match call.connection.held() {
        Some(Held::Stream(_)) => leave(fd, Reason::Unwatched),
        Some(Held::Inbox(inbox)) => datagrams::ring_myself(inbox, fd),
        None => {}
    }
}

pub fn socket(call: &Call, fd: c_int) -> Socket {
    Socket { fd, is_active: call.connection.role() == Role::Active }
}

/// When both directions are on the kernel for good, calls need not know of the channel any more. `call` is on its way itself.
#[cold]
pub fn retire(call: &Call) {
    let connection = call.connection;
    let counts = [&connection.place.reading, &connection.place.writing];
    for count in counts {
        let own = u32::from(std::ptr::eq(count, call.count()));
        let _ = count.compare_exchange(AWARE | own, own, Ordering::SeqCst, Ordering::SeqCst);
    }
    if counts.iter().all(|count| count.load(Ordering::SeqCst) & AWARE == 0) {
        connection.turn(phase::AWARE, phase::LEFT);
    }
}

/// Looks at the rings of these descriptors before a sleep for all of them.
pub fn look_around(fds: &[c_int; TOGETHER]) {
    // While a call lives, its connection and the channel of it stay.
    let calls = fds.map(table::touch);
    let rings = calls.each_ref().map(|call| {
        let connection = call.as_ref()?.connection;
        let is_aware = connection.place.reading.load(Ordering::SeqCst) & AWARE != 0;
        if is_aware { connection.held().map(Held::looked) } else { None }
    });
    let Some(first) = rings.iter().flatten().next() else { return };
    let Some(kernel) = calls.iter().zip(fds).find_map(|(call, fd)| Some(socket(call.as_ref()?, *fd))) else { return };
    let (mut all, mut count) = ([*first; TOGETHER], 0);
    for ring in rings.iter().flatten() {
        all[count] = *ring;
        count += 1;
    }
    pulc_sockets::look_around(&all[..count], &kernel);
}

/// Before somebody uses the connection who knows nothing of all this. When it returns, the connection is an ordinary one; if that
/// cannot be had, it is broken: no byte is lost in silence.
pub fn leave(fd: c_int, reason: Reason) {
    let Some(call) = table::touch(fd) else { return };
    let connection = call.connection;
    connection.forbid(reason);
    if connection.is_datagrams() {
        return datagrams::leave(&call, fd, reason);
    }
    if connection.turn(phase::TRACKED, phase::LEFT) {
        joining::report(fd, connection.role(), reason);
        return;
    }
    let Some(end) = connection.end() else { return };
    if end.is_over() {
        return;
    }
    let kernel = socket(&call, fd);
    let mut other = None;
    for look in 0..LOOKS {
        match end.part(&kernel, reason as u32, |bytes| give(&mut other, end, fd, bytes)) {
            Parting::Done => {
                let nodelay = connection.nodelay.load(Ordering::Relaxed);
                if connection.has_nodelay.load(Ordering::Relaxed) {
                    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, nodelay as c_int);
                }
                if connection.has_cork.load(Ordering::Relaxed) {
                    set_option(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 1);
                }
                return;
            }
            Parting::Failed(libc::EAGAIN) | Parting::Soon | Parting::Unread(_) => pause(look),
            Parting::Failed(_) => break,
        }
    }
    // SAFETY: a system call on a descriptor.
    unsafe { libc::syscall(libc::SYS_shutdown, fd, libc::SHUT_RDWR) };
}

/// Looks, the later ones a millisecond apart.
const LOOKS: u32 = 3000;

fn pause(look: u32) {
    if look < 100 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Sends as the other end, through a copy of its descriptor.
fn give(other: &mut Option<OwnedFd>, end: &End, fd: c_int, bytes: &[u8]) -> bool {
    if other.is_none() {
        *other = copy_of_peer(end, fd);
    }
    let Some(copy) = other.as_ref() else { return false };
    let mut rest = bytes;
    for look in 0..LOOKS {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: readable bytes, no address.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                copy.as_raw_fd(),
                rest.as_ptr(),
                rest.len(),
                flags,
                std::ptr::null::<u8>(),
                0usize,
            )
        };
        match result(sent) {
            Ok(sent) => rest = &rest[sent..],
            Err(libc::EAGAIN | libc::EINTR) => pause(look),
            Err(_) => return false,
        }
        if rest.is_empty() {
            return true;
        }
    }
    false
}

/// A copy of the other end's descriptor, if the system lets us have one and it is that.
fn copy_of_peer(end: &End, fd: c_int) -> Option<OwnedFd> {
    let (pid, number) = end.peer_descriptor();
    let copy = copy_of(pid, number)?;
    let mine = joining::place(fd, libc::SYS_getsockname).ok()?;
    let theirs = joining::place(copy.as_raw_fd(), libc::SYS_getpeername).ok()?;
    (mine == theirs).then_some(copy)
}

/// A copy of another process's descriptor, if the system lets us have one.
pub fn copy_of(pid: u32, number: u32) -> Option<OwnedFd> {
    // SAFETY: plain system calls; the descriptors are new and nobody else's.
    unsafe {
        let process = result(libc::syscall(libc::SYS_pidfd_open, pid, 0)).ok()?;
        let process = OwnedFd::from_raw_fd(process as c_int);
        let copy = result(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0)).ok()?;
        Some(OwnedFd::from_raw_fd(copy as c_int))
    }
}

/// What survives an exec goes to the kernel before it.
pub fn before_exec() {
    if table::is_mine() {
        postponed::share_inherited();
    }
    table::each(|fd| {
        if flags(fd, libc::F_GETFD) & libc::FD_CLOEXEC == 0 {
            leave(fd, Reason::HandedOver);
        }
    });
}

/// This process's own image ends, and what is closed on exec is closed.
pub fn before_end_of_image() {
    if table::is_mine() {
        table::each(|fd| {
            if let Some(call) = table::touch(fd) {
                datagrams::before_close(&call);
            }
        });
    }
}

/// Before a fork: what is not shared by a channel yet must not become so, because the child would not know.
pub fn before_fork() {
    quietly(|| {
        postponed::share_all();
        table::each(|fd| {
            let Some(call) = table::touch(fd) else { return };
            let connection = call.connection;
            connection.forbid(Reason::Forked);
            if connection.turn(phase::JOINED, phase::LEFT) {
                match connection.held() {
                    Some(Held::Stream(end)) => end.bar(Reason::Forked as u32),
                    Some(Held::Inbox(inbox)) => inbox.close(Reason::Forked as u32),
                    None => {}
                }
            } else if let Some(inbox) = connection.inbox() {
                inbox.share();
            }
        });
    });
}

/// The last descriptor of this process is about to be closed.
pub fn before_close(call: &Call, fd: c_int) {
    datagrams::before_close(call);
    if let Some(end) = end_of(call) {
        let kernel = socket(call, fd);
        quietly(|| {
            // What is left in the kernel's queue makes it reset the connection: a bell must not.
            if end.unread() == 0 {
                let _ = end.truth(&kernel);
            }
            end.flush(&kernel, |bytes| hand_down(fd, bytes));
            if !table::has_forked() {
                end.set(Flag::Closed, true);
            }
        });
    }
}

/// Nothing more will be sent: what stands in the ring goes where somebody who knows nothing of it finds it too.
pub fn before_shutdown(call: &Call, fd: c_int) {
    if call.connection.is_datagrams() {
        quietly(|| datagrams::leave(call, fd, Reason::Option));
    }
    if let Some(end) = end_of(call) {
        quietly(|| {
            end.set(Flag::Shut, true);
            end.flush(&socket(call, fd), |bytes| hand_down(fd, bytes));
        });
    }
}

/// Sends by the kernel without waiting; whether all went.
fn hand_down(fd: c_int, bytes: &[u8]) -> usize {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: readable bytes, no address.
    let sent = unsafe {
        libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, std::ptr::null::<u8>(), 0usize)
    };
    result(sent).unwrap_or(0)
}

/// The process ends without closing.
pub fn before_exit(_status: i32) {
    table::each(|fd| {
        if let Some(call) = table::touch(fd) {
            datagrams::before_close(&call);
        }
        if let Some(call) = table::touch(fd)
            && let Some(end) = end_of(&call)
            && end.unread() == 0
        {
            let _ = end.truth(&socket(&call, fd));
        }
    });
}

/// Whether a descriptor does not block.
pub fn is_nonblocking(fd: c_int) -> bool {
    flags(fd, libc::F_GETFL) & libc::O_NONBLOCK != 0
}
