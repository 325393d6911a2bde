//! Mappings: an endpoint elsewhere that requests go to, with the credits agreed on. Public. What may block takes a bundle and
//! runs its handlers meanwhile; what has no bundle says [`Posted::Again`] instead.

use super::args::{Args, Fetch, Long, Medium, Short, Words};
use super::bundle::Inner;
use super::channels::{MapState, Offered, Outgoing};
use super::endpoint::Opened;
use super::event::{Event, Group};
use super::prepared::Prepared;
use super::returned::Status;
use super::send::{self, Payload};
use super::table::header;
use super::wire::{Header, Kind};
use super::{Bundle, Opcode};
use crate::{Error, error};
use pulc_base::clock::{self, Nanos};
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, SendFault, Sending, Watch};
use std::sync::Arc;
use std::time::Duration;

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

/// An endpoint of some process, mapped. Unmapped when dropped; may be shared between threads.
pub struct Peer {
    pub(crate) opened: Arc<Opened>,
    pub(crate) channel: u32,
    rank: Rank,
}

/// A request on its way out.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub kind: Kind,
    pub handler: u8,
    pub words: &'a Words,
    /// Where a long payload goes, or how long an offered one is.
    pub offset: u64,
    pub tell: Option<&'a Event>,
}

/// A slot taken for a request, and how its header begins.
pub(crate) struct Reserved {
    pub slot: u16,
    pub header: Header,
}

/// What a try came to.
pub(crate) type Tried<T> = Result<Option<T>, SendFault>;

impl Peer {
    pub(crate) fn map(
        opened: &Arc<Opened>,
        rank: Rank,
        name: &str,
        tag: u64,
        credits: u16,
        timeout: Option<Duration>,
    ) -> Result<Peer, Error> {
        let inner = &opened.bundle;
        inner.check()?;
        error::check_rank(inner.process, rank)?;
        if name.is_empty() || name.len() > super::NAME_MAX {
            return Err(Error::BadName { len: name.len(), max: super::NAME_MAX });
        }
        let channel = ask_for(opened, rank, name, tag, credits)?;
        // Dropped on every way out but the last, which takes back what was asked.
        let peer = Peer { opened: Arc::clone(opened), channel, rank };
        let wait = timeout.map_or(inner.lookup, Nanos::from);
        let answered = inner.drive(Some(clock::now() + wait), Watch::News, |engine| {
            let state = send::table(engine).outgoing.get(channel)?.state;
            (state != MapState::Asked).then_some(state)
        })?;
        match answered {
            Some(MapState::Open) => Ok(peer),
            Some(MapState::Refused(Status::BadTag)) => Err(Error::TagRefused { rank, name: name.to_owned() }),
            Some(MapState::Gone(end)) => Err(Error::PeerGone { rank, how: end.to_string() }),
            Some(MapState::Refused(why)) => Err(Error::System(format!("rank {rank} refused a mapping: {why}"))),
            Some(MapState::Asked) | None => {
                Err(Error::UnknownEndpoint { rank, name: name.to_owned(), waited: wait.as_duration() })
            }
        }
    }

    /// The process of the mapped endpoint.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Credits that are left, and credits agreed on.
    pub fn credits(&self) -> (u16, u16) {
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

    #[inline]
    fn try_once(&self, attempt: impl FnOnce(&mut Engine) -> Tried<()>) -> Result<Posted, Error> {
        let process = self.opened.bundle.process;
        process.check_fork()?;
        let mut guard = process.lock();
        let tried = attempt(&mut guard.engine);
        if self.rank == process.rank() {
            process.announce(&guard);
        }
        drop(guard);
        match tried {
            Ok(Some(())) => Ok(Posted::Done),
            Ok(None) => Ok(Posted::Again),
            Err(fault) => Err(error::of_send(process, fault)),
        }
    }

    /// Tries until it works out, running handlers meanwhile.
    #[inline]
    fn until(&self, bundle: &Inner, mut attempt: impl FnMut(&mut Engine) -> Tried<()>) -> Result<(), Error> {
        bundle.check()?;
        if self.try_once(&mut attempt)? == Posted::Done {
            return Ok(());
        }
        let tried = bundle.drive(None, Watch::Always, |engine| attempt(engine).transpose())?;
        match tried {
            Some(Err(fault)) => Err(error::of_send(bundle.process, fault)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Takes a credit. `None`: there is none.
    #[inline]
    pub(crate) fn reserve(&self, engine: &mut Engine, asked: Asked<'_>) -> Tried<Reserved> {
        let table = send::table(engine);
        let Some(outgoing) = table.outgoing.get(self.channel) else { return Err(SendFault::NoChannel(self.rank)) };
        if let MapState::Gone(end) = outgoing.state {
            return Err(SendFault::PeerGone(self.rank, end));
        }
        let Some(slot) = outgoing.free.pop() else {
            table.tally.again += 1;
            return Ok(None);
        };
        let state = &mut outgoing.slots[usize::from(slot)];
        state.busy = true;
        state.kind = asked.kind;
        state.handler = asked.handler;
        state.words = *asked.words;
        if let Some(event) = asked.tell {
            state.tell = Some(event.state());
        }
        let header = Header {
            kind: asked.kind,
            words: asked.words.all().len() as u8,
            handler: asked.handler,
            slot,
            tell: asked.tell.is_some(),
            channel: outgoing.remote,
            offset: asked.offset,
        };
        Ok(Some(Reserved { slot, header }))
    }

    /// Gives a credit back whose request has not left.
    #[cold]
    pub(crate) fn unreserve(&self, engine: &mut Engine, slot: u16) {
        let table = send::table(engine);
        table.tally.again += 1;
        if let Some(outgoing) = table.outgoing.get(self.channel) {
            if let Some(busy) = outgoing.busy(slot) {
                busy.tell = None;
            }
            outgoing.give_back(slot);
        }
    }

    #[inline]
    fn try_short(&self, engine: &mut Engine, asked: Asked<'_>) -> Tried<()> {
        let Some(reserved) = self.reserve(engine, asked)? else { return Ok(None) };
        let sent = send::try_short(engine, self.rank, reserved.header, asked.words);
        self.settle(engine, reserved.slot, sent)
    }

    fn try_medium(&self, engine: &mut Engine, asked: Asked<'_>, bytes: &[u8]) -> Tried<()> {
        let Some(reserved) = self.reserve(engine, asked)? else { return Ok(None) };
        let sent = send::try_medium(engine, self.rank, reserved.header, asked.words, bytes);
        self.settle(engine, reserved.slot, sent)
    }

    #[inline]
    pub(crate) fn settle(&self, engine: &mut Engine, slot: u16, sent: Result<bool, SendFault>) -> Tried<()> {
        match sent {
            Ok(true) => {
                send::table(engine).tally.requests += 1;
                Ok(Some(()))
            }
            Ok(false) => {
                self.unreserve(engine, slot);
                Ok(None)
            }
            Err(fault) => {
                self.unreserve(engine, slot);
                Err(fault)
            }
        }
    }

    /// A long request straight from the caller's memory.
    fn long(&self, bundle: &Inner, asked: Asked<'_>, bytes: &[u8]) -> Result<(), Error> {
        let mut reserved = None;
        self.until(bundle, |engine| {
            reserved = self.reserve(engine, asked)?;
            Ok(reserved.as_ref().map(|_| ()))
        })?;
        let Some(Reserved { slot, header }) = reserved else { return Err(Error::Timeout) };
        let front = header.front(asked.words.all());
        let mut sending = Sending::uncounted(self.rank, Proto::AM, front.bytes(), bytes);
        let mut args = send::args_before(header, asked.words);
        let left = bundle.drive(None, Watch::Always, |engine| {
            if let Some((front, more)) = &args {
                match send::try_short(engine, self.rank, *front, more) {
                    Ok(true) => args = None,
                    Ok(false) => return None,
                    Err(fault) => return Some(Err(fault)),
                }
            }
            sending.step(engine)
        })?;
        let mut guard = bundle.process.lock();
        if self.rank == bundle.process.rank() {
            bundle.process.announce(&guard);
        }
        let table = send::table(&mut guard.engine);
        match left {
            Some(Err(fault)) => {
                let came_back = table
                    .outgoing
                    .get(self.channel)
                    .and_then(|outgoing| outgoing.busy(slot))
                    .is_some_and(|busy| busy.answered);
                if came_back {
                    // Its error handler is told.
                    return Ok(());
                }
                self.unreserve(&mut guard.engine, slot);
                drop(guard);
                Err(error::of_send(bundle.process, fault))
            }
            Some(Ok(())) | None => {
                table.tally.requests += 1;
                Ok(())
            }
        }
    }

    /// A request whose bytes the engine keeps.
    fn post(&self, bundle: &Inner, asked: Asked<'_>, bytes: Bytes, group: Option<&Group>) -> Result<Event, Error> {
        let event = Event::new(group);
        let posted = self.until(bundle, |engine| self.try_post(engine, asked, &bytes, &event));
        if posted.is_err() {
            event.state().finish(false);
        }
        posted.map(|()| event)
    }

    fn try_post(&self, engine: &mut Engine, asked: Asked<'_>, bytes: &Bytes, event: &Event) -> Tried<()> {
        let len = (**bytes).as_ref().len() as u64;
        let offset = if asked.kind == Kind::Fetch { len } else { asked.offset };
        let Some(reserved) = self.reserve(engine, Asked { offset, ..asked })? else { return Ok(None) };
        let sent = if asked.kind == Kind::Fetch {
            if let Some(outgoing) = send::table(engine).outgoing.get(self.channel)
                && let Some(busy) = outgoing.busy(reserved.slot)
            {
                busy.offered = Some(Offered { bytes: Arc::clone(bytes), local: Some(event.state()) });
            }
            send::try_offer(engine, self.rank, reserved.header, asked.words)
        } else {
            let payload = Payload::Long(Arc::clone(bytes), Some(event.state()));
            send::now(engine, self.rank, reserved.header, asked.words, payload).map(|()| true)
        };
        if !matches!(sent, Ok(true))
            && let Some(outgoing) = send::table(engine).outgoing.get(self.channel)
            && let Some(busy) = outgoing.busy(reserved.slot)
        {
            busy.offered = None;
        }
        self.settle(engine, reserved.slot, sent)
    }
}

/// Requests with remote completion; see [`Peer::telling`].
pub struct Telling<'a> {
    peer: &'a Peer,
    group: Option<&'a Group>,
}

impl Telling<'_> {
    /// [`Peer::request`] with remote completion.
    pub fn request<A: Args>(&self, bundle: &Bundle, handler: Short<A>, args: A) -> Result<Event, Error> {
        let words = args.to_words();
        self.told(|event| {
            let asked = Asked { tell: Some(event), ..short(handler.index, &words) };
            self.peer.until(&bundle.inner, |engine| self.peer.try_short(engine, asked))
        })
    }

    /// [`Peer::request_medium`] with remote completion.
    pub fn request_medium<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Medium<A>,
        args: A,
        bytes: &[u8],
    ) -> Result<Event, Error> {
        send::check_medium(bytes.len())?;
        let words = args.to_words();
        self.told(|event| {
            let asked = Asked { tell: Some(event), ..medium(handler.index, &words) };
            self.peer.until(&bundle.inner, |engine| self.peer.try_medium(engine, asked, bytes))
        })
    }

    /// [`Peer::request_long`] with remote completion.
    pub fn request_long<A: Args>(
        &self,
        bundle: &Bundle,
        handler: Long<A>,
        args: A,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Event, Error> {
        let words = args.to_words();
        self.told(|event| {
            self.peer.long(&bundle.inner, Asked { tell: Some(event), ..long(handler.index, &words, offset) }, bytes)
        })
    }

    fn told(&self, send: impl FnOnce(&Event) -> Result<(), Error>) -> Result<Event, Error> {
        let event = Event::new(self.group);
        match send(&event) {
            Ok(()) => Ok(event),
            Err(error) => {
                event.state().finish(false);
                Err(error)
            }
        }
    }
}

fn short(handler: u8, words: &Words) -> Asked<'_> {
    Asked { kind: Kind::Short, handler, words, offset: 0, tell: None }
}

fn medium(handler: u8, words: &Words) -> Asked<'_> {
    Asked { kind: Kind::Medium, handler, words, offset: 0, tell: None }
}

fn long(handler: u8, words: &Words, offset: u64) -> Asked<'_> {
    Asked { kind: Kind::Long, handler, words, offset, tell: None }
}

/// Asks for a channel; its number here.
fn ask_for(opened: &Arc<Opened>, rank: Rank, name: &str, tag: u64, credits: u16) -> Result<u32, Error> {
    let process = opened.bundle.process;
    let mut guard = process.lock();
    if let Some(end) = guard.engine.end_of(rank) {
        return Err(Error::PeerGone { rank, how: end.to_string() });
    }
    if let Err(fault) = guard.engine.connect(rank) {
        drop(guard);
        return Err(error::of_send(process, fault));
    }
    let table = send::table(&mut guard.engine);
    let credits = credits.clamp(1, table.credits_max);
    let outgoing = Outgoing::new(rank, Arc::clone(&opened.shared));
    let channel = table.outgoing.add(|_| outgoing).ok_or(Error::TooManyPorts { limit: super::ENDPOINTS_MAX })?;
    let front = Header { words: 2, ..header(Kind::Map, channel) }.front(&[tag, u64::from(credits)]);
    let names = format!("{name}\0{}", opened.shared.name);
    send::outbox(&mut guard.engine).post(rank, Proto::AM, front.bytes(), names.as_bytes());
    Ok(channel)
}

impl Peer {
    /// The header of a prepared request. `None`: its slot has come back meanwhile.
    pub(crate) fn prepared_header(&self, engine: &mut Engine, slot: u16, handler: u8, words: &Words) -> Option<Header> {
        let outgoing = send::table(engine).outgoing.get(self.channel)?;
        let channel = outgoing.remote;
        let busy = outgoing.busy(slot).filter(|busy| !busy.answered)?;
        (busy.handler, busy.words) = (handler, *words);
        let words = words.all().len() as u8;
        Some(Header { kind: Kind::Medium, words, handler, slot, tell: false, channel, offset: 0 })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let process = self.opened.bundle.process;
        if process.check_fork().is_err() {
            return;
        }
        let mut guard = process.lock();
        let table = send::table(&mut guard.engine);
        let Some(outgoing) = table.outgoing.get(self.channel) else { return };
        outgoing.closing = true;
        if outgoing.is_idle() {
            table.unmap(self.channel);
        }
        send::flush_acks(&mut guard.engine);
    }
}
