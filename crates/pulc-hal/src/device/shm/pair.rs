//! One peer as seen from here: the direction that we produce, the direction that it produces, and what of our pool it
//! holds. Used by the device, which owns all pairs.
//!
//! Everything read from the peer's memory is read once into a local and checked; the first thing that cannot be makes the
//! pair *poisoned*: nothing more is read from it or sent to it, and the rest of the job goes on.

use super::announce::{self, Reads};
use super::cell::Words;
use super::cells::{In, Out};
use super::config::Courier;
use super::layout::{CELLS, CREDIT_AT, CREDIT_BATCH, Header, Kind, REFERENCE_BYTES, Reference};
use super::pool::{Pool, Slots};
use super::reading::Reading;
use super::ring::{Consumer, Credit, Producer, header};
use super::stores::Chooser;
use super::taking::{Got, take};
use crate::board::Board;
use crate::device::{Frame, Peer, SendError, Sink};
use crate::os::memfd::{ReadMap, WriteMap};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the peer gave us.
pub struct Incoming {
    pub channel: ReadMap,
    pub pool: ReadMap,
    pub arena: Option<Arc<ReadMap>>,
}

/// What a peer may be reading until it returns credit, in the order sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lent {
    Slots(Slots),
    /// Memory of our arena; the number is the caller's own.
    Arena(u64),
    /// Any other memory of ours.
    Memory(u64),
}

/// A short frame of so many bytes, at most one cell's.
#[inline(always)]
pub(super) fn one_cell(bytes: usize) -> Header {
    Header { kind: Kind::Short, cells: 1, bytes: bytes as u16 }
}

/// Frames taken in one poll before what they lent is given back.
const FRAMES_PER_CREDIT: usize = 4;

/// So many short frames without an answer are a stream.
const STREAM_AFTER: u32 = 4;

pub struct Pair {
    /// The peer's slot on the board.
    pub slot: u32,
    pub(super) channel: WriteMap,
    pub(super) producer: Producer,
    pub(super) chooser: Chooser,
    /// Short frames sent since the last one that came.
    pub(super) sent_in_a_row: u32,
    pub(super) lent: VecDeque<Lent>,
    pub(super) slots_held: usize,
    references_credited: u32,
    pub(super) incoming: Option<Incoming>,
    pub(super) consumer: Consumer,
    references_consumed: u32,
    pub(super) published: u64,
    pub(super) bell: Option<OwnedFd>,
    courier: Option<Arc<dyn Courier>>,
    /// Whether the peer has been told of our bell.
    pub bell_told: bool,
    /// Whether the peer has been told of our arena, and what it answered.
    pub arena_told: bool,
    pub(super) reads: Reads,
    pub(super) reading: Reading,
    /// Why the pair is poisoned.
    pub fault: Option<&'static str>,
    /// Whether `fault` has been told to the sink.
    pub fault_told: bool,
}

/// Where lent things return to.
pub struct Home {
    pub pool: Pool,
    /// Tokens of arena frames that no peer reads any more.
    pub completed: Vec<u64>,
    /// Tokens of memory that a peer has given back without having read it.
    pub unread: Vec<u64>,
}

/// What one look at a pair gave.
#[derive(Default)]
pub struct Taken {
    pub frames: usize,
    pub bytes: u64,
}

impl Pair {
    pub fn new(slot: u32, channel: WriteMap, courier: Option<Arc<dyn Courier>>) -> Pair {
        Pair {
            slot,
            channel,
            producer: Producer::default(),
            chooser: Chooser::new(),
            sent_in_a_row: 0,
            lent: VecDeque::new(),
            slots_held: 0,
            references_credited: 0,
            incoming: None,
            consumer: Consumer::default(),
            references_consumed: 0,
            published: 0,
            bell: None,
            courier,
            bell_told: false,
            arena_told: false,
            reads: Reads::NotYet,
            reading: Reading::default(),
            fault: None,
            fault_told: false,
        }
    }

    /// The peer's own offer has come. What was sent so far may have been rung without its bell, so ring again.
    pub fn complete(&mut self, incoming: Incoming, bell: Option<OwnedFd>, board: &Board) {
        if incoming.arena.is_some() {
            announce::answer(&self.channel, Reads::Yes);
        }
        self.incoming = Some(incoming);
        self.bell = bell;
        self.ring(board);
    }

    pub fn is_complete(&self) -> bool {
        self.incoming.is_some()
    }

    /// Sends a frame of one cell that is already there as words.
    #[inline(always)]
    pub fn send_cell(&mut self, board: &Board, home: &mut Home, bytes: usize, words: &Words) -> Result<(), SendError> {
        self.make_room(one_cell(bytes), home)?;
        self.put_cell(bytes, words);
        self.ring(board);
        Ok(())
    }

    /// There is room for it; nobody is rung.
    #[inline(always)]
    pub(super) fn put_cell(&mut self, bytes: usize, words: &Words) {
        self.sent_in_a_row = self.sent_in_a_row.wrapping_add(1);
        self.producer.push_cell(&Out(&self.channel), one_cell(bytes), words, self.sent_in_a_row > STREAM_AFTER);
    }

    /// Asks for the cell that the next frame begins in.
    #[inline(always)]
    pub fn claim_next(&self) {
        self.producer.claim_next(&Out(&self.channel));
    }

    /// Sends a frame inside cells. The caller has checked its length.
    #[inline(always)]
    pub fn send_short(&mut self, board: &Board, home: &mut Home, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let header = header(Kind::Short, parts[0].len() + parts[1].len());
        self.make_room(header, home)?;
        self.producer.push(&Out(&self.channel), header, parts);
        self.ring(board);
        Ok(())
    }

    /// Sends a frame whose body stays where it is, in this process's arena, until the peer's credit returns `token`.
    #[inline]
    pub fn send_arena(
        &mut self,
        board: &Board,
        home: &mut Home,
        head: &[u8],
        body: Reference,
        token: u64,
    ) -> Result<(), SendError> {
        let header = header(Kind::Arena, REFERENCE_BYTES + head.len());
        self.make_room(header, home)?;
        self.producer.push(&Out(&self.channel), header, [&body.encode(), head]);
        self.lent.push_back(Lent::Arena(token));
        self.ring(board);
        Ok(())
    }

    /// Puts a reference with the head of its frame into the next cells, for which there is room.
    pub(super) fn push_reference(&mut self, header: Header, reference: &[u8; REFERENCE_BYTES], head: &[u8]) {
        self.producer.push(&Out(&self.channel), header, [reference, head]);
    }

    #[inline(always)]
    pub(super) fn make_room(&mut self, header: Header, home: &mut Home) -> Result<(), SendError> {
        if self.producer.free(CELLS) < header.cells.into() || self.fault.is_some() {
            self.take_credit(home)?;
            if self.producer.free(CELLS) < header.cells.into() {
                return Err(SendError::Again);
            }
        }
        Ok(())
    }

    /// Reads the peer's credit and takes back what it returned.
    pub fn take_credit(&mut self, home: &mut Home) -> Result<(), SendError> {
        if self.fault.is_some() {
            return Err(SendError::PeerGone);
        }
        let Some(incoming) = &self.incoming else { return Ok(()) };
        // Acquire: pairs with the release of `publish_credit` on the other side; the peer's reads of what it gives back
        // come before our writing there again.
        let Credit { cells, references } = Credit::of_word(incoming.channel.load_u64(CREDIT_AT, Ordering::Acquire));
        let returned = references.wrapping_sub(self.references_credited) as usize;
        let checked = match self.producer.credit(cells) {
            Ok(()) if returned > self.lent.len() => Err("credit for references that were never sent"),
            other => other,
        };
        if let Err(why) = checked {
            self.fault = Some(why);
            return Err(SendError::PeerGone);
        }
        self.bring_home(returned, home);
        Ok(())
    }

    /// Whether the peer holds anything of ours.
    pub fn owes(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Takes back everything the peer holds, because it is gone.
    pub fn bring_all_home(&mut self, home: &mut Home) {
        self.bring_home(self.lent.len(), home);
    }

    fn bring_home(&mut self, count: usize, home: &mut Home) {
        for _ in 0..count {
            let number = self.references_credited;
            self.references_credited = number.wrapping_add(1);
            match self.lent.pop_front() {
                Some(Lent::Slots(slots)) => {
                    self.slots_held -= slots.len();
                    home.pool.give_back(slots);
                }
                Some(Lent::Arena(token)) => home.completed.push(token),
                Some(Lent::Memory(token)) if self.is_unread(number) => home.unread.push(token),
                Some(Lent::Memory(token)) => home.completed.push(token),
                None => {}
            }
        }
    }

    /// Whether a frame waits. Looks at one line.
    #[inline(always)]
    pub fn has_frame(&self) -> bool {
        match &self.incoming {
            Some(incoming) => self.consumer.waits(&In(&incoming.channel)) && self.fault.is_none(),
            None => false,
        }
    }

    /// Whether the next frame has come, to be asked again and again. `None`: nothing can come.
    #[inline(always)]
    pub fn awaited(&self) -> Option<impl Fn() -> bool> {
        let incoming = self.incoming.as_ref().filter(|_| self.fault.is_none())?;
        Some(In(&incoming.channel).awaited(self.consumer.next()))
    }

    /// Takes the next frame if it is a short one of one cell: the way of most messages.
    #[inline(always)]
    pub fn take_cell(&mut self, board: &Board) -> Option<(usize, Words)> {
        let incoming = self.incoming.as_ref()?;
        let taken = self.consumer.pop_cell(&In(&incoming.channel))?;
        self.sent_in_a_row = 0;
        if self.consumer.consumed().wrapping_sub(self.published as u32) >= CREDIT_BATCH {
            self.publish_credit(board);
        }
        Some(taken)
    }

    /// Hands at most `budget` frames to the sink and publishes credit, every few frames: the sender of a long message fills what comes
    /// back while its receiver copies what follows.
    pub fn poll(&mut self, me: Peer, board: &Board, sink: &mut impl Sink, budget: usize, buffer: &mut [u8]) -> Taken {
        let mut taken = Taken::default();
        loop {
            let until = budget.min(taken.frames + FRAMES_PER_CREDIT);
            self.take_some(me, board, sink, until, buffer, &mut taken);
            if taken.frames < until || taken.frames == budget || sink.is_full() {
                return taken;
            }
        }
    }

    /// Hands frames to the sink until there have been `until` in this poll.
    fn take_some(
        &mut self,
        me: Peer,
        board: &Board,
        sink: &mut impl Sink,
        until: usize,
        buffer: &mut [u8],
        taken: &mut Taken,
    ) {
        let Some(incoming) = &self.incoming else { return };
        let references_before = self.references_consumed;
        while taken.frames < until && self.fault.is_none() && !(taken.frames > 0 && sink.is_full()) {
            let frame = match take(&mut self.consumer, incoming, buffer) {
                Ok(Got::Nothing) => break,
                Ok(Got::Frame(frame)) => {
                    if matches!(frame, Frame::Shared(_)) {
                        self.references_consumed = self.references_consumed.wrapping_add(1);
                    }
                    frame
                }
                Ok(Got::Memory(reference, head)) => {
                    let number = self.references_consumed;
                    self.references_consumed = number.wrapping_add(1);
                    match Pair::read_memory(&mut self.reading, number, reference, head) {
                        Ok(true) => Frame::Private(self.reading.staged()),
                        Ok(false) => continue,
                        Err(why) => {
                            self.fault = Some(why);
                            continue;
                        }
                    }
                }
                Err(why) => {
                    self.fault = Some(why);
                    continue;
                }
            };
            taken.bytes += frame.len() as u64;
            taken.frames += 1;
            sink.frame(me, frame);
        }
        if self.references_consumed != references_before {
            self.tell_refusal();
        }
        let owed = self.consumer.consumed().wrapping_sub(self.published as u32);
        if self.references_consumed != references_before || owed >= CREDIT_BATCH {
            self.publish_credit(board);
        }
    }

    #[inline(never)]
    pub(super) fn publish_credit(&mut self, board: &Board) {
        self.published = Credit { cells: self.consumer.consumed(), references: self.references_consumed }.word();
        // Release: pairs with the acquire of `take_credit` on the other side.
        self.channel.u64_at(CREDIT_AT).store(self.published, Ordering::Release);
        self.ring(board);
    }

    #[inline(always)]
    pub(super) fn ring(&self, board: &Board) {
        board.slot(self.slot).ring_or(self.bell.as_ref().map(|bell| bell.as_fd()), || self.wake_otherwise());
    }

    /// The peer sleeps in poll and has not told us its bell yet.
    #[cold]
    fn wake_otherwise(&self) {
        if let Some(courier) = &self.courier {
            courier.wake(self.slot);
        }
    }
}
