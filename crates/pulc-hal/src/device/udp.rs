//! Frames as UDP datagrams over one unprivileged, non-blocking socket per process and rail. Called by the handler, which
//! puts a reliable link on top; never blocks and never trusts a datagram beyond its source address.
//!
//! Frames that the network, an error of a path or a full queue of the kernel swallows are lost without a word: that is what
//! the link is for. Only `Again` is told, because then trying later helps.

use super::udp_socket::{
    BATCH_MAX, DATAGRAM_MAX, Inbox, Outgoing, RawAddress, option, path_mtu, send_batch, set_option,
};
use super::{Caps, Device, Frame, Limits, Peer, SendError, Sink};
use pulc_base::metrics::DeviceCounters;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Wanted for the socket's buffers; the kernel gives what its limits allow.
const SOCKET_BUFFER_BYTES: i32 = 4 << 20;
/// Smallest IP packet that every path carries unfragmented, by practice.
const MTU_DEFAULT: usize = 1500;
/// Longer frames than this bring nothing, even where the path carries them.
const FRAME_MAX: usize = 16 << 10;
/// Datagrams in one run.
const RUN_FRAMES_MAX: usize = 64;
/// Most bytes of one run.
const RUN_BYTES_MAX: usize = 65_000;

/// One UDP socket as a device.
pub struct Udp {
    socket: UdpSocket,
    local: SocketAddr,
    peers: Vec<Option<Destination>>,
    by_address: HashMap<SocketAddr, Peer>,
    /// The last sender, because it mostly is the next one too.
    last_sender: Option<(SocketAddr, Peer)>,
    frame_max: usize,
    receive_buffer_bytes: usize,
    segments: bool,
    outbox: Outbox,
    inbox: Inbox,
    /// Of the last batch: entries received, the one being handed out, and how far.
    received: usize,
    current: usize,
    offset: usize,
    /// How many datagrams to ask for next.
    batch: usize,
    counters: DeviceCounters,
}

struct Destination {
    raw: RawAddress,
    address: SocketAddr,
    frame_max: usize,
}

/// Frames taken and not yet given to the kernel.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    runs: Vec<PendingRun>,
}

struct PendingRun {
    to: Peer,
    start: usize,
    end: usize,
    segment: usize,
}

impl Udp {
    /// Takes a bound socket (as the keeper hands it over), makes it non-blocking and gives it room.
    ///
    /// # Errors
    /// What the system says about the socket.
    pub fn new(socket: UdpSocket) -> io::Result<Udp> {
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        // Refusals of these leave the socket slower, not broken: segmentation and merging are newer than some kernels.
        let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER_BYTES);
        let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER_BYTES);
        let _ = set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        let segments = option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
        if local.is_ipv4() {
            // A path that is narrower than its first link fragments rather than stalls.
            let _ = set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT);
        }
        let receive_buffer_bytes = option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        let mtu = if local.ip().is_loopback() { path_mtu(local, local).unwrap_or(MTU_DEFAULT) } else { MTU_DEFAULT };
        Ok(Udp {
            frame_max: frame_max_for(mtu, &local),
            receive_buffer_bytes: usize::try_from(receive_buffer_bytes).unwrap_or(0),
            socket,
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
        self.peers.push(Some(Destination { raw: RawAddress::new(address), address, frame_max }));
        self.by_address.insert(address, peer);
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

    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Sends frames that lie one behind the other, each `segment` bytes long, the last one possibly shorter, with as few
    /// system calls as possible: what `pulc_link::Outlet` wants.
    ///
    /// # Errors
    /// [`SendError::Again`] when the socket takes nothing now; then nothing has been sent.
    pub fn send_run(&mut self, to: Peer, run: &[u8], segment: usize) -> Result<(), SendError> {
        let destination = self.destination(to).ok_or(SendError::PeerGone)?;
        let max = destination.frame_max.max(self.frame_max);
        if segment > max || segment == 0 {
            return Err(SendError::TooLong { len: segment, max });
        }
        self.push_out();
        if !self.outbox.runs.is_empty() {
            self.counters.again += 1;
            return Err(SendError::Again);
        }
        let per_call =
            if self.segments { (RUN_BYTES_MAX / segment).clamp(1, RUN_FRAMES_MAX) * segment } else { segment };
        let mut taken = 0;
        while taken < run.len() {
            let piece = &run[taken..(taken + per_call).min(run.len())];
            match self.send_now(to, piece, segment) {
                Outcome::Sent => taken += piece.len(),
                Outcome::Full if taken == 0 => {
                    self.counters.again += 1;
                    return Err(SendError::Again);
                }
                Outcome::Full => {
                    self.outbox.push(to, &run[taken..], segment);
                    break;
                }
                Outcome::NoSegments => {}
            }
        }
        self.count_sent(run.len(), segment);
        Ok(())
    }

    fn destination(&self, peer: Peer) -> Option<&Destination> {
        self.peers.get(peer.0 as usize)?.as_ref()
    }

    fn count_sent(&mut self, bytes: usize, segment: usize) {
        self.counters.frames_sent += bytes.div_ceil(segment) as u64;
        self.counters.bytes_sent += bytes as u64;
    }

    fn send_now(&mut self, to: Peer, bytes: &[u8], segment: usize) -> Outcome {
        let Some(destination) = self.destination(to) else { return Outcome::Sent };
        let outgoing = Outgoing { to: &destination.raw, bytes, segment: segment_option(bytes.len(), segment) };
        let result = send_batch(&self.socket, &[outgoing]);
        self.counters.system_calls += 1;
        match result {
            Ok(_) => Outcome::Sent,
            Err(error) => self.outcome_of(&error, bytes.len() > segment),
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
            for run in self.outbox.runs.iter().take(BATCH_MAX) {
                let destination = self.peers[run.to.0 as usize].as_ref().expect("closing a peer empties its runs");
                let bytes = &self.outbox.bytes[run.start..run.end];
                batch.push(Outgoing { to: &destination.raw, bytes, segment: segment_option(bytes.len(), run.segment) });
            }
            let first_is_run = batch[0].segment.is_some();
            let result = send_batch(&self.socket, &batch);
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

    /// Fills the inbox if all of it has been handed out. False: nothing there.
    fn refill(&mut self) -> bool {
        if self.current < self.received {
            return true;
        }
        (self.received, self.current, self.offset) = (0, 0, 0);
        self.counters.system_calls += 1;
        // Errors here are echoes of earlier sends (a peer's port was closed): they say nothing about this socket.
        let asked = self.batch;
        let got = self.inbox.receive(&self.socket, asked).unwrap_or(0);
        self.received = got;
        // Ask for more when many small datagrams came; one merged train is best worked off while it is in the cache.
        let small = (0..got).all(|index| self.inbox.shape(index).0 < 4096);
        self.batch = if got == asked && small { (asked * 2).min(BATCH_MAX) } else { got.clamp(1, BATCH_MAX) };
        got > 0
    }

    fn peer_of(&mut self, sender: SocketAddr) -> Option<Peer> {
        if let Some((address, peer)) = self.last_sender
            && address == sender
        {
            return Some(peer);
        }
        let peer = *self.by_address.get(&sender)?;
        self.last_sender = Some((sender, peer));
        Some(peer)
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

impl Outbox {
    fn push(&mut self, to: Peer, run: &[u8], segment: usize) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(run);
        self.runs.push(PendingRun { to, start, end: start + run.len(), segment });
    }

    /// Adds a frame, to the last run if it fits behind it.
    fn push_frame(&mut self, to: Peer, parts: [&[u8]; 2], merge: bool) {
        let len = parts[0].len() + parts[1].len();
        let start = self.bytes.len();
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        if let Some(last) = self.runs.last_mut().filter(|_| merge) {
            let whole = (last.end - last.start).is_multiple_of(last.segment);
            let frames = (last.end - last.start) / last.segment;
            let fits = frames < RUN_FRAMES_MAX && last.end - last.start + len <= RUN_BYTES_MAX;
            if last.to == to && whole && len > 0 && len <= last.segment && fits {
                last.end += len;
                return;
            }
        }
        self.runs.push(PendingRun { to, start, end: start + len, segment: len.max(1) });
    }

    fn is_full(&self) -> bool {
        self.runs.len() >= BATCH_MAX || self.bytes.len() >= RUN_BYTES_MAX
    }

    fn split_runs(&mut self) {
        let split = |run: &PendingRun| {
            let (to, end, segment) = (run.to, run.end, run.segment);
            (run.start..run.end)
                .step_by(segment)
                .map(move |start| PendingRun { to, start, end: (start + segment).min(end), segment })
                .collect::<Vec<_>>()
        };
        self.runs = self.runs.iter().flat_map(split).collect();
    }

    fn drop_first(&mut self, count: usize) {
        self.runs.drain(..count.min(self.runs.len()));
        if self.runs.is_empty() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.bytes.clear();
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

    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let destination = self.destination(to).ok_or(SendError::PeerGone)?;
        let (len, max) = (parts[0].len() + parts[1].len(), destination.frame_max.max(self.frame_max));
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
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
        let mut handed = 0;
        while handed < budget && self.refill() {
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
        Some(self.socket.as_fd())
    }

    fn close_peer(&mut self, peer: Peer) {
        if let Some(closed) = self.peers.get_mut(peer.0 as usize).and_then(Option::take) {
            self.by_address.remove(&closed.address);
            self.outbox.runs.retain(|run| run.to != peer);
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

#[cfg(test)]
mod tests {
    use super::super::conformance;
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Taken(Vec<(Peer, Vec<u8>)>);

    impl Sink for Taken {
        fn frame(&mut self, from: Peer, frame: Frame<'_>) {
            if let Frame::Private(bytes) = frame {
                self.0.push((from, bytes.to_vec()));
            }
        }

        fn peer_failed(&mut self, _from: Peer, _why: super::super::PeerFault) {}
    }

    fn device() -> Udp {
        Udp::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback exists")).expect("a fresh socket is usable")
    }

    fn pair() -> (Udp, Peer, Udp, Peer) {
        let (mut one, mut two) = (device(), device());
        let to_two = one.open(two.local_address());
        let to_one = two.open(one.local_address());
        (one, to_two, two, to_one)
    }

    fn collect(device: &mut Udp, frames: usize) -> Vec<(Peer, Vec<u8>)> {
        let mut taken = Taken::default();
        let start = Instant::now();
        while taken.0.len() < frames && start.elapsed() < Duration::from_secs(20) {
            device.poll(&mut taken, 7);
        }
        taken.0
    }

    #[test]
    fn the_device_conforms() {
        let make = || {
            let (a, b_at_a, b, a_at_b) = pair();
            conformance::Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(std::thread::yield_now) }
        };
        let report = conformance::run(make, &[]);
        assert!(report.excluded.is_empty());
    }

    #[test]
    fn a_run_arrives_as_the_frames_it_was_made_of() {
        let (mut one, to_two, mut two, to_one) = pair();
        for (segment, len) in [(100usize, 100usize), (100, 1000), (1472, 1472 * 50 + 3), (16_000, 16_000 * 3 + 1)] {
            let run: Vec<u8> = (0..len).map(|byte| (byte * 7 % 251) as u8).collect();
            one.send_run(to_two, &run, segment).expect("an idle socket takes a run");
            one.flush();
            let frames = collect(&mut two, len.div_ceil(segment));
            assert!(frames.iter().all(|(from, frame)| *from == to_one && frame.len() <= segment));
            assert_eq!(frames.concat_bytes(), run, "{len} bytes in frames of {segment}");
        }
        assert_eq!(two.counters().frames_received, one.counters().frames_sent);
    }

    #[test]
    fn batched_frames_of_mixed_lengths_keep_their_borders() {
        let (mut one, to_two, mut two, _) = pair();
        let lens = [5, 5, 5, 3, 5, 900, 900, 1, 0, 40, 40, 41];
        for (fill, len) in lens.into_iter().enumerate() {
            let bytes = vec![fill as u8; len];
            one.send_short(to_two, [&bytes[..len / 2], &bytes[len / 2..]]).expect("the batch has room");
        }
        one.flush();
        let frames = collect(&mut two, lens.len());
        let got: Vec<usize> = frames.iter().map(|(_, frame)| frame.len()).collect();
        assert_eq!(got, lens);
        assert!(frames.iter().enumerate().all(|(fill, (_, frame))| frame.iter().all(|&byte| byte == fill as u8)));
    }

    #[test]
    fn frames_of_strangers_are_counted_and_dropped() {
        let (mut one, to_two, mut two, _) = pair();
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback exists");
        stranger.send_to(b"let me in", two.local_address()).expect("loopback takes it");
        one.send_short(to_two, [b"hello", b""]).expect("room");
        one.flush();
        assert_eq!(collect(&mut two, 1)[0].1, b"hello");
        assert_eq!(two.counters().frames_refused, 1);
    }

    #[test]
    fn a_peer_that_is_not_there_costs_frames_and_nothing_else() {
        let (mut one, to_two, two, _) = pair();
        let mut three = device();
        let back = three.open(one.local_address());
        drop(two);
        for _ in 0..100 {
            one.send_short(to_two, [b"into the void", b""]).expect("lost, not refused");
            one.flush();
        }
        one.open(three.local_address());
        three.send_short(back, [b"alive", b""]).expect("room");
        three.flush();
        assert_eq!(collect(&mut one, 1)[0].1, b"alive");
    }

    #[test]
    fn too_long_frames_and_closed_peers_are_told() {
        let (mut one, to_two, _two, _) = pair();
        let long = vec![0; one.frame_max(to_two) + 1];
        assert!(matches!(one.send_short(to_two, [&long, b""]), Err(SendError::TooLong { .. })));
        assert!(matches!(one.send_run(to_two, &long, long.len()), Err(SendError::TooLong { .. })));
        one.close_peer(to_two);
        assert_eq!(one.send_short(to_two, [b"x", b""]), Err(SendError::PeerGone));
        assert_eq!(one.send_run(to_two, b"x", 1), Err(SendError::PeerGone));
        assert_eq!(one.frame_max(to_two), 0);
    }

    #[test]
    fn a_socket_that_takes_no_runs_sends_frame_by_frame() {
        let (mut one, to_two, mut two, _) = pair();
        one.segments = false;
        let run = vec![9; 30 * 700];
        one.send_run(to_two, &run, 700).expect("taken");
        assert_eq!(collect(&mut two, 30).len(), 30);
        assert!(one.counters().system_calls >= 30);
    }

    trait ConcatBytes {
        fn concat_bytes(&self) -> Vec<u8>;
    }

    impl ConcatBytes for Vec<(Peer, Vec<u8>)> {
        fn concat_bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|(_, frame)| frame.clone()).collect()
        }
    }
}
