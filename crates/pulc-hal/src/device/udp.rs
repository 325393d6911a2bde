//! Frames as UDP datagrams over one unprivileged, non-blocking socket per process and rail. Called by the handler, which
//! puts a reliable link on top; never blocks and never trusts a datagram beyond its source address.

use super::{Caps, Device, Limits, Peer, SendError, Sink};
use pulc_base::metrics::DeviceCounters;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// One UDP socket as a device.
pub struct Udp {
    socket: UdpSocket,
    frame_max: usize,
    counters: DeviceCounters,
}

impl Udp {
    /// Takes a bound socket (as the keeper hands it over) and makes it non-blocking.
    ///
    /// # Errors
    /// What the system says about the socket.
    pub fn new(socket: UdpSocket) -> io::Result<Udp> {
        socket.set_nonblocking(true)?;
        Ok(Udp { socket, frame_max: 1472, counters: DeviceCounters::default() })
    }

    /// A peer at this address. Opening the same address again gives the same peer.
    pub fn open(&mut self, _address: SocketAddr) -> Peer {
        unimplemented!("the device lands with the next commit")
    }

    /// Size of the kernel's receive buffer as it reports it, in bytes; all peers share it.
    pub fn receive_buffer_bytes(&self) -> usize {
        unimplemented!("the device lands with the next commit")
    }

    /// Sends frames that lie one behind the other, each `segment` bytes long, the last one possibly shorter, with as few
    /// system calls as possible: what `pulc_link::Outlet` wants.
    ///
    /// # Errors
    /// [`SendError::Again`] when the socket takes nothing now; then nothing has been sent.
    pub fn send_run(&mut self, _to: Peer, _run: &[u8], _segment: usize) -> Result<(), SendError> {
        unimplemented!("the device lands with the next commit")
    }
}

impl Device for Udp {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn caps(&self) -> Caps {
        Caps::BULK.with(Caps::WAIT_FD)
    }

    fn limits(&self) -> Limits {
        Limits { short_max: self.frame_max, frame_max: self.frame_max }
    }

    fn send_short(&mut self, _to: Peer, _parts: [&[u8]; 2]) -> Result<(), SendError> {
        unimplemented!("the device lands with the next commit")
    }

    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        self.send_short(to, parts)
    }

    fn flush(&mut self) {}

    fn poll(&mut self, _sink: &mut impl Sink, _budget: usize) -> usize {
        unimplemented!("the device lands with the next commit")
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn close_peer(&mut self, _peer: Peer) {
        unimplemented!("the device lands with the next commit")
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
