//! The board: one page range of memory per job and node, with a slot of 256 bytes for every rank. Made by the keeper,
//! mapped by it and all ranks of the node, who find here each other's doorbells and the cores they run on.
//!
//! Everyone may write everywhere on it, so nothing here is ever trusted: the worst a wrong value does is a spurious or a
//! late wake-up, and a sleeper looks up by itself after [`WATCHDOG`]. No lengths, no indices, no pointers.
//!
//! ```text
//! slot, 256 bytes        line 0: written by others        line 1: written by the owner
//!   0  u32 doorbell        0 awake, 1 sleeps in futex,     64  u32 core + 1 (0 unknown)
//!                          2 sleeps in poll                68  u32 flags (bit 0 pinned)
//!   4  u32 broker_waiting  messages ever written to        72  u64 progress, counts up while it works
//!                          this rank's keeper socket
//! ```
//! Lines 2 and 3 say what the owner waits for, once that has taken long: see `notice`.
//!
//! The doorbell is written by both sides: the owner sets it before sleeping, whoever rings sets it back to 0.
//!
//! How nothing is missed on the way to sleep is told in `doorbell`.

pub(crate) mod notice;

pub use notice::{Notice, machine_time};

use crate::doorbell::{self, AWAKE};
use crate::error::HalError;
use crate::os::bell::{self, Bell};
use crate::os::watched::Watched;
use crate::os::{futex, memfd};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A sleeper looks up at least this often, should a wake-up get lost (4 times a second).
pub const WATCHDOG: Duration = Duration::from_millis(250);

/// And so often when somebody has shut its bell.
const WATCHDOG_MUTE: Duration = Duration::from_millis(2);

/// Ranks of one node at most.
pub const SLOTS_MAX: u32 = 1 << 16;

pub(crate) const SLOT_BYTES: usize = 256;
const DOORBELL: usize = 0;
const BROKER_WAITING: usize = 4;
const CORE: usize = 64;
const FLAGS: usize = 68;
const PROGRESS: usize = 72;

const IN_FUTEX: u32 = 1;
const IN_POLL: u32 = 2;
const FLAG_PINNED: u32 = 1;

/// How a rank is going to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// On the doorbell word: [`Slot::sleep`].
    Futex,
    /// On descriptors and its [`Bell`]: [`Slot::sleep_in_poll`].
    Poll,
}

/// Why a sleep ended. Whatever it was, the caller looks at everything again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// Rung, a descriptor is ready, or for no reason.
    Rung,
    /// A signal handler ran.
    Signal,
    /// The time the caller gave is over.
    Deadline,
    /// Nothing happened for [`WATCHDOG`].
    Watchdog,
}

/// The mapped board.
pub struct Board {
    map: memfd::WriteMap,
    slots: u32,
}

impl Board {
    /// Makes a board for `slots` ranks; the descriptor goes to each of them.
    pub fn create(slots: u32) -> Result<(Board, OwnedFd), HalError> {
        let (map, fd) = memfd::create_common("pulc-board", Self::bytes(slots)?)?;
        Ok((Board { map, slots }, fd))
    }

    /// Maps a board of `slots` ranks made by [`Board::create`]. The descriptor may be closed afterwards.
    pub fn attach(fd: BorrowedFd<'_>, slots: u32) -> Result<Board, HalError> {
        let map = memfd::map_common(fd, Self::bytes(slots)?)?;
        Ok(Board { map, slots })
    }

    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// A fork of this process shall not inherit the board: it is no rank.
    pub fn leave_out_of_forks(&self) -> Result<(), HalError> {
        self.map.leave_out_of_forks()
    }

    /// The slot of the local rank `slot`.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline(always)]
    pub fn slot(&self, slot: u32) -> Slot<'_> {
        if slot >= self.slots {
            no_such_slot(slot, self.slots);
        }
        Slot { map: &self.map, base: slot as usize * SLOT_BYTES }
    }

    fn bytes(slots: u32) -> Result<usize, HalError> {
        if slots == 0 || slots > SLOTS_MAX {
            return Err(HalError::Limit { what: "slots of a board", value: slots.into(), max: SLOTS_MAX.into() });
        }
        Ok(slots as usize * SLOT_BYTES)
    }
}

/// Apart from the check, so that nothing of its text is prepared on the way of a message.
#[cold]
#[inline(never)]
fn no_such_slot(slot: u32, slots: u32) -> ! {
    panic!("slot {slot} does not exist on a board of {slots}")
}

/// One rank's place on the board.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    map: &'a memfd::WriteMap,
    base: usize,
}

impl Slot<'_> {
    /// Wakes the owner if it sleeps; returns whether it did. To be called after making visible what it should find. No
    /// system call when the owner is awake. `bell` is the owner's, for owners that sleep in poll.
    #[inline]
    pub fn ring(&self, bell: Option<BorrowedFd<'_>>) -> bool {
        self.ring_or(bell, || {})
    }

    /// As [`Slot::ring`]; `otherwise` wakes an owner that sleeps in poll when the caller has no bell of it.
    #[inline(always)]
    pub fn ring_or(&self, bell: Option<BorrowedFd<'_>>, otherwise: impl FnOnce()) -> bool {
        doorbell::sleeps(self.doorbell()) && self.wake(bell, otherwise)
    }

    #[cold]
    fn wake(&self, bell: Option<BorrowedFd<'_>>, otherwise: impl FnOnce()) -> bool {
        match (doorbell::claim(self.doorbell()), bell) {
            (AWAKE, _) => return false,
            (IN_POLL, Some(bell)) => bell::ring(bell),
            (IN_POLL, None) => otherwise(),
            // Any other value was written by a broken job-mate; a futex wake for nobody does no harm.
            _ => {
                let _ = futex::wake(self.doorbell(), 1);
            }
        }
        true
    }

    /// Counts a message that the keeper has just written to the owner's socket, and wakes the owner if it sleeps on its
    /// doorbell (in poll it sees the socket). For the keeper.
    pub fn announce_broker_message(&self) {
        doorbell::count(self.broker_word());
        self.ring(None);
    }

    /// How many messages the keeper has ever written to the owner's socket (wrapping). The owner compares this with what
    /// it has read, and so needs no system call to know that nothing came.
    #[inline]
    pub fn broker_waiting(&self) -> u32 {
        doorbell::counted(self.broker_word())
    }

    /// First step to sleep, for the owner: from now on others ring. After it, look at *everything* once more, then either
    /// `cancel` or `sleep`.
    pub fn prepare_sleep(&self, how: Sleep) {
        let value = match how {
            Sleep::Futex => IN_FUTEX,
            Sleep::Poll => IN_POLL,
        };
        doorbell::announce_sleep(self.doorbell(), value);
    }

    /// There was something to do after all.
    pub fn cancel(&self) {
        self.doorbell().store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps until rung, after `prepare_sleep(Sleep::Futex)`. Awake again on return.
    ///
    /// # Blocks
    /// At most for `timeout` and at most for [`WATCHDOG`].
    pub fn sleep(&self, timeout: Option<Duration>) -> Result<Woken, HalError> {
        let limit = timeout.map_or(WATCHDOG, |t| t.min(WATCHDOG));
        let woken = futex::wait(self.doorbell(), IN_FUTEX, Some(limit));
        self.cancel();
        Ok(match woken? {
            futex::Wait::Woken | futex::Wait::Changed => Woken::Rung,
            futex::Wait::Interrupted => Woken::Signal,
            futex::Wait::TimedOut => over(timeout),
        })
    }

    /// Sleeps until rung, or one of `fds` is readable, or one of those that a user watches is ready, after
    /// `prepare_sleep(Sleep::Poll)`. Awake again on return. Which of `fds` it was is not told: the caller polls its devices
    /// anyway.
    ///
    /// # Blocks
    /// At most for `timeout` and at most for [`WATCHDOG`].
    pub fn sleep_in_poll(
        &self,
        bell: Option<&Bell>,
        fds: &[BorrowedFd<'_>],
        watched: &mut Watched<'_>,
        timeout: Option<Duration>,
    ) -> Result<Woken, HalError> {
        let watchdog = if bell.is_some_and(Bell::is_mute) { WATCHDOG_MUTE } else { WATCHDOG };
        let limit = timeout.map_or(watchdog, |t| t.min(watchdog));
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let bell_fd = bell.filter(|bell| !bell.is_mute()).map(AsFd::as_fd);
        let ours = bell_fd.iter().chain(fds).map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        let mut all: Vec<PollFd<'_>> = ours.chain(watched.fds().iter().cloned()).collect();
        let ready = rustix::event::poll(&mut all, Some(&limit));
        self.cancel();
        watched.take_results(&all[all.len() - watched.len()..]);
        if let (Some(bell), Some(_)) = (bell, bell_fd)
            && !all[0].revents().is_empty()
        {
            bell.drain();
        }
        match ready {
            // Of a mute bell nobody knows whether it would have rung.
            Ok(0) if bell.is_some_and(Bell::is_mute) && timeout.is_none_or(|timeout| timeout > watchdog) => {
                Ok(Woken::Watchdog)
            }
            Ok(0) => Ok(over(timeout)),
            Ok(_) => Ok(Woken::Rung),
            Err(rustix::io::Errno::INTR) => Ok(Woken::Signal),
            Err(errno) => Err(HalError::System { doing: "poll", source: errno.into() }),
        }
    }

    /// Tells on which core the owner runs. For the owner.
    pub fn publish_core(&self, core: u32) {
        let word = self.map.u32_at(self.base + CORE);
        // Written only on change, so that readers keep the line.
        if word.load(Ordering::Relaxed) != core.wrapping_add(1) {
            word.store(core.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// The core the owner last said it runs on.
    pub fn core(&self) -> Option<u32> {
        self.map.u32_at(self.base + CORE).load(Ordering::Relaxed).checked_sub(1)
    }

    /// Whether the owner is pinned to its core. Set by the owner.
    pub fn set_pinned(&self, pinned: bool) {
        self.map.u32_at(self.base + FLAGS).store(if pinned { FLAG_PINNED } else { 0 }, Ordering::Relaxed);
    }

    pub fn pinned(&self) -> bool {
        self.map.u32_at(self.base + FLAGS).load(Ordering::Relaxed) & FLAG_PINNED != 0
    }

    /// Counts work done, so that neighbours on the same core see that yielding to the owner is of use. For the owner.
    pub fn made_progress(&self) {
        let word = self.progress_word();
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub fn progress(&self) -> u64 {
        self.progress_word().load(Ordering::Relaxed)
    }

    /// Whether the owner says it sleeps. A hint, good for statistics and tests.
    pub fn sleeping(&self) -> bool {
        self.doorbell().load(Ordering::Relaxed) != AWAKE
    }

    /// Forgets what an earlier owner left. For the keeper, before a slot gets a new rank.
    pub fn reset(&self) {
        self.doorbell().store(AWAKE, Ordering::Relaxed);
        self.broker_word().store(0, Ordering::Relaxed);
        self.map.u32_at(self.base + CORE).store(0, Ordering::Relaxed);
        self.map.u32_at(self.base + FLAGS).store(0, Ordering::Relaxed);
        self.tell_nothing();
        self.progress_word().store(0, Ordering::Release);
    }

    #[inline(always)]
    fn doorbell(&self) -> &AtomicU32 {
        self.map.u32_at(self.base + DOORBELL)
    }

    fn broker_word(&self) -> &AtomicU32 {
        self.map.u32_at(self.base + BROKER_WAITING)
    }

    fn progress_word(&self) -> &AtomicU64 {
        self.map.u64_at(self.base + PROGRESS)
    }
}

fn over(timeout: Option<Duration>) -> Woken {
    match timeout {
        Some(timeout) if timeout <= WATCHDOG => Woken::Deadline,
        _ => Woken::Watchdog,
    }
}

#[cfg(test)]
mod tests;
