//! The hall: memory in which the members of a communicator that share a node do their blocking collectives, each of them by one look
//! at what all have written, so that processes that share a core are switched to once. Opened (`open`) after some collectives on a
//! communicator, by agreement of all members; `fold` and `prefix` have the reductions, `blocks` and `varied` what moves blocks, `across` what
//! goes on between nodes, `choose` says when.
//!
//! Collectives are numbered turns. A member writes its line (a mark with the number of the turn, and a few bytes) and its piece of
//! memory, and reads those of others whose marks say the same turn. There are lines and pieces of some turns for every member (`Shape`), fewer of
//! pieces; before the one of an earlier turn is written again, everybody must have entered the second turn after it (a process may show one turn ahead of
//! what it reads). Whoever enters last, or has what the others wait for, wakes those that sleep. Where members are many, whoever enters last also
//! says so in one more line, with the result of a short reduction, so that the others look at one line instead of all.
//!
//! ```text
//! turn 0: lines of member 0, 1, ..., of the last one   64 bytes: mark (turn << 16 | what), 56 bytes
//! ... the last turn that has lines of its own
//! then pieces: turn 0: member 0, 1, ...
//! ```
//! Must never believe what it reads: numbers and lengths are the reader's own. A member that has ended ends the wait of all others.

mod across;
mod blocks;
mod calls;
mod calls_varied;
mod choose;
mod fold;
mod open;
mod prefix;
mod varied;

pub(in crate::collective) use calls::*;
pub(in crate::collective) use calls_varied::*;
pub(crate) use open::Door;

use crate::collective;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::handle::Comm;
use crate::matcher::{matcher, peer_gone};
use crate::memory::Room;
use crate::{stats, watch};
use across::Across;
use pulc_base::Rank;
use pulc_hal::board::Notice;
use pulc_hal::segment::{LINE_BYTES, LINE_PAYLOAD, Segment, full_barrier};
use pulc_hal::turns::{self, Turns};
use pulc_handler::{Engine, Hand, Process, Waited, Watch};
use std::cell::RefCell;
use std::sync::Arc;

/// How much memory is kept for turns that are under way.
#[derive(Clone, Copy)]
struct Shape {
    /// Turns whose lines are kept apart, a power of two.
    lines: u64,
    /// And whose pieces are: at most as many.
    pieces: u64,
    /// One member's memory in one turn.
    piece_bytes: usize,
    /// What is used of it where something is moved and not combined.
    moved_bytes: usize,
}

impl Shape {
    /// Two keep more memory under way than the nearer caches hold, because lines that come out of the other core's cache are dearer than those of
    /// the common one. Of many each has its own cache lines. They change processes for every part of a long reduction, so parts are long (what is only moved
    /// is read while it is in the caches, in shorter ones); and for every scan of something short unless lower places run ahead, so there are many lines.
    fn of(members: usize) -> Shape {
        if members <= 2 {
            Shape { lines: 16, pieces: 16, piece_bytes: 96 << 10, moved_bytes: 96 << 10 }
        } else {
            Shape { lines: 64, pieces: 8, piece_bytes: 192 << 10, moved_bytes: 96 << 10 }
        }
    }

    fn line_bytes(self, members: usize) -> usize {
        Turns::lines(members, self.lines) * LINE_BYTES
    }

    /// Bytes of the segment.
    fn segment_bytes(self, members: usize) -> usize {
        self.line_bytes(members) + self.pieces as usize * members * self.piece_bytes
    }
}

/// Turns that a process may show ahead of the one it reads.
const AHEAD: u64 = 1;
/// Up to so many members look at each other's lines; more wait for the word of the last one.
const LOOK_AT_ALL: usize = 8;
/// Turns between two looks at the engine of a process that always finds what it waits for.
const TURNS_PER_POLL: u64 = 64;
/// Bytes that are combined at a time, so that they stay in the nearest cache.
const BLOCK_BYTES: usize = 8 << 10;

/// What a turn is, in the low bits of its mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Barrier = 1,
    Bcast,
    Reduce,
    Allreduce,
    Gather,
    Allgather,
    Scatter,
    Alltoall,
    Scan,
    Exscan,
    ReduceScatter,
    Gatherv,
    Allgatherv,
    Scatterv,
    Alltoallv,
}

/// One process's view of it.
pub(crate) struct Hall {
    process: &'static Process,
    segment: Segment,
    comm: Comm,
    context: u32,
    name: String,
    /// Members on this node, in the order of their ranks, and this process's place among them.
    members: usize,
    me: usize,
    /// All members of the communicator, also of other nodes: without one of them nothing goes on.
    everybody: Arc<Group>,
    /// By place: rank in the job, and place on the board.
    ranks: Vec<Rank>,
    slots: Vec<u32>,
    turns: Turns,
    shape: Shape,
    /// A turn failed: the members do not agree any more on what is next.
    failed: bool,
    scratch: [Room; 2],
    choice: choose::Choice,
    /// Where the communicator's other members are; `None`: all are here.
    across: Option<Across>,
}

impl Hall {
    #[inline(always)]
    fn line(&self, turn: u64, place: usize) -> usize {
        self.turns.line(turn, place) * LINE_BYTES
    }

    /// The line of whoever enters last.
    #[inline(always)]
    fn last_line(&self, turn: u64) -> usize {
        self.turns.last_line(turn) * LINE_BYTES
    }

    /// Somebody's piece, for reading.
    #[inline]
    fn piece(&self, turn: u64, place: usize) -> usize {
        let shape = self.shape;
        shape.line_bytes(self.members) + self.turns.piece(turn, place, shape.pieces) * shape.piece_bytes
    }

    /// This process's piece of the turn that it has entered, which may be written from now on.
    #[inline]
    fn own_piece(&mut self, turn: u64) -> Result<usize> {
        let needed = self.turns.needed(turn, self.shape.pieces);
        if !self.turns.has_seen(needed) {
            self.wait_all(needed)?;
        }
        Ok(self.piece(turn, self.me))
    }

    /// Begins the next turn; afterwards this process's line may be written.
    fn enter(&mut self) -> Result<u64> {
        if self.failed {
            let text = "an earlier collective on this communicator has failed: its members are out of step";
            return Err(Error::new(Class::OTHER, text));
        }
        let (turn, needed) = self.turns.begin();
        // Who waits for it already looks at it all the time; to take it from him begins now.
        self.segment.claim(self.line(turn, self.me));
        stats::turn();
        if !self.turns.has_seen(needed) {
            self.wait_all(needed)?;
        }
        if turn.is_multiple_of(TURNS_PER_POLL) {
            // Somebody else may wait for this process's answers.
            let mut guard = self.process.lock();
            self.process.poll(&mut guard, &mut Hand::empty());
        }
        Ok(turn)
    }

    /// Whether everybody has entered a turn.
    #[inline]
    fn all_in(&mut self, turn: u64) -> bool {
        self.turns.all_in(&self.segment, turn)
    }

    /// Whether one has.
    #[inline]
    fn is_in(&self, turn: u64, place: usize) -> bool {
        self.turns.is_in(&self.segment, turn, place)
    }

    /// Shows this process's line of a turn. `is_awaited`: others wait for just this one.
    fn show(&mut self, turn: u64, what: What, bytes: &[u8], is_awaited: bool) {
        if self.enter_line(turn, what, bytes) {
            self.tell_last(turn, what, &[]);
        } else if is_awaited {
            self.wake();
        }
    }

    /// The same without a word to the others: whoever is told that everybody has entered must tell them.
    #[inline]
    fn enter_line(&mut self, turn: u64, what: What, bytes: &[u8]) -> bool {
        self.segment.put(self.line(turn, self.me), bytes);
        self.turns.enter(&self.segment, turn, what as u16)
    }

    /// The word of whoever enters last. Two that enter together say the same.
    fn tell_last(&mut self, turn: u64, what: What, bytes: &[u8]) {
        if self.members > 2 {
            self.segment.put(self.last_line(turn), bytes);
            self.turns.tell(&self.segment, turn, what as u16);
        }
        self.wake();
    }

    /// Wakes all who sleep. What they shall find has been written, and a barrier has passed.
    #[inline]
    fn wake(&self) {
        let own = self.slots[self.me];
        self.process.wake(self.slots.iter().copied().filter(|slot| *slot != own));
    }

    /// Whether somebody has said that all have entered a turn.
    #[inline]
    fn is_told(&mut self, turn: u64) -> bool {
        self.turns.is_told(&self.segment, turn)
    }

    /// Shows this process's line and waits until everybody has entered the turn.
    fn meet(&mut self, turn: u64, what: What, bytes: &[u8]) -> Result<()> {
        self.meet_after(turn, what, bytes, || {})
    }

    /// The same; `meanwhile` is done after the others could see it.
    fn meet_after(&mut self, turn: u64, what: What, bytes: &[u8], meanwhile: impl FnOnce()) -> Result<()> {
        if self.members != 2 {
            self.show(turn, what, bytes, false);
            meanwhile();
            return self.wait_all(turn);
        }
        // The barrier would wait until the line has come from the other core, which is polling it: two ways instead of one. So the
        // other's line is looked at first. Whether the other sleeps is asked before, perhaps too early, and surely after the barrier.
        self.segment.put(self.line(turn, self.me), bytes);
        self.turns.show(&self.segment, turn, what as u16);
        self.wake();
        meanwhile();
        let (process, other, began) = (self.process, 1 - self.me, stats::start());
        let is_there = process.look_shortly(|| self.is_in(turn, other));
        full_barrier();
        self.wake();
        let result =
            if is_there && self.all_in(turn) { Ok(()) } else { self.wait_long(turn, None, |hall| hall.all_in(turn)) };
        stats::end(began);
        result
    }

    /// What a wait for `place`, or for everybody, is for.
    fn notice(&self, call: &str, turn: u64, place: Option<usize>) -> Notice {
        let missing = (0..self.members).filter(|at| place.is_none_or(|place| place == *at) && !self.is_in(turn, *at));
        let ranks: Vec<u32> = missing.map(|at| self.ranks[at].0).collect();
        Notice {
            call: call.to_owned(),
            place: self.name.clone(),
            count: ranks.len() as u32,
            ranks,
            any: false,
            tag: None,
            // Of several nodes each has its own turns.
            meeting: Some(u64::from(self.context) << 32 | turn & 0xffff_ffff).filter(|_| self.across.is_none()),
        }
    }

    fn wait_all(&mut self, turn: u64) -> Result<()> {
        let looks = self.members <= LOOK_AT_ALL;
        let (process, began) = (self.process, stats::start());
        let result = if process.look_shortly(|| self.is_told(turn) || looks && self.all_in(turn)) {
            Ok(())
        } else {
            // Whoever was last may have ended before he said so.
            self.wait_long(turn, None, |hall| hall.is_told(turn) || hall.all_in(turn))
        };
        stats::end(began);
        result
    }

    fn wait_one(&mut self, turn: u64, place: usize) -> Result<()> {
        let (process, began) = (self.process, stats::start());
        let shortly = process.look_shortly(|| self.is_in(turn, place));
        let result = if shortly { Ok(()) } else { self.wait_long(turn, Some(place), |hall| hall.is_in(turn, place)) };
        stats::end(began);
        result
    }

    #[inline(never)]
    fn wait_long(&mut self, turn: u64, place: Option<usize>, mut so: impl FnMut(&mut Hall) -> bool) -> Result<()> {
        let (process, call) = (self.process, watch::call());
        // Looked at by one of two closures at a time.
        let hall = RefCell::new(&mut *self);
        let mut why = |_: &mut Engine| Some(hall.borrow().notice(call, turn, place));
        let mut guard = process.lock();
        loop {
            if collective::any_active() {
                drop(guard);
                collective::drive(process);
                guard = process.lock();
            }
            let (waited, locked) =
                process.wait_telling(guard, &mut Hand::empty(), None, Watch::Always, &mut why, |engine, _| {
                    let mut hall = hall.borrow_mut();
                    if so(&mut hall) {
                        return Some(Some(Ok(())));
                    }
                    let table = matcher(engine);
                    if !table.gone.is_empty()
                        && let Some((rank, end)) =
                            table.gone.iter().find(|(rank, _)| hall.everybody.rank_of(rank.0).is_some())
                    {
                        return Some(Some(Err(peer_gone(*rank, *end))));
                    }
                    (table.requests.schedule_news && collective::any_active()).then_some(None)
                });
            guard = locked;
            if let Waited::Ready(Some(result)) = waited {
                let mut hall = hall.borrow_mut();
                hall.failed |= result.is_err();
                return result.map_err(|error| Error { on: Some(hall.comm), ..error });
            }
        }
    }

    /// Whether a member's line is of the collective that this process is in.
    fn check(&mut self, turn: u64, place: usize, what: What) -> Result<()> {
        let mark = self.segment.mark(self.line(turn, place));
        if mark == turns::mark(turn, what as u16) {
            return Ok(());
        }
        self.failed = true;
        let text = format!("rank {} of the job is in another collective on this communicator", self.ranks[place]);
        Err(Error { on: Some(self.comm), ..Error::new(Class::OTHER, text) })
    }

    /// Copies `len` bytes from `from` of a call's data into this process's piece.
    fn copy_in(&mut self, at: usize, data: &Data, from: usize, len: usize) {
        match data.as_flat() {
            Some(bytes) if from + len <= bytes.len() => self.segment.write(at, &bytes[from..from + len]),
            _ => self.segment.write(at, &data.pack_part(from, len)),
        }
    }

    /// Copies bytes out of somebody's piece to where they belong in a call's data.
    fn copy_out(&self, at: usize, data: &Data, to: usize, len: usize) {
        match data {
            Data::Flat { at: base, len: room } if to + len <= *room => {
                self.segment.read(at, base.offset(to as i64).bytes_mut(len));
            }
            _ => {
                let mut bytes = vec![0; len];
                self.segment.read(at, &mut bytes);
                data.put(to, &bytes);
            }
        }
    }

    /// The collective in which nothing is moved.
    fn barrier(&mut self) -> Result<()> {
        let turn = self.enter()?;
        self.meet(turn, What::Barrier, &[])
    }
}
