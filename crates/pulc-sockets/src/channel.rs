//! One end of a channel: the memory, which side this is, and the words by which the ends tell each other what they are ready for.
//! Sending is in `outgoing.rs`, receiving in `incoming.rs`, handing the connection to somebody else in `parting.rs`.

use crate::kernel::{Kernel, errno};
use crate::layout::{RING_BYTES, Side, at_end, at_rx, at_tx, end, is_ring, rx, tx};
use crate::lock::{Held, lock};
use crate::memory::{AtomicU32, AtomicU64, Memory};
use crate::ring;
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use {
    crate::error::Error,
    crate::layout::{AT_MAGIC, CHANNEL_BYTES, MAGIC},
    crate::lock::lock_within,
    crate::window::{OWN_SLOT, Window},
    pulc_hal::HalError,
    pulc_hal::os::memfd,
    std::os::fd::{BorrowedFd, OwnedFd},
    std::sync::atomic::AtomicBool,
};

/// Looks at a lock of a connection with another user, most of which give the core away: some tenths of a second at least.
#[cfg(not(loom))]
const LOOKS_ACROSS: u64 = 1 << 20;

/// One process's (or family of forks') end.
pub struct End {
    pub(crate) map: Memory,
    pub(crate) me: Side,
    /// Who sleeps at the other end, if that belongs to another user.
    #[cfg(not(loom))]
    pub(crate) window: Option<Window>,
    /// A lock was held longer than anybody needs: no call of this process waits for one again.
    #[cfg(not(loom))]
    is_broken: AtomicBool,
}

/// What an end says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Both directions go to the kernel and stay there.
    Barred,
    /// Everything that comes to an empty ring is to be rung for.
    Parked,
    /// It is to be rung for even if a bell is there already.
    Edge,
    /// Closing is meant to reset the connection.
    Abort,
    /// The process has closed it.
    Closed,
    /// Nothing is sent any more.
    Shut,
    /// What is sent waits for more: only the kernel knows until when.
    Corked,
    /// Forks of the process sleep for it too, in sets that it does not know.
    Shared,
}

impl Flag {
    pub(crate) const fn at(self) -> usize {
        match self {
            Flag::Barred => end::BARRED,
            Flag::Parked => end::PARKED,
            Flag::Edge => end::EDGE,
            Flag::Abort => end::ABORT,
            Flag::Closed => end::CLOSED,
            Flag::Shut => end::SHUT,
            Flag::Corked => end::CORKED,
            Flag::Shared => end::SHARED,
        }
    }
}

/// Memory for a connection whose ends are not there yet. Made by the broker.
#[cfg(not(loom))]
pub fn create() -> Result<(Memory, OwnedFd), Error> {
    let (map, fd) = memfd::create_common("pulc-sockets-channel", CHANNEL_BYTES)?;
    map.u64_at(AT_MAGIC).store(MAGIC, Ordering::Release);
    Ok((map, fd))
}

/// What the broker tells about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// By side: whether it sends by the ring just now, bytes that went through rings, bells, times that it has gone back to the
    /// kernel, whether it is there at all, why it left for good.
    pub on_ring: [bool; 2],
    pub ring_bytes: [u64; 2],
    pub bells: [u32; 2],
    pub returns: [u32; 2],
    pub joined: [bool; 2],
    pub reasons: [u32; 2],
}

/// Reads what can be read beside the ends.
pub fn summary(map: &Memory) -> Summary {
    let word = |at: usize| map.u32_at(at).load(Ordering::Relaxed);
    let both = [Side::Active, Side::Passive];
    Summary {
        on_ring: both.map(|side| is_ring(word(at_tx(side) + tx::EPOCH))),
        ring_bytes: both.map(|side| map.u64_at(at_tx(side) + tx::PUT).load(Ordering::Relaxed)),
        bells: both.map(|side| word(at_tx(side) + tx::RUNG)),
        returns: both.map(|side| word(at_tx(side) + tx::EPOCH) / 2),
        joined: both.map(|side| word(at_end(side) + end::JOINED) != 0),
        reasons: both.map(|side| word(at_end(side) + end::REASON)),
    }
}

/// Sends both ends of a connection back to the kernel, at their next call.
pub fn bar(map: &Memory) {
    for side in [Side::Active, Side::Passive] {
        map.u32_at(at_end(side) + end::BARRED).store(1, Ordering::SeqCst);
    }
}

impl End {
    /// Maps the channel as `me`; the process owns `slot` of the board.
    ///
    /// # Errors
    /// When the memory is not a channel.
    #[cfg(not(loom))]
    pub fn join(fd: BorrowedFd<'_>, me: Side, slot: u32, pid: u32) -> Result<End, Error> {
        let map = memfd::map_common(fd, CHANNEL_BYTES)?;
        if map.u64_at(AT_MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(Error::Memory(HalError::NotSharedMemory));
        }
        let joined = End { map, me, window: None, is_broken: AtomicBool::new(false) };
        joined.mine(end::SLOT).store(slot, Ordering::Relaxed);
        joined.mine(end::PID).store(pid, Ordering::Relaxed);
        joined.mine(end::JOINED).store(1, Ordering::SeqCst);
        Ok(joined)
    }

    /// The same where the other end belongs to another user, whose sleepers are seen through `window`; this process's own are in
    /// [`OWN_SLOT`] of the board that it shows.
    ///
    /// # Errors
    /// As [`End::join`].
    #[cfg(not(loom))]
    pub fn join_across(fd: BorrowedFd<'_>, me: Side, pid: u32, window: Window) -> Result<End, Error> {
        let joined = End::join(fd, me, OWN_SLOT, pid)?;
        Ok(End { window: Some(window), ..joined })
    }

    /// Takes one of the locks.
    ///
    /// # Errors
    /// `EAGAIN` in a signal handler that has interrupted the holder. `ECONNRESET` where the other end belongs to another user and holds the
    /// lock for longer than any use of it takes: no user's program waits for ever because another one wants it to.
    #[inline]
    pub(crate) fn hold<'a>(&self, word: &'a AtomicU32, kernel: &impl Kernel) -> Result<Held<'a>, i32> {
        #[cfg(not(loom))]
        if self.window.is_some() {
            return self.hold_across(word, kernel);
        }
        lock(word, kernel).ok_or(errno::AGAIN)
    }

    #[cfg(not(loom))]
    fn hold_across<'a>(&self, word: &'a AtomicU32, kernel: &impl Kernel) -> Result<Held<'a>, i32> {
        let looks = if self.is_broken.load(Ordering::Relaxed) { 0 } else { LOOKS_ACROSS };
        let held = lock_within(word, kernel, looks);
        if matches!(held, Err(errno::CONNRESET)) {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        held
    }

    /// Whether the other end belongs to another user and its sleepers are seen through a window; then whether one may be asleep.
    #[inline]
    pub(crate) fn may_sleep_across(&self, word: u32) -> Option<bool> {
        #[cfg(not(loom))]
        return self.window.as_ref().map(|window| window.may_sleep(word));
        #[cfg(loom)]
        {
            let _ = word;
            None
        }
    }

    pub fn side(&self) -> Side {
        self.me
    }

    /// Whether the other end has mapped the channel and wants it.
    #[inline]
    pub fn is_met(&self) -> bool {
        self.theirs(end::JOINED).load(Ordering::Acquire) != 0 && !self.is(Flag::Barred) && !self.peer_is(Flag::Barred)
    }

    /// From now on nobody of this end takes bytes from the kernel but through [`End::receive`]. The connection must be open both ways.
    ///
    /// # Errors
    /// When the kernel does not say how many bytes were taken so far.
    pub fn make_ready(&self, kernel: &impl Kernel) -> Result<(), i32> {
        self.in_rx64(rx::TAKEN).store(kernel.taken()?, Ordering::SeqCst);
        self.mine(end::READY).store(1, Ordering::SeqCst);
        Ok(())
    }

    pub fn is_ready(&self) -> bool {
        self.mine(end::READY).load(Ordering::Relaxed) != 0
    }

    /// The word of the board's slot that counts those who sleep in the set that this end is in.
    pub fn sleeps_in(&self, word: u32) {
        self.mine(end::WORD).store(word, Ordering::SeqCst);
    }

    pub fn set(&self, flag: Flag, on: bool) {
        self.mine(flag.at()).store(u32::from(on), Ordering::SeqCst);
    }

    #[inline]
    pub fn is(&self, flag: Flag) -> bool {
        self.mine(flag.at()).load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(crate) fn peer_is(&self, flag: Flag) -> bool {
        self.theirs(flag.at()).load(Ordering::Relaxed) != 0
    }

    /// Says why this end has left for good; the first reason stays.
    pub fn bar(&self, reason: u32) {
        let _ = self.mine(end::REASON).compare_exchange(0, reason, Ordering::Relaxed, Ordering::Relaxed);
        self.set(Flag::Barred, true);
    }

    /// Whether both directions are on the kernel and will stay there: nothing of this channel is needed any more.
    pub fn is_over(&self) -> bool {
        let settled = |sender: Side| {
            let epoch = self.map.u32_at(at_tx(sender) + tx::EPOCH).load(Ordering::Acquire);
            !is_ring(epoch) && epoch == self.map.u32_at(at_rx(sender) + rx::SEEN).load(Ordering::Acquire)
        };
        (self.is(Flag::Barred) || self.peer_is(Flag::Barred)) && settled(self.me) && settled(self.me.other())
    }

    /// The descriptor's number, for whoever wants a copy of it.
    pub fn keep_fd(&self, fd: u32) {
        self.mine(end::FD).store(fd, Ordering::Relaxed);
    }

    /// Process and number of the other end's descriptor, as it says.
    pub fn peer_descriptor(&self) -> (u32, u32) {
        (self.theirs(end::PID).load(Ordering::Relaxed), self.theirs(end::FD).load(Ordering::Relaxed))
    }

    /// Whether bytes that are sent now go into the ring.
    #[inline]
    pub fn sends_by_ring(&self) -> bool {
        is_ring(self.out_tx(tx::EPOCH).load(Ordering::Relaxed))
    }

    /// Sent bytes in the ring that the other end has not taken.
    pub fn unheard_bytes(&self) -> usize {
        let got = self.out_rx64(rx::GOT).load(Ordering::Relaxed);
        (self.out_tx64(tx::PUT).load(Ordering::Relaxed).wrapping_sub(got) as usize).min(RING_BYTES)
    }

    /// Bytes that a read would find, of which the kernel says it has `waiting`; without bells.
    pub fn readable_bytes(&self, waiting: usize) -> usize {
        let (epoch, seen) = (self.in_tx(tx::EPOCH).load(Ordering::SeqCst), self.in_rx(rx::SEEN).load(Ordering::SeqCst));
        if epoch == seen {
            return if is_ring(seen) { self.unread() } else { waiting };
        }
        let taken = self.in_rx64(rx::TAKEN).load(Ordering::Relaxed);
        let (ring, after) = (
            self.in_tx64(tx::RING_FROM).load(Ordering::Relaxed),
            self.in_tx64(tx::KERNEL_FROM).load(Ordering::Relaxed),
        );
        let arrived = taken.saturating_add(waiting as u64);
        let before = if is_ring(seen) { 0 } else { ring.min(arrived).saturating_sub(taken) };
        let behind = if is_ring(epoch) { 0 } else { arrived.saturating_sub(after.max(taken)) };
        (before as usize).saturating_add(self.unread()).saturating_add(behind as usize)
    }

    /// Bytes that the other end has put into rings: another number means that something new has come.
    #[inline]
    pub fn arrived(&self) -> u64 {
        self.in_tx64(tx::PUT).load(Ordering::SeqCst)
    }

    /// Asks for the line in which what is taken next begins.
    #[inline]
    pub(crate) fn expect_next(&self) {
        let base = self.in_tx64(tx::BASE).load(Ordering::Relaxed);
        ring::expect(&self.map, self.me.other(), self.in_rx64(rx::GOT).load(Ordering::Relaxed), base);
    }

    /// Bytes in the ring that nobody has taken.
    #[inline]
    pub fn unread(&self) -> usize {
        let got = self.in_rx64(rx::GOT).load(Ordering::Relaxed);
        (self.arrived().wrapping_sub(got) as usize).min(RING_BYTES)
    }

    #[inline]
    pub(crate) fn mine(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at_end(self.me) + at)
    }

    #[inline]
    pub(crate) fn theirs(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at_end(self.me.other()) + at)
    }

    /// Words of what this end sends, written by it …
    #[inline]
    pub(crate) fn out_tx(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at_tx(self.me) + at)
    }

    #[inline]
    pub(crate) fn out_tx64(&self, at: usize) -> &AtomicU64 {
        self.map.u64_at(at_tx(self.me) + at)
    }

    /// … and by its receiver.
    #[inline]
    pub(crate) fn out_rx(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at_rx(self.me) + at)
    }

    #[inline]
    pub(crate) fn out_rx64(&self, at: usize) -> &AtomicU64 {
        self.map.u64_at(at_rx(self.me) + at)
    }

    /// Words of what this end receives, written by its sender …
    #[inline]
    pub(crate) fn in_tx(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at_tx(self.me.other()) + at)
    }

    #[inline]
    pub(crate) fn in_tx64(&self, at: usize) -> &AtomicU64 {
        self.map.u64_at(at_tx(self.me.other()) + at)
    }

    /// … and by this end.
    #[inline]
    pub(crate) fn in_rx(&self, at: usize) -> &AtomicU32 {
        self.map.u32_at(at_rx(self.me.other()) + at)
    }

    #[inline]
    pub(crate) fn in_rx64(&self, at: usize) -> &AtomicU64 {
        self.map.u64_at(at_rx(self.me.other()) + at)
    }
}
