//! The engine: one `Link` per pair of processes.

use crate::config::Config;
use crate::keys::LinkKeys;
use pulc_base::Rank;
use pulc_base::clock::Nanos;
use pulc_base::metrics::LinkCounters;

/// A path between the two processes, as both ends number it: the position in `BootTask::rails`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Rail(pub u8);

/// Why a packet was not taken. Nothing of it has been kept.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// Retention is full: receive, transmit, and try again.
    #[error("no room for the packet now")]
    Again,
    #[error("a packet of {len} bytes exceeds the link's limit of {max}; send it in pieces")]
    TooLong { len: usize, max: usize },
    #[error("the link is closed because the peer is gone")]
    Dead,
}

/// Why a frame was thrown away. It changed nothing but a counter.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    #[error("a malformed frame of {len} bytes")]
    Malformed { len: usize },
    #[error("a frame of another pair of ranks")]
    NotOurs,
    #[error("a frame whose tag does not verify")]
    Tag,
    #[error("a frame seen before")]
    Replayed,
    #[error("a packet number outside the window")]
    OutsideWindow,
    #[error("the link is closed")]
    Dead,
}

/// The rail cannot take a run now; the link keeps it and offers it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Takes the frames that [`Link::transmit_runs`] has ready; implemented by the owner over its devices.
pub trait Outlet {
    /// Sends a run of frames that lie one behind the other: each `segment` bytes long, the last one possibly shorter. Either
    /// takes all or none of it; what the network then loses is the link's business.
    fn send_run(&mut self, rail: Rail, run: &[u8], segment: usize) -> Result<(), Full>;
}

/// One end of a reliable, ordered packet stream in both directions between two processes.
pub struct Link {
    config: Config,
    keys: LinkKeys,
    counters: LinkCounters,
}

impl Link {
    /// A link whose rails `0..config.rails` are up.
    pub fn new(config: Config, keys: LinkKeys, _now: Nanos) -> Link {
        Link { config, keys, counters: LinkCounters::default() }
    }

    pub fn peer(&self) -> Rank {
        self.keys.peer
    }

    /// Longest packet that `send` takes, in bytes.
    pub fn packet_max(&self) -> usize {
        self.config.packet_max()
    }

    /// Keeps a packet (the two parts joined) for exactly-once, in-order delivery. It leaves with the next `transmit_runs`.
    ///
    /// # Errors
    /// [`LinkError::Again`] when retention is full, which is back-pressure and no failure.
    pub fn send(&mut self, _now: Nanos, _parts: [&[u8]; 2]) -> Result<(), LinkError> {
        unimplemented!("the engine lands with the next commit")
    }

    /// Takes a frame from a rail. The packet in it is returned at once, without a copy, if it is the next one in order;
    /// afterwards [`Link::next_packet`] has those that were waiting for it. The frame may be decrypted in place.
    pub fn receive<'f>(&mut self, _now: Nanos, _rail: Rail, _frame: &'f mut [u8]) -> Result<Option<&'f [u8]>, Refused> {
        unimplemented!("the engine lands with the next commit")
    }

    /// The next packet in order among those that arrived too early, if its turn has come. To be called until `None` after
    /// every `receive`.
    pub fn next_packet(&mut self) -> Option<&[u8]> {
        unimplemented!("the engine lands with the next commit")
    }

    /// Writes the next frame that is due to `out` (at least `config.frame_max` bytes); its rail and length. For rails that
    /// take single frames; [`Link::transmit_runs`] does the same without a copy.
    pub fn transmit(&mut self, _now: Nanos, _out: &mut [u8]) -> Option<(Rail, usize)> {
        unimplemented!("the engine lands with the next commit")
    }

    /// Hands everything that is due to the outlet, in runs as long as possible, straight from retention. Returns the number
    /// of frames taken; stops when the outlet is full.
    pub fn transmit_runs(&mut self, _now: Nanos, _outlet: &mut impl Outlet) -> usize {
        unimplemented!("the engine lands with the next commit")
    }

    /// When `tick` wants to be called next; `None`: only a frame or a packet can change anything.
    pub fn deadline(&self) -> Option<Nanos> {
        unimplemented!("the engine lands with the next commit")
    }

    /// Lets timers act; what they produce leaves with the next `transmit_runs`. Calling early or late is harmless.
    pub fn tick(&mut self, _now: Nanos) {
        unimplemented!("the engine lands with the next commit")
    }

    /// Packets that the peer has not acknowledged yet, queued ones included. Zero: everything sent has arrived.
    pub fn unacknowledged(&self) -> usize {
        unimplemented!("the engine lands with the next commit")
    }

    /// Sets what this end lets the peer have under way, in bytes: its share of the kernel's receive buffer.
    pub fn set_window(&mut self, _now: Nanos, _bytes: u32) {
        unimplemented!("the engine lands with the next commit")
    }

    /// A rail may be used (again).
    pub fn rail_up(&mut self, _now: Nanos, _rail: Rail) {
        unimplemented!("the engine lands with the next commit")
    }

    /// A rail is dead for this pair: what was under way on it goes over the others. Frames that still arrive over it count.
    pub fn rail_down(&mut self, _now: Nanos, _rail: Rail) {
        unimplemented!("the engine lands with the next commit")
    }

    /// Ends the link because the owner knows that the peer is gone: retention is freed, later sends give `Dead`.
    pub fn close(&mut self) {
        unimplemented!("the engine lands with the next commit")
    }

    pub fn counters(&self) -> LinkCounters {
        self.counters
    }
}
