//! The engine: one `Link` per pair of processes. Called by the handler with packets, frames and times; does no I/O, has no
//! clock, and believes nothing of a frame before its tag verified. What leaves is made in `transmit`, what the peer
//! acknowledged is worked off in `acknowledge`.

use crate::arrivals::{Arrival, Arrivals};
use crate::config::{Config, RAILS_MAX};
use crate::keys::LinkKeys;
use crate::rail::{Health, RailState};
use crate::replay::Replay;
use crate::retention::Retention;
use crate::wire::{ASK, DATA, ENCRYPTED, HEADER_BYTES, Header, SACK, TAG_BYTES};
use pulc_base::Rank;
use pulc_base::clock::Nanos;
use pulc_base::metrics::LinkCounters;
use std::collections::VecDeque;

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
    /// Newest frame counter and when it came.
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
    pub(crate) loss_at: Option<Nanos>,
    pub(crate) trim_at: Option<Nanos>,
    /// The outlet was full: when to offer it the rest again.
    pub(crate) retry_at: Option<Nanos>,
    /// Where frames are encrypted; empty without encryption.
    pub(crate) scratch: Vec<u8>,
    // What arrives.
    pub(crate) replay: Replay,
    pub(crate) arrivals: Arrivals,
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
            retention: Retention::new(config.retention_max_bytes),
            lost: VecDeque::new(),
            under_way_cost: 0,
            peer_window_bytes: config.first_window_bytes,
            next_counter: 0,
            epoch: 0,
            rails: (0..config.rails).map(|_| RailState::new(Health::Up, now)).collect(),
            overtaken_max: 3,
            loss_at: None,
            trim_at: None,
            retry_at: None,
            scratch: Vec::new(),
            replay: Replay::new(),
            arrivals: Arrivals::new(config.window_bytes),
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

    /// Longest packet that `send` takes, in bytes.
    pub fn packet_max(&self) -> usize {
        self.config.packet_max()
    }

    /// Keeps a packet (the two parts joined) for exactly-once, in-order delivery. It leaves with the next `transmit_runs`.
    ///
    /// # Errors
    /// [`LinkError::Again`] when retention is full, which is back-pressure and no failure.
    pub fn send(&mut self, _now: Nanos, parts: [&[u8]; 2]) -> Result<(), LinkError> {
        let (len, max) = (parts[0].len() + parts[1].len(), self.packet_max());
        if self.closed {
            return Err(LinkError::Dead);
        }
        if len > max {
            return Err(LinkError::TooLong { len, max });
        }
        self.trim_at = None;
        if self.retention.push(parts) { Ok(()) } else { Err(LinkError::Again) }
    }

    /// Takes a frame from a rail. The packet in it is returned at once, without a copy, if it is the next one in order;
    /// afterwards [`Link::next_packet`] has those that were waiting for it. The frame may be decrypted in place.
    ///
    /// # Errors
    /// [`Refused`], which is counted; nothing needs to be done about it.
    pub fn receive<'f>(&mut self, now: Nanos, rail: Rail, frame: &'f mut [u8]) -> Result<Option<&'f [u8]>, Refused> {
        let header = self.verify(rail, frame).inspect_err(|&why| self.count(why))?;
        let inside = &frame[HEADER_BYTES..frame.len() - TAG_BYTES];
        let sack = if header.has(SACK) { inside } else { &[] };
        if !self.acknowledges_only_what_was_sent(&header, sack) {
            let why = Refused::Malformed { len: frame.len() };
            self.count(why);
            return Err(why);
        }
        self.note(now, &header);
        self.on_acknowledgement(now, &header, sack);
        if !header.has(DATA) {
            return Ok(None);
        }
        match self.arrivals.packet(now, header.packet, inside) {
            Arrival::Next => {
                self.counters.packets_delivered += 1;
                Ok(Some(inside))
            }
            Arrival::Kept => Ok(None),
            Arrival::Duplicate => {
                self.counters.duplicates_dropped += 1;
                Ok(None)
            }
            Arrival::OutsideWindow => {
                self.count(Refused::OutsideWindow);
                Err(Refused::OutsideWindow)
            }
        }
    }

    /// Everything that is checked before a frame is believed. Changes nothing but the frame.
    fn verify(&self, rail: Rail, frame: &mut [u8]) -> Result<Header, Refused> {
        if self.closed {
            return Err(Refused::Dead);
        }
        let header = Header::read(frame).ok_or(Refused::Malformed { len: frame.len() })?;
        if header.src != self.keys.peer
            || header.dst != self.keys.here
            || header.rail != rail.0
            || usize::from(rail.0) >= self.rails.len()
        {
            return Err(Refused::NotOurs);
        }
        if !self.replay.is_fresh(header.counter) {
            return Err(Refused::Replayed);
        }
        if header.has(ENCRYPTED) != self.config.encrypt || !self.keys.open(header.counter, frame, header.has(ENCRYPTED))
        {
            return Err(Refused::Tag);
        }
        Ok(header)
    }

    fn count(&mut self, why: Refused) {
        match why {
            Refused::Tag => self.counters.tags_refused += 1,
            Refused::Replayed => self.counters.replays_refused += 1,
            _ => self.counters.malformed_refused += 1,
        }
    }

    /// Notes that a verified frame has come, and the window it brings if nothing newer has come before it.
    fn note(&mut self, now: Nanos, header: &Header) {
        if self.replay.note(header.counter) {
            self.peer_window_bytes = header.window_bytes;
        }
        let index = usize::from(header.rail);
        self.rails[index].last_heard = now;
        let heard = &mut self.heard[index];
        if heard.newest.is_none_or(|(counter, _)| counter < header.counter) {
            heard.newest = Some((header.counter, now));
        }
        heard.asked |= header.has(ASK);
        if header.has(DATA) {
            self.ack_rail = header.rail;
        }
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
    }

    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Bytes of memory that packets hold at present: waiting to be acknowledged, and arrived too early.
    pub fn memory_bytes(&self) -> usize {
        self.retention.allocated_bytes() + self.arrivals.kept_bytes()
    }
}
