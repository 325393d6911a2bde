//! The one trait that every device implements. Called by the handler (and by the conformance suite); a device never calls
//! upward except through the [`Sink`] it is handed, never blocks, and knows nothing of protocols.
//!
//! A *frame* is at most [`Limits::frame_max`] bytes, given as two parts (the caller's header and body) that the device
//! gathers, so no floor has to join them first. What a device promises about frames is told by [`Caps`]: the handler puts a
//! reliable link (`pulc-link`) on top of a device that is not [`Caps::RELIABLE`].
//!
//! Vocabulary after UCX and libfabric: short (inlined in the device's smallest unit), bulk (copied through device buffers),
//! zero-copy (by reference into memory the peer can map); back-pressure is the outcome [`SendError::Again`], not a failure.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod fault;
#[cfg(test)]
mod fault_tests;
pub mod net;
pub mod shm;
pub mod sim;
#[cfg(test)]
mod sim_tests;
pub mod tcp;
pub(crate) mod tcp_fuzz;
mod tcp_streams;
#[cfg(test)]
mod tcp_tests;
pub mod udp;
mod udp_arrivals;
mod udp_outbox;
mod udp_paths;
mod udp_sieve;
mod udp_socket;
#[cfg(test)]
mod udp_tests;

use crate::os::copy::Stores;
use crate::os::memfd::SharedBytes;
use pulc_base::metrics::DeviceCounters;
use std::os::fd::BorrowedFd;

/// What a device can do and promises. A set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps(pub u32);

impl Caps {
    /// Every accepted frame arrives exactly once, unless the peer dies.
    pub const RELIABLE: Caps = Caps(1);
    /// Frames of one sender arrive in the order sent.
    pub const ORDERED: Caps = Caps(2);
    /// `send_bulk` exists: frames longer than `short_max`.
    pub const BULK: Caps = Caps(4);
    /// `send_zcopy` exists.
    pub const ZERO_COPY: Caps = Caps(8);
    /// Only job-mates of the same user can have sent a frame; no tag is needed.
    pub const TRUSTED_ORIGIN: Caps = Caps(16);
    /// A sleeping receiver is woken through its doorbell on the board.
    pub const RINGS_DOORBELL: Caps = Caps(32);
    /// `wait_fd` becomes readable when frames may be waiting.
    pub const WAIT_FD: Caps = Caps(64);

    pub const fn with(self, other: Caps) -> Caps {
        Caps(self.0 | other.0)
    }

    pub const fn has(self, other: Caps) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Sizes in bytes, counts in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest frame that `send_short` takes.
    pub short_max: usize,
    /// Longest frame that `send_bulk` (or, without it, `send_short`) takes.
    pub frame_max: usize,
}

/// A peer as this device numbers it, given out by the device when the peer is opened, dense from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Peer(pub u32);

/// Why a frame was not taken. Nothing of it has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// No room now; poll and try again.
    #[error("no room for the frame now")]
    Again,
    #[error("the peer is gone")]
    PeerGone,
    #[error("a frame of {len} bytes exceeds the device's limit of {max}")]
    TooLong { len: usize, max: usize },
    #[error("the device has no such send flavour")]
    Unsupported,
}

/// A frame on arrival. Valid only during the call that hands it over.
pub enum Frame<'a> {
    /// Already copied out of reach of the sender; the receiver may use the bytes as it likes (decrypt them in place).
    Private(&'a mut [u8]),
    /// Still in memory that the sender can change: read every byte at most once, through the accessor.
    Shared(SharedFrame<'a>),
}

impl Frame<'_> {
    /// Length in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Frame::Private(bytes) => bytes.len(),
            Frame::Shared(frame) => frame.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes what a device has received.
pub trait Sink {
    fn frame(&mut self, from: Peer, frame: Frame<'_>);
    /// Whether this sink finds the frames in what came in one piece by itself. Then devices whose frames the network joins hand
    /// such pieces to [`Sink::run`] instead of taking them apart, which costs them a quicker way of receiving.
    fn takes_runs(&self) -> bool {
        false
    }
    /// Takes what came in one piece: whole frames one behind the other, or a part of a longer one. Returns how many frames.
    fn run(&mut self, from: Peer, run: &mut [u8]) -> usize {
        self.frame(from, Frame::Private(run));
        1
    }
    /// Where what comes next from this peer may be put, but for its first bytes: so many of them first, and that memory, which may be
    /// written to whatever comes. A device that can do that calls [`Sink::landed`] then, others [`Sink::run`]. The same answer until
    /// something was handed over.
    fn place(&mut self, _from: Peer) -> Option<(usize, &mut [u8])> {
        None
    }
    /// A piece has come: `front`, then so many bytes that are where [`Sink::place`] said, then `rest`. False: this was not what the
    /// memory was meant for; nothing of it is taken, and it comes again in one piece.
    fn landed(&mut self, _from: Peer, _front: &[u8], _bytes: usize, _rest: &[u8]) -> bool {
        false
    }
    /// Whether no further frame is wanted by this poll, asked after each: what was waited for has come.
    fn is_full(&self) -> bool {
        false
    }
    /// The device found that nothing more can come from this peer (its ring broke the rules, its socket failed).
    fn peer_failed(&mut self, from: Peer, why: PeerFault);
}

/// Why a device gave a peer up. The pair is poisoned; the rest of the job goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerFault {
    #[error("its channel broke the rules: {0}")]
    BrokenRules(&'static str),
    #[error("its channel reported system error {0}")]
    System(i32),
}

/// A way to move frames between this process and its peers.
pub trait Device {
    fn name(&self) -> &'static str;
    fn caps(&self) -> Caps;
    fn limits(&self) -> Limits;

    /// Sends a frame of at most `short_max` bytes: no allocation, no lock, no system call where the device can help it.
    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError>;

    /// Sends a frame of at most `frame_max` bytes through device buffers; the parts are free on return.
    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError>;

    /// Sends a frame of which `body` is not copied: it must lie in memory that the device shares with its peers, else the
    /// answer is `Unsupported`. The body belongs to the frame until [`Device::completed`] has given `token` back.
    fn send_zcopy(&mut self, to: Peer, head: &[u8], body: &[u8], token: u64) -> Result<(), SendError> {
        let _ = (to, head, body, token);
        Err(SendError::Unsupported)
    }

    /// The tokens of zero-copy frames that no peer reads any more, appended to `tokens`; also of peers that were closed.
    fn completed(&mut self, tokens: &mut Vec<u64>) {
        let _ = tokens;
    }

    /// Pushes out what earlier sends may have batched. To be called before waiting.
    fn flush(&mut self);

    /// Hands at most `budget` received frames to `sink`; returns how many. Never blocks.
    fn poll(&mut self, sink: &mut impl Sink, budget: usize) -> usize;

    /// A descriptor to wait on, for devices with [`Caps::WAIT_FD`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// To be called before a wait on [`Device::wait_fd`], and before the last poll: a device that is polled much need not tell the
    /// descriptor of every frame until then.
    fn prepare_wait(&mut self) {}

    /// Forgets a peer and frees what it held; later sends to it give `PeerGone`.
    fn close_peer(&mut self, peer: Peer);

    fn counters(&self) -> DeviceCounters;
}

/// A frame that lies in memory its sender can still change. What is copied out is a snapshot: check it, don't read it twice.
#[derive(Clone, Copy)]
pub struct SharedFrame<'a> {
    /// First part of the frame, already private.
    head: &'a [u8],
    body: SharedBytes<'a>,
}

impl<'a> SharedFrame<'a> {
    pub(crate) fn new(head: &'a [u8], body: SharedBytes<'a>) -> SharedFrame<'a> {
        SharedFrame { head, body }
    }

    /// The first part of the frame, as long as its sender chose: private, and read as often as one likes.
    #[inline]
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// Length of the frame in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the first `to.len()` bytes.
    ///
    /// # Panics
    /// When the frame is shorter.
    pub fn copy_to(&self, to: &mut [u8]) {
        self.copy_range_to(0, to);
    }

    /// Copies `to.len()` bytes from `offset`, straight into their destination.
    ///
    /// # Panics
    /// When the frame is shorter.
    #[inline]
    pub fn copy_range_to(&self, offset: usize, to: &mut [u8]) {
        self.copy_range_with(offset, to, Stores::Ordinary);
    }

    /// The same past the caches, where the processor can: for parts of what is too long to stay there.
    ///
    /// # Panics
    /// When the frame is shorter.
    #[inline]
    pub fn copy_range_past_caches(&self, offset: usize, to: &mut [u8]) {
        self.copy_range_with(offset, to, Stores::Streaming);
    }

    #[inline(always)]
    fn copy_range_with(&self, offset: usize, to: &mut [u8], stores: Stores) {
        assert!(
            offset <= self.len() && to.len() <= self.len() - offset,
            "bytes {offset}..+{} lie outside a frame of {} bytes",
            to.len(),
            self.len()
        );
        let from_head = self.head.len().saturating_sub(offset).min(to.len());
        let (first, rest) = to.split_at_mut(from_head);
        if from_head > 0 {
            first.copy_from_slice(&self.head[offset..offset + from_head]);
        }
        if !rest.is_empty() {
            self.body.copy_to_with(offset + from_head - self.head.len(), rest, stores);
        }
    }
}
