//! Buffers that are posted to a channel, and what comes back with them. Plain data.

use crate::{Block, Error};
use std::ops::{Deref, DerefMut};

/// A place that a message may land in later. It belongs to the channel while it is posted.
pub enum Buffer {
    Owned(Vec<u8>),
    /// Memory of [`crate::alloc`].
    Shared(Block),
    /// Memory of the program's, by its own promise.
    Foreign(pulc_hal::os::foreign::ForeignBytes),
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer::Owned(bytes)
    }
}

impl From<Block> for Buffer {
    fn from(block: Block) -> Buffer {
        Buffer::Shared(block)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Owned(bytes) => bytes,
            Buffer::Shared(block) => block,
            Buffer::Foreign(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Owned(bytes) => bytes,
            Buffer::Shared(block) => block,
            Buffer::Foreign(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer of {} bytes", self.len())
    }
}

/// A posted buffer that has come back.
#[derive(Debug)]
pub struct Landed {
    pub buffer: Buffer,
    /// The number that it was posted with.
    pub token: u64,
    /// Length of the message at the buffer's front, or why there is none: [`Error::BufferTooSmall`] (the message waits for
    /// the next buffer) or [`Error::PeerGone`].
    pub result: Result<usize, Error>,
}
