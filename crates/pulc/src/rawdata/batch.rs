//! Several messages with one call: what leaves and arrives in a stream of short ones shares the lock, the doorbell and the accounts. The
//! other half of `channel`; everything that is not such a stream goes the way of single messages.

use super::channel::Channel;
use super::receive::{self, table};
use super::wire::header_of;
use crate::receive::Patience;
use crate::{Error, error};
use pulc_base::Proto;
use pulc_base::clock::{self, Nanos};
use std::time::Duration;

/// Where the messages of one call land, one behind the other.
struct Landing<'a> {
    buffer: &'a mut [u8],
    lens: &'a mut [usize],
    /// How many there are, and bytes of all.
    count: usize,
    filled: usize,
}

impl Channel {
    /// Sends messages one after another and returns how many have left: all of them, unless something went wrong after the first, which the
    /// next call meets again. Short ones cost less than half of what they cost singly.
    ///
    /// # Blocks
    /// As [`Channel::send`].
    ///
    /// # Errors
    /// What hinders the first one: [`Error::PeerGone`], [`Error::MessageTooLarge`].
    pub fn send_batch(&self, messages: &[&[u8]]) -> Result<usize, Error> {
        self.send_batch_until(messages, None)
    }

    /// As [`Channel::send_batch`], for `timeout` at most: [`Error::Timeout`] when there was no room for the first one by then.
    pub fn send_batch_timeout(&self, messages: &[&[u8]], timeout: Duration) -> Result<usize, Error> {
        self.send_batch_until(messages, Some(clock::now() + Nanos::from(timeout)))
    }

    fn send_batch_until(&self, messages: &[&[u8]], deadline: Option<Nanos>) -> Result<usize, Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        process
            .send_batch(self.peer, Proto::RAWDATA, header_word(self.number), messages, deadline)
            .map_err(|fault| error::of_send(process, fault))
    }

    /// Waits for a message and takes what has come behind it as well. The messages lie one behind the other in `buffer`, their lengths in
    /// `lens`. How many: at least one, at most as many as there are `lens`; what has no room in the rest of `buffer` stays for the next
    /// receive. Comes after all buffers that are posted.
    ///
    /// # Errors
    /// As [`Channel::recv`]; [`Error::BufferTooSmall`] when the first one has no room.
    pub fn recv_batch(&self, buffer: &mut [u8], lens: &mut [usize]) -> Result<usize, Error> {
        self.receive_batch(buffer, lens, Patience::Endless)?.ok_or(Error::Timeout)
    }

    /// As [`Channel::recv_batch`], but gives up after `timeout` with [`Error::Timeout`] when nothing has begun to arrive.
    pub fn recv_batch_timeout(&self, buffer: &mut [u8], lens: &mut [usize], timeout: Duration) -> Result<usize, Error> {
        let patience = Patience::Until(clock::now() + Nanos::from(timeout));
        self.receive_batch(buffer, lens, patience)?.ok_or(Error::Timeout)
    }

    /// As [`Channel::recv_batch`] without waiting for a message to begin: `None` when nothing is there.
    pub fn try_recv_batch(&self, buffer: &mut [u8], lens: &mut [usize]) -> Result<Option<usize>, Error> {
        self.receive_batch(buffer, lens, Patience::None)
    }

    fn receive_batch(&self, buffer: &mut [u8], lens: &mut [usize], patience: Patience) -> Result<Option<usize>, Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        let mut landing = Landing { buffer, lens, count: 0, filled: 0 };
        self.take(&mut landing);
        if landing.count > 0 || landing.lens.is_empty() {
            return Ok(Some(landing.count));
        }
        let Some(len) = receive::receive(process, self.place, self.peer, landing.buffer, patience)? else {
            return Ok(None);
        };
        landing.landed(len);
        self.take(&mut landing);
        Ok(Some(landing.count))
    }

    /// Takes the short messages that have come, if nobody has an earlier right to them.
    fn take(&self, landing: &mut Landing<'_>) {
        let mut guard = self.pulc.process.lock();
        if table(&mut guard.engine).state(self.place).is_idle() {
            let header = header_word(self.number);
            guard.engine.take_batch(self.peer, Proto::RAWDATA, header, |len, words| landing.take(len, words));
        }
    }
}

fn header_word(number: u16) -> u64 {
    u64::from_le_bytes(header_of(number))
}

impl Landing<'_> {
    /// Takes a message out of registers, if there is room for it.
    #[inline(always)]
    fn take(&mut self, len: usize, words: &[u64]) -> bool {
        let Some(to) = self.buffer.get_mut(self.filled..).and_then(|rest| rest.get_mut(..len)) else { return false };
        if self.count == self.lens.len() {
            return false;
        }
        match (to.first_chunk_mut(), words) {
            (Some(all), [word, ..]) if len == all.len() => *all = word.to_ne_bytes(),
            _ => to.chunks_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()[..to.len()])),
        }
        self.landed(len);
        true
    }

    /// A message of this length stands behind the others.
    #[inline(always)]
    fn landed(&mut self, len: usize) {
        if let Some(place) = self.lens.get_mut(self.count) {
            *place = len;
        }
        self.count += 1;
        self.filled += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lie_one_behind_the_other_and_one_that_has_no_room_is_not_taken() {
        let (mut buffer, mut lens) = ([0xEE; 24], [usize::MAX; 4]);
        let mut landing = Landing { buffer: &mut buffer, lens: &mut lens, count: 0, filled: 0 };
        let words = [u64::from_ne_bytes(*b"abcdefgh"), u64::from_ne_bytes(*b"ijklmnop"), 0, 0, 0];
        assert!(landing.take(8, &words) && landing.take(0, &words) && landing.take(11, &words));
        assert!(!landing.take(6, &words), "five bytes are left");
        assert!(landing.take(5, &words));
        assert!(!landing.take(0, &words), "there is no fifth length");
        assert_eq!(&buffer, b"abcdefghabcdefghijkabcde");
        assert_eq!(lens, [8, 0, 11, 5]);
    }
}
