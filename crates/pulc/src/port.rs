//! Ports: named places that messages are sent to and received from.

use crate::{Address, Error, From, Match};
use pulc_base::Rank;
use std::time::Duration;

/// How messages sent *from* a port travel, and what happens to those that nobody receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Exactly once, in order, no loss: a sender waits while the receiver's limits are reached.
    Ordered,
    /// At most once and never waiting for the receiver: what finds no room is dropped and counted.
    Datagram,
}

/// An open port. Closed when dropped. May be shared between threads.
pub struct Port {}

/// What arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub src: Rank,
    pub tag: u64,
    /// Length of the message in bytes.
    pub len: usize,
}

impl Port {
    pub fn name(&self) -> &str {
        unimplemented!()
    }

    /// Sends one message. The bytes are free to reuse on return.
    ///
    /// # Blocks
    /// Until the receiver has taken the message or granted it room; receives what arrives meanwhile.
    ///
    /// # Errors
    /// [`Error::UnknownPort`], [`Error::PeerGone`], [`Error::MessageTooLarge`], [`Error::NoSuchRank`].
    pub fn send(&self, to: &Address, tag: u64, bytes: &[u8]) -> Result<(), Error> {
        let _ = (to, tag, bytes);
        unimplemented!()
    }

    /// Waits for a message and copies it into `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] (the message is kept), [`Error::PeerGone`] when only dead ranks could still satisfy it.
    pub fn recv(&self, from: From, tag: Match, buffer: &mut [u8]) -> Result<Envelope, Error> {
        let _ = (from, tag, buffer);
        unimplemented!()
    }

    /// As [`Port::recv`], but gives up after `timeout` with [`Error::Timeout`].
    pub fn recv_timeout(
        &self,
        from: From,
        tag: Match,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Envelope, Error> {
        let _ = (from, tag, buffer, timeout);
        unimplemented!()
    }

    /// As [`Port::recv`] without waiting: `None` when nothing is there.
    pub fn try_recv(&self, from: From, tag: Match, buffer: &mut [u8]) -> Result<Option<Envelope>, Error> {
        let _ = (from, tag, buffer);
        unimplemented!()
    }

    /// Receives a message of any size.
    pub fn recv_vec(&self, from: From, tag: Match) -> Result<(Envelope, Vec<u8>), Error> {
        let _ = (from, tag);
        unimplemented!()
    }

    /// As [`Port::recv_vec`], but gives up after `timeout` with [`Error::Timeout`].
    pub fn recv_vec_timeout(&self, from: From, tag: Match, timeout: Duration) -> Result<(Envelope, Vec<u8>), Error> {
        let _ = (from, tag, timeout);
        unimplemented!()
    }

    /// Messages dropped here because they found no room (datagram mode).
    pub fn dropped(&self) -> u64 {
        unimplemented!()
    }
}

/// Waits until one of the ports has a message and returns its index; nothing is received yet. `None` waits without limit.
///
/// # Errors
/// [`Error::Timeout`], [`Error::BadSelect`], [`Error::PeerGone`] when all other ranks are gone and nothing is left.
pub fn select(ports: &[&Port], timeout: Option<Duration>) -> Result<usize, Error> {
    let _ = (ports, timeout);
    unimplemented!()
}
