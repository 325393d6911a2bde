//! The engine: devices, peers and receive handlers of this process. All of it is behind one lock (`process`); nothing here
//! blocks or waits. Sending tries once and says `Again`; progress takes what has arrived and pushes what waits.

use crate::attach::Joined;
use crate::broker::Broker;
use crate::dispatch::Floor;
use crate::errand::Errands;
use crate::error::{End, Error};
use crate::net::Net;
use crate::outbox::Outbox;
use crate::params::Limits;
use crate::peers::{PeerState, Route};
use crate::referring::Tokens;
use crate::segments::Segments;
use crate::sleepers::Sleepers;
use crate::switch::{Hand, Handlers, ReceiveHandler};
use crate::wire::{FRONT_MAX, HEAD_BYTES, Head};
use pulc_base::boot::Boot;
use pulc_base::clock::Nanos;
use pulc_base::metrics::{DeviceCounters, LinkCounters};
use pulc_base::{NodeIndex, Proto, Rank};
use pulc_hal::board::Board;
use pulc_hal::calibration;
use pulc_hal::device::shm::cell::{self, CELL_WORDS, Words};
use pulc_hal::device::shm::{CELL_PAYLOAD, Courier, Shm, ShmConfig};
use pulc_hal::device::{Device, Peer, SendError};
use pulc_hal::error::HalError;
use pulc_hal::os::bell::Bell;
use pulc_hal::os::memfd::ReadMap;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Messages by device, as the interfaces see them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// What one device has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    pub device: &'static str,
    pub tally: Tally,
    pub frames: DeviceCounters,
    pub links: LinkCounters,
}

/// Whether a message left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Sent,
    /// No room now: progress, then again.
    Again,
}

pub struct Engine {
    pub(crate) floor: Floor,
    pub(crate) shm: ShmSide,
    pub(crate) net: Option<Net>,
    pub(crate) limits: Limits,
    pub(crate) board: Arc<Board>,
    pub(crate) my_slot: u32,
    pub(crate) bell: Option<Arc<Bell>>,
    pub(crate) sleepers: Sleepers,
    pub(crate) broker: Option<Broker>,
    pub(crate) boot: Arc<Boot>,
    pub(crate) node: NodeIndex,
    pub(crate) own_tally: Tally,
    pub(crate) whole_max: usize,
    /// See `progress`.
    pub(crate) hurried: u32,
    pub(crate) deaf_polls: u32,
    /// Ranks that have ended and may still have frames in their rings.
    pub(crate) ending: Vec<Rank>,
    pub(crate) tokens: Tokens,
    /// Arenas of ranks that have ended, for messages that lie in them and were not received yet.
    pub(crate) left_arenas: HashMap<Rank, Arc<ReadMap>>,
    pub(crate) errands: Errands,
    pub(crate) segments: Segments,
    /// What went wrong last while a channel was made.
    pub(crate) failure: Option<HalError>,
}

/// The device for ranks of this node and who is who on it.
pub(crate) struct ShmSide {
    pub device: Shm,
    pub(crate) short_max: usize,
    pub(crate) frame_max: usize,
    /// By [`Peer`].
    pub(crate) rank_of: Vec<Rank>,
    /// By slot.
    pub(crate) local: Vec<Rank>,
    pub(crate) tally: Tally,
}

impl Engine {
    pub(crate) fn new(joined: Joined) -> Result<Engine, Error> {
        let Joined { rank, boot, node, local, my_slot, board, keeper, rails, pair_keys } = joined;
        calibration::load();
        let limits = Limits::read(boot.tasks.len());
        let board = Arc::new(board);
        board.leave_out_of_forks()?;
        let bell = if rails.is_empty() { None } else { Some(Arc::new(Bell::new()?)) };
        let broker = keeper.map(Broker::new);
        let messenger = broker.as_ref().map(|broker| broker.messenger(&local)).transpose();
        let messenger = messenger.map_err(|source| Error::System { doing: "copy a descriptor", source })?;
        let courier = messenger.map(|messenger| Arc::new(messenger) as Arc<dyn Courier>);
        let config = ShmConfig { bell: bell.clone(), courier, ..ShmConfig::read() };
        let device = Shm::new(config, Arc::clone(&board), my_slot)?;
        let device_limits = device.limits();
        let mut peers: Vec<PeerState> =
            boot.tasks.iter().map(|_| PeerState::new(Route::Unopened, limits.window_bytes)).collect();
        peers[rank.0 as usize] = PeerState::new(Route::Own, limits.unexpected_max_bytes as u64);
        let net = if rails.is_empty() { None } else { Some(Net::new(&boot, rank, node, rails, pair_keys)?) };
        let packet_max = net.as_ref().map_or(usize::MAX, Net::packet_min);
        let frame_min = device_limits.frame_max.min(packet_max);
        let slot = board.slot(my_slot);
        slot.set_pinned(pulc_hal::os::cpu::allowed_cores().is_ok_and(|cores| cores.len() == 1));
        slot.publish_core(pulc_hal::os::cpu::current_core());
        Ok(Engine {
            floor: Floor {
                me: rank,
                window: limits.window_bytes,
                past_caches_min: limits.past_caches_min_bytes,
                transfers_max: limits.transfers_max,
                peers,
                handlers: Handlers::default(),
                outbox: Outbox::new(limits.answers_max),
                parked: Vec::new(),
                broken: Vec::new(),
            },
            shm: ShmSide {
                device,
                short_max: device_limits.short_max,
                frame_max: device_limits.frame_max,
                rank_of: Vec::new(),
                local,
                tally: Tally::default(),
            },
            net,
            limits,
            board,
            my_slot,
            bell,
            sleepers: Sleepers::default(),
            broker,
            boot: Arc::new(boot),
            node,
            own_tally: Tally::default(),
            whole_max: frame_min.saturating_sub(FRONT_MAX).min(limits.eager_max_bytes),
            hurried: 0,
            deaf_polls: 0,
            ending: Vec::new(),
            tokens: Tokens::default(),
            left_arenas: HashMap::new(),
            errands: Errands::default(),
            segments: Segments::default(),
            failure: None,
        })
    }

    pub fn rank(&self) -> Rank {
        self.floor.me
    }

    pub fn size(&self) -> u32 {
        self.floor.peers.len() as u32
    }

    pub fn node(&self) -> NodeIndex {
        self.node
    }

    pub fn boot(&self) -> &Arc<Boot> {
        &self.boot
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Why nothing more comes from `rank`, if so.
    pub fn end_of(&self, rank: Rank) -> Option<End> {
        self.floor.peers.get(rank.0 as usize)?.end()
    }

    /// The last failure to make a channel; told once.
    pub fn take_failure(&mut self) -> Option<HalError> {
        self.failure.take()
    }

    /// Gives a protocol its receive handler. Messages that came before are delivered now.
    pub fn register(&mut self, proto: Proto, handler: Box<dyn ReceiveHandler>) -> Result<(), Error> {
        if !self.floor.handlers.register(proto, handler) {
            return Err(Error::ProtocolTaken(proto.0));
        }
        self.floor.unpark();
        Ok(())
    }

    /// The receive handler of a protocol, for the interface that registered it.
    #[inline]
    pub fn handler<H: ReceiveHandler>(&mut self, proto: Proto) -> Option<&mut H> {
        self.floor.handlers.as_its_own(proto.0)
    }

    /// The receive handler together with what it may be lent between polls.
    #[inline]
    pub fn handler_and_outbox<H: ReceiveHandler>(&mut self, proto: Proto) -> Option<(&mut H, &mut Outbox)> {
        let handler = self.floor.handlers.as_its_own(proto.0)?;
        Some((handler, &mut self.floor.outbox))
    }

    /// Gives back the room of a kept message that has been received.
    #[inline]
    pub fn release(&mut self, src: Rank, cost: u64) {
        self.floor.release(src, cost);
        // Its sender may wait for this word, and this thread may not come back soon.
        if !self.floor.outbox.is_empty() && self.sleepers.any() {
            self.wake_sleepers();
        }
    }

    /// What each device has moved.
    pub fn report(&self) -> Vec<DeviceReport> {
        let none = LinkCounters::default();
        let own =
            DeviceReport { device: "self", tally: self.own_tally, frames: DeviceCounters::default(), links: none };
        let shm =
            DeviceReport { device: "shm", tally: self.shm.tally, frames: self.shm.device.counters(), links: none };
        let net = self.net.as_ref().map(|net| DeviceReport {
            device: net.name(),
            tally: net.tally,
            frames: net.frame_counters(),
            links: net.link_counters(),
        });
        [own, shm].into_iter().chain(net).collect()
    }

    /// Asks the keeper, or the launcher of a guest job, to end the whole job.
    pub fn abort(&mut self, code: u8, text: &str) -> bool {
        if crate::guest::abort(code, text) {
            return true;
        }
        match &mut self.broker {
            Some(broker) => {
                broker.abort(code, text);
                true
            }
            None => false,
        }
    }

    /// Descriptors that become readable when something has arrived, beside the doorbell.
    pub(crate) fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        let net = self.net.iter().flat_map(Net::wait_fds);
        net.chain(self.broker.as_ref().map(AsFd::as_fd)).collect()
    }

    /// When something is due without anything arriving.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let ending = self.ending.iter().filter_map(|rank| self.floor.peers[rank.0 as usize].ending);
        let ending = ending.map(|(_, until)| until).min();
        let net = self.net.as_ref().and_then(Net::deadline);
        [ending, net].into_iter().flatten().min()
    }

    /// Looks for a keeper that has ended without a word; for the watchdog of a sleeper.
    pub(crate) fn check_keeper(&mut self, hand: &mut Hand<'_>) {
        if self.broker.is_some() {
            self.hear_broker(hand);
        }
    }

    /// Whether everything sent to other nodes has been acknowledged.
    pub(crate) fn all_acknowledged(&self) -> bool {
        self.net.as_ref().is_none_or(Net::all_acknowledged)
            && !self.has_posts()
            && self.errands.is_idle()
            && self.floor.handlers.all_settled()
    }

    /// Tells other nodes what arrived from them, before this process leaves.
    pub(crate) fn acknowledge_early(&mut self) {
        if let Some(net) = &mut self.net {
            net.acknowledge_early();
        }
    }
}

impl ShmSide {
    /// Sends a message that is a frame of its own. What fits one cell is put together in registers.
    #[inline(always)]
    pub(crate) fn send_whole(&mut self, to: Peer, head: &Head, header: &[u8], body: &[u8]) -> Result<(), SendError> {
        let front = HEAD_BYTES + header.len();
        if front + body.len() <= CELL_PAYLOAD && header.len().is_multiple_of(8) {
            let mut words: Words = [0; CELL_WORDS];
            words[0] = head.word().to_le();
            let at = cell::put(&mut words, 1, header);
            cell::put(&mut words, at, body);
            return self.device.send_cell(to, front + body.len(), &words);
        }
        self.send_in_parts(to, head, header, body)
    }

    #[inline(never)]
    fn send_in_parts(&mut self, to: Peer, head: &Head, header: &[u8], body: &[u8]) -> Result<(), SendError> {
        let mut front = [0; FRONT_MAX];
        let len = head.write(header, &mut front);
        self.send(to, [&front[..len], body])
    }

    #[inline]
    pub(crate) fn send(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        if parts[0].len() + parts[1].len() <= self.short_max {
            self.device.send_short(to, parts)
        } else {
            self.device.send_bulk(to, parts)
        }
    }

    pub(crate) fn name(&mut self, peer: Peer, rank: Rank) {
        let index = peer.0 as usize;
        if self.rank_of.len() <= index {
            self.rank_of.resize(index + 1, rank);
        }
        self.rank_of[index] = rank;
    }
}
