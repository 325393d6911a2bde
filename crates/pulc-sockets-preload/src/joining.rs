//! Asking the broker for a channel: once for a connection, when it has been used often enough to be worth it. Blocks for the answer, a
//! fraction of a second at most; allocates nothing, because the call that brought us here may have interrupted an allocation.

use crate::connection::Role;
use crate::kernel::{option, result};
use crate::{asleep, settings};
use libc::{c_int, c_void};
use pulc_hal::os::tcp_counts;
use pulc_sockets::message::{
    ANSWER_BYTES, Answer, Join, NAME_BYTES, NO_BOARD, NO_SLOT, Place, Reason, Request, broker_name,
};
use pulc_sockets::{Board, End, Side};
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// How long the broker may take.
const PATIENCE_US: i64 = 200_000;
const SO_COOKIE: c_int = 57;

/// An end of a channel for the connection, or why there is none.
pub fn join(fd: c_int, role: Role) -> Result<End, Reason> {
    if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) != Some(libc::IPPROTO_TCP as u64) {
        return Err(Reason::NotTcp);
    }
    // SAFETY: a descriptor for the length of this call.
    if !tcp_counts::is_established(unsafe { BorrowedFd::borrow_raw(fd) }) {
        return Err(Reason::NotTcp);
    }
    let (local, remote) = (place(fd, libc::SYS_getsockname)?, place(fd, libc::SYS_getpeername)?);
    if !settings::includes(local.port) && !settings::includes(remote.port) {
        return Err(Reason::Excluded);
    }
    let side = match role {
        Role::Active => Side::Active,
        Role::Passive => Side::Passive,
        Role::Unknown => return Err(Reason::NotTcp),
    };
    let cookie = option(fd, libc::SOL_SOCKET, SO_COOKIE).ok_or(Reason::NotTcp)?;
    let request = Join { side, cookie, local, remote, slot: asleep::slot(), board: NO_BOARD };
    let broker = connect().ok_or(Reason::NoBroker)?;
    let (answer, channel, board) = ask(&broker, &Request::Join(request)).ok_or(Reason::NoBroker)?;
    if answer.reason != Reason::None {
        return Err(answer.reason);
    }
    if request.slot == NO_SLOT {
        let board = Board::map(board.ok_or(Reason::NoBroker)?.as_fd()).map_err(|_| Reason::NoMemory)?;
        asleep::settle(board, answer.slot);
    }
    let channel = channel.ok_or(Reason::NoBroker)?;
    End::join(channel.as_fd(), side, asleep::slot(), std::process::id()).map_err(|_| Reason::NoMemory)
}

/// One of the two addresses of a connection.
pub fn place(fd: c_int, call: libc::c_long) -> Result<Place, Reason> {
    let mut address = [0u8; 28];
    let mut len = address.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes.
    if unsafe { libc::syscall(call, fd, address.as_mut_ptr(), &raw mut len) } != 0 {
        return Err(Reason::NotTcp);
    }
    let port = u16::from_be_bytes([address[2], address[3]]);
    match c_int::from(u16::from_ne_bytes([address[0], address[1]])) {
        libc::AF_INET => Ok(Place::v4([address[4], address[5], address[6], address[7]], port)),
        libc::AF_INET6 => {
            let mut wide = [0; 16];
            wide.copy_from_slice(&address[8..24]);
            Ok(Place { address: wide, port })
        }
        _ => Err(Reason::NotTcp),
    }
}

fn connect() -> Option<OwnedFd> {
    // SAFETY: plain system calls on memory of this function; the descriptor is new and nobody else's.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let fd = result(libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0)).ok()?;
        let broker = OwnedFd::from_raw_fd(fd as c_int);
        let limit = [0i64, PATIENCE_US];
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, name, limit.as_ptr(), size_of_val(&limit));
        }
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let name = broker_name(libc::syscall(libc::SYS_geteuid) as u32);
        for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
            *to = from as libc::c_char;
        }
        let len = size_of::<libc::sa_family_t>() + 1 + NAME_BYTES;
        result(libc::syscall(libc::SYS_connect, fd, &raw const address, len)).ok()?;
        Some(broker)
    }
}

/// Room for two descriptors in a control message.
#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    fds: [c_int; 2],
}

/// One request, one answer, and what came with it.
fn ask(broker: &OwnedFd, request: &Request) -> Option<(Answer, Option<OwnedFd>, Option<OwnedFd>)> {
    use std::os::fd::AsRawFd as _;
    let (fd, bytes) = (broker.as_raw_fd(), request.encode());
    let mut answer = [0u8; ANSWER_BYTES];
    // SAFETY: all zeroes is a valid header of either kind; the kernel writes to `answer` and `control` within their lengths; descriptors
    // that it says it has made are new and nobody else's.
    unsafe {
        let nowhere = std::ptr::null::<c_void>();
        let flags = libc::MSG_NOSIGNAL;
        result(libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, nowhere, 0usize)).ok()?;
        let mut control: Control = std::mem::zeroed();
        let mut part = libc::iovec { iov_base: answer.as_mut_ptr().cast(), iov_len: answer.len() };
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>() as _;
        let got = result(libc::syscall(libc::SYS_recvmsg, fd, &raw mut header, libc::MSG_CMSG_CLOEXEC)).ok()?;
        let mut fds = [None, None];
        let is_rights = control.header.cmsg_type == libc::SCM_RIGHTS && header.msg_controllen as usize > 0;
        let bytes = (control.header.cmsg_len as usize).saturating_sub(size_of::<libc::cmsghdr>());
        if is_rights {
            for (to, from) in fds.iter_mut().zip(&control.fds).take(bytes / size_of::<c_int>()) {
                *to = Some(OwnedFd::from_raw_fd(*from));
            }
        }
        let [channel, board] = fds;
        Some((Answer::decode(&answer[..got]).ok()?, channel, board))
    }
}
