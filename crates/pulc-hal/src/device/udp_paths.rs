//! The sockets of a `udp` device: the bound one, which hears everybody, and for the first peers sent to one more each, bound to
//! the same address and connected, which spares the kernel the search for a route with every datagram, on both ends. Called
//! by `udp` only; never blocks.
//!
//! A connected socket is the better match for its peer's datagrams, so these arrive there; what others send while it is being
//! made may arrive there too and is told by its sender's address, until the socket was found empty once.
//!
//! One descriptor tells of all of them. That costs something for every datagram sent or received, so the socket that is polled
//! all the time is taken from it until somebody is about to sleep.
//!
//! Source: socket(7) (`SO_REUSEPORT`), epoll(7).

use super::Peer;
use super::udp_socket::{Inbox, attach_sieve, detach_sieve, dropped, set_option};
use pulc_base::sieve::Instruction;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Peers with a socket of their own; descriptors are a budget too.
const CONNECTED_MAX: usize = 16;
/// Looks at one socket, in vain or not, before the others are looked at; and where there is only the bound one beside it, which
/// hears new peers only: half a millisecond of polling. Whoever sleeps in between looks at all of them first.
const SAME_SOCKET_MAX: u32 = 16;
const ONLY_SOCKET_MAX: u32 = 1024;
/// The last socket has just been found empty.
const LOOKED: u32 = u32::MAX;
/// Batches in a row from one socket until it counts as polled all the time.
const HOT_AFTER: u32 = 32;
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
    connected: [Option<Own>; CONNECTED_MAX],
    connected_count: usize,
    /// Readable when any of the sockets is.
    any: OwnedFd,
    /// Where the last batch came from, and how often only this one was looked at since.
    last: usize,
    looks: u32,
    /// Batches from there in a row.
    streak: u32,
    /// The connected socket that `any` does not tell of.
    unwatched: Option<usize>,
    is_bound_sieved: bool,
    /// Datagrams that the kernel threw away at sockets closed since.
    dropped_by_closed: u64,
}

/// The socket of one peer.
struct Own {
    socket: UdpSocket,
    peer: Peer,
    /// It was found empty: from here on only its peer is heard.
    is_settled: bool,
    is_sieved: bool,
}

/// What the quick look at a socket brought.
pub(super) enum Glance {
    /// One datagram or train of so many bytes from this peer, in the first buffer.
    Got(Peer, usize),
    Nothing,
    /// It is not the time for a quick look.
    LookProperly,
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
            streak: 0,
            unwatched: None,
            is_bound_sieved: false,
            dropped_by_closed: 0,
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
            Path::Connected(index) => {
                self.connected[index].as_ref().map_or((&self.bound, true), |own| (&own.socket, false))
            }
            Path::Untried | Path::Bound => (&self.bound, true),
        }
    }

    /// Gives a peer a socket of its own, if there is one left to give.
    pub fn connect(&mut self, address: SocketAddr, peer: Peer) -> Path {
        let Some(index) = self.connected.iter().position(Option::is_none) else { return Path::Bound };
        match self.make(address, index) {
            Ok(socket) => {
                self.connected[index] = Some(Own { socket, peer, is_settled: false, is_sieved: false });
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
            && let Some(closed) = self.connected[index].take()
        {
            self.dropped_by_closed += u64::from(dropped(&closed.socket));
            self.connected_count -= 1;
            (self.last, self.streak) = (BOUND, 0);
            self.unwatched = self.unwatched.filter(|unwatched| *unwatched != index);
        }
    }

    /// Lets the common descriptor tell of every socket again.
    pub fn watch_all(&mut self) {
        self.streak = 0;
        let Some(index) = self.unwatched.take() else { return };
        if let Some(own) = &self.connected[index] {
            // Refused only for want of memory; then whoever sleeps is woken by its next timer.
            let _ = epoll::add(&self.any, &own.socket, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN);
        }
    }

    /// The next look is at all of them.
    pub fn look_at_all(&mut self) {
        self.looks = ONLY_SOCKET_MAX;
    }

    /// A batch came from the socket looked at last.
    fn note_batch(&mut self) {
        self.streak += 1;
        if self.streak < HOT_AFTER || self.unwatched == Some(self.last) {
            return;
        }
        self.watch_all();
        if let Some(Some(own)) = self.connected.get(self.last)
            && epoll::delete(&self.any, &own.socket).is_ok()
        {
            self.unwatched = Some(self.last);
        }
    }

    fn same_socket_max(&self) -> u32 {
        if self.connected_count > 1 { SAME_SOCKET_MAX } else { ONLY_SOCKET_MAX }
    }

    /// Whose socket a quick look would be at, if it is the time for one.
    pub fn glances_at(&self) -> Option<Peer> {
        let own = self.connected.get(self.last)?.as_ref()?;
        (self.looks < self.same_socket_max() && own.is_settled).then_some(own.peer)
    }

    /// Looks at the socket that the last batch came from in the quickest way, by `receive`; counts the system call.
    pub fn glance(&mut self, calls: &mut u64, receive: impl FnOnce(&UdpSocket) -> io::Result<usize>) -> Glance {
        let (Some(peer), Some(Some(own))) = (self.glances_at(), self.connected.get(self.last)) else {
            return Glance::LookProperly;
        };
        self.looks += 1;
        *calls += 1;
        match receive(&own.socket) {
            Ok(len) => {
                self.note_batch();
                Glance::Got(peer, len)
            }
            // Where others may have something, they are looked at next.
            Err(_) if self.connected_count > 1 => {
                self.looks = LOOKED;
                Glance::LookProperly
            }
            Err(_) => Glance::Nothing,
        }
    }

    /// Receives a batch of at most `count` from the first socket that has something; counts the system calls.
    pub fn receive(&mut self, inbox: &mut Inbox, count: usize, calls: &mut u64) -> usize {
        // Mostly the next one comes from where the last one came from, and every look costs a system call.
        if self.connected_count == 0 || self.looks < self.same_socket_max() {
            self.looks += 1;
            let got = self.receive_from(self.last, inbox, count, calls);
            // Beside a single connected socket the bound one is as good as idle.
            if got > 0 || self.connected_count <= 1 {
                return got;
            }
            self.looks = LOOKED;
        }
        let was_looked_at = self.looks == LOOKED;
        self.looks = 0;
        *calls += 1;
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; CONNECTED_MAX + 1];
        let Ok((readable, _)) = epoll::wait(&self.any, &mut room, Some(&NOTHING_WAITS)) else { return 0 };
        // Another one than the last is preferred: that is why they are asked.
        let (mut others, mut last) = (None, self.unwatched.filter(|_| !was_looked_at));
        for event in readable {
            let index = event.data.u64() as usize;
            if index == self.last { last = Some(index) } else { others = others.or(Some(index)) }
        }
        let Some(index) = others.or(last) else { return 0 };
        if index != self.last {
            self.watch_all();
            self.last = index.min(BOUND);
        }
        self.receive_from(self.last, inbox, count, calls)
    }

    fn receive_from(&mut self, index: usize, inbox: &mut Inbox, count: usize, calls: &mut u64) -> usize {
        *calls += 1;
        // Errors here are echoes of earlier sends (a peer's port was closed): they say nothing about this socket.
        let got = match self.connected.get_mut(index) {
            Some(Some(own)) => {
                let result = inbox.receive(&own.socket, count);
                own.is_settled |= result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
                result.unwrap_or(0)
            }
            Some(None) => 0,
            None => inbox.receive(&self.bound, count).unwrap_or(0),
        };
        if got > 0 {
            self.note_batch();
        }
        got
    }
}

/// Filters in the kernel.
impl Paths {
    /// Sets the filter of a peer's own socket.
    pub fn sieve(&mut self, path: Path, program: &[Instruction]) {
        if let Path::Connected(index) = path
            && let Some(own) = &mut self.connected[index]
        {
            own.is_sieved = attach_sieve(&own.socket, program).is_ok();
        }
    }

    pub fn sieve_bound(&mut self, program: &[Instruction]) {
        self.is_bound_sieved = attach_sieve(&self.bound, program).is_ok();
    }

    pub fn is_bound_sieved(&self) -> bool {
        self.is_bound_sieved
    }

    pub fn lift_sieves(&mut self) {
        if std::mem::take(&mut self.is_bound_sieved) {
            detach_sieve(&self.bound);
        }
        for own in self.connected.iter_mut().flatten().filter(|own| own.is_sieved) {
            detach_sieve(&own.socket);
            own.is_sieved = false;
        }
    }

    /// Whether a peer is heard on a socket of its own only.
    pub fn is_settled(&self, path: Path) -> bool {
        matches!(path, Path::Connected(index) if self.connected[index].as_ref().is_some_and(|own| own.is_settled))
    }

    pub fn dropped(&self) -> u64 {
        let open = std::iter::once(&self.bound).chain(self.connected.iter().flatten().map(|own| &own.socket));
        self.dropped_by_closed + open.map(|socket| u64::from(dropped(socket))).sum::<u64>()
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
