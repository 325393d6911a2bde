//! Messages whose bytes lie in ordinary memory of their sender and are read there by their receiver: the fallback where no arena holds
//! them and calibration says that it is faster than the pool. Part of the device; the system call is in `os::peer_memory`.
//!
//! Whether it is possible is found out once for a pair: the sender tells its process number, and where in its memory a random number
//! lies. The receiver reads it there. Only then is the number that of this very process, seen from here (containers number their
//! own), and only then may this process read there (another user, a tracing policy). The answer stands in the receiver's channel.
//!
//! What is read comes into private memory first and is checked by nobody else: a read that fails, because the sender is dying or may no
//! longer be looked at, delivers nothing. The receiver then says which reference was the first that it could not read, and never reads
//! again; the sender sends those bytes through the pool.

use super::announce::Reads;
use super::layout::{HEAD_MAX, Kind, MEMORY_WORD_AT, MemoryText, REFERENCE_BYTES, Reference};
use super::pair::{Home, Lent, Pair};
use super::ring::header;
use super::{Offer, Shm};
use crate::board::Board;
use crate::device::{Peer, SendError};
use crate::error::HalError;
use crate::os::peer_memory;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Longest body of one frame.
pub const PART_MAX: usize = 128 << 10;

/// What proves that a process number means this process.
#[repr(align(64))]
struct Proof([u64; 2]);

/// Made once; stays where it is.
fn proof() -> &'static Proof {
    static PROOF: OnceLock<Box<Proof>> = OnceLock::new();
    PROOF.get_or_init(|| {
        let mut bytes = [0; 16];
        // Without randomness the address alone has to do: a wrong process has hardly these bytes there.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let [low, high] = [0, 8].map(|at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i])));
        Box::new(Proof([low, high]))
    })
}

/// What one side of a pair knows about reading memory.
#[derive(Default)]
pub struct Reading {
    /// Whether the peer has been told about our memory, and what it answered.
    told: bool,
    reads: Option<Reads>,
    /// Process number of the peer as seen from here, once proved.
    pid: Option<i32>,
    /// The first reference that was not read; none are after it.
    refused: Option<u32>,
    staging: Vec<u8>,
}

impl Shm {
    /// Whether a peer reads our memory. The first question makes the offer that has to be passed to it.
    pub fn reads_memory(&mut self, peer: Peer) -> (Reads, Option<Offer>) {
        let my_slot = self.my_slot;
        let Some(Some(pair)) = self.pairs.get_mut(peer.0 as usize) else { return (Reads::Never, None) };
        let reads = pair.reads_memory();
        if reads != Reads::NotYet || pair.reading.told {
            return (reads, None);
        }
        pair.reading.told = true;
        let proof = proof();
        let text = MemoryText {
            slot: my_slot,
            pid: std::process::id(),
            address: std::ptr::from_ref(proof) as u64,
            proof: proof.0,
        };
        (reads, Some(Offer { what: text.encode(), fds: Vec::new() }))
    }

    /// A peer tells about its memory: tried, and answered.
    pub(super) fn accept_memory(&mut self, slot: u32, text: MemoryText) -> Result<Peer, HalError> {
        let peer = self.peer(slot).ok_or(HalError::BadOffer("memory before its channel"))?;
        if text.slot != slot {
            return Err(HalError::BadOffer("it names another slot than its sender's"));
        }
        let Some(Some(pair)) = self.pairs.get_mut(peer.0 as usize) else {
            return Err(HalError::BadOffer("memory before its channel"));
        };
        if pair.reading.pid.is_none() && pair.reading.refused.is_none() {
            let answer = if text.is_proved() { Reads::Yes } else { Reads::Never };
            pair.reading.pid = (answer == Reads::Yes).then_some(text.pid as i32);
            pair.answer_memory(answer, 0);
            pair.ring(&self.board);
        }
        Ok(peer)
    }

    /// Sends a frame whose body a peer reads in this process's memory, whatever part of it, until `token` comes back by
    /// [`crate::device::Device::completed`]; [`Shm::unread`] tells those that were not read.
    pub fn send_memory(&mut self, to: Peer, head: &[u8], body: &[u8], token: u64) -> Result<(), SendError> {
        if head.len() > HEAD_MAX || body.len() > PART_MAX {
            return Err(SendError::TooLong { len: head.len() + body.len(), max: PART_MAX });
        }
        let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return Err(SendError::PeerGone) };
        if pair.reads_memory() != Reads::Yes {
            return Err(SendError::Unsupported);
        }
        self.uses_memory = true;
        let result = pair.send_memory(&self.board, &mut self.home, head, body, token);
        self.sent(result, head.len() + body.len())
    }

    /// The tokens that have come back because a peer could not read what they stand for, appended to `tokens`.
    pub fn unread(&mut self, tokens: &mut Vec<u64>) {
        tokens.append(&mut self.home.unread);
    }
}

impl MemoryText {
    /// Whether the process with that number has the proof at that address, and may be read.
    fn is_proved(&self) -> bool {
        let mut found = [0; 16];
        let Ok(pid) = i32::try_from(self.pid) else { return false };
        let expected = self.proof.map(u64::to_ne_bytes).concat();
        peer_memory::read(pid, self.address, &mut found).is_ok() && found[..] == expected[..]
    }
}

impl Pair {
    /// Whether the peer reads our memory. A yes may become a never.
    fn reads_memory(&mut self) -> Reads {
        if self.reading.reads == Some(Reads::Never) {
            return Reads::Never;
        }
        let Some(incoming) = &self.incoming else { return Reads::NotYet };
        // Acquire: pairs with the release of `answer_memory`.
        let word = incoming.channel.load_u64(MEMORY_WORD_AT, Ordering::Acquire);
        let reads = Reads::of_word(word & u64::from(u32::MAX));
        self.reading.reads = Some(reads);
        reads
    }

    fn answer_memory(&self, reads: Reads, first_refused: u32) {
        let word = memory_word(reads, first_refused);
        // Release: pairs with the acquire of `reads_memory` and of `is_unread`.
        self.channel.u64_at(MEMORY_WORD_AT).store(word, Ordering::Release);
    }

    fn send_memory(
        &mut self,
        board: &Board,
        home: &mut Home,
        head: &[u8],
        body: &[u8],
        token: u64,
    ) -> Result<(), SendError> {
        let header = header(Kind::Memory, REFERENCE_BYTES + head.len());
        self.make_room(header, home)?;
        let reference = Reference { offset: body.as_ptr() as u64, len: body.len() as u32 };
        self.push_reference(header, &reference.encode(), head);
        self.lent.push_back(Lent::Memory(token));
        self.ring(board);
        Ok(())
    }

    /// Whether the peer, which has given this reference back, did not read it.
    pub(super) fn is_unread(&self, number: u32) -> bool {
        let Some(incoming) = &self.incoming else { return true };
        // Acquire: pairs with the release of `answer_memory`, which came before the credit that brought the reference back.
        let word = incoming.channel.load_u64(MEMORY_WORD_AT, Ordering::Acquire);
        says_unread(word, number)
    }

    /// Reads what a reference stands for, behind its head; `None`, and never again, when that cannot be done.
    pub(super) fn read_memory(
        reading: &mut Reading,
        number: u32,
        reference: Reference,
        head: &[u8],
    ) -> Result<bool, &'static str> {
        if reference.len as usize > PART_MAX {
            return Err("a part of memory that is longer than any");
        }
        let Some(pid) = reading.pid else { return Err("a reference into memory that was never proved") };
        if reading.refused.is_some() {
            return Ok(false);
        }
        reading.staging.clear();
        reading.staging.extend_from_slice(head);
        reading.staging.resize(head.len() + reference.len as usize, 0);
        let read = peer_memory::read(pid, reference.offset, &mut reading.staging[head.len()..]);
        if read.is_err() {
            reading.refused = Some(number);
        }
        Ok(read.is_ok())
    }

    /// Tells the peer that nothing of its memory was read from this reference on. To be called before the credit for it.
    pub(super) fn tell_refusal(&self) {
        if let Some(first) = self.reading.refused {
            self.answer_memory(Reads::Never, first);
        }
    }
}

/// What a reader says about its peer's memory, and from which reference on nothing was read.
pub(crate) fn memory_word(reads: Reads, first_refused: u32) -> u64 {
    reads.word() | u64::from(first_refused) << 32
}

/// Whether that means that this reference was not read.
pub(crate) fn says_unread(word: u64, number: u32) -> bool {
    let first_refused = (word >> 32) as u32;
    Reads::of_word(word & u64::from(u32::MAX)) == Reads::Never && number.wrapping_sub(first_refused) < u32::MAX / 2
}

impl Reading {
    /// As if the peer's process were another one, whose memory is closed.
    #[cfg(test)]
    pub fn lose_sight(&mut self) {
        self.pid = self.pid.map(|_| i32::MAX);
    }

    /// What was read last, behind its head.
    pub fn staged(&mut self) -> &mut [u8] {
        &mut self.staging
    }
}
