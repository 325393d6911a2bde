//! Ways from this process's sockets to other sockets' inboxes: one for each socket and address that it sends to often enough. A table of fixed
//! size; who finds no place in it sends by the kernel. Called by the exported functions.

use crate::addresses::{self, BYTES};
use crate::connection::{Connection, Role};
use crate::datagrams::{own_place, socket};
use crate::kernel::{me, result};
use crate::table::{self, Call, quietly};
use crate::{asleep, joining, moving, settings};
use libc::{c_int, iovec, sockaddr, socklen_t, ssize_t};
use pulc_sockets::Side;
use pulc_sockets::datagrams::{Outbox, Sent};
use pulc_sockets::message::{Place, Reason};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// A power of two.
const SLOTS: usize = 1024;
/// Places that a way may have.
const WINDOW: usize = 4;
/// Flags with which the ring can send.
const SEND: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const PARTS: usize = 64;
/// The longest datagram of IPv4; longer ones are refused by the kernel, or are IPv6's.
const LONGEST: usize = 65_507;
/// How many times the datagrams so far before the broker is asked again.
const AGAIN: u32 = 4;
/// Where the socket is connected to, whatever that is.
const PEER: Place = Place { address: [0; 16], port: 0 };

/// One socket's datagrams to one address.
struct Way {
    /// The number of the socket's place, and one more; zero: free.
    connection: u32,
    to: Place,
    /// So far, and how many before the broker is asked.
    datagrams: u32,
    ask_at: u32,
    outbox: Option<Outbox>,
    /// Where bells go to; no length where the socket is connected.
    address: [u8; BYTES],
    wide: usize,
}

impl Way {
    const FREE: Way =
        Way { connection: 0, to: PEER, datagrams: 0, ask_at: 0, outbox: None, address: [0; BYTES], wide: 0 };
}

impl Way {
    fn leave(&self, fd: c_int) {
        if let Some(outbox) = &self.outbox {
            outbox.leave(&socket(fd), |signal| ring(fd, signal, &self.address[..self.wide]));
        }
    }
}

struct Slot {
    /// Zero, or the thread that uses it.
    lock: AtomicU32,
    way: UnsafeCell<Way>,
}

// SAFETY: `way` is used by the thread that holds the lock.
unsafe impl Sync for Slot {}

static ALL: [Slot; SLOTS] = [const { Slot { lock: AtomicU32::new(0), way: UnsafeCell::new(Way::FREE) } }; SLOTS];

impl Slot {
    /// With the lock; `None` when a signal handler has interrupted this thread while it had it. It is held for a copy.
    fn with<T>(&self, what: impl FnOnce(&mut Way) -> T) -> Option<T> {
        let me = me();
        while let Err(holder) = self.lock.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
            if holder == me {
                return None;
            }
            std::thread::yield_now();
        }
        // SAFETY: this thread holds the lock.
        let result = what(unsafe { &mut *self.way.get() });
        self.lock.store(0, Ordering::Release);
        Some(result)
    }
}

/// A fork's child has one thread, which holds none of these. What another one was about to change is given up.
pub fn unlock_all() {
    for slot in &ALL {
        if slot.lock.load(Ordering::Relaxed) != 0 {
            // SAFETY: nobody else is here; what was there may be half of something, and is not dropped.
            unsafe { slot.way.get().write(Way::FREE) };
            slot.lock.store(0, Ordering::Relaxed);
        }
    }
}

/// Where a datagram is to go.
#[derive(Clone, Copy)]
pub enum To {
    Peer,
    Address(*const sockaddr, socklen_t),
}

impl To {
    /// # Safety
    /// The address is readable.
    unsafe fn place(self) -> Option<Place> {
        match self {
            To::Peer => Some(PEER),
            // SAFETY: the caller's promise.
            To::Address(who, wide) => unsafe { addresses::read(who, wide) }.filter(|place| *place != PEER),
        }
    }
}

/// The slots in which a way may be.
fn window(connection: u32, to: &Place) -> impl Iterator<Item = &'static Slot> {
    let (low, high) = to.address.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    let mixed = (number(low) ^ number(high).rotate_left(17) ^ u64::from(to.port) << 32 ^ u64::from(connection))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (mixed >> 40) as usize;
    (0..WINDOW).map(move |step| &ALL[(first + step) % SLOTS])
}

/// Does `what` with the way that is there, or with a new one if there is a place for it.
fn with_way<T>(connection: u32, to: &Place, mut what: impl FnMut(&mut Way) -> T) -> Option<T> {
    let is_it = |way: &Way| way.connection == connection && way.to == *to;
    for slot in window(connection, to) {
        if let Some(Some(result)) = slot.with(|way| is_it(way).then(|| what(way))) {
            return Some(result);
        }
    }
    for slot in window(connection, to) {
        let made = slot.with(|way| {
            // Who has no outbox gives way.
            if way.connection != 0 && way.outbox.is_some() {
                return None;
            }
            *way = Way { connection, to: *to, ask_at: settings::after_calls(), ..Way::FREE };
            Some(what(way))
        });
        if let Some(Some(result)) = made {
            return Some(result);
        }
    }
    None
}

fn number(connection: &Connection) -> u32 {
    table::index(connection) as u32 + 1
}

/// What became of a wish to send by a ring.
enum Attempt {
    Sent,
    Kernel,
    /// The broker is to be asked first.
    Ask,
}

/// Sends a datagram into the inbox that it would come to; `None` when it is to be sent by the kernel, now.
///
/// # Safety
/// As for `sendmsg` with these parts.
pub unsafe fn send(call: &Call, fd: c_int, parts: *const iovec, count: usize, flags: c_int, to: To) -> Option<ssize_t> {
    let connection = call.connection;
    if !settings::promotes() || connection.sends_by_kernel.load(Ordering::SeqCst) {
        return None;
    }
    // SAFETY: the caller's promise.
    let place = unsafe { to.place() }?;
    let mut room = [const { MaybeUninit::uninit() }; PARTS];
    // SAFETY: the caller's promise.
    let (from, bytes) = unsafe { moving::readable(parts, count, &mut room) };
    let is_odd = flags & !SEND != 0 || count > PARTS || bytes > LONGEST;
    let index = number(connection);
    let kernel = socket(fd);
    let attempt = |way: &mut Way| {
        way.datagrams = way.datagrams.saturating_add(1);
        let (Some(outbox), Some(board)) = (&way.outbox, asleep::board()) else {
            return if way.datagrams >= way.ask_at { Attempt::Ask } else { Attempt::Kernel };
        };
        let (address, wide) = (way.address, way.wide);
        let call = |signal: &[u8]| ring(fd, signal, &address[..wide]);
        if is_odd {
            outbox.leave(&kernel, call);
            return Attempt::Kernel;
        }
        match outbox.send(board, &kernel, from, bytes, call) {
            Sent::Ring => Attempt::Sent,
            Sent::Kernel => Attempt::Kernel,
            Sent::Gone => {
                way.outbox = None;
                way.ask_at = way.datagrams.saturating_mul(AGAIN);
                Attempt::Kernel
            }
        }
    };
    quietly(|| match with_way(index, &place, attempt)? {
        Attempt::Sent => Some(bytes as ssize_t),
        Attempt::Kernel => None,
        Attempt::Ask => {
            if ask(connection, fd, &place)
                && let Some(Attempt::Sent) = with_way(index, &place, attempt)
            {
                return Some(bytes as ssize_t);
            }
            None
        }
    })
}

/// What is sent to there next goes by the kernel and does not overtake anything.
///
/// # Safety
/// The address is readable.
pub unsafe fn leave(call: &Call, fd: c_int, to: To) {
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { to.place() } {
        quietly(|| with_way(number(call.connection), &place, |way| way.leave(fd)));
    }
}

/// All that this socket sends next goes by the kernel.
pub fn leave_all(connection: &Connection, fd: c_int) {
    if !connection.has_outboxes.load(Ordering::SeqCst) {
        return;
    }
    each(connection, |way| way.leave(fd));
}

/// The socket is gone, or is another one in this respect.
pub fn forget(connection: &Connection) {
    each(connection, |way| *way = Way::FREE);
}

fn each(connection: &Connection, mut what: impl FnMut(&mut Way)) {
    let index = number(connection);
    for slot in &ALL {
        slot.with(|way| {
            if way.connection == index {
                what(way);
            }
        });
    }
}

/// Asks the broker; whether there is an outbox now.
#[cold]
fn ask(connection: &Connection, fd: c_int, place: &Place) -> bool {
    if !joining::is_time() {
        return false;
    }
    let made = reach(connection, fd, place);
    let outcome = with_way(number(connection), place, {
        let mut made = Some(made);
        move |way| match made.take() {
            Some(Ok(outbox)) => {
                // Said before it is there: who frees the socket's place looks for it then.
                connection.has_outboxes.store(true, Ordering::SeqCst);
                if *place != PEER {
                    (way.address, way.wide) = addresses::encode(place, connection.role() == Role::Datagrams6);
                }
                way.outbox = Some(outbox);
                true
            }
            _ => {
                way.ask_at = way.datagrams.saturating_mul(AGAIN);
                false
            }
        }
    });
    outcome == Some(true)
}

/// The inbox that datagrams to there come to.
fn reach(connection: &Connection, fd: c_int, place: &Place) -> Result<Outbox, Reason> {
    let own = own_place(fd)?;
    let remote = if *place == PEER { joining::place(fd, libc::SYS_getpeername)? } else { *place };
    if !settings::includes(own.port) && !settings::includes(remote.port) {
        return Err(Reason::Excluded);
    }
    let source = source(connection, &remote)?;
    let is_anywhere = own.address == [0; 16] || own.as_v4() == Some([0; 4]);
    let local = Place { address: if is_anywhere { source.address } else { own.address }, port: own.port };
    let (memory, _) = joining::joined(fd, Side::Active, true, local, remote)?;
    Outbox::join(memory.as_fd(), local, (std::process::id(), fd as u32)).map_err(|_| Reason::NoMemory)
}

/// Where datagrams to `remote` come from, if that is a plain address of this machine. The kernel is asked, by a socket that sends nothing.
fn source(connection: &Connection, remote: &Place) -> Result<Place, Reason> {
    let is_v6 = connection.role() == Role::Datagrams6;
    let address = remote.address;
    let is_nowhere = address == [0; 16] || remote.as_v4() == Some([0; 4]) || remote.port == 0;
    let is_group = address[0] == 0xff || remote.as_v4().is_some_and(|v4| v4[0] >= 224);
    // Of an interface, which the address alone does not tell.
    let is_of_link = remote.as_v4().is_none() && address[0] == 0xfe;
    if is_nowhere || is_group || is_of_link || !is_v6 && remote.as_v4().is_none() {
        return Err(Reason::PeerElsewhere);
    }
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    let (bytes, len) = addresses::encode(remote, is_v6);
    // SAFETY: plain system calls on memory of this function; the descriptor is new and nobody else's.
    let probe = unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let fd = result(libc::syscall(libc::SYS_socket, family, kind, 0)).map_err(|_| Reason::NoMemory)?;
        let probe = OwnedFd::from_raw_fd(fd as c_int);
        // Refused for an address that many hear.
        let connected = libc::syscall(libc::SYS_connect, probe.as_raw_fd(), bytes.as_ptr(), len);
        result(connected).map_err(|_| Reason::PeerElsewhere)?;
        probe
    };
    let source = joining::place(probe.as_raw_fd(), libc::SYS_getsockname)?;
    let is_loopback = remote.as_v4().is_some_and(|v4| v4[0] == 127);
    // Who sends to an address of his own sends from it.
    if is_loopback || source.address == remote.address { Ok(source) } else { Err(Reason::PeerElsewhere) }
}

/// Sends a bell or a fence.
pub fn ring(fd: c_int, signal: &[u8], address: &[u8]) -> Result<(), i32> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let who = if address.is_empty() { std::ptr::null() } else { address.as_ptr() };
    // SAFETY: readable bytes and a readable address.
    let sent = unsafe { libc::syscall(libc::SYS_sendto, fd, signal.as_ptr(), signal.len(), flags, who, address.len()) };
    result(sent).map(drop)
}
