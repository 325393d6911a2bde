//! One blocking send as a state machine: whole, in parts, or asked for first. Stepped under the engine's lock by the thread
//! that sends, between polls; the body stays the caller's, so a long message is cut and copied straight from it, or read there
//! by its receiver (`referring`): in the arena, or, part by part, in ordinary memory.

use crate::engine::{Engine, Outcome};
use crate::error::SendFault;
use crate::outbox::Post;
use crate::wire::{FREE, Head, Kind, MESSAGE_COST};
use pulc_base::{Proto, Rank};
use pulc_hal::device::shm::MEMORY_PART_MAX;

/// Parts sent in one step at most, so that receiving is not forgotten.
const PARTS_PER_STEP: usize = 16;
/// Longest part, in usual ones.
const LONG_PART: usize = 4;
/// Between nodes parts may be short: then a bunch of them leaves together.
const SHORT_PART_BYTES: usize = 16 << 10;
const SHORT_PARTS_PER_STEP: usize = 64;

/// What one reference covers at most: the receiver copies it in one go, before it looks at anything else.
const REFERENCE_BYTES: usize = 1 << 20;

/// A message on its way out.
pub struct Sending<'a> {
    dst: Rank,
    proto: Proto,
    flags: u8,
    header: &'a [u8],
    body: &'a [u8],
    state: State,
    /// Its receiver is asked first whatever its length.
    asks: bool,
}

/// How far a message has come; with it, whoever owns the bytes can put it aside and go on later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress(State);

impl Progress {
    pub(crate) fn is_asked(self) -> bool {
        matches!(self.0, State::Asked { .. })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Begin,
    Asked {
        id: u32,
    },
    Parts {
        id: u32,
        sent: usize,
    },
    /// The receiver is to read the next part in our memory.
    Reading {
        id: u32,
        sent: usize,
        part: usize,
        token: u64,
    },
    /// All of it is announced, and the receiver has still to read what lies in our arena.
    Referred {
        token: u64,
    },
}

impl<'a> Sending<'a> {
    #[inline]
    pub(crate) fn new(dst: Rank, proto: Proto, flags: u8, header: &'a [u8], body: &'a [u8]) -> Sending<'a> {
        Sending { dst, proto, flags, header, body, state: State::Begin, asks: false }
    }

    /// Tries to send it as one frame, the way of most messages; `None` when it is too long for that.
    #[inline]
    pub(crate) fn try_whole(&self, engine: &mut Engine) -> Option<Result<Outcome, SendFault>> {
        (!self.asks && self.body.len() <= engine.whole_max())
            .then(|| engine.try_whole(self.dst, self.proto, self.flags, self.header, self.body))
    }

    /// A message outside all credit, for protocols that count their own. It leaves at once unless it is longer than
    /// a peer's whole window: then its receiver's handler is asked first.
    pub fn uncounted(dst: Rank, proto: Proto, header: &'a [u8], body: &'a [u8]) -> Sending<'a> {
        Sending::new(dst, proto, FREE, header, body)
    }

    /// Where to go on with [`Sending::resume`].
    pub fn progress(&self) -> Progress {
        Progress(self.state)
    }

    /// The same message, made anew from the same bytes.
    pub fn resume(mut self, from: Progress) -> Sending<'a> {
        self.state = from.0;
        self
    }

    /// The message leaves only when its receiver has taken it: for sends that end with their receive.
    pub fn asking(mut self) -> Sending<'a> {
        self.asks = true;
        self
    }

    #[inline]
    pub fn dst(&self) -> Rank {
        self.dst
    }

    /// Whether nothing of the message has left yet, so that it can still be dropped.
    pub fn untouched(&self) -> bool {
        self.state == State::Begin
    }

    /// Goes as far as there is room. `None`: not finished.
    pub fn step(&mut self, engine: &mut Engine) -> Option<Result<(), SendFault>> {
        match self.advance(engine) {
            Ok(Outcome::Sent) => Some(Ok(())),
            Ok(Outcome::Again) => None,
            Err(fault) => Some(Err(fault)),
        }
    }

    fn advance(&mut self, engine: &mut Engine) -> Result<Outcome, SendFault> {
        if let Some(end) = engine.end_of(self.dst) {
            if let State::Referred { token } = self.state
                && engine.take_token(token)
            {
                return Ok(Outcome::Sent);
            }
            return Err(SendFault::PeerGone(self.dst, end));
        }
        match self.state {
            State::Begin => self.begin(engine),
            State::Asked { id } => {
                if !engine.floor.peers[self.dst.0 as usize].take_grant(id) {
                    return Ok(Outcome::Again);
                }
                self.state = State::Parts { id, sent: 0 };
                self.parts(engine, id, 0)
            }
            State::Parts { id, sent } => self.parts(engine, id, sent),
            State::Reading { id, sent, part, token } => match engine.take_memory_token(token) {
                None => Ok(Outcome::Again),
                Some(true) if sent + part == self.body.len() => {
                    engine.count_sent(self.dst, self.body.len());
                    Ok(Outcome::Sent)
                }
                Some(true) => self.parts(engine, id, sent + part),
                // It cannot read there (any more): these bytes and all that follow go through the pool.
                Some(false) => self.parts(engine, id, sent),
            },
            State::Referred { token } => self.referred(engine, token),
        }
    }

    fn begin(&mut self, engine: &mut Engine) -> Result<Outcome, SendFault> {
        let len = self.body.len();
        if len > engine.limits().message_max_bytes {
            return Err(SendFault::TooLong { len, max: engine.limits().message_max_bytes });
        }
        let body_max = engine.body_max(self.dst, self.header.len())?;
        let free = self.flags & FREE != 0;
        let cost = if free { 0 } else { len as u64 + MESSAGE_COST };
        let peer = &engine.floor.peers[self.dst.0 as usize];
        let has_credit = peer.credit >= cost;
        if self.dst == engine.rank() {
            if !has_credit {
                let max = engine.limits().unexpected_max_bytes as u64;
                return Err(SendFault::SelfFull { kept: max - peer.credit, max });
            }
            return engine.try_whole(self.dst, self.proto, self.flags, self.header, self.body);
        }
        // What is outside all credit may still not exceed what one peer may fill at all.
        let eager_max = if free { engine.floor.window as usize } else { engine.limits().eager_max_bytes };
        let eager = (free || has_credit) && len <= eager_max && !self.asks;
        if !eager {
            return self.ask(engine);
        }
        if engine.refers(self.dst, self.body) {
            return self.whole_by_reference(engine, cost);
        }
        if len <= body_max {
            return engine.try_whole(self.dst, self.proto, self.flags, self.header, self.body);
        }
        self.first(engine, body_max, cost)
    }

    fn ask(&mut self, engine: &mut Engine) -> Result<Outcome, SendFault> {
        let Some(id) = self.next_id(engine) else { return Ok(Outcome::Again) };
        let head = self.head(Kind::Ask, id);
        let outcome = engine.send_frame(self.dst, head, self.header, &[])?;
        if outcome == Outcome::Sent {
            let peer = &mut engine.floor.peers[self.dst.0 as usize];
            peer.asked.push(id);
            peer.leaving += 1;
            self.state = State::Asked { id };
            return Ok(Outcome::Again);
        }
        Ok(outcome)
    }

    /// A number for a message in parts, unless as many as the receiver takes are under way.
    fn next_id(&self, engine: &mut Engine) -> Option<u32> {
        let peer = &mut engine.floor.peers[self.dst.0 as usize];
        (peer.leaving < engine.floor.transfers_max).then(|| peer.take_id())
    }

    fn first(&mut self, engine: &mut Engine, body_max: usize, cost: u64) -> Result<Outcome, SendFault> {
        let Some(id) = self.next_id(engine) else { return Ok(Outcome::Again) };
        let head = self.head(Kind::First, id);
        let Some(sent) = engine.send_part(self.dst, head, self.header, self.body, body_max, body_max)? else {
            return Ok(Outcome::Again);
        };
        let peer = &mut engine.floor.peers[self.dst.0 as usize];
        peer.credit -= cost;
        peer.leaving += 1;
        self.state = State::Parts { id, sent };
        self.parts(engine, id, sent)
    }

    fn whole_by_reference(&mut self, engine: &mut Engine, cost: u64) -> Result<Outcome, SendFault> {
        let head = Head { total: 0, ..self.head(Kind::Whole, 0) };
        let (outcome, token) = engine.send_reference(self.dst, head, self.header, self.body, true)?;
        if outcome == Outcome::Again {
            return Ok(outcome);
        }
        let peer = &mut engine.floor.peers[self.dst.0 as usize];
        peer.credit = peer.credit.saturating_sub(cost);
        self.referred(engine, token)
    }

    fn referred(&mut self, engine: &mut Engine, token: u64) -> Result<Outcome, SendFault> {
        if engine.take_token(token) {
            engine.count_sent(self.dst, self.body.len());
            return Ok(Outcome::Sent);
        }
        self.state = State::Referred { token };
        Ok(Outcome::Again)
    }

    fn parts_by_reference(&mut self, engine: &mut Engine, id: u32, mut sent: usize) -> Result<Outcome, SendFault> {
        let head = Head { proto: self.proto.0, kind: Kind::Next, header_len: 0, flags: self.flags, id, total: 0 };
        for _ in 0..PARTS_PER_STEP {
            let part = &self.body[sent..self.body.len().min(sent.saturating_add(REFERENCE_BYTES))];
            let is_last = sent + part.len() == self.body.len();
            let (outcome, token) = engine.send_reference(self.dst, head, &[], part, is_last)?;
            if outcome == Outcome::Again {
                break;
            }
            sent += part.len();
            if is_last {
                engine.floor.peers[self.dst.0 as usize].left();
                return self.referred(engine, token);
            }
        }
        self.state = State::Parts { id, sent };
        Ok(Outcome::Again)
    }

    /// One part, which the receiver reads in our memory before the next one is told.
    fn part_by_reading(&mut self, engine: &mut Engine, id: u32, sent: usize) -> Result<Outcome, SendFault> {
        let head = Head { proto: self.proto.0, kind: Kind::Next, header_len: 0, flags: self.flags, id, total: 0 };
        let part = &self.body[sent..self.body.len().min(sent + MEMORY_PART_MAX)];
        let (outcome, token) = engine.send_memory(self.dst, head, part)?;
        self.state = match outcome {
            Outcome::Sent => State::Reading { id, sent, part: part.len(), token },
            Outcome::Again => State::Parts { id, sent },
        };
        Ok(Outcome::Again)
    }

    fn parts(&mut self, engine: &mut Engine, id: u32, mut sent: usize) -> Result<Outcome, SendFault> {
        let is_referred = engine.refers(self.dst, self.body);
        if is_referred || engine.reads_memory(self.dst, self.body.len()) {
            // Of what was sent before.
            engine.tell_of_parts(self.dst);
            return match is_referred {
                true => self.parts_by_reference(engine, id, sent),
                false => self.part_by_reading(engine, id, sent),
            };
        }
        let part_max = engine.body_max(self.dst, 0)?;
        let head = Head { proto: self.proto.0, kind: Kind::Next, header_len: 0, flags: self.flags, id, total: 0 };
        let parts = if part_max < SHORT_PART_BYTES { SHORT_PARTS_PER_STEP } else { PARTS_PER_STEP };
        let step_end = sent.saturating_add(parts * part_max);
        while sent < step_end {
            let rest = &self.body[sent..];
            let bytes_max = long_part(sent, rest.len(), part_max);
            let Some(bytes) = engine.send_part(self.dst, head, &[], rest, part_max, bytes_max)? else { break };
            sent += bytes;
            if sent == self.body.len() {
                engine.floor.peers[self.dst.0 as usize].left();
                engine.count_sent(self.dst, self.body.len());
                engine.tell_of_parts(self.dst);
                return Ok(Outcome::Sent);
            }
        }
        engine.tell_of_parts(self.dst);
        self.state = State::Parts { id, sent };
        Ok(Outcome::Again)
    }

    fn head(&self, kind: Kind, id: u32) -> Head {
        let (header_len, total) = (self.header.len() as u8, self.body.len() as u64);
        Head { proto: self.proto.0, kind, header_len, flags: self.flags, id, total }
    }

    /// Gives up. True when nothing of the message will arrive; a message whose parts are already flowing cannot be called
    /// back.
    pub fn withdraw(&mut self, engine: &mut Engine) -> bool {
        match self.state {
            State::Begin => true,
            State::Asked { id } => {
                let peer = &mut engine.floor.peers[self.dst.0 as usize];
                peer.asked.retain(|asked| *asked != id);
                peer.take_grant(id);
                engine.floor.outbox.push(self.dst, Post::Withdraw { id });
                true
            }
            State::Parts { .. } | State::Reading { .. } | State::Referred { .. } => false,
        }
    }
}

/// How long the next part may be where the device takes longer ones than `part_max`. Each costs both ends a moment, but the receiver copies
/// the first one while the second is on its way, and is busy with the last one alone: so they grow from the beginning and shrink towards the end.
fn long_part(sent: usize, rest: usize, part_max: usize) -> usize {
    let quarter = rest / 4 / part_max * part_max;
    sent.min(quarter).clamp(part_max, LONG_PART * part_max)
}
