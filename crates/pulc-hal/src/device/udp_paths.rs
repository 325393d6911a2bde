//! The sockets of a `udp` device: the bound one, which hears everybody, and for the first peers sent to one more each, bound to
//! the same address and connected, which spares the kernel the search for a route with every datagram, on both ends. Called
//! by `udp` only; never blocks.
//!
//! A connected socket is the better match for its peer's datagrams, so these arrive there; what others send while it is being
//! made may arrive there too and is told by its sender's address like everything else.
//!
//! Source: socket(7) (`SO_REUSEPORT`), epoll(7).

use super::udp_socket::{Inbox, set_option};
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Peers with a socket of their own; descriptors are a budget too.
const CONNECTED_MAX: usize = 16;
/// Looks at one socket, in vain or not, before the others are looked at.
const SAME_SOCKET_MAX: u32 = 16;
/// Wanted for each socket's buffers; the kernel gives what its limits allow.
const SOCKET_BUFFER_BYTES: i32 = 4 << 20;
/// How the bound socket is known to epoll.
const BOUND: usize = CONNECTED_MAX;
const NOTHING_WAITS: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Which socket sends to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// Nothing was sent to it so far.
    Untried,
    Bound,
    Connected(usize),
}

pub(super) struct Paths {
    bound: UdpSocket,
    local: SocketAddr,
    connected: [Option<UdpSocket>; CONNECTED_MAX],
    connected_count: usize,
    /// Readable when any of the sockets is.
    any: OwnedFd,
    /// Where the last batch came from, and how often only this one was looked at since.
    last: usize,
    looks: u32,
}

impl Paths {
    pub fn new(bound: UdpSocket) -> io::Result<Paths> {
        bound.set_nonblocking(true)?;
        prepare(&bound);
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&any, &bound, epoll::EventData::new_u64(BOUND as u64), epoll::EventFlags::IN)?;
        Ok(Paths {
            local: bound.local_addr()?,
            bound,
            connected: [const { None }; CONNECTED_MAX],
            connected_count: 0,
            any,
            last: BOUND,
            looks: 0,
        })
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    pub fn bound(&self) -> &UdpSocket {
        &self.bound
    }

    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }

    /// The socket for a path, and whether datagrams still need an address.
    pub fn socket(&self, path: Path) -> (&UdpSocket, bool) {
        match path {
            Path::Connected(index) => self.connected[index].as_ref().map_or((&self.bound, true), |own| (own, false)),
            Path::Untried | Path::Bound => (&self.bound, true),
        }
    }

    /// Gives a peer a socket of its own, if there is one left to give.
    pub fn connect(&mut self, address: SocketAddr) -> Path {
        let Some(index) = self.connected.iter().position(Option::is_none) else { return Path::Bound };
        match self.make(address, index) {
            Ok(own) => {
                self.connected[index] = Some(own);
                self.connected_count += 1;
                Path::Connected(index)
            }
            // It only would have been quicker.
            Err(_) => Path::Bound,
        }
    }

    fn make(&self, address: SocketAddr, index: usize) -> io::Result<UdpSocket> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let own = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // Only while both have the option may two sockets be bound to one address. The bound one loses it again, so that the
        // kernel gives it all that no connected one matches.
        sockopt::set_socket_reuseport(&self.bound, true)?;
        let made = sockopt::set_socket_reuseport(&own, true)
            .and_then(|()| bind(&own, &self.local))
            .and_then(|()| connect(&own, &address));
        sockopt::set_socket_reuseport(&self.bound, false)?;
        made?;
        let own = UdpSocket::from(own);
        prepare(&own);
        epoll::add(&self.any, &own, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        Ok(own)
    }

    /// Closes a peer's own socket. What it sends from now on comes to the bound one.
    pub fn disconnect(&mut self, path: Path) {
        if let Path::Connected(index) = path
            && self.connected[index].take().is_some()
        {
            self.connected_count -= 1;
            self.last = BOUND;
        }
    }

    /// Receives a batch of at most `count` from the first socket that has something; counts the system calls.
    pub fn receive(&mut self, inbox: &mut Inbox, count: usize, calls: &mut u64) -> usize {
        // Mostly the next one comes from where the last one came from, and every look costs a system call.
        if self.connected_count == 0 || self.looks < SAME_SOCKET_MAX {
            self.looks += 1;
            let got = self.receive_from(self.last, inbox, count, calls);
            // Beside a single connected socket the bound one is as good as idle.
            if got > 0 || self.connected_count <= 1 {
                return got;
            }
        }
        self.looks = 0;
        *calls += 1;
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; CONNECTED_MAX + 1];
        let Ok((readable, _)) = epoll::wait(&self.any, &mut room, Some(&NOTHING_WAITS)) else { return 0 };
        // Another one than the last is preferred: that is why they are asked.
        let (mut others, mut last) = (None, None);
        for event in readable {
            let index = event.data.u64() as usize;
            if index == self.last { last = Some(index) } else { others = others.or(Some(index)) }
        }
        let Some(index) = others.or(last) else { return 0 };
        self.last = index.min(BOUND);
        self.receive_from(self.last, inbox, count, calls)
    }

    fn receive_from(&self, index: usize, inbox: &mut Inbox, count: usize, calls: &mut u64) -> usize {
        let socket = self.connected.get(index).map_or(Some(&self.bound), Option::as_ref);
        let Some(socket) = socket else { return 0 };
        *calls += 1;
        // Errors here are echoes of earlier sends (a peer's port was closed): they say nothing about this socket.
        inbox.receive(socket, count).unwrap_or(0)
    }
}

/// Options of every socket. Refusals leave it slower, not broken: segmentation and merging are newer than some kernels.
fn prepare(socket: &UdpSocket) {
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER_BYTES);
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER_BYTES);
    let _ = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    if socket.local_addr().is_ok_and(|address| address.is_ipv4()) {
        // A path that is narrower than its first link fragments rather than stalls.
        let _ = set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT);
    }
}
