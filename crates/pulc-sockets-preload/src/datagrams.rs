//! Sockets for datagrams: how one that is read gets an inbox, and how it leaves. Reads are in `letters.rs`, what is sent in `outboxes.rs`.
//! Called by the exported functions.

use crate::connection::{AWARE, Connection, Held, Role, phase};
use crate::kernel::{Socket, option};
use crate::promoted::copy_of;
use crate::table::{self, Call, quietly};
use crate::{addresses, joining, letters, outboxes, sets, settings};
use libc::c_int;
use pulc_sockets::Side;
use pulc_sockets::datagrams::{Inbox, Taken};
use pulc_sockets::message::{Place, Reason};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::Ordering;

/// The socket is bound to a network interface.
const SO_BINDTOIFINDEX: c_int = 62;

/// A read on its way has seen that its socket is not yet what it could be.
pub fn progress(call: &Call, fd: c_int) {
    let connection = call.connection;
    if connection.phase() == phase::TRACKED {
        ask(connection, fd);
    }
    if connection.phase() == phase::JOINED {
        become_aware(call);
    }
}

/// Asks for an inbox; who gets none for a reason that may pass asks again later.
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
    let opened = match connection.forbidden() {
        Some(reason) => Err(reason),
        None => open(connection, fd),
    };
    match opened {
        Ok(inbox) => connection.keep(Held::Inbox(inbox)),
        Err(reason) if reason.may_pass() => {
            connection.ask_later();
            connection.turn(phase::JOINING, phase::TRACKED);
        }
        Err(_) => {
            connection.turn(phase::JOINING, phase::LEFT);
        }
    }
}

fn open(connection: &Connection, fd: c_int) -> Result<Inbox, Reason> {
    let local = own_place(fd)?;
    let remote = joining::place(fd, libc::SYS_getpeername).ok();
    let is = |name| option(fd, libc::SOL_SOCKET, name).is_none_or(|value| value != 0);
    match remote {
        // Nobody else can be sent to by these two addresses.
        Some(remote) if !settings::includes(local.port) && !settings::includes(remote.port) => {
            return Err(Reason::Excluded);
        }
        None if is(libc::SO_REUSEADDR) || is(libc::SO_REUSEPORT) => return Err(Reason::SharedPort),
        _ => {}
    }
    let nobody =
        if connection.role() == Role::Datagrams { Place::v4([0; 4], 0) } else { Place { address: [0; 16], port: 0 } };
    let (memory, slot) = joining::joined(fd, Side::Passive, true, local, remote.unwrap_or(nobody))?;
    Inbox::join(memory.as_fd(), slot, std::process::id()).map_err(|_| Reason::NoMemory)
}

/// A socket's own address, if it may take part.
pub fn own_place(fd: c_int) -> Result<Place, Reason> {
    if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) != Some(libc::IPPROTO_UDP as u64) {
        return Err(Reason::NotTcp);
    }
    if option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX).is_some_and(|index| index != 0) {
        return Err(Reason::Option);
    }
    let local = joining::place(fd, libc::SYS_getsockname)?;
    if local.port == 0 { Err(Reason::NotOpen) } else { Ok(local) }
}

fn become_aware(call: &Call) {
    let connection = call.connection;
    let Some(inbox) = connection.inbox() else { return };
    if let Some(reason) = connection.forbidden() {
        if connection.turn(phase::JOINED, phase::LEFT) {
            inbox.close(reason as u32);
        }
        return;
    }
    // Only if the one call on its way is this one: another read would take a bell for a datagram.
    if !connection.place.become_aware(call.count()) {
        return;
    }
    connection.aware_in.store(table::owner(), Ordering::Relaxed);
    sets::refresh(connection);
    inbox.make_ready();
    connection.turn(phase::JOINED, phase::AWARE);
}

/// Before somebody uses the socket who knows nothing of all this, or in a way that only the kernel knows. What stands in the ring is for
/// those who do know.
pub fn leave(call: &Call, fd: c_int, reason: Reason) {
    let connection = call.connection;
    connection.sends_by_kernel.store(true, Ordering::SeqCst);
    outboxes::leave_all(connection, fd);
    if connection.turn(phase::TRACKED, phase::LEFT) {
        return;
    }
    if let Some(inbox) = connection.inbox() {
        inbox.close(reason as u32);
        let _ = inbox.truth(&socket(fd));
    }
}

/// The program connects the socket, or dissolves that: what was found out about addresses is over.
pub fn before_connect(fd: c_int) {
    let Some(call) = table::touch(fd) else { return };
    outboxes::leave_all(call.connection, fd);
    outboxes::forget(call.connection);
    if let Some(inbox) = call.connection.inbox() {
        inbox.close(Reason::Closed as u32);
    }
}

/// The last descriptor of this process is about to be closed.
pub fn before_close(call: &Call) {
    if let Some(inbox) = call.connection.inbox() {
        inbox.release(Reason::Closed as u32);
    }
}

/// Whether an option changes what a datagram is to who reads it, or how it is sent. Those that are known not to are named.
pub fn are_changed(call: &Call, level: c_int, name: c_int) -> bool {
    const RCVTIMEO_NEW: c_int = 66;
    const SNDTIMEO_NEW: c_int = 67;
    if !call.connection.is_datagrams() {
        return false;
    }
    let is_harmless = match level {
        libc::SOL_SOCKET => match name {
            // Who has an inbox has it because nobody else could have its address.
            libc::SO_REUSEADDR | libc::SO_REUSEPORT => call.connection.phase() < phase::JOINING,
            libc::SO_SNDBUF | libc::SO_RCVBUF | libc::SO_SNDBUFFORCE | libc::SO_RCVBUFFORCE => true,
            libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | RCVTIMEO_NEW | SNDTIMEO_NEW => true,
            libc::SO_BROADCAST | libc::SO_LINGER | libc::SO_KEEPALIVE | libc::SO_PRIORITY => true,
            _ => false,
        },
        libc::IPPROTO_IP => matches!(
            name,
            libc::IP_TOS
                | libc::IP_TTL
                | libc::IP_MTU_DISCOVER
                | libc::IP_MULTICAST_IF
                | libc::IP_MULTICAST_TTL
                | libc::IP_MULTICAST_LOOP
                | libc::IP_ADD_MEMBERSHIP
                | libc::IP_DROP_MEMBERSHIP
        ),
        libc::IPPROTO_IPV6 => matches!(
            name,
            libc::IPV6_V6ONLY
                | libc::IPV6_UNICAST_HOPS
                | libc::IPV6_TCLASS
                | libc::IPV6_MTU_DISCOVER
                | libc::IPV6_MULTICAST_IF
                | libc::IPV6_MULTICAST_HOPS
                | libc::IPV6_MULTICAST_LOOP
                | libc::IPV6_ADD_MEMBERSHIP
                | libc::IPV6_DROP_MEMBERSHIP
        ),
        _ => false,
    };
    !is_harmless
}

pub fn socket(fd: c_int) -> Socket {
    Socket { fd, is_active: false }
}

/// Whether calls know of an inbox.
pub fn has_inbox(call: &Call) -> bool {
    call.connection.place.reading.load(Ordering::SeqCst) & AWARE != 0 && call.connection.inbox().is_some()
}

/// Rings for what the ring has already: by this socket itself, or, where it hears another one only, by a copy of that.
pub fn ring_myself(inbox: &Inbox, fd: c_int) {
    let Ok(own) = joining::place(fd, libc::SYS_getsockname) else { return };
    let is_v6 = addresses::is_v6(fd);
    let port = own.port;
    let loopback = [Place::v4([127, 0, 0, 1], port), Place { address: std::net::Ipv6Addr::LOCALHOST.octets(), port }];
    let is_anywhere = own.address == [0; 16] || own.as_v4() == Some([0; 4]);
    let places = if is_anywhere { loopback } else { [own, own] };
    let copy = joining::place(fd, libc::SYS_getpeername).ok().and_then(|_| {
        let (pid, number, source) = inbox.next_sender()?;
        let copy = copy_of(pid, number)?;
        let theirs = joining::place(copy.as_raw_fd(), libc::SYS_getsockname).ok()?;
        (theirs.port == source.port).then_some(copy)
    });
    let from = copy.as_ref().map_or(fd, |copy| copy.as_raw_fd());
    for place in places {
        let (address, wide) = addresses::encode(&place, is_v6);
        if outboxes::ring(from, &inbox.bell(), &address[..wide]).is_ok() {
            return;
        }
    }
}

/// What `FIONREAD` says: the length of the next datagram. Where an inbox is not known of, the kernel's word is the truth.
pub fn next_bytes(call: &Call, fd: c_int) -> Option<usize> {
    let inbox = call.connection.inbox().filter(|_| has_inbox(call))?;
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    let by_kernel = || letters::take_from_kernel(fd, (std::ptr::null(), 0), flags, letters::Whose::Nobody);
    quietly(|| match inbox.take(&socket(fd), &mut [], true, by_kernel) {
        Taken::Ring(datagram) => Some(datagram.bytes),
        Taken::Kernel(bytes) => Some(bytes as usize),
        Taken::Empty => Some(0),
        Taken::Failed(libc::EAGAIN) => None,
        Taken::Failed(number) => {
            // Whoever reads next is to be told.
            inbox.keep_error(number);
            None
        }
    })
}
