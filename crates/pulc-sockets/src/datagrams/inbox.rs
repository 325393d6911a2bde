//! The receiving side of an inbox. Datagrams are taken from the ring first, from the kernel where order wants it, where its turn has come
//! and where the ring is empty. Everything that was read from the memory is checked: a wrong number closes this inbox and nothing else.

use super::{
    AT_END, AT_HOLDERS, Post, RECORD_BYTES, RING, Record, SIGNAL_BYTES, Secret, bell, join, record, rx, signal_number,
    tx,
};
use crate::error::Error;
use crate::kernel::errno;
use crate::layout::end;
use crate::lock::lock;
use crate::memory::{AtomicU32, AtomicU64, Memory};
use crate::message::{Place, Reason};
use crate::ring;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

/// One process's (or family of forks') inbox.
pub struct Inbox {
    pub(super) map: Memory,
    pub(super) secret: Secret,
}

/// What was taken from the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    pub source: Place,
    /// Its length, and how much of it there was room for.
    pub bytes: usize,
    pub copied: usize,
}

/// What became of a wish for a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken<T> {
    Ring(Datagram),
    /// What `by_kernel` has brought.
    Kernel(T),
    /// Nothing yet. The kernel's socket becomes readable when there is, provided that the caller says on the board that it sleeps.
    Empty,
    Failed(i32),
}

/// What must not have come when something of the kernel's is taken.
#[derive(Clone, Copy)]
enum Before {
    /// Anything in the ring.
    Anything,
    /// A first record at this position.
    First(u64),
    /// It is taken whatever the ring has.
    Nothing,
}

/// Above all error numbers.
const ERRORS: u32 = 4096;
/// Of the takes one of so many asks the kernel first.
const TURNS: u32 = 32;
/// Takes for which the kernel is believed to go on after it had something.
const BUSY: u32 = 64;
/// Datagrams of the kernel's queue that are taken before a first one in the ring, at most: others may send there without end.
const DRAINED: u32 = 512;
/// What was looked at last is in the kernel's queue; a position, and one more: it is in the ring. Whoever takes then takes that.
const PEEKED_KERNEL: u64 = u64::MAX;
/// Room with which a signal can be told from a datagram that was cut.
const WIDE: usize = SIGNAL_BYTES;

impl Inbox {
    /// Maps the inbox; the process owns `slot` of the board.
    ///
    /// # Errors
    /// When the memory is not an inbox.
    pub fn join(fd: BorrowedFd<'_>, slot: u32, pid: u32) -> Result<Inbox, Error> {
        let (map, secret) = join(fd)?;
        let joined = Inbox { map, secret };
        joined.mine(end::SLOT).store(slot, Ordering::Relaxed);
        joined.mine(end::PID).store(pid, Ordering::Relaxed);
        joined.at(AT_HOLDERS).store(1, Ordering::Relaxed);
        joined.mine(end::JOINED).store(1, Ordering::SeqCst);
        Ok(joined)
    }

    /// From now on nobody takes from the kernel's queue but by [`Inbox::take`].
    pub fn make_ready(&self) {
        self.mine(end::READY).store(1, Ordering::SeqCst);
    }

    /// Nothing more comes by the ring; what stands there can still be taken. The first reason stays.
    pub fn close(&self, reason: u32) {
        let _ = self.mine(end::REASON).compare_exchange(0, reason, Ordering::Relaxed, Ordering::Relaxed);
        self.mine(end::CLOSED).store(1, Ordering::SeqCst);
    }

    /// A fork is about to have it too.
    pub fn share(&self) {
        self.at(AT_HOLDERS).fetch_add(1, Ordering::SeqCst);
    }

    /// This process has it no more. The last one closes it.
    pub fn release(&self, reason: u32) {
        if self.at(AT_HOLDERS).fetch_sub(1, Ordering::SeqCst) == 1 {
            self.close(reason);
        }
    }

    /// Takes the next datagram, or only looks at it. Never sleeps. `by_kernel` takes one from the kernel's queue (or looks, if `peek`) without
    /// sleeping, and shows those of [`SIGNAL_BYTES`]; it has room for as much as `to`.
    pub fn take<T>(
        &self,
        post: &impl Post,
        to: &mut [IoSliceMut<'_>],
        peek: bool,
        mut by_kernel: impl FnMut() -> Result<(T, Option<[u8; SIGNAL_BYTES]>), i32>,
    ) -> Taken<T> {
        let Some(_held) = lock(self.at(rx::LOCK), post) else { return Taken::Failed(errno::AGAIN) };
        let room: usize = to.iter().map(|part| part.len()).sum();
        let mut kernel = |before| self.take_kernels(post, room < WIDE, before, peek, &mut by_kernel);
        loop {
            let got = self.at64(rx::GOT).load(Ordering::Relaxed);
            let there = self.arrived().wrapping_sub(got);
            if there == 0 {
                match kernel(Before::Anything) {
                    Ok(taken) => return self.kernels(taken, peek),
                    Err(errno::AGAIN) if self.arrived() != got => continue,
                    Err(errno::AGAIN) => return Taken::Empty,
                    Err(number) => return Taken::Failed(number),
                }
            }
            // Acquire: with the position. Read once.
            let base = self.at64(tx::BASE).load(Ordering::Acquire);
            let Some(first) = record(&self.map, got, base, there) else {
                self.break_off();
                continue;
            };
            let kernel_first = match self.at64(rx::PEEKED).load(Ordering::Relaxed) {
                PEEKED_KERNEL => Some(Before::Nothing),
                peeked if peeked == got.wrapping_add(1) => None,
                _ if first.is_first && self.is_before(got) => Some(Before::First(got)),
                _ => self.is_kernels_turn(got).then_some(Before::Nothing),
            };
            if let Some(before) = kernel_first {
                match kernel(before) {
                    Ok(taken) => {
                        let drained = self.at(rx::DRAINED);
                        drained.store(drained.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                        return self.kernels(taken, peek);
                    }
                    Err(errno::AGAIN) => self.at64(rx::CLEARED).store(got.wrapping_add(1), Ordering::Relaxed),
                    Err(number) => return Taken::Failed(number),
                }
            }
            return Taken::Ring(self.copy_out(&first, got, base, to, peek));
        }
    }

    /// Whether a first record at `got` is to be preceded by what the kernel has.
    fn is_before(&self, got: u64) -> bool {
        self.at64(rx::CLEARED).load(Ordering::Relaxed) != got.wrapping_add(1)
            && self.at(rx::DRAINED).load(Ordering::Relaxed) < DRAINED
    }

    /// Whether the kernel is asked although the ring has something: nobody may have left the ring for it meanwhile.
    fn is_kernels_turn(&self, got: u64) -> bool {
        let turns = self.at(rx::TURNS);
        let turn = turns.load(Ordering::Relaxed);
        turns.store(turn.wrapping_add(1), Ordering::Relaxed);
        let left_at = self.at64(tx::LEFT_AT).load(Ordering::SeqCst);
        turn % TURNS == TURNS - 1 && got.wrapping_sub(left_at) <= u64::MAX / 2
    }

    fn kernels<T>(&self, taken: T, peek: bool) -> Taken<T> {
        self.at64(rx::PEEKED).store(if peek { PEEKED_KERNEL } else { 0 }, Ordering::Relaxed);
        self.at(rx::BUSY).store(BUSY, Ordering::Relaxed);
        Taken::Kernel(taken)
    }

    /// Takes from the kernel's queue what is not a signal, as long as it comes before what the ring has.
    fn take_kernels<T>(
        &self,
        post: &impl Post,
        is_narrow: bool,
        before: Before,
        peek: bool,
        by_kernel: &mut impl FnMut() -> Result<(T, Option<[u8; SIGNAL_BYTES]>), i32>,
    ) -> Result<T, i32> {
        let error = self.at(rx::ERROR).swap(0, Ordering::Relaxed);
        // What cannot be one was written by somebody else.
        if (1..ERRORS).contains(&error) {
            return Err(error as i32);
        }
        loop {
            if is_narrow && self.take_signal(post)? {
                self.goes_on(before)?;
                continue;
            }
            let taken = by_kernel();
            // SeqCst: whoever rings after this does not believe an earlier bell.
            self.at(bell::MOVED).fetch_add(1, Ordering::SeqCst);
            match taken {
                Ok((taken, shown)) => {
                    let number = shown.filter(|_| !is_narrow).and_then(|bytes| signal_number(&self.secret, &bytes));
                    let Some(number) = number else { return Ok(taken) };
                    if peek {
                        post.drop_first();
                    }
                    self.heed(number);
                    self.goes_on(before)?;
                }
                Err(errno::INTR) => {}
                Err(number) => return Err(number),
            }
        }
    }

    /// Whether the kernel's next datagram may be taken.
    fn goes_on(&self, before: Before) -> Result<(), i32> {
        let may = match before {
            Before::Anything => self.unread() == 0,
            Before::First(got) => self.is_before(got),
            Before::Nothing => true,
        };
        if may { Ok(()) } else { Err(errno::AGAIN) }
    }

    /// A signal was taken from the kernel's queue. A fence that is newer than the last first record ends what came before that.
    fn heed(&self, number: u32) {
        let known = self.at(tx::FIRST_FENCES).load(Ordering::SeqCst);
        if number != 0 && number.wrapping_sub(known).wrapping_sub(1) <= u32::MAX / 2 {
            let first_at = self.at64(tx::FIRST_AT).load(Ordering::SeqCst);
            self.at64(rx::CLEARED).store(first_at, Ordering::Relaxed);
        }
    }

    /// Takes a signal that stands first in the kernel's queue.
    pub(super) fn take_signal(&self, post: &impl Post) -> Result<bool, i32> {
        let mut head = [0; SIGNAL_BYTES];
        let looked = post.look(&mut head);
        let number = if looked == Ok(SIGNAL_BYTES) { signal_number(&self.secret, &head) } else { None };
        if let Some(number) = number {
            post.drop_first();
            self.heed(number);
        }
        if number.is_some() || looked == Err(errno::AGAIN) {
            self.at(bell::MOVED).fetch_add(1, Ordering::SeqCst);
        }
        looked.map(|_| number.is_some())
    }

    /// What stands in the ring cannot be: nobody knows where the next record begins. All of it is dropped, as UDP may.
    fn break_off(&self) {
        self.close(Reason::Closed as u32);
        let put = self.arrived();
        self.at64(rx::GOT).store(put, Ordering::Release);
    }

    fn copy_out(&self, first: &Record, got: u64, base: u64, to: &mut [IoSliceMut<'_>], peek: bool) -> Datagram {
        let bytes = first.bytes as usize;
        let from = got.wrapping_add(RECORD_BYTES as u64);
        let mut copied = 0;
        for part in to {
            let len = part.len().min(bytes - copied);
            ring::get(&self.map, RING, from.wrapping_add(copied as u64), base, &mut part[..len]);
            copied += len;
        }
        if peek {
            self.at64(rx::PEEKED).store(got.wrapping_add(1), Ordering::Relaxed);
        } else {
            self.at64(rx::PEEKED).store(0, Ordering::Relaxed);
            let busy = self.at(rx::BUSY);
            busy.store(busy.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
            self.at(rx::DRAINED).store(0, Ordering::Relaxed);
            // Release: copied before said.
            self.at64(rx::GOT).store(got.wrapping_add(Record::room(bytes)), Ordering::Release);
        }
        Datagram { source: first.source, bytes, copied }
    }

    #[inline]
    pub(super) fn mine(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(AT_END + at)
    }

    #[inline]
    pub(super) fn at(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at)
    }

    #[inline]
    pub(super) fn at64(&self, at: usize) -> &AtomicU64 {
        self.map.u64_at(at)
    }
}
