//! Endpoints: named places that active messages are sent to, each with a tag, a table of handlers and, if it wants long
//! messages, a segment of memory. Public; shares its state with `table`, and with the threads that run handlers.

use super::args::{Args, Fetch, Long, LongReply, Medium, MediumReply, Reply, Short, Words};
use super::bundle::Inner;
use super::peer::Peer;
use super::returned::Returned;
use super::segment::Segment;
use super::send;
use super::token::{Data, Landed, Offer, Source, Token};
use super::wire::Kind;
use super::{Bundle, TAG_ALL, TAG_NONE};
use crate::Error;
use pulc_base::Rank;
use pulc_handler::{Hand, Process};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Places in the table of handlers.
pub(crate) const HANDLERS: usize = 256;

type RequestFn = Box<dyn Fn(Token<'_>, &Words, Data<'_>) + Send + Sync>;
type ReplyFn = Box<dyn Fn(Source, &Words, Data<'_>) + Send + Sync>;

/// A handler of a user.
pub(crate) enum Entry {
    Request { kind: Kind, words: Option<usize>, run: RequestFn },
    Reply { kind: Kind, words: Option<usize>, run: ReplyFn },
}

/// What the table, the threads that run handlers, and the owner of an endpoint share.
pub(crate) struct Shared {
    pub process: &'static Process,
    pub number: u32,
    pub bundle: u32,
    pub name: String,
    pub tag: AtomicU64,
    pub closed: AtomicBool,
    pub handlers: Box<[OnceLock<Entry>]>,
    pub on_error: OnceLock<Box<dyn Fn(Returned) + Send + Sync>>,
    /// One thread at a time has the segment.
    segment_door: Mutex<()>,
}

thread_local! {
    /// Number of the endpoint whose segment this thread has.
    static HAS_SEGMENT: Cell<u32> = const { Cell::new(0) };
}

impl Shared {
    /// Whether a request with this tag may come in.
    #[inline]
    pub fn admits(&self, tag: u64) -> bool {
        match self.tag.load(Ordering::Relaxed) {
            TAG_NONE => false,
            TAG_ALL => true,
            mine => mine == tag,
        }
    }

    /// Lends the segment to this thread.
    pub fn with_segment<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(HAS_SEGMENT.get() != self.number, "this thread has the segment of endpoint {:?} already", self.name);
        let _turn = self.segment_door.lock().unwrap_or_else(PoisonError::into_inner);
        let outer = HAS_SEGMENT.replace(self.number);
        let mut lent = Lent { shared: self, memory: None, outer };
        {
            let mut guard = self.process.lock();
            let state = send::table(&mut guard.engine).endpoints.get(self.number);
            lent.memory = state.and_then(|state| state.segment.as_mut()).and_then(Segment::lend);
        }
        match &mut lent.memory {
            Some(memory) => look((**memory).as_mut()),
            None => look(&mut []),
        }
    }
}

/// The segment in the hands of a thread; goes back even if that panics.
struct Lent<'a> {
    shared: &'a Shared,
    memory: Option<super::segment::Memory>,
    outer: u32,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        HAS_SEGMENT.set(self.outer);
        let Some(memory) = self.memory.take() else { return };
        let mut guard = self.shared.process.lock();
        let state = send::table(&mut guard.engine).endpoints.get(self.shared.number);
        if let Some(segment) = state.and_then(|state| state.segment.as_mut()) {
            segment.take_back(memory);
        }
    }
}

/// An open endpoint. Closed when it and all its [`Peer`]s are dropped. May be shared between threads.
pub struct Endpoint {
    pub(crate) inner: Arc<Opened>,
}

/// Closes the endpoint when nobody uses it any more.
pub(crate) struct Opened {
    pub shared: Arc<Shared>,
    pub bundle: Arc<Inner>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let process = self.shared.process;
        if process.check_fork().is_err() {
            return;
        }
        let mut guard = process.lock();
        send::table(&mut guard.engine).close(&self.shared);
        // Requests that wait for their handlers go back now.
        process.announce(&guard);
    }
}

impl Endpoint {
    pub(crate) fn open(bundle: &Arc<Inner>, name: &str, tag: u64) -> Result<Endpoint, Error> {
        if name.is_empty() || name.len() > super::NAME_MAX || name.contains('\0') {
            return Err(Error::BadName { len: name.len(), max: super::NAME_MAX });
        }
        let process = bundle.process;
        process.check_fork()?;
        let mut guard = process.lock();
        let (table, outbox) = guard
            .engine
            .handler_and_outbox::<super::table::AmTable>(pulc_base::Proto::AM)
            .expect("a bundle has registered it");
        if table.names.contains_key(name) {
            return Err(Error::NameTaken { name: name.to_owned() });
        }
        let make = |number| {
            Arc::new(Shared {
                process,
                number,
                bundle: bundle.number,
                name: name.to_owned(),
                tag: AtomicU64::new(tag),
                closed: AtomicBool::new(false),
                handlers: (0..HANDLERS).map(|_| OnceLock::new()).collect(),
                on_error: OnceLock::new(),
                segment_door: Mutex::new(()),
            })
        };
        let opened = table.open(make, outbox).ok_or(Error::TooManyPorts { limit: super::ENDPOINTS_MAX })?;
        // Those who wait for this name are told at once.
        process.poll(&mut guard, &mut Hand::empty());
        drop(guard);
        Ok(Endpoint { inner: Arc::new(Opened { shared: opened, bundle: Arc::clone(bundle) }) })
    }

    pub fn name(&self) -> &str {
        &self.inner.shared.name
    }

    /// Changes the tag: requests over mappings that were made with another one go back to their senders.
    pub fn set_tag(&self, tag: u64) {
        self.inner.shared.tag.store(tag, Ordering::Relaxed);
    }

    pub fn tag(&self) -> u64 {
        self.inner.shared.tag.load(Ordering::Relaxed)
    }

    /// Handles requests that carry arguments only.
    ///
    /// # Errors
    /// [`Error::HandlerTaken`], also of the other kinds of handlers: an endpoint has one table for all.
    pub fn on<A: Args>(
        &self,
        handler: Short<A>,
        run: impl Fn(Token<'_>, A) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |token: Token<'_>, words: &Words, _: Data<'_>| run(token, A::from_words(words));
        self.add_request(handler.index, Kind::Short, Some(A::COUNT), Box::new(run))
    }

    /// Handles requests with a payload, which is valid until the handler returns.
    pub fn on_medium<A: Args>(
        &self,
        handler: Medium<A>,
        run: impl Fn(Token<'_>, A, &[u8]) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |token: Token<'_>, words: &Words, data: Data<'_>| match data {
            Data::Bytes(bytes) => run(token, A::from_words(words), bytes),
            _ => run(token, A::from_words(words), &[]),
        };
        self.add_request(handler.index, Kind::Medium, Some(A::COUNT), Box::new(run))
    }

    /// Handles requests whose payload has landed in the segment.
    pub fn on_long<A: Args>(
        &self,
        handler: Long<A>,
        run: impl Fn(Token<'_>, A, Landed<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |token: Token<'_>, words: &Words, data: Data<'_>| {
            if let Data::Landed(landed) = data {
                run(token, A::from_words(words), landed);
            }
        };
        self.add_request(handler.index, Kind::Long, Some(A::COUNT), Box::new(run))
    }

    /// Handles offers of a payload: the handler chooses where it goes, or declines.
    pub fn on_fetch<A: Args>(
        &self,
        handler: Fetch<A>,
        run: impl Fn(Offer<'_>, A) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |_: Token<'_>, words: &Words, data: Data<'_>| {
            if let Data::Offer(offer) = data {
                run(offer, A::from_words(words));
            }
        };
        self.add_request(handler.index, Kind::Fetch, Some(A::COUNT), Box::new(run))
    }

    /// Handles replies that carry arguments only.
    pub fn on_reply<A: Args>(
        &self,
        handler: Reply<A>,
        run: impl Fn(Source, A) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |from: Source, words: &Words, _: Data<'_>| run(from, A::from_words(words));
        self.add_reply(handler.index, Kind::ReplyShort, Some(A::COUNT), Box::new(run))
    }

    /// Handles replies with a payload, which is valid until the handler returns.
    pub fn on_reply_medium<A: Args>(
        &self,
        handler: MediumReply<A>,
        run: impl Fn(Source, A, &[u8]) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |from: Source, words: &Words, data: Data<'_>| match data {
            Data::Bytes(bytes) => run(from, A::from_words(words), bytes),
            _ => run(from, A::from_words(words), &[]),
        };
        self.add_reply(handler.index, Kind::ReplyMedium, Some(A::COUNT), Box::new(run))
    }

    /// Handles replies whose payload has landed in the segment.
    pub fn on_reply_long<A: Args>(
        &self,
        handler: LongReply<A>,
        run: impl Fn(Source, A, Landed<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |from: Source, words: &Words, data: Data<'_>| {
            if let Data::Landed(landed) = data {
                run(from, A::from_words(words), landed);
            }
        };
        self.add_reply(handler.index, Kind::ReplyLong, Some(A::COUNT), Box::new(run))
    }

    /// Handles what comes back: requests that were not delivered, and replies whose requester is gone. Without such a handler
    /// they are logged. Runs like any handler, in the thread that polls.
    ///
    /// # Errors
    /// [`Error::HandlerTaken`] when there is one.
    pub fn on_error(&self, run: impl Fn(Returned) + Send + Sync + 'static) -> Result<(), Error> {
        let place = &self.inner.shared.on_error;
        place.set(Box::new(run)).map_err(|_| Error::HandlerTaken { name: self.name().to_owned(), index: None })
    }

    /// A handler of requests of one kind that takes any number of words.
    pub fn on_request_words(
        &self,
        handler: u8,
        kind: super::Opcode,
        run: impl Fn(Token<'_>, &Words, Data<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.add_request(handler, kind.kind(), None, Box::new(run))
    }

    /// A handler of replies of one kind that takes any number of words.
    pub fn on_reply_words(
        &self,
        handler: u8,
        kind: super::Opcode,
        run: impl Fn(Source, &Words, Data<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.add_reply(handler, kind.kind(), None, Box::new(run))
    }

    fn add_request(&self, index: u8, kind: Kind, words: Option<usize>, run: RequestFn) -> Result<(), Error> {
        self.add(index, Entry::Request { kind, words, run })
    }

    fn add_reply(&self, index: u8, kind: Kind, words: Option<usize>, run: ReplyFn) -> Result<(), Error> {
        self.add(index, Entry::Reply { kind, words, run })
    }

    fn add(&self, index: u8, entry: Entry) -> Result<(), Error> {
        let place = &self.inner.shared.handlers[usize::from(index)];
        place.set(entry).map_err(|_| Error::HandlerTaken { name: self.name().to_owned(), index: Some(index) })
    }

    /// Gives the endpoint memory that long messages land in; what it had before is dropped.
    pub fn set_segment(&self, memory: impl AsMut<[u8]> + Send + 'static) {
        let shared = &self.inner.shared;
        let mut guard = shared.process.lock();
        let state = send::table(&mut guard.engine).endpoints.get(shared.number);
        let old = state.and_then(|state| state.segment.replace(Segment::new(Box::new(memory))));
        drop(guard);
        // Dropping the old one may run code of its owner.
        drop(old);
    }

    /// Looks at the segment. Nothing arrives in it meanwhile; what comes is put in place afterwards. Empty if there is none.
    ///
    /// # Panics
    /// When this thread has the segment already.
    pub fn with_segment<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        self.inner.shared.with_segment(look)
    }

    /// Finds the endpoint `name` of process `rank` and agrees on `credits`: so many requests may be under way to it at a time.
    ///
    /// # Blocks
    /// Until that process has opened the endpoint, at most for PULC_AM_LOOKUP_MS; handlers of the bundle run meanwhile.
    ///
    /// # Errors
    /// [`Error::UnknownEndpoint`], [`Error::TagRefused`], [`Error::PeerGone`], [`Error::NoSuchRank`].
    pub fn map(&self, _bundle: &Bundle, rank: Rank, name: &str, tag: u64, credits: u16) -> Result<Peer, Error> {
        Peer::map(&self.inner, rank, name, tag, credits, None)
    }

    /// As [`Endpoint::map`], waiting for the endpoint no longer than `timeout`.
    pub fn map_timeout(
        &self,
        _bundle: &Bundle,
        rank: Rank,
        name: &str,
        tag: u64,
        credits: u16,
        timeout: Duration,
    ) -> Result<Peer, Error> {
        Peer::map(&self.inner, rank, name, tag, credits, Some(timeout))
    }
}
