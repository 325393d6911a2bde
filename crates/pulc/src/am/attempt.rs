//! Requests on their way out: a credit is taken, one try is made, and what did not leave gives its credit back. Called by `peer`,
//! `telling` and `prepared`; tries run with the engine locked and never block, what waits goes through the bundle.

use super::args::Words;
use super::bundle::Inner;
use super::channels::{MapState, Offered};
use super::event::{Event, Group};
use super::peer::{Bytes, Peer, Posted, settled};
use super::send::{self, Payload};
use super::wire::{Header, Kind};
use crate::{Error, error};
use pulc_base::Proto;
use pulc_handler::{Engine, SendFault, Sending, Watch};
use std::sync::Arc;

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

pub(super) fn short(handler: u8, words: &Words) -> Asked<'_> {
    Asked { kind: Kind::Short, handler, words, offset: 0, tell: None }
}

pub(super) fn medium(handler: u8, words: &Words) -> Asked<'_> {
    Asked { kind: Kind::Medium, handler, words, offset: 0, tell: None }
}

pub(super) fn long(handler: u8, words: &Words, offset: u64) -> Asked<'_> {
    Asked { kind: Kind::Long, handler, words, offset, tell: None }
}

impl Peer {
    #[inline]
    pub(super) fn try_once(&self, attempt: impl FnOnce(&mut Engine) -> Tried<()>) -> Result<Posted, Error> {
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
    pub(super) fn until(&self, bundle: &Inner, mut attempt: impl FnMut(&mut Engine) -> Tried<()>) -> Result<(), Error> {
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
    #[inline(always)]
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
        table.tally.requests += 1;
        let state = &mut outgoing.slots[usize::from(slot)];
        state.busy = true;
        state.kind = asked.kind;
        state.handler = asked.handler;
        state.words.assign(asked.words);
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
        table.tally.requests -= 1;
        if let Some(outgoing) = table.outgoing.get(self.channel) {
            if let Some(busy) = outgoing.busy(slot) {
                busy.tell = None;
            }
            outgoing.give_back(slot);
        }
    }

    #[inline(always)]
    pub(super) fn try_short(&self, engine: &mut Engine, asked: Asked<'_>) -> Tried<()> {
        let Some(reserved) = self.reserve(engine, asked)? else { return Ok(None) };
        let sent = send::try_short(engine, self.rank, reserved.header, asked.words);
        self.settle(engine, reserved.slot, sent)
    }

    pub(super) fn try_medium(&self, engine: &mut Engine, asked: Asked<'_>, bytes: &[u8]) -> Tried<()> {
        let Some(reserved) = self.reserve(engine, asked)? else { return Ok(None) };
        let sent = send::try_medium(engine, self.rank, reserved.header, asked.words, bytes);
        self.settle(engine, reserved.slot, sent)
    }

    #[inline(always)]
    pub(crate) fn settle(&self, engine: &mut Engine, slot: u16, sent: Result<bool, SendFault>) -> Tried<()> {
        match sent {
            Ok(true) => Ok(Some(())),
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
    pub(super) fn long(&self, bundle: &Inner, asked: Asked<'_>, bytes: &[u8]) -> Result<(), Error> {
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
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// A request whose bytes the engine keeps.
    pub(super) fn post(
        &self,
        bundle: &Inner,
        asked: Asked<'_>,
        bytes: Bytes,
        group: Option<&Group>,
    ) -> Result<Event, Error> {
        let event = Event::new(group);
        let bytes = settled(bytes);
        let posted = self.until(bundle, |engine| self.try_post(engine, asked, &bytes, &event));
        if posted.is_err() {
            event.state().finish(false);
        }
        posted.map(|()| event)
    }

    pub(super) fn try_post(&self, engine: &mut Engine, asked: Asked<'_>, bytes: &Bytes, event: &Event) -> Tried<()> {
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

    /// The header of a prepared request. `None`: its slot has come back meanwhile.
    pub(crate) fn prepared_header(&self, engine: &mut Engine, slot: u16, handler: u8, words: &Words) -> Option<Header> {
        let outgoing = send::table(engine).outgoing.get(self.channel)?;
        let channel = outgoing.remote;
        let busy = outgoing.busy(slot).filter(|busy| !busy.answered)?;
        busy.handler = handler;
        busy.words.assign(words);
        let words = words.all().len() as u8;
        Some(Header { kind: Kind::Medium, words, handler, slot, tell: false, channel, offset: 0 })
    }
}
