//! The engine: devices, peers and receive handlers of this process. All of it is behind one lock (`process`); nothing here
//! blocks or waits. Sending tries once and says `Again`; progress takes what has arrived and pushes what waits.

use crate::attach::Joined;
use crate::broker::{Broker, Heard};
use crate::dispatch::Floor;
use crate::error::{End, Error, SendFault};
use crate::net::Net;
use crate::params::Limits;
use crate::peers::{PeerState, Route};
use crate::switch::{Hand, Handlers, Outbox, Post, ReceiveHandler, TransferId};
use crate::wire::{FREE, FRONT_MAX, HEAD_BYTES, Head, Kind, MESSAGE_COST, TOTAL_BYTES};
use pulc_base::boot::{Boot, ToRank};
use pulc_base::clock::{self, Nanos};
use pulc_base::metrics::{DeviceCounters, LinkCounters};
use pulc_base::{NodeIndex, Proto, Rank};
use pulc_hal::board::Board;
use pulc_hal::device::shm::{Shm, ShmConfig};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_hal::error::HalError;
use pulc_hal::os::bell::Bell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Frames taken from a device in one go.
const POLL_BUDGET: usize = 64;
/// How long after a remote rank's end its last packets may still be under way.
const NET_GRACE: Nanos = Nanos::from_ms(200);

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
    broker: Option<Broker>,
    boot: Arc<Boot>,
    node: NodeIndex,
    own_tally: Tally,
    whole_max: usize,
    /// Ranks that have ended and may still have frames in their rings.
    ending: Vec<Rank>,
    /// What went wrong last while a channel was made.
    failure: Option<HalError>,
}

/// The device for ranks of this node and who is who on it.
pub(crate) struct ShmSide {
    pub device: Shm,
    short_max: usize,
    frame_max: usize,
    /// By [`Peer`].
    rank_of: Vec<Rank>,
    /// By slot.
    local: Vec<Rank>,
    tally: Tally,
}

impl Engine {
    pub(crate) fn new(joined: Joined) -> Result<Engine, Error> {
        let Joined { rank, boot, node, local, my_slot, board, keeper, rails } = joined;
        let limits = Limits::read(boot.tasks.len());
        let board = Arc::new(board);
        let bell = if rails.is_empty() { None } else { Some(Arc::new(Bell::new()?)) };
        let config = ShmConfig { bell: bell.clone(), ..ShmConfig::read() };
        let device = Shm::new(config, Arc::clone(&board), my_slot)?;
        let device_limits = device.limits();
        let mut peers: Vec<PeerState> =
            boot.tasks.iter().map(|_| PeerState::new(Route::Unopened, limits.window_bytes)).collect();
        peers[rank.0 as usize] = PeerState::new(Route::Own, limits.unexpected_max_bytes as u64);
        let net = if rails.is_empty() { None } else { Some(Net::new(&boot, rank, node, rails)?) };
        let packet_max = net.as_ref().map_or(usize::MAX, Net::packet_min);
        let frame_min = device_limits.frame_max.min(packet_max);
        let slot = board.slot(my_slot);
        slot.set_pinned(pulc_hal::os::cpu::allowed_cores().is_ok_and(|cores| cores.len() == 1));
        slot.publish_core(pulc_hal::os::cpu::current_core());
        Ok(Engine {
            floor: Floor {
                me: rank,
                window: limits.window_bytes,
                peers,
                handlers: Handlers::default(),
                outbox: Outbox::default(),
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
            broker: keeper.map(Broker::new),
            boot: Arc::new(boot),
            node,
            own_tally: Tally::default(),
            whole_max: frame_min.saturating_sub(FRONT_MAX).min(limits.eager_max_bytes),
            ending: Vec::new(),
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
        self.floor.handlers.of(proto.0)?.as_any_mut().downcast_mut()
    }

    /// The receive handler together with what it may be lent between polls.
    #[inline]
    pub fn handler_and_outbox<H: ReceiveHandler>(&mut self, proto: Proto) -> Option<(&mut H, &mut Outbox)> {
        let handler = self.floor.handlers.of(proto.0)?.as_any_mut().downcast_mut()?;
        Some((handler, &mut self.floor.outbox))
    }

    /// Gives back the room of a kept message that has been received.
    #[inline]
    pub fn release(&mut self, src: Rank, cost: u64) {
        self.floor.release(src, cost);
    }

    /// What each device has moved.
    pub fn report(&self) -> Vec<DeviceReport> {
        let none = LinkCounters::default();
        let own =
            DeviceReport { device: "self", tally: self.own_tally, frames: DeviceCounters::default(), links: none };
        let shm =
            DeviceReport { device: "shm", tally: self.shm.tally, frames: self.shm.device.counters(), links: none };
        let net = self.net.as_ref().map(|net| DeviceReport {
            device: "udp",
            tally: net.tally,
            frames: net.frame_counters(),
            links: net.link_counters(),
        });
        [own, shm].into_iter().chain(net).collect()
    }

    /// Asks the keeper to end the whole job.
    pub fn abort(&mut self, code: u8, text: &str) -> bool {
        match &mut self.broker {
            Some(broker) => {
                broker.abort(code, text);
                true
            }
            None => false,
        }
    }

    // ---- sending -------------------------------------------------------------------------------------------------------

    /// Sends a message that fits one frame, if credit and device have room. `flags` may hold [`FREE`].
    #[inline]
    pub(crate) fn try_whole(
        &mut self,
        dst: Rank,
        proto: Proto,
        flags: u8,
        header: &[u8],
        body: &[u8],
    ) -> Result<Outcome, SendFault> {
        let Some(peer) = self.floor.peers.get_mut(dst.0 as usize) else { return Err(SendFault::NoSuchRank(dst)) };
        let cost = if flags & FREE == 0 { body.len() as u64 + MESSAGE_COST } else { 0 };
        if peer.credit < cost {
            return Ok(Outcome::Again);
        }
        let Route::Shm(to) = peer.route else { return self.whole_elsewhere(dst, proto, flags, header, body, cost) };
        let mut front = [0; FRONT_MAX];
        let head = Head { proto: proto.0, kind: Kind::Whole, header_len: header.len() as u8, flags, id: 0, total: 0 };
        let len = head.write(header, &mut front);
        match self.shm.send(to, [&front[..len], body]) {
            Ok(()) => {
                peer.credit -= cost;
                self.shm.tally.messages_sent += 1;
                self.shm.tally.bytes_sent += body.len() as u64;
                Ok(Outcome::Sent)
            }
            Err(error) => self.device_error(dst, error),
        }
    }

    fn whole_elsewhere(
        &mut self,
        dst: Rank,
        proto: Proto,
        flags: u8,
        header: &[u8],
        body: &[u8],
        cost: u64,
    ) -> Result<Outcome, SendFault> {
        let head = Head { proto: proto.0, kind: Kind::Whole, header_len: header.len() as u8, flags, id: 0, total: 0 };
        let outcome = self.send_frame(dst, head, header, body)?;
        if outcome == Outcome::Sent {
            let peer = &mut self.floor.peers[dst.0 as usize];
            peer.credit = peer.credit.saturating_sub(cost);
            self.count_sent(dst, body.len());
        }
        Ok(outcome)
    }

    /// Puts on the wire what the links have ready.
    pub(crate) fn push_net(&mut self) {
        if let Some(net) = &mut self.net {
            net.push();
        }
    }

    /// The next progress looks at every device in any case.
    pub(crate) fn look_at_all(&mut self) {
        if let Some(net) = &mut self.net {
            net.look_next();
        }
    }

    /// Longest body that may be sent in one frame without asking, whoever it goes to.
    #[inline]
    pub(crate) fn whole_max(&self) -> usize {
        self.whole_max
    }

    /// Longest body that fits one frame to `dst` beside a header of `header_len` bytes.
    pub(crate) fn body_max(&mut self, dst: Rank, header_len: usize) -> Result<usize, SendFault> {
        let frame_max = match self.route(dst)? {
            // Whole pages, so that the parts of an aligned message stay aligned.
            Route::Shm(_) => {
                let room = self.shm.frame_max.saturating_sub(HEAD_BYTES + TOTAL_BYTES + header_len);
                return Ok(if room > 4096 { room & !4095 } else { room });
            }
            Route::Net(link) => self.net.as_ref().map_or(0, |net| net.packet_max(link)),
            _ => usize::MAX,
        };
        Ok(frame_max.saturating_sub(HEAD_BYTES + TOTAL_BYTES + header_len))
    }

    /// Sends any frame; the head says what it is.
    pub(crate) fn send_frame(
        &mut self,
        dst: Rank,
        head: Head,
        header: &[u8],
        body: &[u8],
    ) -> Result<Outcome, SendFault> {
        let mut front = [0; FRONT_MAX];
        let len = head.write(header, &mut front);
        let parts = [&front[..len], body];
        match self.route(dst)? {
            Route::Own => {
                let frame = parts.concat();
                self.floor.private(dst, &frame, &mut Hand::empty());
                Ok(Outcome::Sent)
            }
            Route::Shm(to) => match self.shm.send(to, parts) {
                Ok(()) => Ok(Outcome::Sent),
                Err(error) => self.device_error(dst, error),
            },
            Route::Net(link) => match self.net.as_mut().map(|net| net.send(link, parts)) {
                Some(Ok(())) => {
                    // Parts are pushed by the bunch.
                    if head.kind != Kind::Next {
                        self.push_net();
                    }
                    Ok(Outcome::Sent)
                }
                Some(Err(error)) => self.device_error(dst, error),
                None => Err(SendFault::NoChannel(dst)),
            },
            Route::Gone(end) => Err(SendFault::PeerGone(dst, end)),
            Route::Unopened => Err(SendFault::NoChannel(dst)),
        }
    }

    #[cold]
    fn device_error(&mut self, dst: Rank, error: SendError) -> Result<Outcome, SendFault> {
        match error {
            SendError::Again => Ok(Outcome::Again),
            SendError::TooLong { len, max } => Err(SendFault::TooLong { len, max }),
            SendError::PeerGone | SendError::Unsupported => {
                let end = self.end_of(dst).unwrap_or(End::BrokenRules("its channel is closed"));
                Err(SendFault::PeerGone(dst, end))
            }
        }
    }

    pub(crate) fn count_sent(&mut self, dst: Rank, bytes: usize) {
        let tally = match self.floor.peers[dst.0 as usize].route {
            Route::Own => &mut self.own_tally,
            Route::Net(_) => match &mut self.net {
                Some(net) => &mut net.tally,
                None => return,
            },
            _ => &mut self.shm.tally,
        };
        tally.messages_sent += 1;
        tally.bytes_sent += bytes as u64;
        if dst == self.floor.me {
            tally.messages_received += 1;
            tally.bytes_received += bytes as u64;
        }
    }

    /// Makes the channel to a rank if there is none, so that what is posted to it can go.
    pub fn connect(&mut self, dst: Rank) -> Result<(), SendFault> {
        self.route(dst).map(|_| ())
    }

    /// The way to a rank, made now if there is none.
    fn route(&mut self, dst: Rank) -> Result<Route, SendFault> {
        let peer = self.floor.peers.get(dst.0 as usize).ok_or(SendFault::NoSuchRank(dst))?;
        if peer.route != Route::Unopened {
            return Ok(peer.route);
        }
        self.open(dst)
    }

    #[cold]
    fn open(&mut self, dst: Rank) -> Result<Route, SendFault> {
        let route = if self.boot.tasks[dst.0 as usize].node == self.node.0 {
            let slot = self.shm.local.iter().position(|rank| *rank == dst).ok_or(SendFault::NoSuchRank(dst))? as u32;
            match self.shm.device.open(slot) {
                Ok((peer, offer)) => {
                    self.shm.name(peer, dst);
                    if let Some(broker) = &mut self.broker {
                        broker.pass(dst, offer.what, offer.fds);
                    }
                    Route::Shm(peer)
                }
                Err(error) => {
                    self.failure = Some(error);
                    return Err(SendFault::NoChannel(dst));
                }
            }
        } else {
            let net = self.net.as_mut().ok_or(SendFault::NoChannel(dst))?;
            Route::Net(net.link_to(dst).ok_or(SendFault::NoChannel(dst))?)
        };
        self.floor.peers[dst.0 as usize].route = route;
        Ok(route)
    }

    // ---- progress ------------------------------------------------------------------------------------------------------

    /// Takes what has arrived on every device and pushes what waits; returns the number of frames taken. What belongs to the
    /// receive in `hand` lands there.
    #[inline]
    pub fn progress(&mut self, hand: &mut Hand<'_>) -> usize {
        let mut sink = ShmSink { floor: &mut self.floor, rank_of: &self.shm.rank_of, hand, messages: 0, bytes: 0 };
        let mut frames = self.shm.device.poll(&mut sink, POLL_BUDGET);
        let (messages, bytes) = (sink.messages, sink.bytes);
        self.shm.tally.messages_received += messages;
        self.shm.tally.bytes_received += bytes;
        if let Some(net) = &mut self.net {
            frames += net.progress(&mut self.floor, hand);
        }
        let shm_is_empty = frames == 0;
        if !self.floor.outbox.posts.is_empty() {
            self.push_outbox();
        }
        if let Some(broker) = &self.broker
            && broker.has_news(self.board.slot(self.my_slot).broker_waiting())
        {
            frames += self.hear_broker(hand);
        }
        if !self.ending.is_empty() || !self.floor.broken.is_empty() {
            frames += self.finish_ended(shm_is_empty, hand);
        }
        frames
    }

    /// Whether messages of the engine itself wait for room.
    pub(crate) fn has_posts(&self) -> bool {
        !self.floor.outbox.posts.is_empty()
    }

    #[cold]
    fn push_outbox(&mut self) {
        for _ in 0..self.floor.outbox.posts.len() {
            let Some(post) = self.floor.outbox.posts.pop_front() else { return };
            // A channel that cannot be made now may be made later; to those that are gone nothing goes.
            if matches!(self.push(&post), Ok(Outcome::Again) | Err(SendFault::NoChannel(_))) {
                self.floor.outbox.posts.push_back(post);
            }
        }
    }

    /// Sends one message of the engine or a handler.
    fn push(&mut self, post: &Post) -> Result<Outcome, SendFault> {
        let control = |kind, id| Head { proto: Proto::CONTROL.0, kind, header_len: 0, flags: FREE, id, total: 0 };
        match post {
            Post::Message { dst, proto, header, body } => {
                let header_len = header.len() as u8;
                let head = Head { proto: proto.0, kind: Kind::Whole, header_len, flags: FREE, id: 0, total: 0 };
                self.send_frame(*dst, head, header, body)
            }
            Post::Grant(TransferId { src, id }) => {
                let outcome = self.send_frame(*src, control(Kind::Grant, *id), &[], &[])?;
                let list = &mut self.floor.peers[src.0 as usize].incoming;
                if let (Outcome::Sent, Some(incoming)) = (outcome, list.iter_mut().find(|incoming| incoming.id == *id))
                {
                    incoming.granted = true;
                }
                Ok(outcome)
            }
            Post::Credit { dst, units } => self.send_frame(*dst, control(Kind::Credit, *units), &[], &[]),
            Post::Withdraw { dst, id } => self.send_frame(*dst, control(Kind::Withdraw, *id), &[], &[]),
        }
    }

    /// Reads everything the keeper has written.
    #[cold]
    fn hear_broker(&mut self, hand: &mut Hand<'_>) -> usize {
        let written = self.board.slot(self.my_slot).broker_waiting();
        let mut heard = 0;
        loop {
            let Some(broker) = &mut self.broker else { return heard };
            broker.flush();
            broker.open_reserve();
            match broker.next() {
                Heard::Message(ToRank::Passed { from, what }, fds) => self.accept(from, &what, fds),
                Heard::Message(ToRank::Gone { rank, how }, _) => self.rank_ended(rank, End::Gone(how)),
                Heard::Message(ToRank::Welcome { .. } | ToRank::Refused { .. }, _) => {}
                Heard::Nothing => {
                    broker.refill();
                    broker.caught_up(written);
                    return heard;
                }
                Heard::Closed => {
                    self.broker = None;
                    for rank in (0..self.size()).map(Rank) {
                        self.rank_ended(rank, End::KeeperGone);
                    }
                    return heard + 1 + self.finish_ended(true, hand);
                }
            }
            heard += 1;
        }
    }

    fn accept(&mut self, from: Rank, what: &[u8], fds: Vec<OwnedFd>) {
        let Some(slot) = self.shm.local.iter().position(|rank| *rank == from) else { return };
        match self.shm.device.accept(slot as u32, what, fds) {
            Ok((peer, answer)) => {
                self.shm.name(peer, from);
                let state = &mut self.floor.peers[from.0 as usize];
                if state.route == Route::Unopened {
                    state.route = Route::Shm(peer);
                }
                if let (Some(offer), Some(broker)) = (answer, &mut self.broker) {
                    broker.pass(from, offer.what, offer.fds);
                }
            }
            Err(error) => {
                pulc_base::log!(Warn, "handler", "the channel offered by rank {from} is refused: {error}");
                self.failure = Some(error);
                self.rank_ended(from, End::BrokenRules("its channel was refused"));
            }
        }
    }

    /// A rank has ended; what it sent before is still to be received.
    fn rank_ended(&mut self, rank: Rank, end: End) {
        let Some(peer) = self.floor.peers.get_mut(rank.0 as usize) else { return };
        if rank == self.floor.me || peer.end().is_some() || peer.ending.is_some() {
            return;
        }
        // What it sent may be under way even if this process never answered.
        let is_remote = self.boot.tasks[rank.0 as usize].node != self.node.0;
        let until = if is_remote { clock::now() + NET_GRACE } else { Nanos(0) };
        peer.ending = Some((end, until));
        self.ending.push(rank);
    }

    /// Closes those that have ended and whose last frames have been received, and those that broke the rules; returns how
    /// many.
    #[cold]
    fn finish_ended(&mut self, shm_is_empty: bool, hand: &mut Hand<'_>) -> usize {
        let mut closed = self.floor.broken.len();
        for (rank, end) in std::mem::take(&mut self.floor.broken) {
            pulc_base::log!(Warn, "handler", "nothing more is taken from rank {rank}: {end}");
            self.close(rank, end, hand);
        }
        let mut still = Vec::new();
        for rank in std::mem::take(&mut self.ending) {
            match self.floor.peers[rank.0 as usize].ending {
                Some((end, until)) if shm_is_empty && (until == Nanos(0) || clock::now() >= until) => {
                    self.close(rank, end, hand);
                    closed += 1;
                }
                Some(_) => still.push(rank),
                None => {}
            }
        }
        self.ending = still;
        closed
    }

    fn close(&mut self, rank: Rank, end: End, hand: &mut Hand<'_>) {
        if let Route::Shm(peer) = self.floor.peers[rank.0 as usize].route {
            self.shm.device.close_peer(peer);
        }
        if let Some(net) = &mut self.net {
            net.close(rank);
        }
        self.floor.gone(rank, end, hand);
    }

    // ---- for waiting ---------------------------------------------------------------------------------------------------

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
        self.net.as_ref().is_none_or(Net::all_acknowledged) && !self.has_posts()
    }
}

impl ShmSide {
    #[inline]
    fn send(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        if parts[0].len() + parts[1].len() <= self.short_max {
            self.device.send_short(to, parts)
        } else {
            self.device.send_bulk(to, parts)
        }
    }

    fn name(&mut self, peer: Peer, rank: Rank) {
        let index = peer.0 as usize;
        if self.rank_of.len() <= index {
            self.rank_of.resize(index + 1, rank);
        }
        self.rank_of[index] = rank;
    }
}

/// Where the shm device puts its frames.
struct ShmSink<'a, 'h> {
    floor: &'a mut Floor,
    rank_of: &'a [Rank],
    hand: &'a mut Hand<'h>,
    messages: u64,
    bytes: u64,
}

impl Sink for ShmSink<'_, '_> {
    #[inline]
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        let Some(&src) = self.rank_of.get(from.0 as usize) else { return };
        self.messages += 1;
        self.bytes += self.floor.frame(src, frame, self.hand) as u64;
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        if let Some(&src) = self.rank_of.get(from.0 as usize) {
            self.floor.broken.push((src, End::Broken(why)));
        }
    }
}
