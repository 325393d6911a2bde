//! What those ask of an inbox who wait for it: whether there is something, and whether what the kernel calls readable is. Called by everything
//! that waits. Must never take a datagram.

use super::{BYTES, Inbox, Post, RING, SIGNAL_BYTES, bell, record, rx, signal, tx};
use crate::channel::Flag;
use crate::kernel::{Wait, errno};
use crate::layout::end;
use crate::lock::lock;
use crate::message::Place;
use crate::ring;
use crate::spinning::{Looked, Luck};
use std::sync::atomic::Ordering;

impl Inbox {
    /// Whether a reader that sleeps need not ask the kernel before: nothing is there, and the kernel was quiet lately.
    #[inline]
    pub fn is_dry(&self) -> bool {
        self.unread() == 0
            && self.at(rx::BUSY).load(Ordering::Relaxed) == 0
            && self.at(rx::ERROR).load(Ordering::Relaxed) == 0
    }

    /// Asked after the caller has said on the board that it sleeps, and before it does. The kernel's own datagrams wake it anyway.
    #[inline]
    pub fn may_wait(&self) -> Wait {
        if self.unread() == 0 && self.at(rx::ERROR).load(Ordering::Relaxed) == 0 { Wait::Yes } else { Wait::No }
    }

    /// Whether a read would find something now. Takes bells.
    pub fn truth(&self, post: &impl Post) -> Wait {
        let Some(_held) = lock(self.at(rx::LOCK), post) else { return Wait::No };
        loop {
            if self.may_wait() == Wait::No {
                return Wait::No;
            }
            match self.take_signal(post) {
                Ok(true) | Err(errno::INTR) => {}
                Ok(false) => return Wait::No,
                Err(errno::AGAIN) => return Wait::Yes,
                Err(number) => {
                    // Whoever reads next is to be told; the kernel says it only once.
                    self.keep_error(number);
                    return Wait::No;
                }
            }
        }
    }

    /// Whether what makes the kernel's socket readable were only bells for what somebody has taken already. They are taken.
    pub fn were_only_bells(&self, post: &impl Post) -> bool {
        if self.unread() != 0 || self.at(bell::RUNG).load(Ordering::SeqCst) == 0 {
            return false;
        }
        let before = self.at(bell::MOVED).load(Ordering::SeqCst);
        self.truth(post) == Wait::Yes && self.at(bell::MOVED).load(Ordering::SeqCst).wrapping_sub(before) > 1
    }

    /// An error that the kernel has told to somebody who only looked.
    pub fn keep_error(&self, number: i32) {
        self.at(rx::ERROR).store(number as u32, Ordering::Relaxed);
    }

    /// Who has sent the next datagram of the ring, as it says: the process, its socket there, and the address.
    pub fn next_sender(&self) -> Option<(u32, u32, Place)> {
        let got = self.at64(rx::GOT).load(Ordering::Relaxed);
        let base = self.at64(tx::BASE).load(Ordering::Acquire);
        let next = record(&self.map, got, base, self.arrived().wrapping_sub(got))?;
        Some((next.pid, next.fd, next.source))
    }

    /// A bell, for who rings for something that came before anybody wanted to be rung for.
    pub fn bell(&self) -> [u8; SIGNAL_BYTES] {
        self.at(bell::RUNG).fetch_add(1, Ordering::SeqCst);
        signal(&self.secret, 0)
    }

    /// The word of the board's slot that counts those who sleep in the set that the socket is in.
    pub fn sleeps_in(&self, word: u32) {
        self.mine(end::WORD).store(word, Ordering::SeqCst);
    }

    /// Those that tell how the receiver sleeps; others mean nothing here.
    pub fn set(&self, flag: Flag, on: bool) {
        self.mine(flag.at()).store(u32::from(on), Ordering::SeqCst);
    }

    #[inline]
    pub fn is(&self, flag: Flag) -> bool {
        self.mine(flag.at()).load(Ordering::Relaxed) != 0
    }

    /// Bytes that were put into the ring: another number means that something new has come.
    #[inline]
    pub fn arrived(&self) -> u64 {
        self.at64(tx::PUT).load(Ordering::SeqCst)
    }

    /// Bytes in the ring, headers included.
    #[inline]
    pub fn unread(&self) -> usize {
        let got = self.at64(rx::GOT).load(Ordering::Relaxed);
        (self.arrived().wrapping_sub(got) as usize).min(BYTES)
    }
}

impl Looked for Inbox {
    fn comes_by_ring(&self) -> bool {
        self.at(rx::BUSY).load(Ordering::Relaxed) == 0 && self.arrived() != 0
    }

    fn has_something(&self) -> bool {
        self.unread() != 0
    }

    fn expect(&self) {
        let base = self.at64(tx::BASE).load(Ordering::Relaxed);
        ring::expect(&self.map, RING, self.at64(rx::GOT).load(Ordering::Relaxed), base);
    }

    fn core_of_sender(&self) -> u32 {
        self.at(tx::CPU).load(Ordering::Relaxed)
    }

    fn luck(&self) -> Luck<'_> {
        Luck(self.at(rx::LUCK))
    }
}
