//! Channels, as programs see them.

use super::buffer::{Buffer, Landed};
use super::loan;
use super::receive::{self, table};
use super::table::RawTable;
use super::wire::header_of;
use crate::receive::Patience;
use crate::select::Readiness;
use crate::{Error, Pulc, error};
use pulc_base::clock::{self, Nanos};
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, Hand, Waited, Watch};
use std::time::Duration;

/// One end of a channel to another process. Closed when dropped. May be shared between threads.
///
/// Both ends are named by the rank at the other end and one number. What is sent before the other end is open waits there.
pub struct Channel {
    pub(super) pulc: Pulc,
    pub(super) peer: Rank,
    pub(super) number: u16,
    pub(super) place: u32,
    posts_max: usize,
}

impl Channel {
    pub(crate) fn open(pulc: &Pulc, peer: Rank, number: u16) -> Result<Channel, Error> {
        let process = pulc.process;
        process.check_fork()?;
        error::check_rank(process, peer)?;
        let mut guard = process.lock();
        let place = table(&mut guard.engine).open(peer, number).map_err(|taken| match taken {
            true => Error::ChannelTaken { rank: peer, number },
            false => Error::NoMemory("this process has as many channels as it can count".into()),
        })?;
        let posts_max = crate::params::RAW_POSTS_MAX.read().value as usize;
        Ok(Channel { pulc: pulc.clone(), peer, number, place, posts_max })
    }

    /// The process at the other end.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// Sends one message. The bytes are free to reuse on return.
    ///
    /// # Blocks
    /// Until the receiver has taken the message or there is room for it; receives what arrives meanwhile.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::MessageTooLarge`].
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        self.send_until(bytes, None)
    }

    /// As [`Channel::send`], but gives up with [`Error::Timeout`] when there was no room within `timeout`. Then nothing of the
    /// message arrives.
    pub fn send_timeout(&self, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        self.send_until(bytes, Some(clock::now() + Nanos::from(timeout)))
    }

    #[inline]
    pub(super) fn send_until(&self, bytes: &[u8], deadline: Option<Nanos>) -> Result<(), Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        process
            .send_behind_word(self.peer, Proto::RAWDATA, u64::from_le_bytes(header_of(self.number)), bytes, deadline)
            .map_err(|fault| error::of_send(process, fault))
    }

    /// Waits for a message; it lands in `buffer`. Its length. Comes after all buffers that are posted. What stands in `buffer` behind
    /// the message, or after an error, is not defined: messages land there before it is known how long and whose they are.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] (the message is kept), [`Error::PeerGone`] when nothing more can come.
    #[inline]
    pub fn recv(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let received = receive::receive(self.pulc.process, self.place, self.peer, buffer, Patience::Endless)?;
        // Spelled out, so that no error is prepared and dropped for every message.
        match received {
            Some(len) => Ok(len),
            None => Err(Error::Timeout),
        }
    }

    /// As [`Channel::recv`], but gives up after `timeout` with [`Error::Timeout`]. A message that has begun to arrive by then is
    /// still received.
    pub fn recv_timeout(&self, buffer: &mut [u8], timeout: Duration) -> Result<usize, Error> {
        let patience = Patience::Until(clock::now() + Nanos::from(timeout));
        let received = receive::receive(self.pulc.process, self.place, self.peer, buffer, patience)?;
        received.ok_or(Error::Timeout)
    }

    /// As [`Channel::recv`] without waiting for a message to begin: `None` when nothing is there.
    pub fn try_recv(&self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        receive::receive(self.pulc.process, self.place, self.peer, buffer, Patience::None)
    }

    /// Posts a buffer for a message to land in, behind those posted before; it comes back with [`Channel::landed`], in the same
    /// order. `token` comes back with it.
    ///
    /// # Errors
    /// [`Error::TooManyPosts`].
    pub fn post(&self, buffer: impl Into<Buffer>, token: u64) -> Result<(), Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        let mut guard = process.lock();
        let (table, outbox) =
            guard.engine.handler_and_outbox::<RawTable>(Proto::RAWDATA).expect("registered by attach");
        if table.state(self.place).posted_len() >= self.posts_max {
            return Err(Error::TooManyPosts { limit: self.posts_max });
        }
        table.post(self.place, buffer.into(), token, outbox);
        release(&mut guard.engine);
        // A message that waited for this buffer is told to come.
        process.poll(&mut guard, &mut Hand::empty());
        Ok(())
    }

    /// Waits for the first posted buffer to come back. Without any posted one it waits for other threads to post.
    pub fn landed(&self) -> Result<Landed, Error> {
        self.landed_until(None)
    }

    /// As [`Channel::landed`], but gives up after `timeout` with [`Error::Timeout`].
    pub fn landed_timeout(&self, timeout: Duration) -> Result<Landed, Error> {
        self.landed_until(Some(clock::now() + Nanos::from(timeout)))
    }

    /// As [`Channel::landed`] without waiting.
    pub fn try_landed(&self) -> Result<Option<Landed>, Error> {
        let process = self.pulc.process;
        process.check_fork()?;
        let mut guard = process.lock();
        if let Some(landed) = take_posted(&mut guard.engine, self.place, self.peer) {
            return Ok(Some(landed));
        }
        process.poll(&mut guard, &mut Hand::empty());
        Ok(take_posted(&mut guard.engine, self.place, self.peer))
    }

    fn landed_until(&self, deadline: Option<Nanos>) -> Result<Landed, Error> {
        let (process, place, peer) = (self.pulc.process, self.place, self.peer);
        process.check_fork()?;
        let guard = process.lock();
        let (waited, _guard) = process.wait(guard, &mut Hand::empty(), deadline, Watch::News, |engine, _| {
            if let Some(landed) = take_posted(engine, place, peer) {
                return Some(Ok(landed));
            }
            let end = engine.end_of(peer)?;
            Some(Err(Error::PeerGone { rank: peer, how: end.to_string() }))
        });
        match waited {
            Waited::Ready(result) => result,
            Waited::Timeout => Err(Error::Timeout),
        }
    }

    /// Takes back the last posted buffer if no message has begun to land in it.
    pub fn unpost(&self) -> Option<Buffer> {
        self.pulc.process.check_fork().ok()?;
        table(&mut self.pulc.process.lock().engine).state(self.place).unpost()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let process = self.pulc.process;
        if process.check_fork().is_err() {
            return;
        }
        let mut guard = process.lock();
        let Some((table, outbox)) = guard.engine.handler_and_outbox::<RawTable>(Proto::RAWDATA) else { return };
        let (peer, costs) = table.close(self.place, outbox);
        for cost in costs {
            guard.engine.release(peer, cost);
        }
        process.poll(&mut guard, &mut Hand::empty());
    }
}

/// The first posted buffer, if it is done.
fn take_posted(engine: &mut Engine, place: u32, peer: Rank) -> Option<Landed> {
    loan::settle(engine, place, peer);
    release(engine);
    table(engine).take_posted(place)
}

/// Gives back the room of kept messages that posted buffers have taken.
fn release(engine: &mut Engine) {
    if table(engine).to_release.is_empty() {
        return;
    }
    for (peer, cost) in std::mem::take(&mut table(engine).to_release) {
        engine.release(peer, cost);
    }
}

/// What the next receive would find.
pub(crate) fn has_something(engine: &mut Engine, channel: &Channel) -> Readiness {
    let read = table(engine).state(channel.place).has_something();
    Readiness { read, write: false, ended: !read && engine.end_of(channel.peer).is_some() }
}

/// Waits until one of the channels has a message or a posted buffer that is done, and returns its index; nothing is received
/// yet. A channel whose other end is gone counts: its next receive says so. `None` waits without limit.
///
/// # Errors
/// [`Error::Timeout`], [`Error::BadSelect`].
pub fn select(channels: &[&Channel], timeout: Option<Duration>) -> Result<usize, Error> {
    let process = channels.first().ok_or(Error::BadSelect)?.pulc.process;
    process.check_fork()?;
    let deadline = timeout.map(|timeout| clock::now() + Nanos::from(timeout));
    let guard = process.lock();
    let (waited, _guard) = process.wait(guard, &mut Hand::empty(), deadline, Watch::News, |engine, _| {
        channels.iter().position(|channel| {
            table(engine).state(channel.place).has_something() || engine.end_of(channel.peer).is_some()
        })
    });
    match waited {
        Waited::Ready(index) => Ok(index),
        Waited::Timeout => Err(Error::Timeout),
    }
}
