//! Frames as UDP datagrams over one unprivileged, non-blocking socket per process and rail. Called by the handler, which
//! puts a reliable link on top; never blocks and never trusts a datagram beyond its source address.
//!
//! Frames that the network, an error of a path or a full queue of the kernel swallows are lost without a word: that is what
//! the link is for. Only `Again` is told, because then trying later helps.

use super::udp_outbox::{Outbox, RUN_BYTES_MAX, RUN_FRAMES_MAX};
use super::udp_paths::{Path, Paths};
use super::udp_socket::{
    BATCH_MAX, DATAGRAM_MAX, Inbox, Outgoing, PIECES_MAX, RawAddress, option, path_mtu, send_batch, send_gathered,
};
use super::{Caps, Device, Frame, Limits, Peer, SendError, Sink};
use pulc_base::metrics::DeviceCounters;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

/// Smallest IP packet that every path carries unfragmented, by practice.
const MTU_DEFAULT: usize = 1500;
/// Longer frames than this bring nothing, even where the path carries them, and take more of a window than many peers can
/// share; eight of these fill one run.
pub(super) const FRAME_MAX: usize = 8_128;

/// One UDP address as a device.
pub struct Udp {
    pub(super) paths: Paths,
    local: SocketAddr,
    pub(super) peers: Vec<Option<Destination>>,
    pub(super) by_address: HashMap<SocketAddr, Peer>,
    /// The last sender, because it mostly is the next one too.
    pub(super) last_sender: Option<(SocketAddr, Peer)>,
    frame_max: usize,
    receive_buffer_bytes: usize,
    segments: bool,
    outbox: Outbox,
    pub(super) inbox: Inbox,
    /// Of the last batch: entries received, the one being handed out, and how far.
    pub(super) received: usize,
    pub(super) current: usize,
    pub(super) offset: usize,
    /// How many datagrams to ask for next.
    pub(super) batch: usize,
    /// Small datagrams that came in a row, one by one.
    pub(super) small_ones: u32,
    pub(super) counters: DeviceCounters,
}

pub(super) struct Destination {
    raw: RawAddress,
    pub(super) path: Path,
    pub(super) address: SocketAddr,
    frame_max: usize,
}

impl Udp {
    /// Takes a bound socket (as the keeper hands it over), makes it non-blocking and gives it room.
    ///
    /// # Errors
    /// What the system says about the socket.
    pub fn new(socket: UdpSocket) -> io::Result<Udp> {
        let paths = Paths::new(socket)?;
        let local = paths.local();
        let segments = option(paths.bound(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
        let receive_buffer_bytes = option(paths.bound(), libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        let mtu = if local.ip().is_loopback() { path_mtu(local, local).unwrap_or(MTU_DEFAULT) } else { MTU_DEFAULT };
        Ok(Udp {
            frame_max: frame_max_for(mtu, &local),
            receive_buffer_bytes: usize::try_from(receive_buffer_bytes).unwrap_or(0),
            paths,
            local,
            peers: Vec::new(),
            by_address: HashMap::new(),
            last_sender: None,
            segments,
            outbox: Outbox::default(),
            inbox: Inbox::new(),
            received: 0,
            current: 0,
            offset: 0,
            batch: 1,
            small_ones: 0,
            counters: DeviceCounters::default(),
        })
    }

    /// A peer at this address. Opening the same address again gives the same peer.
    pub fn open(&mut self, address: SocketAddr) -> Peer {
        if let Some(&peer) = self.by_address.get(&address) {
            return peer;
        }
        let mtu = path_mtu(self.local, address).unwrap_or(MTU_DEFAULT);
        let frame_max = frame_max_for(mtu, &address);
        let peer = Peer(self.peers.len() as u32);
        self.peers.push(Some(Destination { raw: RawAddress::new(address), path: Path::Untried, address, frame_max }));
        self.by_address.insert(address, peer);
        if self.paths.is_bound_sieved() {
            self.sieve_strangers();
        }
        peer
    }

    /// Longest frame that the path to this peer carries in one piece; at least what [`Device::limits`] says where the path
    /// has the usual 1500 bytes. Zero for a closed peer.
    pub fn frame_max(&self, peer: Peer) -> usize {
        self.destination(peer).map_or(0, |destination| destination.frame_max)
    }

    /// Size of the kernel's receive buffer as it reports it (with its own overhead doubled), in bytes; all peers share it.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// As on a kernel that takes no runs.
    #[cfg(test)]
    pub(super) fn without_segments(&mut self) {
        self.segments = false;
    }

    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Sends a run of frames: the pieces joined, each frame `segment` bytes long, the last one possibly shorter, no frame across
    /// two pieces; with as few system calls as possible. It is what `pulc_link::Outlet` wants.
    ///
    /// # Errors
    /// [`SendError::Again`] when the socket takes nothing now; then nothing has been sent.
    pub fn send_run(&mut self, to: Peer, pieces: &[&[u8]], segment: usize) -> Result<(), SendError> {
        let destination = self.destination(to).ok_or(SendError::PeerGone)?;
        let max = destination.frame_max.max(self.frame_max);
        if segment > max || segment == 0 {
            return Err(SendError::TooLong { len: segment, max });
        }
        self.try_path(to);
        self.push_out();
        if !self.outbox.runs.is_empty() {
            self.counters.again += 1;
            return Err(SendError::Again);
        }
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        if bytes <= self.call_bytes(segment) && pieces.len() <= PIECES_MAX {
            match self.send_now(to, pieces, bytes, segment) {
                Outcome::Sent => {
                    self.count_sent(bytes, segment);
                    return Ok(());
                }
                Outcome::Full => {
                    self.counters.again += 1;
                    return Err(SendError::Again);
                }
                Outcome::NoSegments => {}
            }
        }
        self.send_apart(to, pieces, segment)?;
        self.count_sent(bytes, segment);
        Ok(())
    }

    /// What one system call takes.
    fn call_bytes(&self, segment: usize) -> usize {
        let frames = if self.segments { (RUN_BYTES_MAX / segment).clamp(1, RUN_FRAMES_MAX) } else { 1 };
        frames * segment
    }

    /// Sends a run that does not fit one call. `Again` only if nothing has left; what is left over otherwise waits in the outbox.
    fn send_apart(&mut self, to: Peer, pieces: &[&[u8]], segment: usize) -> Result<(), SendError> {
        let mut nothing_left = true;
        for (index, &piece) in pieces.iter().enumerate() {
            let mut taken = 0;
            while taken < piece.len() {
                let part = &piece[taken..(taken + self.call_bytes(segment)).min(piece.len())];
                match self.send_now(to, &[part], part.len(), segment) {
                    Outcome::Sent => {
                        taken += part.len();
                        nothing_left = false;
                    }
                    Outcome::NoSegments => {}
                    Outcome::Full if nothing_left => {
                        self.counters.again += 1;
                        return Err(SendError::Again);
                    }
                    Outcome::Full => {
                        self.outbox.push(to, &piece[taken..], segment);
                        pieces[index + 1..].iter().for_each(|rest| self.outbox.push(to, rest, segment));
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The first frame to a peer: it gets a socket of its own if there is one left.
    fn try_path(&mut self, to: Peer) {
        if let Some(Some(destination)) = self.peers.get_mut(to.0 as usize)
            && destination.path == Path::Untried
        {
            destination.path = self.paths.connect(destination.address, to);
        }
    }

    fn destination(&self, peer: Peer) -> Option<&Destination> {
        self.peers.get(peer.0 as usize)?.as_ref()
    }

    fn count_sent(&mut self, bytes: usize, segment: usize) {
        self.counters.frames_sent += bytes.div_ceil(segment) as u64;
        self.counters.bytes_sent += bytes as u64;
    }

    fn send_now(&mut self, to: Peer, pieces: &[&[u8]], bytes: usize, segment: usize) -> Outcome {
        let Some(destination) = self.destination(to) else { return Outcome::Sent };
        let (socket, needs_address) = self.paths.socket(destination.path);
        let address = needs_address.then_some(&destination.raw);
        let mut result = send_gathered(socket, address, pieces, segment_option(bytes, segment));
        if !needs_address && result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            // The echo of an earlier datagram: this one has not been tried yet.
            result = send_gathered(socket, address, pieces, segment_option(bytes, segment));
        }
        self.counters.system_calls += 1;
        match result {
            Ok(()) => Outcome::Sent,
            Err(error) => self.outcome_of(&error, bytes > segment),
        }
    }

    /// What a failed send means.
    fn outcome_of(&mut self, error: &io::Error, was_run: bool) -> Outcome {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Outcome::Full,
            // The path got narrower, or its interface cannot complete checksums: such runs go out one by one.
            Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE | libc::EOPNOTSUPP) if was_run => {
                self.segments = false;
                Outcome::NoSegments
            }
            // Unreachable, refused, filtered, interface down: the network lost the frame. It may be back later.
            _ => Outcome::Sent,
        }
    }

    /// Gives the outbox to the kernel; what does not fit stays.
    fn push_out(&mut self) {
        while !self.outbox.runs.is_empty() {
            let mut batch = Vec::with_capacity(BATCH_MAX);
            let mut path = None;
            for run in self.outbox.runs.iter().take(BATCH_MAX) {
                let destination = self.peers[run.to.0 as usize].as_ref().expect("closing a peer empties its runs");
                if *path.get_or_insert(destination.path) != destination.path {
                    break;
                }
                let bytes = &self.outbox.bytes[run.start..run.end];
                let to = self.paths.socket(destination.path).1.then_some(&destination.raw);
                batch.push(Outgoing { to, bytes, segment: segment_option(bytes.len(), run.segment) });
            }
            let socket = self.paths.socket(path.expect("a run was there")).0;
            let first_is_run = batch[0].segment.is_some();
            let result = send_batch(socket, &batch);
            self.counters.system_calls += 1;
            let taken = match result {
                Ok(taken) => taken,
                Err(error) => match self.outcome_of(&error, first_is_run) {
                    Outcome::Full => return,
                    Outcome::Sent => 1,
                    Outcome::NoSegments => {
                        self.outbox.split_runs();
                        0
                    }
                },
            };
            self.outbox.drop_first(taken);
        }
    }
}

/// What became of a system call for sending.
enum Outcome {
    /// Taken, or lost by the network.
    Sent,
    Full,
    /// This socket or path takes no runs.
    NoSegments,
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

    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let destination = self.destination(to).ok_or(SendError::PeerGone)?;
        let (len, max) = (parts[0].len() + parts[1].len(), destination.frame_max.max(self.frame_max));
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        self.try_path(to);
        if self.outbox.is_full() {
            self.push_out();
            if self.outbox.is_full() {
                self.counters.again += 1;
                return Err(SendError::Again);
            }
        }
        self.outbox.push_frame(to, parts, self.segments);
        self.count_sent(len, len.max(1));
        Ok(())
    }

    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        self.send_short(to, parts)
    }

    fn flush(&mut self) {
        self.push_out();
    }

    fn poll(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        if sink.takes_runs() {
            if let Some(handed) = self.poll_quickly(sink) {
                return handed;
            }
            if self.current < self.received || self.refill() {
                return self.hand_runs(sink, budget);
            }
            return 0;
        }
        let mut handed = 0;
        // One batch a poll: to ask again before the frames are worked on would cost a system call that mostly brings nothing.
        while handed < budget && (self.current < self.received || (handed == 0 && self.refill())) {
            let (len, segment) = self.inbox.shape(self.current);
            let Some(peer) = self.inbox.sender(self.current).and_then(|sender| self.peer_of(sender)) else {
                self.counters.frames_refused += len.div_ceil(segment.max(1)).max(1) as u64;
                self.current += 1;
                continue;
            };
            while handed < budget {
                let end = (self.offset + segment).min(len);
                let frame = self.inbox.bytes(self.current, self.offset, end);
                self.counters.frames_received += 1;
                self.counters.bytes_received += frame.len() as u64;
                sink.frame(peer, Frame::Private(frame));
                handed += 1;
                self.offset = end;
                if end == len {
                    (self.current, self.offset) = (self.current + 1, 0);
                    break;
                }
            }
        }
        handed
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.paths.wait_fd())
    }

    fn prepare_wait(&mut self) {
        self.paths.watch_all();
        self.paths.look_at_all();
    }

    fn close_peer(&mut self, peer: Peer) {
        if let Some(closed) = self.peers.get_mut(peer.0 as usize).and_then(Option::take) {
            self.by_address.remove(&closed.address);
            self.outbox.runs.retain(|run| run.to != peer);
            self.paths.disconnect(closed.path);
            self.last_sender = None;
        }
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

/// Longest frame in one IP packet of `mtu` bytes.
fn frame_max_for(mtu: usize, address: &SocketAddr) -> usize {
    let headers = if address.is_ipv4() { 20 + 8 } else { 40 + 8 };
    mtu.min(DATAGRAM_MAX).saturating_sub(headers).min(FRAME_MAX)
}

/// The value for `UDP_SEGMENT`; `None` for a single datagram.
fn segment_option(len: usize, segment: usize) -> Option<u16> {
    if len > segment { u16::try_from(segment).ok() } else { None }
}
