//! The seam between the solver and whatever carries its messages. The solver knows only this trait, so the same solver runs on
//! PULC ports ([`ports`]) and, in tests, on threads of one process ([`threads`]); other interfaces fit here later.

pub mod ports;
pub mod threads;

use serde::{Deserialize, Serialize};

/// Moves bytes between the ranks of one run.
pub trait Exchange {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;

    /// Sends `bytes` to rank `to`. The buffer is free on return. Messages to one rank arrive in the order sent.
    fn send(&mut self, to: usize, tag: u64, bytes: &[u8]) -> Result<(), ExchangeError>;

    /// Waits for the message with this tag from rank `from`, which must be exactly as long as `bytes`.
    fn recv(&mut self, from: usize, tag: u64, bytes: &mut [u8]) -> Result<(), ExchangeError>;

    /// What this rank has sent so far, by device.
    fn traffic(&self) -> Vec<Traffic>;
}

/// What went out through one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    pub device: String,
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    #[error("rank {rank} is gone")]
    PeerGone { rank: usize },
    #[error("a message from rank {from} has {got} bytes, expected {expected}")]
    Length { from: usize, got: usize, expected: usize },
    #[error("{0}")]
    Other(String),
}

/// Longest message that anything is sent in, in bytes. Short enough to be sent without asking the receiver first: two
/// neighbours that send each other long edges at the same time must not wait for each other.
const PIECE_MAX_BYTES: usize = 32 * 1024;

/// Sends a buffer of any length as a row of messages with one tag.
pub fn send_long(exchange: &mut dyn Exchange, to: usize, tag: u64, bytes: &[u8]) -> Result<(), ExchangeError> {
    bytes.chunks(PIECE_MAX_BYTES).try_for_each(|piece| exchange.send(to, tag, piece))
}

/// Receives what [`send_long`] sent; both sides know the length.
pub fn recv_long(exchange: &mut dyn Exchange, from: usize, tag: u64, bytes: &mut [u8]) -> Result<(), ExchangeError> {
    bytes.chunks_mut(PIECE_MAX_BYTES).try_for_each(|piece| exchange.recv(from, tag, piece))
}

/// What a message is for: the upper half of its tag. The lower half is the step or the side, so that a message can never be
/// taken for one of another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Setup = 1,
    Edge = 2,
    Snapshot = 3,
    Result = 4,
    Barrier = 5,
}

/// Bits 60..64 purpose, 4..60 step, 0..4 side.
pub fn tag(purpose: Purpose, step: u64, side: u64) -> u64 {
    ((purpose as u64) << 60) | (step << 4) | side
}

/// Returns when every rank has called it.
pub fn barrier(exchange: &mut dyn Exchange, round: u64) -> Result<(), ExchangeError> {
    let (gather, release) = (tag(Purpose::Barrier, round, 0), tag(Purpose::Barrier, round, 1));
    if exchange.rank() == 0 {
        (1..exchange.size()).try_for_each(|rank| exchange.recv(rank, gather, &mut []))?;
        (1..exchange.size()).try_for_each(|rank| exchange.send(rank, release, &[]))
    } else {
        exchange.send(0, gather, &[])?;
        exchange.recv(0, release, &mut [])
    }
}

/// Returns when rank 0 has ended. For ranks that know of a failure which rank 0 reports: if they ended first, the launcher
/// might end rank 0 before it has said why.
pub fn outlive_rank_0(exchange: &mut dyn Exchange) {
    if exchange.rank() > 0 {
        // Rank 0 never sends this.
        let _ = exchange.recv(0, tag(Purpose::Setup, u64::from(u32::MAX), 0), &mut []);
    }
}

/// Copies numbers into a message, little-endian.
pub fn pack(values: &[f64], bytes: &mut [u8]) {
    for (value, slot) in values.iter().zip(bytes.chunks_exact_mut(8)) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
}

/// Copies a message back into numbers.
pub fn unpack(bytes: &[u8], values: &mut [f64]) {
    for (slot, value) in bytes.chunks_exact(8).zip(values) {
        *value = f64::from_le_bytes(slot.try_into().expect("chunks_exact(8) yields 8 bytes"));
    }
}
