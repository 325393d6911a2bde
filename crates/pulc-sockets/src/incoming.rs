//! Receiving. The segments of a direction are read one after the other: from the kernel up to the byte where the ring begins, from the
//! ring until it is empty and left, then again from the kernel behind the last bell. That the other end has ended, crashed or reset
//! the connection is always the kernel's word, believed only when the ring is empty.

use crate::channel::{End, Flag};
use crate::kernel::{Kernel, Wait, errno};
use crate::layout::{PIECE_BYTES, RING_BYTES, at_bells, is_ring, rx, tx};
use crate::ring;
use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

/// What became of a wish for bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming {
    Got(usize),
    /// The other end has ended the stream.
    Ended,
    /// Nothing yet. The kernel's socket becomes readable when there is, provided that the caller says on the board that it sleeps.
    Empty,
    Failed(i32),
}

enum Step {
    Again,
    Is(Incoming),
}

use Step::{Again, Is};

/// More segments without a byte come only from an end that wants to keep its reader busy.
const STEPS: u32 = 1 << 20;
/// Bells are taken so many at a time.
const BELLS: usize = 64;
/// Bells that the other end's kernel may have on its way without hearing of them. It begins with ten at most.
const UNHEARD: u32 = 4;
/// Parts of a scattered read that are filled from the kernel in one go.
const PARTS: usize = 16;

impl End {
    /// Takes what has arrived, at most what `to` has room for (which must be some); or only looks at it. Never sleeps.
    pub fn receive(&self, kernel: &impl Kernel, to: &mut [IoSliceMut<'_>], peek: bool) -> Incoming {
        let _held = match self.hold(self.in_rx(rx::LOCK), kernel) {
            Ok(held) => held,
            Err(number) => return Incoming::Failed(number),
        };
        self.receive_locked(kernel, to, peek)
    }

    pub(crate) fn receive_locked(&self, kernel: &impl Kernel, to: &mut [IoSliceMut<'_>], peek: bool) -> Incoming {
        for _ in 0..STEPS {
            if let Is(incoming) = self.step(kernel, to, peek) {
                return incoming;
            }
        }
        Incoming::Failed(errno::CONNRESET)
    }

    /// Whether nothing can come but by the ring, and nothing is there: then a reader that sleeps need not ask the kernel before.
    #[inline]
    pub fn is_dry(&self) -> bool {
        let seen = self.in_rx(rx::SEEN).load(Ordering::SeqCst);
        is_ring(seen)
            && self.in_tx(tx::EPOCH).load(Ordering::SeqCst) == seen
            && self.arrived() == self.in_rx64(rx::GOT).load(Ordering::Relaxed)
            && self.in_rx(rx::ERROR).load(Ordering::Relaxed) == 0
    }

    /// Asked after the caller has said on the board that it sleeps, and before it does.
    #[inline]
    pub fn may_wait(&self, kernel: &impl Kernel) -> Wait {
        let seen = self.in_rx(rx::SEEN).load(Ordering::SeqCst);
        if is_ring(seen) && self.arrived() != self.in_rx64(rx::GOT).load(Ordering::Relaxed) {
            return Wait::No;
        }
        if self.in_tx(tx::EPOCH).load(Ordering::SeqCst) == seen && self.in_rx(rx::ERROR).load(Ordering::Relaxed) == 0 {
            return Wait::Yes;
        }
        self.truth(kernel)
    }

    /// Whether a read would find something now: bytes, the end or an error. Takes bells that mean nothing any more.
    pub fn truth(&self, kernel: &impl Kernel) -> Wait {
        if self.in_rx(rx::ERROR).load(Ordering::Relaxed) != 0 {
            return Wait::No;
        }
        let mut byte = [0];
        match self.receive(kernel, &mut [IoSliceMut::new(&mut byte)], true) {
            Incoming::Empty => Wait::Yes,
            Incoming::Failed(number) => {
                // Whoever reads next is to be told; the kernel says it only once.
                self.in_rx(rx::ERROR).store(number as u32, Ordering::Relaxed);
                Wait::No
            }
            Incoming::Got(_) | Incoming::Ended => Wait::No,
        }
    }

    /// Whether what makes the kernel's socket readable were only bells for bytes that somebody has taken already: a bell that comes late, for
    /// example. They are taken.
    pub fn were_only_bells(&self, kernel: &impl Kernel) -> bool {
        let seen = self.in_rx(rx::SEEN).load(Ordering::SeqCst);
        let has_bells = is_ring(seen) || self.in_tx(tx::EPOCH).load(Ordering::SeqCst) != seen;
        let before = self.in_rx64(rx::TAKEN).load(Ordering::SeqCst);
        has_bells
            && self.unread() == 0
            && self.truth(kernel) == Wait::Yes
            && self.in_rx64(rx::TAKEN).load(Ordering::SeqCst) != before
    }

    /// An error that the kernel has told to somebody who only waited. A reset that only means the end is not kept: the kernel says the end
    /// from now on.
    pub fn keep_error(&self, number: i32) {
        if number == errno::CONNRESET && self.was_heard() {
            return;
        }
        self.in_rx(rx::ERROR).store(number as u32, Ordering::Relaxed);
    }

    fn step(&self, kernel: &impl Kernel, to: &mut [IoSliceMut<'_>], peek: bool) -> Step {
        // Acquire: the positions that belong to an epoch are written before it.
        let epoch = self.in_tx(tx::EPOCH).load(Ordering::SeqCst);
        let seen = self.in_rx(rx::SEEN).load(Ordering::Relaxed);
        if epoch.wrapping_sub(seen) > 2 {
            return Is(Incoming::Failed(errno::CONNRESET));
        }
        if !is_ring(seen) {
            return self.step_kernel(kernel, to, peek, epoch, seen);
        }
        // Read after the epoch: if that says that the ring is over, nothing is added any more.
        let (put, got) = (self.arrived(), self.in_rx64(rx::GOT).load(Ordering::Relaxed));
        let there = put.wrapping_sub(got);
        if there > RING_BYTES as u64 {
            return Is(Incoming::Failed(errno::CONNRESET));
        }
        if there > 0 {
            return Is(Incoming::Got(self.take(kernel, to, peek, got, there as usize)));
        }
        if epoch != seen { self.cross_to_kernel(kernel, seen) } else { self.look_for_end(kernel, epoch) }
    }

    /// Copies out of the ring; whoever empties it takes the bells away too.
    fn take(&self, kernel: &impl Kernel, to: &mut [IoSliceMut<'_>], peek: bool, got: u64, there: usize) -> usize {
        let base = self.in_tx64(tx::BASE).load(Ordering::Acquire);
        let mut done = 0;
        for part in to {
            let len = part.len().min(there - done);
            for piece in part[..len].chunks_mut(PIECE_BYTES) {
                ring::get(&self.map, self.me.other(), got.wrapping_add(done as u64), base, piece);
                done += piece.len();
                if !peek && done < there {
                    // As below. Whoever waits for room need not wait for all of it.
                    self.in_rx64(rx::GOT).store(got.wrapping_add(done as u64), Ordering::Release);
                }
            }
        }
        if !peek {
            // Release: copied before said. Nobody decides by it whether to sleep: who waits for room waits in the kernel.
            self.in_rx64(rx::GOT).store(got.wrapping_add(done as u64), Ordering::Release);
            if done >= PIECE_BYTES {
                // Who only takes says nowhere else where it is.
                self.say_core(kernel.cpu() + 1);
            }
            self.claim_next();
            if done == there && self.map.u32_at(at_bells(self.me.other())).load(Ordering::Relaxed) != 0 {
                self.silence(kernel);
            }
        }
        done
    }

    /// Takes those bells from the kernel that are surely there. A bell that comes for new bytes meanwhile stays.
    fn silence(&self, kernel: &impl Kernel) {
        let bells = self.map.u32_at(at_bells(self.me.other()));
        let claimed = bells.swap(0, Ordering::SeqCst);
        if self.arrived() != self.in_rx64(rx::GOT).load(Ordering::Relaxed) {
            bells.fetch_add(claimed, Ordering::SeqCst);
            return;
        }
        // What the kernel has accepted as bells stands before anything else that it has accepted since: they are not mistaken.
        let silenced = self.in_rx(rx::SILENCED).load(Ordering::Relaxed);
        let rung = self.in_tx(tx::RUNG).load(Ordering::SeqCst).wrapping_sub(silenced);
        let wanted = if rung < claimed { rung.max(self.bells_there(kernel, claimed)) } else { claimed };
        self.drop_bells(kernel, (wanted as usize).min(BELLS));
    }

    /// The sender has rung and has not come to say so: how many of its bells are in the kernel already, at most `claimed`. None if more
    /// has come meanwhile.
    fn bells_there(&self, kernel: &impl Kernel, claimed: u32) -> u32 {
        let epoch = self.in_rx(rx::SEEN).load(Ordering::Relaxed);
        let room = (claimed as usize).min(BELLS);
        let there = kernel.recv(&mut [IoSliceMut::new(&mut [0; BELLS][..room])], true).unwrap_or(0);
        // After the look: what was there while the ring went on is a bell.
        let goes_on = self.in_tx(tx::EPOCH).load(Ordering::SeqCst) == epoch;
        if goes_on && self.unread() == 0 { there as u32 } else { 0 }
    }

    /// Takes so many bells, which are in the kernel.
    fn drop_bells(&self, kernel: &impl Kernel, wanted: usize) {
        if wanted == 0 {
            return;
        }
        let silenced = self.in_rx(rx::SILENCED).load(Ordering::Relaxed);
        // Said before done: should this process die between, too few are taken later, never too many.
        self.in_rx(rx::SILENCED).store(silenced.wrapping_add(wanted as u32), Ordering::SeqCst);
        let taken = self.take_from_kernel(kernel, wanted).unwrap_or(0);
        let now = silenced.wrapping_add(taken.min(wanted) as u32);
        self.in_rx(rx::SILENCED).store(now, Ordering::SeqCst);
        if silenced / UNHEARD != now / UNHEARD {
            kernel.acknowledge();
        }
    }

    /// Takes bytes that mean nothing.
    fn take_from_kernel(&self, kernel: &impl Kernel, count: usize) -> Result<usize, i32> {
        let taken = kernel.recv(&mut [IoSliceMut::new(&mut [0; BELLS][..count])], false)?;
        self.count_taken(taken);
        Ok(taken)
    }

    fn count_taken(&self, count: usize) {
        let taken = self.in_rx64(rx::TAKEN);
        taken.store(taken.load(Ordering::Relaxed).wrapping_add(count as u64), Ordering::SeqCst);
    }

    /// The ring is empty: has the stream ended? Bells that stand before the end are taken.
    fn look_for_end(&self, kernel: &impl Kernel, epoch: u32) -> Step {
        let error = self.in_rx(rx::ERROR).swap(0, Ordering::Relaxed);
        if error != 0 {
            return Is(Incoming::Failed(error as i32));
        }
        let looked = kernel.recv(&mut [IoSliceMut::new(&mut [0; BELLS])], true);
        // After the look: what was there before the sender went on is a bell.
        let has_changed = self.in_tx(tx::EPOCH).load(Ordering::SeqCst) != epoch
            || self.arrived() != self.in_rx64(rx::GOT).load(Ordering::Relaxed);
        match looked {
            Err(errno::INTR) => Again,
            Err(errno::AGAIN) | Ok(0) if has_changed => Again,
            Err(errno::AGAIN) => Is(Incoming::Empty),
            Ok(0) => Is(Incoming::Ended),
            Ok(_) if has_changed => Again,
            Ok(there) => {
                self.take_bells(kernel, there);
                Again
            }
            Err(number) if has_changed => {
                self.keep_error(number);
                Again
            }
            Err(errno::CONNRESET) if self.was_heard() => Is(Incoming::Ended),
            Err(number) => Is(Incoming::Failed(number)),
        }
    }

    /// Of `there` bells in the kernel, takes those that were counted, or one that was not. Not if bytes have come meanwhile, whose bell
    /// may be among them.
    fn take_bells(&self, kernel: &impl Kernel, there: usize) {
        let bells = self.map.u32_at(at_bells(self.me.other()));
        let claimed = bells.swap(0, Ordering::SeqCst);
        if self.arrived() != self.in_rx64(rx::GOT).load(Ordering::Relaxed) {
            bells.fetch_add(claimed, Ordering::SeqCst);
            return;
        }
        self.drop_bells(kernel, (claimed.max(1) as usize).min(there).min(BELLS));
    }

    /// The kernel resets a connection that is closed with something unread in it, and a bell is something. If the other end has taken
    /// everything that was sent to it and did not mean to reset, it has just closed.
    fn was_heard(&self) -> bool {
        let epoch = self.out_tx(tx::EPOCH).load(Ordering::Acquire);
        is_ring(epoch)
            && !self.peer_is(Flag::Abort)
            && self.out_rx(rx::SEEN).load(Ordering::Acquire) == epoch
            && self.out_rx64(rx::GOT).load(Ordering::Acquire) == self.out_tx64(tx::PUT).load(Ordering::Relaxed)
    }

    /// The ring is empty and left: takes the bells up to the first byte of the kernel's segment.
    fn cross_to_kernel(&self, kernel: &impl Kernel, seen: u32) -> Step {
        let from = self.in_tx64(tx::KERNEL_FROM).load(Ordering::Relaxed);
        let silenced = self.in_rx(rx::SILENCED).load(Ordering::Relaxed);
        let taken = self.in_rx64(rx::TAKEN).load(Ordering::Relaxed);
        let Some(missing) = from.checked_sub(taken) else { return Is(Incoming::Failed(errno::CONNRESET)) };
        if missing == 0 {
            self.map.u32_at(at_bells(self.me.other())).store(0, Ordering::SeqCst);
            let rung = self.in_tx(tx::RUNG).load(Ordering::SeqCst);
            self.in_rx(rx::SILENCED).store(rung, Ordering::Relaxed);
            // Release: the sender rings for the next ring only after it has seen this.
            self.in_rx(rx::SEEN).store(seen.wrapping_add(1), Ordering::SeqCst);
            return Again;
        }
        let wanted = missing.min(BELLS as u64) as usize;
        match self.take_from_kernel(kernel, wanted) {
            Ok(0) => Is(Incoming::Ended),
            Ok(bells) => {
                self.in_rx(rx::SILENCED).store(silenced.wrapping_add(bells as u32), Ordering::SeqCst);
                Again
            }
            Err(errno::INTR) => Again,
            Err(errno::AGAIN) => Is(Incoming::Empty),
            Err(number) => Is(Incoming::Failed(number)),
        }
    }

    fn step_kernel(&self, kernel: &impl Kernel, to: &mut [IoSliceMut<'_>], peek: bool, epoch: u32, seen: u32) -> Step {
        let mut limit = usize::MAX;
        if epoch != seen {
            let from = self.in_tx64(tx::RING_FROM).load(Ordering::Relaxed);
            let taken = self.in_rx64(rx::TAKEN).load(Ordering::Relaxed);
            if taken >= from {
                // What was taken beyond were bells, see below.
                let before = self.in_tx(tx::RUNG_BEFORE).load(Ordering::Relaxed);
                self.in_rx(rx::SILENCED).store(before.wrapping_add((taken - from) as u32), Ordering::Relaxed);
                self.in_rx(rx::SEEN).store(seen.wrapping_add(1), Ordering::SeqCst);
                return Again;
            }
            limit = usize::try_from(from - taken).unwrap_or(usize::MAX);
        } else {
            let error = self.in_rx(rx::ERROR).swap(0, Ordering::Relaxed);
            if error != 0 {
                return Is(Incoming::Failed(error as i32));
            }
        }
        let received = receive_parts(kernel, to, limit, peek);
        if let Ok(count) = received
            && !peek
        {
            self.count_taken(count);
        }
        let now = self.in_tx(tx::EPOCH).load(Ordering::SeqCst);
        match received {
            Err(errno::INTR) => Again,
            Err(errno::AGAIN) | Ok(0) if now != epoch => Again,
            Err(errno::AGAIN) => Is(Incoming::Empty),
            Err(number) => Is(Incoming::Failed(number)),
            Ok(0) => Is(Incoming::Ended),
            Ok(count) if epoch == seen && now != epoch => self.without_bells(count, peek),
            Ok(count) => Is(Incoming::Got(count)),
        }
    }

    /// The ring began while bytes were taken from the kernel without a limit: what lies behind its beginning are bells.
    fn without_bells(&self, count: usize, peek: bool) -> Step {
        let from = self.in_tx64(tx::RING_FROM).load(Ordering::Relaxed);
        let taken = self.in_rx64(rx::TAKEN).load(Ordering::Relaxed);
        let end = taken.saturating_add(if peek { count as u64 } else { 0 });
        let bells = end.saturating_sub(from).min(count as u64) as usize;
        if bells == count { Again } else { Is(Incoming::Got(count - bells)) }
    }
}

/// Receives at most `limit` bytes into the first of these parts.
fn receive_parts(kernel: &impl Kernel, to: &mut [IoSliceMut<'_>], limit: usize, peek: bool) -> Result<usize, i32> {
    let total: usize = to.iter().map(|part| part.len()).sum();
    if total <= limit {
        return kernel.recv(to, peek);
    }
    let mut short: [IoSliceMut<'_>; PARTS] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    let (mut count, mut room) = (0, limit);
    for (short, part) in short.iter_mut().zip(to.iter_mut()) {
        let len = part.len().min(room);
        *short = IoSliceMut::new(&mut part[..len]);
        room -= len;
        count += 1;
        if room == 0 {
            break;
        }
    }
    kernel.recv(&mut short[..count], peek)
}
