//! Blocking sends: one try, then waiting for room while receiving what arrives. Called by the interfaces; must never hold the lock
//! while it sleeps.

use super::{Guard, Process, Waited, Watch};
use crate::engine::Outcome;
use crate::error::SendFault;
use crate::sending::Sending;
use crate::switch::Hand;
use crate::wire::FREE;
use pulc_base::clock::Nanos;
use pulc_base::{Proto, Rank};

impl Process {
    /// As [`Process::send`] with a header of one word: the shortest way for messages of up to eight bytes.
    #[inline]
    pub fn send_behind_word(
        &self,
        dst: Rank,
        proto: Proto,
        header: u64,
        body: &[u8],
        deadline: Option<Nanos>,
    ) -> Result<(), SendFault> {
        let mut guard = self.lock();
        if guard.engine.try_word(dst, proto, header, body) {
            return Ok(());
        }
        self.send_unless(guard, Sending::counted(dst, proto, &header.to_le_bytes(), body), deadline, || false)
    }

    /// As [`Process::send`] with the engine locked already. Before the message begins, and while its receiver has granted no room
    /// for it, `is_off` may call it off: then nothing of it arrives, and the answer is [`SendFault::CalledOff`].
    #[inline]
    pub fn send_unless(
        &self,
        mut guard: Guard<'_>,
        sending: Sending<'_>,
        deadline: Option<Nanos>,
        is_off: impl FnMut() -> bool,
    ) -> Result<(), SendFault> {
        if let Some(sent) = sending.try_whole(&mut guard.engine)
            && sent? == Outcome::Sent
        {
            if sending.dst() == self.rank {
                self.tell_others(&guard);
            }
            return Ok(());
        }
        self.send_slowly(guard, sending, deadline, is_off)
    }

    #[inline(never)]
    fn send_slowly(
        &self,
        guard: Guard<'_>,
        mut sending: Sending<'_>,
        deadline: Option<Nanos>,
        mut is_off: impl FnMut() -> bool,
    ) -> Result<(), SendFault> {
        let dst = sending.dst();
        let hand = &mut Hand::empty();
        let (mut waited, mut guard) = self.wait(guard, hand, deadline, Watch::Always, |engine, _| {
            if is_off() && sending.withdraw(engine) {
                return Some(Err(SendFault::CalledOff));
            }
            sending.step(engine)
        });
        if let Waited::Timeout = waited {
            if sending.withdraw(&mut guard.engine) {
                guard.engine.progress(hand);
                return Err(SendFault::Timeout);
            }
            (waited, guard) = self.wait(guard, hand, None, Watch::Always, |engine, _| sending.step(engine));
        }
        if dst == self.rank {
            self.tell_others(&guard);
        }
        match waited {
            Waited::Ready(result) => result,
            Waited::Timeout => Err(SendFault::Timeout),
        }
    }

    /// Sends one message outside all credit if there is room now; returns whether it was sent. A message in parts waits for
    /// room once its first part has left.
    pub fn send_or_drop(&self, dst: Rank, proto: Proto, header: &[u8], body: &[u8]) -> Result<bool, SendFault> {
        let guard = self.lock();
        let mut sending = Sending::new(dst, proto, FREE, header, body);
        let mut tries = 0;
        let (waited, guard) = self.wait(guard, &mut Hand::empty(), None, Watch::Always, |engine, _| {
            tries += 1;
            match sending.step(engine) {
                Some(result) => Some(result.map(|()| true)),
                None if sending.untouched() && tries > 1 => Some(Ok(false)),
                None => None,
            }
        });
        if dst == self.rank {
            self.tell_others(&guard);
        }
        match waited {
            Waited::Ready(result) => result,
            Waited::Timeout => Ok(false),
        }
    }
}
