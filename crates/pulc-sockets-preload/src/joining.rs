//! Asking the broker for a channel, when a connection has been used often enough to be worth it, and again later where the reason against
//! it may pass. Blocks for the answer, a fraction of a second at most; allocates nothing, because the call that brought us here may have
//! interrupted an allocation.

use crate::connection::Role;
use crate::kernel::{option, result};
use crate::{addresses, asleep, settings};
use libc::{c_int, c_void};
use pulc_hal::os::tcp_counts;
use pulc_sockets::message::{
    ANSWER_BYTES, Answer, Join, NAME_BYTES, NO_BOARD, NO_SLOT, Place, Reason, Report, Request, SYSTEM_NAME, broker_name,
};
use pulc_sockets::{Board, End, Side, Window, window};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// How long the broker may take.
const PATIENCE_US: i64 = 200_000;
/// How long it is left in peace after it took longer: a process with many connections must not wait for each of them.
const PAUSE_MS: u64 = 1000;
/// Until when, in milliseconds of the monotonic clock.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
const SO_COOKIE: c_int = 57;

fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// Whether the broker may be asked.
pub fn is_time() -> bool {
    let not_before = NOT_BEFORE.load(Ordering::Relaxed);
    not_before == 0 || now_ms() >= not_before
}

/// Which connection it is, if it is one that may have a channel.
fn places(fd: c_int, role: Role) -> Result<(Side, Place, Place), Reason> {
    if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) != Some(libc::IPPROTO_TCP as u64) {
        return Err(Reason::NotTcp);
    }
    let side = match role {
        Role::Active => Side::Active,
        Role::Passive => Side::Passive,
        Role::Unknown | Role::Datagrams | Role::Datagrams6 => return Err(Reason::NotTcp),
    };
    // SAFETY: a descriptor for the length of this call.
    if !tcp_counts::is_established(unsafe { BorrowedFd::borrow_raw(fd) }) {
        return Err(Reason::NotOpen);
    }
    Ok((side, place(fd, libc::SYS_getsockname)?, place(fd, libc::SYS_getpeername)?))
}

/// An end of a channel for the connection, or why there is none.
pub fn join(fd: c_int, role: Role) -> Result<End, Reason> {
    let (side, local, remote) = places(fd, role)?;
    if !settings::includes(local.port) && !settings::includes(remote.port) {
        return Err(Reason::Excluded);
    }
    match joined(fd, side, false, local, remote) {
        Ok((channel, slot)) => End::join(channel.as_fd(), side, slot, std::process::id()).map_err(|_| Reason::NoMemory),
        Err(Reason::PeerOfAnotherUser) => across(fd, role, side, local, remote),
        Err(reason) => Err(reason),
    }
}

/// The same where the other end belongs to another user: both ask the system's broker, if there is one, which has a policy.
fn across(fd: c_int, role: Role, side: Side, local: Place, remote: Place) -> Result<End, Reason> {
    let cookie = option(fd, libc::SOL_SOCKET, SO_COOKIE).ok_or(Reason::NotTcp)?;
    let broker = match connect(&SYSTEM_NAME, 0) {
        Ok(broker) if is_roots(&broker) => broker,
        // Whoever else listens there may be anybody.
        Ok(_) | Err(_) => return Err(Reason::PeerOfAnotherUser),
    };
    let (slot, board) = asleep::shown_as();
    let fresh = if slot == NO_SLOT {
        if !asleep::will_show() {
            // Another thread is about to.
            return Err(Reason::Slow);
        }
        match window::create() {
            Ok(fresh) => Some(fresh),
            Err(_) => {
                asleep::shows_nothing();
                return Err(Reason::NoMemory);
            }
        }
    } else {
        None
    };
    let request = Request::Join(Join { side, is_datagram: false, cookie, local, remote, slot, board });
    let asked = ask(&broker, &request, fresh.as_ref().map(|(_, shown)| shown.as_fd()));
    if let Some((shown, _)) = fresh {
        match &asked {
            Ok((answer, ..)) if answer.slot != NO_SLOT => asleep::show(shown, answer.board, answer.slot),
            _ => asleep::shows_nothing(),
        }
    }
    let (answer, channel, theirs) = asked.map_err(|number| slow_or(number, Reason::PeerOfAnotherUser))?;
    if answer.reason != Reason::None {
        return Err(answer.reason);
    }
    let theirs = Window::map(theirs.ok_or(Reason::NoBroker)?).map_err(|_| Reason::NoMemory)?;
    let channel = channel.ok_or(Reason::NoBroker)?;
    let end = End::join_across(channel.as_fd(), side, std::process::id(), theirs).map_err(|_| Reason::NoMemory)?;
    // This user's own broker has it on its list of those that stay on the kernel.
    report(fd, role, Reason::None);
    Ok(end)
}

/// Of an error number; a broker that took too long is left in peace for a while.
fn slow_or(number: i32, otherwise: Reason) -> Reason {
    match number {
        libc::EAGAIN | libc::EINTR => {
            NOT_BEFORE.store(now_ms() + PAUSE_MS, Ordering::Relaxed);
            Reason::Slow
        }
        _ => otherwise,
    }
}

/// Whether root is at the other end, as the kernel saw it when that began to listen.
fn is_roots(broker: &OwnedFd) -> bool {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `who`.
    let asked = unsafe {
        let (at, len) = (&raw mut who, &raw mut len);
        libc::syscall(libc::SYS_getsockopt, broker.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at, len)
    };
    asked == 0 && who.uid == 0
}

/// The memory that the broker gives for a socket, and this process's slot of the board.
pub fn joined(fd: c_int, side: Side, is_datagram: bool, local: Place, remote: Place) -> Result<(OwnedFd, u32), Reason> {
    let cookie = option(fd, libc::SOL_SOCKET, SO_COOKIE).ok_or(Reason::NotTcp)?;
    let request = Join { side, is_datagram, cookie, local, remote, slot: asleep::slot(), board: asleep::number() };
    let asked = connect(&own_broker(), 0).and_then(|broker| ask(&broker, &Request::Join(request), None));
    let (answer, channel, board) = asked.map_err(|number| slow_or(number, Reason::NoBroker))?;
    if answer.reason != Reason::None {
        return Err(answer.reason);
    }
    if request.slot == NO_SLOT {
        let board = Board::map(board.ok_or(Reason::NoBroker)?.as_fd()).map_err(|_| Reason::NoMemory)?;
        asleep::settle(board, answer.board, answer.slot);
    }
    match asleep::number() {
        // Another thread is about to keep the slot that it has got.
        NO_BOARD => return Err(Reason::Slow),
        // It was of another broker's board: then the other end would not know when we sleep.
        number if number != answer.board => return Err(Reason::OtherBroker),
        _ => {}
    }
    Ok((channel.ok_or(Reason::NoBroker)?, asleep::slot()))
}

/// Tells the broker why a connection stays on the kernel, for `pulc sockets`. Waits for nothing.
pub fn report(fd: c_int, role: Role, reason: Reason) {
    if !settings::promotes() {
        return;
    }
    let Ok((side, local, remote)) = places(fd, role) else { return };
    let Ok(broker) = connect(&own_broker(), libc::SOCK_NONBLOCK) else { return };
    let bytes = Request::Report(Report { side, reason, local, remote }).encode();
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: readable bytes, no address.
    unsafe {
        let nowhere = std::ptr::null::<c_void>();
        libc::syscall(libc::SYS_sendto, broker.as_raw_fd(), bytes.as_ptr(), bytes.len(), flags, nowhere, 0usize);
    }
}

/// One of the two addresses of a connection.
pub fn place(fd: c_int, call: libc::c_long) -> Result<Place, Reason> {
    let mut address = [0u8; addresses::BYTES];
    let mut len = address.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes.
    if unsafe { libc::syscall(call, fd, address.as_mut_ptr(), &raw mut len) } != 0 {
        return Err(Reason::NotTcp);
    }
    addresses::decode(&address).ok_or(Reason::NotTcp)
}

/// Name of this user's broker.
fn own_broker() -> [u8; NAME_BYTES] {
    // SAFETY: a system call without memory.
    broker_name(unsafe { libc::syscall(libc::SYS_geteuid) } as u32)
}

/// A line to a broker, or the error number.
fn connect(name: &[u8; NAME_BYTES], flags: c_int) -> Result<OwnedFd, i32> {
    // SAFETY: plain system calls on memory of this function; the descriptor is new and nobody else's.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
        let fd = result(libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0))?;
        let broker = OwnedFd::from_raw_fd(fd as c_int);
        let limit = [0i64, PATIENCE_US];
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, name, limit.as_ptr(), size_of_val(&limit));
        }
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        let len = size_of::<libc::sa_family_t>() + 1 + NAME_BYTES;
        result(libc::syscall(libc::SYS_connect, fd, &raw const address, len))?;
        Ok(broker)
    }
}

/// Room for two descriptors in a control message.
#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    fds: [c_int; 2],
}

/// An answer and the descriptors that came with it: the channel, and the board or the other end's window.
type Asked = (Answer, Option<OwnedFd>, Option<OwnedFd>);

/// One request, with a descriptor or not, one answer; or the error number.
fn ask(broker: &OwnedFd, request: &Request, with: Option<BorrowedFd<'_>>) -> Result<Asked, i32> {
    let (fd, mut bytes) = (broker.as_raw_fd(), request.encode());
    let mut answer = [0u8; ANSWER_BYTES];
    // SAFETY: all zeroes is a valid header of either kind; the kernel writes to `answer` and `control` within their lengths; descriptors
    // that it says it has made are new and nobody else's.
    unsafe {
        let mut rights: Control = std::mem::zeroed();
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if let Some(with) = with {
            rights.header.cmsg_level = libc::SOL_SOCKET;
            rights.header.cmsg_type = libc::SCM_RIGHTS;
            rights.header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<c_int>()) as _;
            rights.fds[0] = with.as_raw_fd();
            header.msg_control = (&raw mut rights).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        result(libc::syscall(libc::SYS_sendmsg, fd, &raw const header, libc::MSG_NOSIGNAL))?;
        let mut control: Control = std::mem::zeroed();
        let mut part = libc::iovec { iov_base: answer.as_mut_ptr().cast(), iov_len: answer.len() };
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>() as _;
        let mut got = result(libc::syscall(libc::SYS_recvmsg, fd, &raw mut header, libc::MSG_CMSG_CLOEXEC));
        // A broker that ended with words of ours unread: the kernel says so once, before it hands out the answer.
        if got == Err(libc::ECONNRESET) {
            got = result(libc::syscall(libc::SYS_recvmsg, fd, &raw mut header, libc::MSG_CMSG_CLOEXEC));
        }
        let got = got?;
        let mut fds = [None, None];
        let is_rights = control.header.cmsg_type == libc::SCM_RIGHTS && header.msg_controllen as usize > 0;
        let bytes = (control.header.cmsg_len as usize).saturating_sub(size_of::<libc::cmsghdr>());
        if is_rights {
            for (to, from) in fds.iter_mut().zip(&control.fds).take(bytes / size_of::<c_int>()) {
                *to = Some(OwnedFd::from_raw_fd(*from));
            }
        }
        let [channel, board] = fds;
        Ok((Answer::decode(&answer[..got]).map_err(|_| libc::EPROTO)?, channel, board))
    }
}
