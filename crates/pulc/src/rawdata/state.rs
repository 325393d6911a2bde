//! What one channel has: posted buffers, kept messages, and blocked receives whose message comes in parts. Used by `table` only,
//! with the engine locked. Keeps the rule that no buffer waits while a message is kept.

use super::buffer::{Buffer, Landed};
use super::kept::Kept;
use crate::Error;
use pulc_base::Rank;
use pulc_handler::{Body, End};
use std::collections::VecDeque;

/// A buffer that was posted, in the order of posting.
pub struct Posted {
    pub buffer: Buffer,
    pub token: u64,
    pub state: PostState,
}

pub enum PostState {
    Waiting,
    /// Its message comes in parts.
    Coming {
        transfer: u64,
        landed: usize,
        total: usize,
    },
    Done(Result<usize, Error>),
}

/// One channel's end.
pub struct State {
    pub peer: Rank,
    pub number: u16,
    /// Closed ends throw away what comes; those that were never opened keep it.
    pub open: bool,
    pub closed: bool,
    pub posted: VecDeque<Posted>,
    /// How many of `posted`, from the front, are no longer waiting.
    pub taken: usize,
    pub kept: VecDeque<Kept>,
    /// Blocked receives whose message comes in parts.
    pub coming: usize,
}

/// A blocked receive whose message comes in parts: the first `landed` bytes are in its buffer, `stored` came while another
/// thread polled.
pub struct Coming {
    pub ticket: u64,
    pub total: usize,
    pub landed: usize,
    pub stored: Vec<u8>,
    pub done: bool,
    pub withdrawn: bool,
}

impl State {
    pub fn new(peer: Rank, number: u16) -> State {
        State {
            peer,
            number,
            open: false,
            closed: false,
            posted: VecDeque::new(),
            taken: 0,
            kept: VecDeque::new(),
            coming: 0,
        }
    }

    /// Where the first waiting buffer stands that a message of `needed` bytes fits; those before it that are too small come back.
    pub fn next_fitting(&mut self, needed: usize) -> Option<usize> {
        loop {
            let at = self.taken;
            let len = self.posted.get(at)?.buffer.len();
            self.taken += 1;
            if needed <= len {
                return Some(at);
            }
            self.posted[at].state = PostState::Done(Err(Error::BufferTooSmall { needed, len }));
        }
    }

    /// The first posted buffer, if it is done.
    pub fn take_posted(&mut self) -> Option<Landed> {
        if !matches!(self.posted.front()?.state, PostState::Done(_)) {
            return None;
        }
        let posted = self.posted.pop_front()?;
        self.taken -= 1;
        let PostState::Done(result) = posted.state else { return None };
        Some(Landed { buffer: posted.buffer, token: posted.token, result })
    }

    /// Takes back the last posted buffer that still waits.
    pub fn unpost(&mut self) -> Option<Buffer> {
        if self.has_waiting() { self.posted.pop_back().map(|posted| posted.buffer) } else { None }
    }

    /// Nothing more comes: every waiting buffer goes back.
    pub fn end(&mut self, end: End) {
        for posted in self.posted.iter_mut().skip(self.taken) {
            posted.state = PostState::Done(Err(Error::PeerGone { rank: self.peer, how: end.to_string() }));
        }
        self.taken = self.posted.len();
    }

    /// The message that came to this buffer in parts was withdrawn: the buffer waits again, behind those that later messages
    /// have taken.
    pub fn wait_again(&mut self, transfer: u64) {
        if let Some(mut posted) = self.posted_of(transfer).and_then(|at| self.posted.remove(at)) {
            posted.state = PostState::Waiting;
            self.taken -= 1;
            self.posted.insert(self.taken, posted);
        }
    }

    /// Whether a receive has something to take or a posted buffer is done.
    pub fn has_something(&self) -> bool {
        !self.kept.is_empty() || matches!(self.posted.front(), Some(Posted { state: PostState::Done(_), .. }))
    }

    /// Length of the first kept message, if no buffer waits for it.
    pub fn first_len(&self) -> Option<usize> {
        if self.has_waiting() { None } else { self.kept.front().map(Kept::len) }
    }

    /// The bytes of a posted buffer.
    pub fn posted_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.posted[at].buffer
    }

    /// Buffers posted and not taken back.
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Whether a buffer waits for a message.
    pub fn has_waiting(&self) -> bool {
        self.posted.len() > self.taken
    }

    /// Whether nobody has an earlier right to the next message than a receive that begins now.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.open && self.kept.is_empty() && !self.has_waiting() && self.coming == 0
    }

    pub fn posted_of(&self, transfer: u64) -> Option<usize> {
        self.posted
            .iter()
            .position(|posted| matches!(posted.state, PostState::Coming { transfer: of, .. } if of == transfer))
    }

    pub fn kept_of(&self, transfer: u64) -> Option<usize> {
        self.kept.iter().position(|kept| match kept {
            Kept::Coming { transfer: of, done, .. } => *of == transfer && !done,
            Kept::Asked { transfer: of, .. } => *of == transfer,
            _ => false,
        })
    }
}

impl Coming {
    /// Moves what came while others polled to the owner's buffer.
    pub fn fetch(&mut self, buffer: &mut [u8]) {
        if !self.stored.is_empty() {
            buffer[self.landed..self.landed + self.stored.len()].copy_from_slice(&self.stored);
            self.landed += self.stored.len();
            self.stored = Vec::new();
        }
    }

    pub fn take(&mut self, body: Body<'_>, buffer: Option<&mut [u8]>) {
        match buffer {
            Some(buffer) => {
                self.fetch(buffer);
                self.landed += body.copy_to(&mut buffer[self.landed..]);
            }
            None => body.append_to(&mut self.stored),
        }
    }
}
