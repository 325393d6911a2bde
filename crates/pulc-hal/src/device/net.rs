//! The devices between nodes as one, chosen by the kind of socket that the keeper hands over. Called by the handler, which
//! need not know which one carries its links; adds nothing of its own.

use super::tcp::{Tcp, Token};
use super::udp::Udp;
use super::{Caps, Device, Limits, Peer, SendError, Sink, tcp, udp};
use pulc_base::metrics::DeviceCounters;
use pulc_base::param::Fixed;
use pulc_base::sieve::Instruction;
use rustix::net::{SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};

/// What nobody sets.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "udp_frame_max_bytes",
        value: udp::FRAME_MAX as u64,
        text: "longest frame of a udp rail, where the path carries so much in one datagram",
    },
    Fixed { name: "tcp_frame_max_bytes", value: tcp::FRAME_MAX as u64, text: "longest frame of a tcp rail" },
];

/// A device between nodes.
pub enum NetDevice {
    Udp(Box<Udp>),
    Tcp(Box<Tcp>),
}

impl NetDevice {
    /// The device for a bound datagram socket or a listening stream socket.
    ///
    /// # Errors
    /// What the system says about the socket.
    pub fn new(socket: OwnedFd) -> io::Result<NetDevice> {
        match sockopt::socket_type(&socket)? {
            SocketType::STREAM => Tcp::new(TcpListener::from(socket)).map(|tcp| NetDevice::Tcp(Box::new(tcp))),
            _ => Udp::new(UdpSocket::from(socket)).map(|udp| NetDevice::Udp(Box::new(udp))),
        }
    }

    /// A peer at this address; the tokens tell streams apart and mean nothing to datagrams, whose sender's address does.
    pub fn open(&mut self, address: SocketAddr, to_peer: Token, from_peer: Token) -> Peer {
        match self {
            NetDevice::Udp(udp) => udp.open(address),
            NetDevice::Tcp(tcp) => tcp.open(address, to_peer, from_peer),
        }
    }

    /// What the kernel holds of frames that were not polled yet, as it reports it, in bytes; all peers share it.
    pub fn receive_buffer_bytes(&self) -> usize {
        match self {
            NetDevice::Udp(udp) => udp.receive_buffer_bytes(),
            NetDevice::Tcp(tcp) => tcp.receive_buffer_bytes(),
        }
    }

    /// Whether a run may be cut into datagrams that arrive as they were sent or joined.
    pub fn carries_trains(&self) -> bool {
        matches!(self, NetDevice::Udp(_))
    }

    /// From now on only what `program` passes is heard of this peer, where it has a socket of its own, see [`Udp::sieve`].
    pub fn sieve(&mut self, peer: Peer, program: &[Instruction]) {
        // Streams begin with a token, and what follows takes nobody's room.
        if let NetDevice::Udp(udp) = self {
            udp.sieve(peer, program);
        }
    }

    /// From now on senders that are nobody's are not heard.
    pub fn sieve_strangers(&mut self) {
        if let NetDevice::Udp(udp) = self {
            udp.sieve_strangers();
        }
    }

    /// Everything is heard again.
    pub fn lift_sieves(&mut self) {
        if let NetDevice::Udp(udp) = self {
            udp.lift_sieves();
        }
    }

    /// Frames of senders that are no peers.
    #[inline]
    pub fn frames_refused(&self) -> u64 {
        match self {
            NetDevice::Udp(udp) => udp.frames_refused(),
            NetDevice::Tcp(tcp) => tcp.counters().frames_refused,
        }
    }

    /// Frames that the kernel has thrown away; asks it.
    pub fn frames_dropped(&self) -> u64 {
        match self {
            NetDevice::Udp(udp) => udp.dropped(),
            NetDevice::Tcp(_) => 0,
        }
    }

    /// Sends a run of frames, see [`Udp::send_run`].
    ///
    /// # Errors
    /// [`SendError::Again`] when nothing can be taken now; then nothing has been sent.
    pub fn send_run(&mut self, to: Peer, pieces: &[&[u8]], segment: usize) -> Result<(), SendError> {
        match self {
            NetDevice::Udp(udp) => udp.send_run(to, pieces, segment),
            NetDevice::Tcp(tcp) => tcp.send_run(to, pieces, segment),
        }
    }
}

impl Device for NetDevice {
    fn name(&self) -> &'static str {
        match self {
            NetDevice::Udp(udp) => udp.name(),
            NetDevice::Tcp(tcp) => tcp.name(),
        }
    }

    fn caps(&self) -> Caps {
        match self {
            NetDevice::Udp(udp) => udp.caps(),
            NetDevice::Tcp(tcp) => tcp.caps(),
        }
    }

    fn limits(&self) -> Limits {
        match self {
            NetDevice::Udp(udp) => udp.limits(),
            NetDevice::Tcp(tcp) => tcp.limits(),
        }
    }

    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        match self {
            NetDevice::Udp(udp) => udp.send_short(to, parts),
            NetDevice::Tcp(tcp) => tcp.send_short(to, parts),
        }
    }

    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        match self {
            NetDevice::Udp(udp) => udp.send_bulk(to, parts),
            NetDevice::Tcp(tcp) => tcp.send_bulk(to, parts),
        }
    }

    fn flush(&mut self) {
        match self {
            NetDevice::Udp(udp) => udp.flush(),
            NetDevice::Tcp(tcp) => tcp.flush(),
        }
    }

    fn poll(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        match self {
            NetDevice::Udp(udp) => udp.poll(sink, budget),
            NetDevice::Tcp(tcp) => tcp.poll(sink, budget),
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            NetDevice::Udp(udp) => udp.wait_fd(),
            NetDevice::Tcp(tcp) => tcp.wait_fd(),
        }
    }

    fn prepare_wait(&mut self) {
        match self {
            NetDevice::Udp(udp) => udp.prepare_wait(),
            NetDevice::Tcp(tcp) => tcp.prepare_wait(),
        }
    }

    fn close_peer(&mut self, peer: Peer) {
        match self {
            NetDevice::Udp(udp) => udp.close_peer(peer),
            NetDevice::Tcp(tcp) => tcp.close_peer(peer),
        }
    }

    fn counters(&self) -> DeviceCounters {
        match self {
            NetDevice::Udp(udp) => udp.counters(),
            NetDevice::Tcp(tcp) => tcp.counters(),
        }
    }
}
