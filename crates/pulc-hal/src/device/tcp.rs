//! Frames over TCP streams, for networks that let no UDP through. Called by the handler, which puts the same reliable link on
//! top as on `udp`: a stream that breaks loses what was under way, and its frames are no better authenticated than
//! datagrams. Never blocks and needs no privilege.
//!
//! Every direction has a stream of its own, opened by the sender with its first frame, so nobody who connects to us can draw
//! what we send. A stream begins with the 16 bytes by which the owner knows the peer (a stranger's is closed) and goes on
//! with frames, each behind its length in four bytes, little-endian. A broken stream is opened again by the next frame,
//! ever more patiently; what the owner is told is [`Sink::peer_failed`].

use super::tcp_streams::{Arriving, Leaving, Put, Watch};
use super::{Caps, Device, Limits, Peer, PeerFault, SendError, Sink};
use pulc_base::metrics::DeviceCounters;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

/// Longest frame. Long ones cost the floors above less; this one still lets the receiver work while the rest is under way.
pub const FRAME_MAX: usize = 32 << 10;
/// What a stream begins with.
pub type Token = [u8; 16];
/// Streams that have not said whose they are, and streams that one peer may have open to us: it may have opened a new one
/// before we noticed the end of the old.
const STRANGERS_MAX: usize = 64;
const STREAMS_OF_A_PEER_MAX: usize = 2;
/// Batches taken from one stream before the others are looked at.
const SAME_STREAM_MAX: u32 = 8;
/// As what the kernel's buffers count for windows: it holds senders back by itself.
const BUFFER_BYTES: usize = 8 << 20;
/// How the listener is known to the watch; streams are known by their number, those that leave with this bit.
const LISTENER: u64 = u64::MAX;
const LEAVES: u64 = 1 << 32;

/// A listening socket and the streams to and from its peers.
pub struct Tcp {
    listener: TcpListener,
    local: SocketAddr,
    watch: Watch,
    peers: Vec<Option<Leaving>>,
    by_token: HashMap<Token, Peer>,
    /// Numbers are reused.
    arriving: Vec<Option<Arriving>>,
    /// The oldest first.
    strangers: VecDeque<usize>,
    /// The stream looked at first.
    hot: usize,
    looks: u32,
    /// Some stream may hold bytes back.
    held_back: bool,
    /// What is to be told to the owner with the next poll.
    faults: Vec<(Peer, PeerFault)>,
    counters: DeviceCounters,
}

impl Tcp {
    /// Takes a listening socket (as the keeper hands it over).
    ///
    /// # Errors
    /// What the system says about the socket.
    pub fn new(listener: TcpListener) -> io::Result<Tcp> {
        listener.set_nonblocking(true)?;
        let watch = Watch::new()?;
        watch.readable(&listener, LISTENER)?;
        Ok(Tcp {
            local: listener.local_addr()?,
            listener,
            watch,
            peers: Vec::new(),
            by_token: HashMap::new(),
            arriving: Vec::new(),
            strangers: VecDeque::new(),
            hot: 0,
            looks: 0,
            held_back: false,
            faults: Vec::new(),
            counters: DeviceCounters::default(),
        })
    }

    /// A peer that listens at this address, greets us with `from_peer` and wants to be greeted with `to_peer`.
    pub fn open(&mut self, address: SocketAddr, to_peer: Token, from_peer: Token) -> Peer {
        let peer = Peer(self.peers.len() as u32);
        self.peers.push(Some(Leaving::new(address, to_peer)));
        self.by_token.insert(from_peer, peer);
        peer
    }

    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// As `Udp::receive_buffer_bytes`.
    pub fn receive_buffer_bytes(&self) -> usize {
        BUFFER_BYTES
    }

    /// As `Udp::send_run`.
    ///
    /// # Errors
    /// [`SendError::Again`] when the stream takes nothing now; then nothing has been sent.
    pub fn send_run(&mut self, to: Peer, pieces: &[&[u8]], segment: usize) -> Result<(), SendError> {
        if segment > FRAME_MAX || segment == 0 {
            return Err(SendError::TooLong { len: segment, max: FRAME_MAX });
        }
        let frames: Vec<[&[u8]; 2]> =
            pieces.iter().flat_map(|piece| piece.chunks(segment)).map(|frame| [frame, &[]]).collect();
        self.send(to, &frames)
    }

    fn send(&mut self, to: Peer, frames: &[[&[u8]; 2]]) -> Result<(), SendError> {
        let side = self.peers.get_mut(to.0 as usize).and_then(Option::as_mut).ok_or(SendError::PeerGone)?;
        let put = side.put(frames, &self.watch, LEAVES | u64::from(to.0), &mut self.counters.system_calls);
        self.held_back |= side.holds_back();
        match put {
            Put::Taken => {
                self.counters.frames_sent += frames.len() as u64;
                self.counters.bytes_sent += frames.iter().flatten().map(|part| part.len() as u64).sum::<u64>();
                Ok(())
            }
            Put::Full => {
                self.counters.again += 1;
                Err(SendError::Again)
            }
            Put::Broken(error) => {
                self.faults.push((to, PeerFault::System(error)));
                // Lost on the way, like a datagram: the link sends it again.
                Ok(())
            }
        }
    }

    /// A stream that leaves has room again, or has broken.
    fn go_on(&mut self, to: Peer) {
        let Some(Some(side)) = self.peers.get_mut(to.0 as usize) else { return };
        let put = side.go_on(&self.watch, LEAVES | u64::from(to.0), &mut self.counters.system_calls);
        if let Put::Broken(error) = put {
            self.faults.push((to, PeerFault::System(error)));
        }
    }

    fn accept(&mut self) {
        loop {
            self.counters.system_calls += 1;
            // Errors concern one connection that ended early, or a shortage that passes.
            let Ok((stream, _)) = self.listener.accept() else { return };
            if self.strangers.len() >= STRANGERS_MAX
                && let Some(oldest) = self.strangers.pop_front()
            {
                self.arriving[oldest] = None;
                self.counters.frames_refused += 1;
            }
            let index = self.arriving.iter().position(Option::is_none).unwrap_or(self.arriving.len());
            if let Ok(stream) = Arriving::new(stream)
                && self.watch.readable(&stream, index as u64).is_ok()
            {
                if index == self.arriving.len() {
                    self.arriving.push(None);
                }
                self.arriving[index] = Some(stream);
                self.strangers.push_back(index);
            }
        }
    }

    /// Looks whose stream this is, if it has said so by now. False: it has to be closed.
    fn recognize(&mut self, index: usize) -> bool {
        let Some(Some(stream)) = self.arriving.get_mut(index) else { return false };
        let Some(token) = stream.take_token() else { return true };
        self.strangers.retain(|stranger| *stranger != index);
        let Some(&peer) = self.by_token.get(&token) else { return false };
        stream.peer = Some(peer);
        let of_peer = |(other, stream): (usize, &Option<Arriving>)| {
            stream.as_ref().filter(|stream| other != index && stream.peer == Some(peer)).map(|_| other)
        };
        let others: Vec<usize> = self.arriving.iter().enumerate().filter_map(of_peer).collect();
        if others.len() >= STREAMS_OF_A_PEER_MAX {
            self.forget(others[0]);
        }
        true
    }

    fn forget(&mut self, index: usize) {
        self.arriving[index] = None;
        self.strangers.retain(|stranger| *stranger != index);
    }

    /// Reads once from a stream and hands over its frames.
    fn take_from(&mut self, index: usize, sink: &mut impl Sink, budget: usize) -> usize {
        let Some(Some(stream)) = self.arriving.get_mut(index) else { return 0 };
        let mut open = true;
        if !stream.has_frame() {
            self.counters.system_calls += 1;
            open = stream.fill();
            if stream.peer.is_none() && !self.recognize(index) {
                self.counters.frames_refused += 1;
                self.forget(index);
                return 0;
            }
        }
        let Some(Some(stream)) = self.arriving.get_mut(index) else { return 0 };
        let Some(peer) = stream.peer else {
            if !open {
                self.forget(index);
            }
            return 0;
        };
        let mut handed = 0;
        while handed < budget
            && let Some(frame) = stream.next_frame()
        {
            self.counters.frames_received += 1;
            self.counters.bytes_received += frame.len() as u64;
            sink.frame(peer, super::Frame::Private(frame));
            handed += 1;
        }
        if stream.breaks_rules() {
            self.counters.frames_refused += 1;
            sink.peer_failed(peer, PeerFault::BrokenRules("a frame longer than the device's limit"));
            self.forget(index);
        } else if !open && !stream.has_frame() {
            // Ended by the peer; if it has more to say it opens another one.
            self.forget(index);
        }
        handed
    }

    /// Works on every socket that has news; hands over at most `budget` frames.
    fn look_everywhere(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        self.counters.system_calls += 1;
        let mut handed = 0;
        for news in self.watch.look() {
            match news {
                LISTENER => self.accept(),
                leaves if leaves & LEAVES != 0 => self.go_on(Peer(leaves as u32)),
                index if handed < budget => {
                    let came = self.take_from(index as usize, sink, budget - handed);
                    if came > 0 {
                        self.hot = index as usize;
                    }
                    handed += came;
                }
                // Stays readable.
                _ => {}
            }
        }
        handed
    }
}

impl Device for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn caps(&self) -> Caps {
        Caps::BULK.with(Caps::WAIT_FD)
    }

    fn limits(&self) -> Limits {
        Limits { short_max: FRAME_MAX, frame_max: FRAME_MAX }
    }

    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let len = parts[0].len() + parts[1].len();
        if self.peers.get(to.0 as usize).is_some_and(Option::is_some) && len > FRAME_MAX {
            return Err(SendError::TooLong { len, max: FRAME_MAX });
        }
        self.send(to, &[parts])
    }

    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        self.send_short(to, parts)
    }

    /// What streams have not taken so far goes now if they have room or have just been opened, else with a later poll.
    fn flush(&mut self) {
        if self.held_back {
            self.counters.system_calls += 1;
            for leaves in self.watch.look().filter(|news| *news != LISTENER && news & LEAVES != 0) {
                self.go_on(Peer(leaves as u32));
            }
            self.held_back = self.peers.iter().flatten().any(Leaving::holds_back);
        }
    }

    fn poll(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        for (peer, fault) in self.faults.drain(..) {
            sink.peer_failed(peer, fault);
        }
        if budget == 0 {
            return 0;
        }
        // Mostly the next frame comes from where the last one came from. Frames that were read and not handed over are there,
        // too, and no watch tells of them.
        let mut handed = 0;
        if self.looks < SAME_STREAM_MAX || self.arriving.get(self.hot).is_some_and(has_frame) {
            self.looks += 1;
            handed = self.take_from(self.hot, sink, budget);
        }
        if handed == 0 {
            self.looks = 0;
            handed = self.look_everywhere(sink, budget);
        }
        handed
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn close_peer(&mut self, peer: Peer) {
        if self.peers.get_mut(peer.0 as usize).and_then(Option::take).is_some() {
            self.by_token.retain(|_, known| *known != peer);
            for stream in &mut self.arriving {
                if stream.as_ref().is_some_and(|stream| stream.peer == Some(peer)) {
                    *stream = None;
                }
            }
        }
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

fn has_frame(stream: &Option<Arriving>) -> bool {
    stream.as_ref().is_some_and(Arriving::has_frame)
}
