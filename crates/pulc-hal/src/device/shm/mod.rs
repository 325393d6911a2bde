//! Frames between processes of one node through sealed shared memory. Called by the handler; the offers that it makes and
//! takes travel through the job's keeper.
//!
//! Per ordered pair of processes there is a ring of 64-byte cells (`ring`, laid out in `layout`) in memory that only its
//! producer can write. Frames that do not fit there go through slots of the producer's one bounded pool (`pool`), or stay
//! in the producer's arena (`arena`) and are read where they are. `pair` joins the two directions of a peer.
//!
//! Must never make a system call for a frame between two processes that are awake, never wait for a peer, and never
//! believe what a peer wrote.

mod announce;
mod arena;
pub mod arena_forks;
mod arena_rooms;
pub mod arena_table;
mod batches;
mod bells;
mod bulk;
pub mod cell;
mod cells;
mod config;
pub(crate) mod fuzz;
#[cfg(test)]
mod hostile_tests;
mod layout;
mod offer;
mod pair;
mod pool;
mod reading;
mod ring;
mod stores;
mod taking;
#[cfg(test)]
mod tests;

/// The ring, for its model.
#[cfg(all(test, loom))]
pub(crate) mod model {
    pub(crate) use super::announce::Reads;
    pub(crate) use super::layout::Kind;
    pub(crate) use super::reading::{memory_word, says_unread};
    pub(crate) use super::ring::*;
}

pub use announce::{ArenaView, Reads, view_of};
pub use arena::{Arena, Block};
pub use config::{
    ALLOC_MIN_BYTES, ARENA_BYTES, Courier, FIXED, MEMORY_READ_MIN_BYTES, PARAMS, PAST_CACHES_MIN_BYTES, POOL_BYTES,
    REFERENCE_MIN_BYTES, SLOT_BYTES, ShmConfig,
};
/// Longest frame that fits one cell.
pub use layout::CELL_PAYLOAD;
pub use offer::Offer;
pub use reading::PART_MAX as MEMORY_PART_MAX;
pub(crate) use stores::Chooser;

use super::{Caps, Device, Frame, Limits, Peer, PeerFault, SendError, Sink};
use crate::board::Board;
use crate::error::HalError;
use crate::os::bell::Bell;
use crate::os::memfd;
use bells::BellText;
use cell::Words;
use layout::{ArenaText, CELLS_PAYLOAD_MAX, CHANNEL_BYTES, HEAD_MAX, MemoryText};
use offer::map_offer;
use pair::{Home, Pair};
use pool::Pool;
use pulc_base::metrics::DeviceCounters;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Cold pairs looked at between two looks at the hot one.
const COLD_STRIDE: usize = 8;

/// One frame in so many of a poll's budget is not for the hot pair: a peer that sends as fast as it is polled takes nobody
/// else's turn.
const COLD_SHARE: usize = 4;

/// After so many polls that ended at the hot pair the others are looked at in any case.
const HOT_POLLS_MAX: u32 = 16;

/// The shared-memory device of one process.
pub struct Shm {
    board: Arc<Board>,
    my_slot: u32,
    arena: Option<Arc<Arena>>,
    bell: Option<Arc<Bell>>,
    /// Some frame was to be read in this process's memory.
    uses_memory: bool,
    courier: Option<Arc<dyn Courier>>,
    home: Home,
    /// Indexed by [`Peer`]; closed ones stay empty.
    pairs: Vec<Option<Box<Pair>>>,
    /// Indexed by slot.
    peer_of_slot: Vec<Option<Peer>>,
    /// The pair that delivered last, and where the next scan of the others begins.
    hot: usize,
    cursor: usize,
    /// Polls in a row that were content with what the hot pair gave.
    hot_polls: u32,
    counters: DeviceCounters,
    buffer: Box<[u8; CELLS_PAYLOAD_MAX]>,
}

impl Shm {
    /// The device of the local rank `my_slot`.
    ///
    /// # Errors
    /// When the slot does not exist or the pool cannot be made.
    pub fn new(config: ShmConfig, board: Arc<Board>, my_slot: u32) -> Result<Shm, HalError> {
        let slots = board.slots();
        if my_slot >= slots {
            return Err(HalError::NoSuchSlot { slot: my_slot, slots });
        }
        let pool = Pool::new(config.pool_bytes, config.slot_bytes)?;
        Ok(Shm {
            board,
            my_slot,
            arena: config.arena,
            bell: config.bell,
            uses_memory: false,
            courier: config.courier,
            home: Home { pool, completed: Vec::new(), unread: Vec::new() },
            pairs: Vec::new(),
            peer_of_slot: vec![None; slots as usize],
            hot: 0,
            cursor: 0,
            hot_polls: 0,
            counters: DeviceCounters::default(),
            buffer: Box::new([0; CELLS_PAYLOAD_MAX]),
        })
    }

    /// Opens the channel to the local rank `slot`. Frames may be sent at once; they are received when the offer is in.
    pub fn open(&mut self, slot: u32) -> Result<(Peer, Offer), HalError> {
        self.check_slot(slot)?;
        if self.peer_of_slot[slot as usize].is_some() {
            return Err(HalError::AlreadyOpen { slot });
        }
        let (channel, fd) = memfd::create_produced("pulc-channel", CHANNEL_BYTES)?;
        channel.leave_out_of_forks()?;
        let offer = self.offer(fd)?;
        let peer = Peer(self.pairs.len() as u32);
        let mut pair = Pair::new(slot, channel, self.courier.clone());
        pair.arena_told = self.arena.is_some();
        pair.bell_told = self.bell.is_some();
        self.pairs.push(Some(Box::new(pair)));
        self.peer_of_slot[slot as usize] = Some(peer);
        Ok((peer, offer))
    }

    /// Takes the offer of the local rank `slot`, as told by the keeper. Answers with our own if we have not made it yet.
    ///
    /// # Errors
    /// When anything about the offer is not as it must be; then nothing has changed and the descriptors are closed.
    pub fn accept(&mut self, slot: u32, what: &[u8], fds: Vec<OwnedFd>) -> Result<(Peer, Option<Offer>), HalError> {
        self.check_slot(slot)?;
        if let Some(text) = ArenaText::decode(what)? {
            return self.accept_arena(slot, text, fds).map(|peer| (peer, None));
        }
        if let Some(text) = MemoryText::decode(what)? {
            return self.accept_memory(slot, text).map(|peer| (peer, None));
        }
        if let Some(text) = BellText::decode(what)? {
            return self.accept_bell(slot, text, fds).map(|peer| (peer, None));
        }
        let known = self.peer_of_slot[slot as usize];
        if known.is_some_and(|peer| self.pair(peer).is_none_or(|pair| pair.is_complete())) {
            return Err(HalError::AlreadyOpen { slot });
        }
        let (incoming, bell) = map_offer(slot, what, fds)?;
        let (peer, offer) = match known {
            Some(peer) => (peer, None),
            None => self.open(slot).map(|(peer, offer)| (peer, Some(offer)))?,
        };
        if let Some(pair) = self.pairs[peer.0 as usize].as_mut() {
            pair.complete(incoming, bell, &self.board);
        }
        Ok((peer, offer))
    }

    /// The peer in this slot, if a channel to it is open.
    pub fn peer(&self, slot: u32) -> Option<Peer> {
        *self.peer_of_slot.get(slot as usize)?
    }

    fn check_slot(&self, slot: u32) -> Result<(), HalError> {
        let slots = self.board.slots();
        if slot >= slots {
            return Err(HalError::NoSuchSlot { slot, slots });
        }
        if slot == self.my_slot {
            return Err(HalError::OwnSlot { slot });
        }
        Ok(())
    }

    #[inline(always)]
    fn pair(&self, peer: Peer) -> Option<&Pair> {
        self.pairs.get(peer.0 as usize)?.as_deref()
    }

    /// Whether the peer that sent last has sent again. Looks at one line, for a receiver that expects nobody else.
    #[inline(always)]
    pub fn hot_peer_waits(&self) -> bool {
        matches!(self.pairs.get(self.hot), Some(Some(pair)) if pair.has_frame())
    }

    /// Whether the peer that sent last has sent again, to be asked again and again. One load.
    #[inline(always)]
    pub fn awaited_of_hot(&self) -> Option<impl Fn() -> bool> {
        self.pairs.get(self.hot)?.as_ref()?.awaited()
    }

    /// Whether a frame of this peer waits.
    pub fn peer_waits(&self, peer: Peer) -> bool {
        self.pair(peer).is_some_and(Pair::has_frame)
    }

    /// The peer that sent last is very likely the one that the next frame goes to, and looks at its cell already: to take the cell from
    /// its core begins now. Changes nothing.
    #[inline(always)]
    pub fn claim_for_hot(&self) {
        if let Some(Some(pair)) = self.pairs.get(self.hot) {
            pair.claim_next();
        }
    }

    /// Takes one frame from the hot pair if that is a short one of one cell: the way of most messages.
    #[inline(always)]
    fn poll_hot_cell(&mut self, sink: &mut impl Sink) -> bool {
        let Some(Some(pair)) = self.pairs.get_mut(self.hot) else { return false };
        if pair.fault.is_some() {
            return false;
        }
        let Some((bytes, words)) = pair.take_cell(&self.board) else { return false };
        self.counters.frames_received += 1;
        self.counters.bytes_received += bytes as u64;
        let mut frame = [0; CELL_PAYLOAD];
        cell::scatter(&words, &mut frame);
        sink.frame(Peer(self.hot as u32), Frame::Private(&mut frame[..bytes]));
        true
    }

    /// Polls one pair; returns frames taken.
    #[inline(always)]
    fn poll_pair(&mut self, index: usize, sink: &mut impl Sink, budget: usize) -> usize {
        match self.pairs.get(index) {
            Some(Some(pair)) if pair.has_frame() => self.take_frames(index, sink, budget),
            Some(Some(pair)) if pair.fault.is_some() => {
                self.tell_fault(index, sink);
                0
            }
            _ => 0,
        }
    }

    fn take_frames(&mut self, index: usize, sink: &mut impl Sink, budget: usize) -> usize {
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return 0 };
        let taken = pair.poll(Peer(index as u32), &self.board, sink, budget, &mut self.buffer[..]);
        if taken.frames > 0 {
            self.hot = index;
            self.counters.frames_received += taken.frames as u64;
            self.counters.bytes_received += taken.bytes;
        }
        if pair.fault.is_some() {
            self.tell_fault(index, sink);
        }
        taken.frames
    }

    /// Sends a frame of `bytes` bytes, at most [`CELL_PAYLOAD`], that its sender holds in registers.
    ///
    /// # Panics
    /// When it is longer.
    #[inline(always)]
    pub fn send_cell(&mut self, to: Peer, bytes: usize, words: &Words) -> Result<(), SendError> {
        assert!(bytes <= CELL_PAYLOAD, "{bytes} bytes do not fit a cell of {CELL_PAYLOAD}");
        let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return Err(SendError::PeerGone) };
        let result = pair.send_cell(&self.board, &mut self.home, bytes, words);
        self.sent(result, bytes)
    }

    #[cold]
    fn tell_fault(&mut self, index: usize, sink: &mut impl Sink) {
        if let Some(Some(pair)) = self.pairs.get_mut(index)
            && let Some(why) = pair.fault
            && !pair.fault_told
        {
            pair.fault_told = true;
            self.counters.frames_refused += 1;
            sink.peer_failed(Peer(index as u32), PeerFault::BrokenRules(why));
        }
    }

    #[inline(always)]
    fn sent(&mut self, result: Result<(), SendError>, bytes: usize) -> Result<(), SendError> {
        match result {
            Ok(()) => {
                self.counters.frames_sent += 1;
                self.counters.bytes_sent += bytes as u64;
            }
            Err(SendError::Again) => self.counters.again += 1,
            Err(_) => {}
        }
        result
    }
}

impl Device for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn caps(&self) -> Caps {
        let caps =
            Caps::RELIABLE.with(Caps::ORDERED).with(Caps::BULK).with(Caps::TRUSTED_ORIGIN).with(Caps::RINGS_DOORBELL);
        if self.arena.is_some() { caps.with(Caps::ZERO_COPY) } else { caps }
    }

    fn limits(&self) -> Limits {
        Limits { short_max: CELLS_PAYLOAD_MAX, frame_max: self.home.pool.slot_bytes() }
    }

    #[inline]
    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let len = parts[0].len() + parts[1].len();
        if len <= CELL_PAYLOAD {
            return self.send_cell(to, len, &cell::gather(parts));
        }
        if len > CELLS_PAYLOAD_MAX {
            return Err(SendError::TooLong { len, max: CELLS_PAYLOAD_MAX });
        }
        let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return Err(SendError::PeerGone) };
        let result = pair.send_short_or_pool(&self.board, &mut self.home, parts);
        self.sent(result, len)
    }

    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let (len, max) = (parts[0].len() + parts[1].len(), self.home.pool.slot_bytes());
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        self.send_pool(to, parts, 1, true).map(|_| ())
    }

    fn send_zcopy(&mut self, to: Peer, head: &[u8], body: &[u8], token: u64) -> Result<(), SendError> {
        let Some(body_at) = self.arena.as_ref().and_then(|arena| arena.locate(body)) else {
            return Err(SendError::Unsupported);
        };
        if head.len() > HEAD_MAX {
            return Err(SendError::TooLong { len: head.len(), max: HEAD_MAX });
        }
        let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return Err(SendError::PeerGone) };
        if pair.reads_arena() != Reads::Yes {
            return Err(SendError::Unsupported);
        }
        let result = pair.send_arena(&self.board, &mut self.home, head, body_at, token);
        self.sent(result, head.len() + body.len())
    }

    fn completed(&mut self, tokens: &mut Vec<u64>) {
        if self.arena.is_some() || self.uses_memory {
            self.collect_credit();
            tokens.append(&mut self.home.completed);
        }
    }

    /// Nothing is ever held back.
    fn flush(&mut self) {}

    fn poll(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        let pairs = self.pairs.len();
        let mut taken = 0;
        if budget > 0 && self.poll_hot_cell(sink) {
            taken = 1;
            if self.hot_polls < HOT_POLLS_MAX && sink.is_full() {
                self.hot_polls += 1;
                return taken;
            }
        }
        self.hot_polls = 0;
        let for_hot = if pairs > 1 { budget - budget / COLD_SHARE } else { budget };
        taken += self.poll_pair(self.hot, sink, for_hot.saturating_sub(taken));
        // With traffic on the hot pair a few of the others are looked at, else all: an empty poll has seen everything.
        let looks = match pairs {
            1 => 0,
            _ if taken > 0 => COLD_STRIDE.min(pairs),
            all => all,
        };
        for look in 1..=looks {
            if taken >= budget {
                break;
            }
            self.cursor = if self.cursor + 1 >= pairs { 0 } else { self.cursor + 1 };
            taken += self.poll_pair(self.cursor, sink, budget - taken);
            if look % COLD_STRIDE == 0 && taken == 0 {
                taken += self.poll_pair(self.hot, sink, budget - taken);
            }
        }
        taken
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close_peer(&mut self, peer: Peer) {
        if let Some(mut pair) = self.pairs.get_mut(peer.0 as usize).and_then(Option::take) {
            pair.bring_all_home(&mut self.home);
            self.peer_of_slot[pair.slot as usize] = None;
        }
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

impl Shm {
    /// Takes back what all peers have returned; whether that was anything. Slots lent to others may be what a sender waits
    /// for.
    #[cold]
    fn collect_credit(&mut self) -> bool {
        let before = self.home.pool.free();
        for pair in self.pairs.iter_mut().flatten().filter(|pair| pair.owes()) {
            // A violation is told by the next poll.
            let _ = pair.take_credit(&mut self.home);
        }
        self.home.pool.free() > before
    }
}
