//! Segments: memory that some processes of a node write together, made by one of them and passed to the others by the keeper.
//! Interfaces agree beforehand who makes one and under which token; what has come waits here until it is taken.
//! Called with the engine locked; never blocks.

use crate::engine::Engine;
use crate::error::{End, Error};
use pulc_base::Rank;
use pulc_hal::error::HalError;
use pulc_hal::segment::{Segment, SegmentText};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// Segments of one process that may wait to be taken.
const UNTAKEN_MAX: usize = 64;

/// What has come, by its maker and its token.
#[derive(Default)]
pub(crate) struct Segments {
    arrived: HashMap<(Rank, u64), Result<Segment, HalError>>,
}

impl Engine {
    /// Passes a segment to another process of this node. Whether there is anybody who carries it there.
    ///
    /// # Errors
    /// When the descriptor cannot be copied.
    pub fn pass_segment(&mut self, dst: Rank, text: SegmentText, fd: &OwnedFd) -> Result<bool, Error> {
        let Some(broker) = &mut self.broker else { return Ok(false) };
        let copy = fd.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|source| Error::System { doing: "copy a descriptor", source })?;
        broker.pass(dst, text.encode(), vec![copy]);
        Ok(true)
    }

    /// The segment that `from` has passed under this token, once; `None`: it has not come.
    pub fn take_segment(&mut self, from: Rank, token: u64) -> Option<Result<Segment, HalError>> {
        self.segments.arrived.remove(&(from, token))
    }

    /// The place on the board of a rank of this node.
    pub fn slot_of(&self, rank: Rank) -> Option<u32> {
        self.shm.local.iter().position(|local| *local == rank).map(|slot| slot as u32)
    }

    /// Wakes the process in this place of the board if it sleeps.
    pub fn ring(&mut self, slot: u32) {
        self.shm.device.ring(slot);
    }

    /// Whether processes of this node can pass memory to each other.
    pub fn has_keeper(&self) -> bool {
        self.broker.is_some()
    }

    pub(crate) fn accept_segment(&mut self, from: Rank, text: SegmentText, fds: Vec<OwnedFd>) {
        let waiting = self.segments.arrived.keys().filter(|(maker, _)| *maker == from).count();
        if waiting >= UNTAKEN_MAX {
            self.floor.broken.push((from, End::BrokenRules("it passes segments that nobody has asked for")));
            return;
        }
        let Ok([fd]) = <[OwnedFd; 1]>::try_from(fds) else {
            return self.refuse_offer(from, HalError::BadOffer("wrong number of descriptors"));
        };
        let segment = match Segment::attach(fd, text.bytes as usize) {
            // A mapping that fails is no fault of the maker's: whoever takes it is told.
            segment @ (Ok(_) | Err(HalError::System { .. })) => segment,
            Err(error) => return self.refuse_offer(from, error),
        };
        self.segments.arrived.insert((from, text.token), segment);
    }
}
