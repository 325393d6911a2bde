//! A request with a payload that is written straight into the buffer it is sent from. Made by `peer`; between making and
//! committing it nothing else happens to it.

use super::args::{Args, Medium, Words};
use super::attempt::{Asked, Tried};
use super::peer::Peer;
use super::send;
use super::wire::Kind;
use crate::{Error, error};
use pulc_handler::{Engine, SendFault};
use std::sync::Arc;

/// Room for the arguments that stand in front of the payload.
const FRONT_BYTES: usize = 40;

/// Credit and a buffer for one request; see [`Peer::prepare`]. Dropped, both go back.
pub struct Prepared<'a> {
    peer: &'a Peer,
    slot: u16,
    /// Room for arguments, then for the payload.
    buffer: Vec<u8>,
    left: bool,
}

/// Part of a buffer that a parcel sends.
struct Part {
    buffer: Vec<u8>,
    from: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[self.from..]
    }
}

impl<'a> Prepared<'a> {
    pub(crate) fn reserve(peer: &'a Peer, engine: &mut Engine, max: usize) -> Tried<Prepared<'a>> {
        let none = Words::new([0; 8], 0);
        let asked = Asked { kind: Kind::Medium, handler: 0, words: &none, offset: 0, tell: None };
        let Some(reserved) = peer.reserve(engine, asked)? else { return Ok(None) };
        let mut buffer = send::table(engine).spare.take(FRONT_BYTES + max).unwrap_or_default();
        buffer.resize(FRONT_BYTES + max, 0);
        Ok(Some(Prepared { peer, slot: reserved.slot, buffer, left: false }))
    }

    /// Where the payload is written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[FRONT_BYTES..]
    }

    /// Sends the first `len` bytes. Never waits: its credit is reserved, and where the device has no room now the engine keeps
    /// the buffer until it has.
    ///
    /// # Errors
    /// [`Error::PeerGone`].
    ///
    /// # Panics
    /// When `len` is more than was prepared.
    pub fn commit<A: Args>(self, handler: Medium<A>, args: A, len: usize) -> Result<(), Error> {
        self.commit_words(handler.index, &args.to_words(), len)
    }

    /// [`Prepared::commit`] with a handler that is not typed.
    pub fn commit_words(mut self, handler: u8, words: &Words, len: usize) -> Result<(), Error> {
        let end = FRONT_BYTES + len;
        assert!(end <= self.buffer.len(), "{len} bytes were not prepared");
        let process = self.peer.opened.bundle.process;
        process.check_fork()?;
        let mut guard = process.lock();
        let sent = self.send(&mut guard.engine, handler, words, end);
        if self.peer.rank() == process.rank() {
            process.announce(&guard);
        }
        drop(guard);
        sent.map_err(|fault| error::of_send(process, fault))
    }

    fn send(&mut self, engine: &mut Engine, handler: u8, words: &Words, end: usize) -> Result<(), SendFault> {
        let kind = Kind::Medium;
        let (rest, rest_len) = send::rest_of(words, kind.words_inline());
        let from = FRONT_BYTES - rest_len;
        self.buffer[from..FRONT_BYTES].copy_from_slice(&rest[..rest_len]);
        let Some(header) = self.peer.prepared_header(engine, self.slot, handler, words) else {
            // It has come back already: the error handler is told.
            self.left = true;
            return Ok(());
        };
        self.buffer.truncate(end);
        let front = header.front(words.all());
        let body = &self.buffer[from..];
        let sent = send::try_body(engine, self.peer.rank(), front.bytes(), body)?;
        let buffer = std::mem::take(&mut self.buffer);
        if sent {
            send::table(engine).spare.give(buffer);
        } else {
            send::parcel(engine, self.peer.rank(), front.bytes(), Arc::new(Part { buffer, from }));
        }
        self.left = true;
        Ok(())
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        let process = self.peer.opened.bundle.process;
        if self.left || process.check_fork().is_err() {
            return;
        }
        let mut guard = process.lock();
        self.peer.unreserve(&mut guard.engine, self.slot);
        send::table(&mut guard.engine).spare.give(std::mem::take(&mut self.buffer));
    }
}
