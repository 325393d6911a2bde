//! Errands: what an interface wants done whenever the engine makes progress, whoever polls. An interface that keeps its own unfinished
//! sends steps them here, so that they leave also while the program waits for something else. Registered once per protocol;
//! called with the engine locked: must never block or wait.

use crate::engine::{Engine, Outcome};
use crate::error::SendFault;
use crate::sending::{Progress, Sending};
use pulc_base::{Proto, Rank};

/// Does what can be done now; returns how many things were finished that threads may wait for.
pub type Errand = fn(&mut Engine) -> usize;

/// When an errand is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    No,
    /// After a poll that took something: what it waits for comes in a frame.
    OnNews,
    /// After every poll: it waits for room, which no frame announces.
    Always,
}

/// Errands by protocol, and when each is wanted.
#[derive(Default)]
pub(crate) struct Errands {
    table: [Option<Errand>; Proto::COUNT],
    /// Bit sets of protocols.
    on_news: u32,
    always: u32,
}

impl Errands {
    /// Whether one is to be run after a poll that took `frames` frames.
    #[inline(always)]
    pub fn wanted(&self, frames: usize) -> bool {
        self.on_news != 0 && (frames > 0 || self.always != 0)
    }

    /// Whether one waits for room.
    #[inline]
    pub fn want_room(&self) -> bool {
        self.always != 0
    }

    pub fn is_idle(&self) -> bool {
        self.on_news == 0
    }
}

impl Engine {
    /// Gives a protocol its errand.
    pub fn register_errand(&mut self, proto: Proto, errand: Errand) {
        if let Some(place) = self.errands.table.get_mut(usize::from(proto.0)) {
            *place = Some(errand);
        }
    }

    /// Says when the protocol's errand is to be run.
    #[inline]
    pub fn set_busy(&mut self, proto: Proto, busy: Busy) {
        let bit = 1 << proto.0;
        let errands = &mut self.errands;
        errands.on_news = if busy == Busy::No { errands.on_news & !bit } else { errands.on_news | bit };
        errands.always = if busy == Busy::Always { errands.always | bit } else { errands.always & !bit };
    }

    #[cold]
    pub(crate) fn run_errands(&mut self) -> usize {
        let mut finished = 0;
        for proto in 0..Proto::COUNT {
            if self.errands.on_news & 1 << proto != 0
                && let Some(errand) = self.errands.table[proto]
            {
                finished += errand(self);
            }
        }
        finished
    }

    /// A message goes very likely to the rank that has sent last; see [`pulc_hal::device::shm::Shm::claim_for_hot`].
    #[inline(always)]
    pub fn prepare_answer(&self) {
        self.shm.device.claim_for_hot();
    }

    /// Sends a message of at most eight bytes behind a header of one word, counted, which are put into a cell as they are; false when
    /// it is not for this node, or longer, or there is no room: then [`Engine::try_counted`] is to be tried.
    #[inline(always)]
    pub fn try_counted_word(&mut self, dst: Rank, proto: Proto, header: u64, body: &[u8]) -> bool {
        self.try_word(dst, proto, header, body)
    }

    /// Sends a message of one frame, counted against its receiver's credit; false when there is no room for it now.
    #[inline(always)]
    pub fn try_counted(&mut self, dst: Rank, proto: Proto, header: &[u8], body: &[u8]) -> Result<bool, SendFault> {
        Ok(body.len() <= self.whole_max() && self.try_whole(dst, proto, 0, header, body)? == Outcome::Sent)
    }
}

impl<'a> Sending<'a> {
    /// A message that is counted against its receiver's credit, to be stepped by its owner.
    #[inline]
    pub fn counted(dst: Rank, proto: Proto, header: &'a [u8], body: &'a [u8]) -> Sending<'a> {
        Sending::new(dst, proto, 0, header, body)
    }
}

impl Progress {
    /// Whether nothing can be done before its receiver has answered.
    pub fn waits_for_grant(self) -> bool {
        self.is_asked()
    }
}
