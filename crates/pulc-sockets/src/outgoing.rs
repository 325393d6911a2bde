//! Sending. A direction enters the ring when both ends are ready and goes back to the kernel whenever that is better or needed: when
//! the ring is full (so that a sender waits, gets `EAGAIN`, times out and is interrupted exactly as the kernel has it), when an end is
//! barred, corked, shut or closed. Both are a number written under the direction's lock: no byte moves, nobody is asked.

use crate::board::Board;
use crate::channel::{End, Flag};
use crate::kernel::{Kernel, errno};
#[cfg(not(loom))]
use crate::layout::{KEPT_BYTES, at_ring};
use crate::layout::{PIECE_BYTES, RING_BYTES, UNASKED_BYTES, at_bells, end, is_ring, rx, tx};
use crate::memory::yield_now;
use crate::ring;
use crate::spinning::{Luck, Other};
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What became of bytes that were to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outgoing {
    /// All are in the ring.
    Ring(usize),
    /// So many are in the ring, which may be none; the rest is to be sent by the kernel now, and [`End::kernel_done`] called after it.
    Kernel(usize),
    Failed(i32),
}

/// Looks for room in a full ring before the kernel takes over.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 20 };
/// What somebody who waits for room waits for.
const ENOUGH_BYTES: usize = if cfg!(loom) { 1 } else { 16 << 10 };
/// The kernel takes over when the receiver takes more slowly than this, after a while in which it may wake: a call that must not sleep
/// is not to last longer than copying.
const GRACE: Duration = Duration::from_micros(300);
const SLOW_NS_PER_BYTE: u64 = 2;

/// Without anything long, after which memory is given back: taking it again costs as much as some long messages.
#[cfg(not(loom))]
const QUIET_SECONDS: u32 = 2;

/// Of the system's clock, in a number that is not zero as a rule. The coarse one costs a few nanoseconds.
#[cfg(not(loom))]
fn second() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    (now.tv_sec as u32).wrapping_add(1)
}

impl End {
    /// Sends what `parts` hold. Never sleeps; may give the core away a few times when the ring is full.
    pub fn send(&self, board: &Board, kernel: &impl Kernel, parts: &[IoSlice<'_>]) -> Outgoing {
        let _held = match self.hold(self.out_tx(tx::LOCK), kernel) {
            Ok(held) => held,
            Err(number) => return Outgoing::Failed(number),
        };
        let mut epoch = self.out_tx(tx::EPOCH).load(Ordering::Relaxed);
        if !is_ring(epoch) && self.may_enter(epoch) && self.enter(kernel, epoch) {
            epoch = epoch.wrapping_add(1);
        } else if is_ring(epoch) && self.must_leave() {
            match self.leave(kernel, epoch) {
                Ok(()) => epoch = epoch.wrapping_add(1),
                Err(number) => return Outgoing::Failed(number),
            }
        }
        let mut done = 0;
        if is_ring(epoch) {
            let total: usize = parts.iter().map(|part| part.len()).sum();
            let is_over = match self.put(board, kernel, parts, total, &mut done) {
                Ok(is_over) => is_over,
                Err(number) => return Outgoing::Failed(number),
            };
            // After the bytes, which somebody may be waiting for.
            self.say_core(kernel.cpu() + 1);
            if done == total && !is_over {
                return Outgoing::Ring(done);
            }
            if let Err(number) = self.leave(kernel, epoch) {
                return if done == 0 { Outgoing::Failed(number) } else { Outgoing::Ring(done) };
            }
        }
        self.out_tx(tx::SENDING).fetch_add(1, Ordering::SeqCst);
        Outgoing::Kernel(done)
    }

    /// Whatever is sent next, by whatever call, goes by the kernel until [`End::kernel_done`].
    pub fn send_by_kernel(&self, kernel: &impl Kernel) -> Result<(), i32> {
        let _held = self.hold(self.out_tx(tx::LOCK), kernel)?;
        let epoch = self.out_tx(tx::EPOCH).load(Ordering::Relaxed);
        if is_ring(epoch) {
            self.leave(kernel, epoch)?;
        }
        self.out_tx(tx::SENDING).fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// The kernel's call is over.
    pub fn kernel_done(&self) {
        self.out_tx(tx::SENDING).fetch_sub(1, Ordering::SeqCst);
    }

    fn must_leave(&self) -> bool {
        // First whether it is ready, then whether it is barred: an end that is barred by a fork while it gets ready is seen to be barred
        // by whoever sees it ready. SeqCst on both, as they are written.
        self.theirs(end::READY).load(Ordering::SeqCst) == 0
            || self.theirs(end::BARRED).load(Ordering::SeqCst) != 0
            || self.peer_is(Flag::Closed)
            || self.is(Flag::Barred)
            || self.is(Flag::Corked)
            || self.is(Flag::Shut)
    }

    /// The receiver must have reached the current segment, and no call may be giving the kernel bytes.
    fn may_enter(&self, epoch: u32) -> bool {
        !self.must_leave()
            && self.out_tx(tx::SENDING).load(Ordering::SeqCst) == 0
            && self.out_rx(rx::SEEN).load(Ordering::Acquire) == epoch
    }

    /// From here on bytes go into the ring. Where the kernel does not say how many it has, nothing changes.
    fn enter(&self, kernel: &impl Kernel, epoch: u32) -> bool {
        let Ok(sent) = kernel.sent() else { return false };
        self.out_tx64(tx::RING_FROM).store(sent, Ordering::Relaxed);
        let rung = self.out_tx(tx::RUNG).load(Ordering::Relaxed);
        self.out_tx(tx::RUNG_BEFORE).store(rung, Ordering::Relaxed);
        // SeqCst (release): the receiver finds the position when it finds the epoch.
        self.out_tx(tx::EPOCH).store(epoch.wrapping_add(1), Ordering::SeqCst);
        true
    }

    /// From here on bytes go by the kernel.
    pub(crate) fn leave(&self, kernel: &impl Kernel, epoch: u32) -> Result<(), i32> {
        if self.out_rx(rx::SEEN).load(Ordering::SeqCst) != epoch {
            // The receiver may just now be taking bytes from the kernel without knowing that the ring has begun; what follows must
            // not be among them. Once its lock was free, it knows.
            drop(self.hold(self.out_rx(rx::LOCK), kernel)?);
        }
        let sent = kernel.sent()?;
        self.out_tx64(tx::KERNEL_FROM).store(sent, Ordering::Relaxed);
        // SeqCst (release): as in `enter`.
        self.out_tx(tx::EPOCH).store(epoch.wrapping_add(1), Ordering::SeqCst);
        Ok(())
    }

    /// Puts into the ring what there is room for; true when the other end is known to be gone.
    fn put(
        &self,
        board: &Board,
        kernel: &impl Kernel,
        parts: &[IoSlice<'_>],
        total: usize,
        done: &mut usize,
    ) -> Result<bool, i32> {
        let mut waits = None;
        loop {
            let put = self.out_tx64(tx::PUT).load(Ordering::Relaxed);
            let wanted = total - *done;
            let used = self.used(put, wanted).ok_or(errno::CONNRESET)?;
            let room = (RING_BYTES - used).min(wanted).min(PIECE_BYTES);
            if room > 0 {
                self.copy(parts, *done, room, put);
                *done += room;
                #[cfg(not(loom))]
                self.count_pages(put.wrapping_add(room as u64));
                // SeqCst: the bytes before the position, and the position before the look who may be asleep.
                self.out_tx64(tx::PUT).store(put.wrapping_add(room as u64), Ordering::SeqCst);
                // Who has to be woken on this core takes it away: not for a piece, when more is to come.
                let is_last = *done == total;
                if (is_last || used + room == RING_BYTES || self.other(kernel) == Other::Elsewhere)
                    && self.ring_if_asleep(board, kernel)
                {
                    return Ok(true);
                }
                if is_last {
                    return Ok(false);
                }
            } else {
                let (began, before) = *waits.get_or_insert_with(|| (Instant::now(), *done));
                if !self.wait_for_room(kernel, put, wanted, began, *done - before) {
                    return Ok(false);
                }
            }
        }
    }

    /// Where the receiver is. It is taken to be on this core where that is not known.
    fn other(&self, kernel: &impl Kernel) -> Other {
        Other::on(self.peer_core(), kernel.cpu() + 1).unwrap_or(Other::Here)
    }

    /// The ring is full: waits a little for the receiver, which may just be taking; true when it has taken something. `began` and `moved`: since
    /// when this call waits, and what it has put since.
    fn wait_for_room(&self, kernel: &impl Kernel, put: u64, wanted: usize, began: Instant, moved: usize) -> bool {
        let is_slow =
            cfg!(not(loom)) && began.elapsed() > GRACE + Duration::from_nanos(moved as u64 * SLOW_NS_PER_BYTE);
        if is_slow {
            return false;
        }
        let enough = (RING_BYTES - wanted.min(ENOUGH_BYTES)) as u64;
        // Acquire: as in `used`.
        let has_room = || put.wrapping_sub(self.out_rx64(rx::GOT).load(Ordering::Acquire)) <= enough;
        if self.other(kernel) == Other::Elsewhere
            && Luck(self.out_tx(tx::LUCK)).look(Other::Elsewhere, || usize::from(has_room())) > 0
        {
            return true;
        }
        (0..PATIENCE).any(|_| {
            yield_now();
            has_room()
        })
    }

    /// Bytes in the ring that may still be untaken, at most its size; `None` if the receiver's word cannot be. Asked of the receiver only
    /// if there may be no room for `wanted`, or once in a while, so that its line stays with it.
    fn used(&self, put: u64, wanted: usize) -> Option<usize> {
        let ring = RING_BYTES as u64;
        let used = put.wrapping_sub(self.out_tx64(tx::HEARD).load(Ordering::Relaxed));
        let since = put.wrapping_sub(self.out_tx64(tx::BASE).load(Ordering::Relaxed));
        if used <= ring && ring - used >= wanted as u64 && since < UNASKED_BYTES {
            return Some(used as usize);
        }
        // Acquire: the receiver has copied before it said so.
        let got = self.out_rx64(rx::GOT).load(Ordering::Acquire);
        let used = put.wrapping_sub(got);
        if used > ring {
            return None;
        }
        self.out_tx64(tx::HEARD).store(got, Ordering::Relaxed);
        if used == 0 {
            // An empty ring begins at its first byte again: few pages are touched, and they stay warm.
            self.out_tx64(tx::BASE).store(put, Ordering::Relaxed);
            #[cfg(not(loom))]
            self.give_back_pages();
        }
        Some(used as usize)
    }

    /// Notes when more of the ring than its first page is used: up to `put`.
    #[cfg(not(loom))]
    #[inline]
    fn count_pages(&self, put: u64) {
        if put.wrapping_sub(self.out_tx64(tx::BASE).load(Ordering::Relaxed)) > KEPT_BYTES as u64 {
            self.out_tx(tx::TOUCHED).store(second(), Ordering::Relaxed);
        }
    }

    /// The ring is empty and this end the only one who writes to it: after some seconds with nothing long the system gets back what lies behind its
    /// first page. Ten thousand idle connections need little memory also after each had something to say.
    #[cfg(not(loom))]
    #[inline]
    fn give_back_pages(&self) {
        let touched = self.out_tx(tx::TOUCHED);
        let last = touched.load(Ordering::Relaxed);
        if last != 0 && second().wrapping_sub(last) >= QUIET_SECONDS {
            touched.store(0, Ordering::Relaxed);
            // Where the system refuses, the memory stays with the ring.
            let _ = self.map.give_back(at_ring(self.me) + KEPT_BYTES, RING_BYTES - KEPT_BYTES);
        }
    }

    /// Copies `len` bytes of `parts`, from their byte `from` on, to `position`.
    fn copy(&self, parts: &[IoSlice<'_>], from: usize, len: usize, position: u64) {
        let base = self.out_tx64(tx::BASE).load(Ordering::Relaxed);
        let (mut skip, mut done) = (from, 0);
        for part in parts {
            let skipped = skip.min(part.len());
            skip -= skipped;
            let rest = &part[skipped..];
            let piece = &rest[..rest.len().min(len - done)];
            ring::put(&self.map, self.me, position.wrapping_add(done as u64), base, piece);
            done += piece.len();
            if done == len {
                return;
            }
        }
    }

    /// Whoever has just received answers, as a rule: the line that the answer begins in, which the other end has read long ago, is fetched
    /// while the program thinks. Not after a message was sent: what stands in the same line may not have been read yet.
    #[inline]
    pub(crate) fn claim_next(&self) {
        let base = self.out_tx64(tx::BASE).load(Ordering::Relaxed);
        ring::claim(&self.map, self.me, self.out_tx64(tx::PUT).load(Ordering::Relaxed), base);
    }

    /// Rings if somebody who reads here may be asleep and does not hear a bell already; true when the other end is gone.
    #[inline]
    fn ring_if_asleep(&self, board: &Board, kernel: &impl Kernel) -> bool {
        let slot = self.theirs(end::SLOT).load(Ordering::Relaxed);
        let word = self.theirs(end::WORD).load(Ordering::SeqCst);
        let is_parked = self.theirs(end::PARKED).load(Ordering::SeqCst) != 0;
        // The board says nothing of another user's processes.
        let across = self.may_sleep_across(word);
        let may_sleep = across.unwrap_or_else(|| board.may_sleep(slot, word));
        if !is_parked && !may_sleep {
            return false;
        }
        let bells = self.map.u32_at(at_bells(self.me));
        if bells.load(Ordering::SeqCst) != 0 && self.theirs(end::EDGE).load(Ordering::Relaxed) == 0 {
            return false;
        }
        if !is_parked && across.is_none() && board.is_rung(slot, word) {
            return false;
        }
        // Counted before it is sent: a bell that comes uncounted is taken away alone, a count without a bell would stay for ever.
        bells.fetch_add(1, Ordering::SeqCst);
        match kernel.ring() {
            Ok(()) => {
                self.out_tx(tx::RUNG).fetch_add(1, Ordering::SeqCst);
                false
            }
            Err(number) => {
                bells.store(0, Ordering::SeqCst);
                if across.is_none() {
                    board.unring(slot, word);
                }
                number != errno::AGAIN
            }
        }
    }
}
