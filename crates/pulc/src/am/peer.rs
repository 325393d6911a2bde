//! Mappings: an endpoint elsewhere that requests go to, with the credits agreed on. Public. What may block takes a bundle and
//! runs its handlers meanwhile; what has no bundle says [`Posted::Again`] instead.

use super::args::{Args, Fetch, Long, Medium, Short, Words};
use super::attempt::{Asked, long, medium, short};
use super::endpoint::Opened;
use super::event::{Event, Group};
use super::prepared::Prepared;
use super::send;
use super::telling::Telling;
use super::wire::Kind;
use super::{Bundle, Opcode};
use crate::{Error, error};
use pulc_base::Rank;
use pulc_hal::os::settled::SettledShared;
use pulc_handler::Engine;
use std::sync::Arc;

/// Whether a request left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a request that finds no credit or no room has not been sent"]
pub enum Posted {
    Done,
    /// No credit or no room now: poll, then again.
    Again,
}

/// Bytes of any owner, kept until they have left.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Asks the owner of the bytes for them, once: later they are looked at with the engine locked.
pub(super) fn settled(bytes: Bytes) -> Bytes {
    Arc::new(SettledShared::new(bytes))
}

/// An endpoint of some process, mapped. Unmapped when dropped; may be shared between threads.
pub struct Peer {
    pub(crate) opened: Arc<Opened>,
    pub(crate) channel: u32,
    pub(crate) rank: Rank,
}

impl Peer {
    /// The process of the mapped endpoint.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Credits that are left, and credits agreed on.
    pub fn credits(&self) -> (u16, u16) {
        if self.opened.bundle.process.check_fork().is_err() {
            return (0, 0);
        }
        let mut guard = self.opened.bundle.process.lock();
        let outgoing = send::table(&mut guard.engine).outgoing.get(self.channel);
        outgoing.map_or((0, 0), |outgoing| (outgoing.free.len() as u16, outgoing.credits()))
    }

    /// Sends a request that carries arguments only, if there is credit and room.
    ///
    /// # Errors
    /// [`Error::PeerGone`].
    #[inline]
    pub fn try_request<A: Args>(&self, handler: Short<A>, args: A) -> Result<Posted, Error> {
        let words = args.to_words();
        self.try_once(|engine| self.try_short(engine, short(handler.index, &words)))
    }

    /// Sends a request that carries arguments only.
    ///
    /// # Blocks
    /// Until there is credit and room; handlers of `bundle` run meanwhile.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::InHandler`].
    #[inline]
    pub fn request<A: Args>(&self, bundle: &Bundle, handler: Short<A>, args: A) -> Result<(), Error> {
        let words = args.to_words();
        self.until(&bundle.inner, |engine| self.try_short(engine, short(handler.index, &words)))
    }

    /// Sends a request with a payload, if there is credit and room. The bytes are free on return.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`] beyond [`MEDIUM_MAX`](super::MEDIUM_MAX) bytes, [`Error::PeerGone`].
    pub fn try_request_medium<A: Args>(&self, handler: Medium<A>, args: A, bytes: &[u8]) -> Result<Posted, Error> {
        send::check_medium(bytes.len())?;
        let words = args.to_words();
        self.try_once(|engine| self.try_medium(engine, medium(handler.index, &words), bytes))
    }

    /// As [`Peer::try_request_medium`], waiting like [`Peer::request`].
    pub fn request_medium<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Medium<A>,
        args: A,
        bytes: &[u8],
    ) -> Result<(), Error> {
        send::check_medium(bytes.len())?;
        let words = args.to_words();
        self.until(&bundle.inner, |engine| self.try_medium(engine, medium(handler.index, &words), bytes))
    }

    /// Sends bytes to `offset` of the segment of the mapped endpoint, whose handler is told when they are there.
    ///
    /// # Blocks
    /// Until the bytes have left; handlers of `bundle` run meanwhile.
    pub fn request_long<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Long<A>,
        args: A,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.long(&bundle.inner, long(handler.index, &args.to_words(), offset), bytes)
    }

    /// As [`Peer::request_long`] with bytes that are given away: they leave while the program does something else. The event
    /// (counted in `group`, if there is one) is complete when they have left.
    ///
    /// # Blocks
    /// Until there is credit.
    pub fn post_long<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Long<A>,
        args: A,
        offset: u64,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        group: Option<&Group>,
    ) -> Result<Event, Error> {
        self.post(&bundle.inner, long(handler.index, &args.to_words(), offset), Arc::new(bytes), group)
    }

    /// Offers bytes that the handler of the mapped endpoint may fetch to wherever it likes. The event (counted in `group`, if
    /// there is one) is complete when they have left, and fails when they are declined.
    ///
    /// # Blocks
    /// Until there is credit.
    pub fn post_fetch<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Fetch<A>,
        args: A,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        group: Option<&Group>,
    ) -> Result<Event, Error> {
        let words = args.to_words();
        let asked = Asked { kind: Kind::Fetch, handler: handler.index, words: &words, offset: 0, tell: None };
        self.post(&bundle.inner, asked, Arc::new(bytes), group)
    }

    /// Reserves credit and a buffer for a request with a payload of at most `max` bytes, if there is credit now.
    pub fn try_prepare(&self, max: usize) -> Result<Option<Prepared<'_>>, Error> {
        send::check_medium(max)?;
        self.opened.bundle.process.check_fork()?;
        let mut guard = self.opened.bundle.process.lock();
        let prepared = Prepared::reserve(self, &mut guard.engine, max);
        drop(guard);
        prepared.map_err(|fault| error::of_send(self.opened.bundle.process, fault))
    }

    /// As [`Peer::try_prepare`], waiting for credit like [`Peer::request`].
    pub fn prepare(&self, bundle: &Bundle, max: usize) -> Result<Prepared<'_>, Error> {
        send::check_medium(max)?;
        let mut prepared = None;
        self.until(&bundle.inner, |engine| {
            prepared = Prepared::reserve(self, engine, max)?;
            Ok(prepared.as_ref().map(|_| ()))
        })?;
        prepared.ok_or(Error::Timeout)
    }

    /// The same requests with remote completion: each gives an event that is complete when its handler has returned, counted in
    /// `group`, if there is one. The credit comes back with that word.
    pub fn telling<'a>(&'a self, group: Option<&'a Group>) -> Telling<'a> {
        Telling { peer: self, group }
    }

    /// A request of any kind whose handler is not typed, for doors to other languages. Long payloads and offers are kept until
    /// they have left; `told` becomes complete when the handler has returned.
    ///
    /// # Blocks
    /// With a bundle until there is credit, without one it says [`Posted::Again`].
    pub fn request_words(
        &self,
        bundle: Option<&Bundle>,
        opcode: Opcode,
        handler: u8,
        words: &Words,
        told: Option<&Event>,
        bytes: &[u8],
    ) -> Result<Posted, Error> {
        let asked = Asked { kind: opcode.kind(), handler, words, offset: 0, tell: told };
        let attempt = |engine: &mut Engine| match opcode {
            Opcode::Medium => self.try_medium(engine, asked, bytes),
            _ => self.try_short(engine, asked),
        };
        if !matches!(opcode, Opcode::Short | Opcode::Medium) {
            return Err(Error::BadOpcode);
        }
        send::check_medium(bytes.len())?;
        match bundle {
            None => self.try_once(attempt),
            Some(bundle) => self.until(&bundle.inner, attempt).map(|()| Posted::Done),
        }
    }

    /// [`Peer::request_long`] with a handler that is not typed.
    pub fn request_long_words(
        &self,
        bundle: &Bundle,
        handler: u8,
        words: &Words,
        offset: u64,
        told: Option<&Event>,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.long(&bundle.inner, Asked { tell: told, ..long(handler, words, offset) }, bytes)
    }

    /// [`Peer::post_long`] and [`Peer::post_fetch`] with a handler that is not typed.
    pub fn post_words(
        &self,
        bundle: &Bundle,
        opcode: Opcode,
        handler: u8,
        words: &Words,
        offset: u64,
        bytes: Bytes,
    ) -> Result<Event, Error> {
        let asked = Asked { kind: opcode.kind(), handler, words, offset, tell: None };
        match opcode {
            Opcode::Long | Opcode::Fetch => self.post(&bundle.inner, asked, bytes, None),
            _ => Err(Error::BadOpcode),
        }
    }
}
