//! The engine: one `Link` per pair of processes. Called by the handler with packets, frames and times; does no I/O, has no
//! clock, and believes nothing of a frame before its tag verified. What leaves is made in `transmit`, what arrives is taken
//! in `receive`, what the peer acknowledged is worked off in `acknowledge`.

use crate::arrivals::Arrivals;
use crate::config::{Config, RAILS_MAX};
use crate::credit;
use crate::glue::Glue;
use crate::keys::LinkKeys;
use crate::rail::{Health, RailState};
use crate::replay::Replay;
use crate::retention::Retention;
use crate::trains::Trains;
use crate::wire::PART_OVERHEAD;
use pulc_base::Rank;
use pulc_base::clock::Nanos;
use pulc_base::metrics::LinkCounters;
use std::collections::VecDeque;

/// So much waiting is sent at once, whatever follows: half of what one system call takes.
const RUN_WORTH_BYTES: usize = 32 << 10;

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
    #[error("a frame of another pair of ranks or another rail")]
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
    /// Sends a run of frames: the pieces joined, each frame `segment` bytes long, the last one possibly shorter; no frame lies
    /// across two pieces. Either takes all or none of it; what the network then loses is the link's business.
    fn send_run(&mut self, rail: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full>;
}

/// What was last heard on one rail.
#[derive(Clone, Copy, Default)]
pub(crate) struct Heard {
    /// Newest frame counter and when it came at the earliest.
    pub newest: Option<(u64, Nanos)>,
    /// The peer wants an acknowledgement on this rail at once.
    pub asked: bool,
}

/// One end of a reliable, ordered packet stream in both directions between two processes.
pub struct Link {
    pub(crate) config: Config,
    pub(crate) keys: LinkKeys,
    pub(crate) counters: LinkCounters,
    pub(crate) closed: bool,
    /// The owner's sockets are flooded by others.
    pub(crate) besieged: bool,
    /// The peer has said the same of its own.
    pub(crate) peer_besieged_until: Nanos,
    // What leaves.
    pub(crate) retention: Retention,
    /// Packets found lost, to be repeated; some may have arrived meanwhile.
    pub(crate) lost: VecDeque<u64>,
    /// What is under way has cost this much of the peer's window.
    pub(crate) under_way_cost: u64,
    pub(crate) peer_window_bytes: u32,
    pub(crate) next_counter: u64,
    pub(crate) epoch: u8,
    pub(crate) rails: Vec<RailState>,
    /// How many later frames may overtake one on a rail before it counts as lost.
    pub(crate) overtaken_max: u64,
    pub(crate) trains: Trains,
    pub(crate) loss_at: Option<Nanos>,
    pub(crate) trim_at: Option<Nanos>,
    /// The outlet was full: when to offer it the rest again.
    pub(crate) retry_at: Option<Nanos>,
    /// Where frames are encrypted; empty without encryption.
    pub(crate) scratch: Vec<u8>,
    // What arrives.
    pub(crate) replay: Replay,
    pub(crate) arrivals: Arrivals,
    /// A train that comes in pieces.
    pub(crate) glue: Option<Glue>,
    pub(crate) window_bytes: u32,
    pub(crate) heard: Vec<Heard>,
    /// Rail of the newest packet: where acknowledgements go.
    pub(crate) ack_rail: u8,
}

impl Link {
    /// A link whose rails `0..config.rails` are up.
    ///
    /// # Panics
    /// If the configuration has no rail, more than [`RAILS_MAX`], or frames that hold no packet.
    pub fn new(config: Config, keys: LinkKeys, now: Nanos) -> Link {
        assert!((1..=RAILS_MAX).contains(&usize::from(config.rails)), "a link has 1 to {RAILS_MAX} rails");
        assert!(config.packet_max() > 0, "frames of {} bytes hold no packet", config.frame_max);
        Link {
            counters: LinkCounters::default(),
            closed: false,
            besieged: false,
            peer_besieged_until: Nanos(0),
            retention: Retention::new(config.retention_max_bytes),
            lost: VecDeque::new(),
            under_way_cost: 0,
            peer_window_bytes: config.first_window_bytes,
            next_counter: 0,
            epoch: 0,
            rails: (0..config.rails).map(|_| RailState::new(Health::Up, now)).collect(),
            overtaken_max: 3,
            trains: Trains::new(config.train_frames_max()),
            loss_at: None,
            trim_at: None,
            retry_at: None,
            scratch: Vec::new(),
            replay: Replay::new(),
            arrivals: Arrivals::new(config.window_bytes, config.frame_max),
            glue: None,
            window_bytes: config.window_bytes,
            heard: vec![Heard::default(); usize::from(config.rails)],
            ack_rail: 0,
            config,
            keys,
        }
    }

    pub fn peer(&self) -> Rank {
        self.keys.peer
    }

    /// Longest packet that it is good to send now, in bytes: what fits one frame, or a train where trains get through and there
    /// is room for several in the windows. Changes with what the network does.
    pub fn packet_max(&self) -> usize {
        let frame_max = self.config.frame_max;
        let widest = self.rails.iter().filter(|rail| rail.health == Health::Up).map(RailState::window_bytes).max();
        let room = widest.unwrap_or(0).min(self.peer_window_bytes as usize / 2).min(self.window_of_trains());
        let frames = self.trains.frames().min(room / frame_max);
        if frames < 2 { self.config.packet_max() } else { frames * frame_max - PART_OVERHEAD }
    }

    /// Trains are no longer than a quarter of what may be kept.
    fn window_of_trains(&self) -> usize {
        self.config.retention_max_bytes / 4
    }

    /// Whether so much waits to leave that it is worth a system call of its own.
    pub fn has_a_run(&self) -> bool {
        self.retention.queued_bytes() >= RUN_WORTH_BYTES
    }

    /// Keeps a packet (the two parts joined) for exactly-once, in-order delivery. It leaves with the next `transmit_runs`.
    ///
    /// # Errors
    /// [`LinkError::Again`] when retention is full, which is back-pressure and no failure.
    pub fn send(&mut self, _now: Nanos, parts: [&[u8]; 2]) -> Result<(), LinkError> {
        let (len, single) = (parts[0].len() + parts[1].len(), self.config.packet_max());
        if self.closed {
            return Err(LinkError::Dead);
        }
        // What was good to send a moment ago is taken.
        let max = (self.config.train_frames_max() * self.config.frame_max).saturating_sub(PART_OVERHEAD).max(single);
        if len > max {
            return Err(LinkError::TooLong { len, max });
        }
        self.trim_at = None;
        let tag = (len > single && !self.config.encrypt).then(|| self.keys.train_to_peer());
        if self.retention.push(parts, len > single, tag) { Ok(()) } else { Err(LinkError::Again) }
    }

    /// What a frame of this length takes of the peer's window.
    pub(crate) fn cost(&self, frame_len: u32) -> u64 {
        credit::cost(frame_len as usize, self.config.frame_max)
    }

    /// The next packet in order among those that arrived too early, if its turn has come. To be called until `None` after
    /// every `receive`.
    pub fn next_packet(&mut self) -> Option<&[u8]> {
        let packet = self.arrivals.take()?;
        self.counters.packets_delivered += 1;
        Some(packet)
    }

    /// Packets that the peer has not acknowledged yet, queued ones included. Zero: everything sent has arrived.
    pub fn unacknowledged(&self) -> usize {
        self.retention.len()
    }

    /// What arrived and has not been acknowledged yet will be with the next `transmit_runs`, for an owner who will not come back when
    /// its turn comes. Whether there is any.
    pub fn acknowledge_early(&mut self) -> bool {
        self.arrivals.ack_due |= self.arrivals.owes_acknowledgement();
        self.arrivals.ack_due
    }

    /// Sets what this end lets the peer have under way, in bytes: its share of the kernel's receive buffer.
    pub fn set_window(&mut self, _now: Nanos, bytes: u32) {
        let grew = bytes > self.window_bytes;
        self.window_bytes = bytes;
        self.arrivals.allow(bytes);
        // A smaller window reaches the peer with the next frame; a larger one may be waited for.
        if grew && self.heard.iter().any(|heard| heard.newest.is_some()) {
            self.arrivals.ack_due = true;
        }
    }

    /// A rail may be used (again).
    pub fn rail_up(&mut self, now: Nanos, rail: Rail) {
        let index = usize::from(rail.0);
        if self.rails.get(index).is_some_and(|state| state.health != Health::Up) {
            self.rails[index] = RailState::continued(&self.rails[index], now);
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    /// A rail is dead for this pair: what was under way on it goes over the others. Frames that still arrive over it count.
    pub fn rail_down(&mut self, now: Nanos, rail: Rail) {
        let index = usize::from(rail.0);
        if self.rails.get(index).is_none_or(|state| state.health == Health::Down) {
            return;
        }
        self.give_rail_up(now, index, Health::Down);
        if !self.rails.iter().any(|state| state.health == Health::Up) {
            // Those that were only suspected are better than none.
            self.rails.iter_mut().filter(|state| state.health == Health::Suspended).for_each(|state| {
                *state = RailState::continued(state, now);
            });
        }
    }

    /// Ends the link because the owner knows that the peer is gone: retention is freed, later sends give `Dead`.
    pub fn close(&mut self) {
        self.closed = true;
        self.retention.clear();
        self.lost = VecDeque::new();
        self.under_way_cost = 0;
        self.glue = None;
    }

    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Bytes of memory that packets hold at present: waiting to be acknowledged, and arrived too early.
    pub fn memory_bytes(&self) -> usize {
        let glued = self.glue.as_ref().map_or(0, |glue| glue.bytes.capacity());
        self.retention.allocated_bytes() + self.arrivals.kept_bytes() + glued
    }
}
