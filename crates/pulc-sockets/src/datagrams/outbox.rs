//! The sending side: one socket's way to one inbox. Several sockets send to the same inbox, also of several processes, so the ring has a lock
//! on this side; it is held for a copy.

use super::{AT_END, BYTES, DATAGRAM_BYTES, RECORD_BYTES, RING, Record, Secret, bell, join, rx, signal, tx};
use crate::board::Board;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::layout::{UNASKED_BYTES, end};
use crate::lock::lock;
use crate::memory::{AtomicU32, AtomicU64, Memory};
use crate::message::Place;
use crate::ring;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct Outbox {
    map: Memory,
    secret: Secret,
    source: Place,
    /// Process and descriptor of the socket.
    owner: (u32, u32),
    /// The last datagram went by the kernel.
    is_on_kernel: AtomicBool,
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    Ring,
    /// It is to be sent by the kernel.
    Kernel,
    /// The same, and so is everything else: the inbox is closed, or its owner is dead.
    Gone,
}

/// Puts after which it is asked what was taken, also if there is room.
const PUTS: u32 = 8;

impl Outbox {
    /// Maps an inbox for a socket whose datagrams come from `source`; `owner` is its process and its number there.
    ///
    /// # Errors
    /// When the memory is not an inbox.
    pub fn join(fd: BorrowedFd<'_>, source: Place, owner: (u32, u32)) -> Result<Outbox, Error> {
        let (map, secret) = join(fd)?;
        // What was sent so far went by the kernel.
        Ok(Outbox { map, secret, source, owner, is_on_kernel: AtomicBool::new(true) })
    }

    /// Sends a datagram of `bytes`, which are those of `parts`. Never sleeps. `call` sends a signal by the kernel, without sleeping.
    pub fn send(
        &self,
        board: &Board,
        kernel: &impl Kernel,
        parts: &[IoSlice<'_>],
        bytes: usize,
        call: impl Fn(&[u8]) -> Result<(), i32>,
    ) -> Sent {
        let sent = self.put(kernel, parts, bytes);
        if sent == Sent::Ring {
            self.ring_if_asleep(board, &call);
        } else {
            self.leave(kernel, call);
        }
        sent
    }

    /// What this socket sends next goes by the kernel, and is not to overtake what it has in the ring.
    pub fn leave(&self, kernel: &impl Kernel, call: impl Fn(&[u8]) -> Result<(), i32>) {
        if self.is_on_kernel.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut fence = None;
        if let Some(_held) = lock(self.at(tx::LOCK), kernel) {
            let put = self.at64(tx::PUT).load(Ordering::Relaxed);
            self.at64(tx::LEFT_AT).store(put, Ordering::SeqCst);
            if self.has_first() {
                let fences = self.at(tx::FENCES);
                // Zero is no fence.
                let number = fences.load(Ordering::Relaxed).wrapping_add(1).max(1);
                fences.store(number, Ordering::Relaxed);
                fence = Some(number);
            }
        }
        // Somebody may have found the ring empty before and be taking from the kernel just now. Once this lock was free, whoever takes
        // finds what is in the ring.
        drop(lock(self.at(rx::LOCK), kernel));
        if let Some(number) = fence {
            // One that is lost may cost the order, as when the kernel's queue is full.
            let _ = call(&signal(&self.secret, number));
        }
    }

    /// Whether a first record is not taken yet. There is one at most, and nothing before it.
    fn has_first(&self) -> bool {
        let got = self.at64(rx::GOT).load(Ordering::Acquire);
        self.at64(tx::FIRST_AT).load(Ordering::Relaxed) == got.wrapping_add(1)
            && self.at64(tx::PUT).load(Ordering::Relaxed) != got
    }

    fn put(&self, kernel: &impl Kernel, parts: &[IoSlice<'_>], bytes: usize) -> Sent {
        let is = |at: usize| self.theirs(at).load(Ordering::SeqCst) != 0;
        if bytes > DATAGRAM_BYTES || !is(end::READY) {
            return Sent::Kernel;
        }
        let Some(_held) = lock(self.at(tx::LOCK), kernel) else { return Sent::Kernel };
        if is(end::CLOSED) || is(end::BARRED) {
            return Sent::Gone;
        }
        let put = self.at64(tx::PUT).load(Ordering::Relaxed);
        let is_first = self.is_on_kernel.load(Ordering::Relaxed);
        let room = Record::room(bytes);
        let used = match self.used(put, room, is_first, kernel) {
            Ok(used) => used,
            Err(sent) => return sent,
        };
        // Back from the kernel only when the reader has caught up: each such change costs.
        if is_first && used > 0 {
            return Sent::Kernel;
        }
        if used + room > BYTES as u64 {
            // Where nobody has begun to read it is dropped, as the kernel would have long before.
            return if self.has_first() { Sent::Ring } else { Sent::Kernel };
        }
        let base = self.at64(tx::BASE).load(Ordering::Relaxed);
        let (pid, fd) = self.owner;
        let header = Record { bytes: bytes as u32, is_first, source: self.source, pid, fd }.encode();
        ring::put(&self.map, RING, put, base, &header);
        let (mut at, mut left) = (put.wrapping_add(RECORD_BYTES as u64), bytes);
        for part in parts {
            let piece = &part[..part.len().min(left)];
            ring::put(&self.map, RING, at, base, piece);
            at = at.wrapping_add(piece.len() as u64);
            left -= piece.len();
        }
        if is_first {
            let fences = self.at(tx::FENCES).load(Ordering::Relaxed);
            self.at(tx::FIRST_FENCES).store(fences, Ordering::SeqCst);
            self.at64(tx::FIRST_AT).store(put.wrapping_add(1), Ordering::SeqCst);
        }
        self.is_on_kernel.store(false, Ordering::Relaxed);
        // SeqCst: the bytes before the position, and the position before the look who may be asleep.
        self.at64(tx::PUT).store(put.wrapping_add(room), Ordering::SeqCst);
        let (core, said) = (kernel.cpu() + 1, self.at(tx::CPU));
        if said.load(Ordering::Relaxed) != core {
            said.store(core, Ordering::Relaxed);
        }
        Sent::Ring
    }

    /// Bytes in the ring that may still be untaken. Asked of the receiver only now and then, so that its line stays with it; then it
    /// is also seen whether it goes on, and if not, whether it lives.
    fn used(&self, put: u64, room: u64, must_ask: bool, kernel: &impl Kernel) -> Result<u64, Sent> {
        let (ring, unasked) = (BYTES as u64, self.at(tx::UNASKED));
        let heard = self.at64(tx::HEARD).load(Ordering::Relaxed);
        let used = put.wrapping_sub(heard);
        let since = put.wrapping_sub(self.at64(tx::BASE).load(Ordering::Relaxed));
        let puts = unasked.load(Ordering::Relaxed);
        if !must_ask && used <= ring && ring - used >= room && since < UNASKED_BYTES && puts < PUTS {
            unasked.store(puts + 1, Ordering::Relaxed);
            return Ok(used);
        }
        unasked.store(0, Ordering::Relaxed);
        // Acquire: the receiver has copied before it said so.
        let got = self.at64(rx::GOT).load(Ordering::Acquire);
        let used = put.wrapping_sub(got);
        if used > ring {
            return Err(Sent::Gone);
        }
        self.at64(tx::HEARD).store(got, Ordering::Relaxed);
        if used == 0 {
            // An empty ring begins at its first byte again: few pages are touched, and they stay warm.
            self.at64(tx::BASE).store(put, Ordering::Relaxed);
        }
        let stale = self.at(tx::STALE);
        if used == 0 || got != heard {
            stale.store(0, Ordering::Relaxed);
            return Ok(used);
        }
        let looks = stale.load(Ordering::Relaxed).wrapping_add(1);
        stale.store(looks, Ordering::Relaxed);
        let is_dead = looks.is_power_of_two() && !kernel.is_alive(self.theirs(end::PID).load(Ordering::Relaxed));
        if is_dead { Err(Sent::Gone) } else { Ok(used) }
    }

    /// Rings if somebody who reads there may be asleep and does not hear a bell already.
    #[inline]
    fn ring_if_asleep(&self, board: &Board, call: impl Fn(&[u8]) -> Result<(), i32>) {
        let slot = self.theirs(end::SLOT).load(Ordering::Relaxed);
        let word = self.theirs(end::WORD).load(Ordering::SeqCst);
        let is_parked = self.theirs(end::PARKED).load(Ordering::SeqCst) != 0;
        if !is_parked && !board.may_sleep(slot, word) {
            return;
        }
        let moved = self.at(bell::MOVED).load(Ordering::SeqCst).wrapping_add(1);
        let is_edge = self.theirs(end::EDGE).load(Ordering::Relaxed) != 0;
        if self.at(bell::MARK).load(Ordering::SeqCst) == moved && !is_edge {
            return;
        }
        if !is_parked && board.is_rung(slot, word) {
            return;
        }
        self.at(bell::RUNG).fetch_add(1, Ordering::SeqCst);
        // An error may be one of an earlier datagram, which the kernel tells instead of sending.
        let bell = signal(&self.secret, 0);
        if call(&bell).is_ok() || call(&bell).is_ok() {
            self.at(bell::MARK).store(moved, Ordering::SeqCst);
        } else {
            board.unring(slot, word);
        }
    }

    #[inline]
    fn theirs(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(AT_END + at)
    }

    #[inline]
    fn at(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at)
    }

    #[inline]
    fn at64(&self, at: usize) -> &AtomicU64 {
        self.map.u64_at(at)
    }
}
