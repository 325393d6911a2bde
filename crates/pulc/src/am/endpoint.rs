//! Endpoints: named places that active messages are sent to, each with a tag, a table of handlers and, if it wants long
//! messages, a segment of memory. Public; shares its state with `table`, and with the threads that run handlers.

use super::bundle::Inner;
use super::graveyard;
use super::leaf::LeafEntry;
use super::peer::Peer;
use super::returned::Returned;
use super::segment::{Loan, Segment};
use super::send;
use super::table::AmTable;
use super::token::{Message, Verdict};
use super::{Bundle, TAG_ALL, TAG_NONE};
use crate::Error;
use pulc_base::Rank;
use pulc_hal::os::settled::Settled;
use pulc_handler::{Hand, Process};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Places in the table of handlers.
pub(crate) const HANDLERS: usize = 256;

/// A handler of a user. It says why it does not take a message.
pub(crate) enum Entry {
    /// Runs with the engine unlocked.
    Usual(Box<dyn Fn(Message<'_>) -> Verdict + Send + Sync>),
    /// Runs in the poll.
    Leaf(LeafEntry),
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
        if self.process.check_fork().is_err() {
            return look(&mut []);
        }
        assert!(HAS_SEGMENT.get() != self.number, "this thread has the segment of endpoint {:?} already", self.name);
        let turn = self.segment_door.lock().unwrap_or_else(PoisonError::into_inner);
        let outer = HAS_SEGMENT.replace(self.number);
        let mut lent = Lent { shared: self, outer, _turn: turn, loan: None };
        {
            let mut guard = self.process.lock();
            let state = send::table(&mut guard.engine).endpoints.get(self.number);
            lent.loan = state.and_then(|state| state.segment.as_mut()).and_then(Segment::lend);
        }
        match &mut lent.loan {
            Some(loan) => look((*loan.memory).as_mut()),
            None => look(&mut []),
        }
    }
}

/// The segment in the hands of a thread; goes back even if that panics.
struct Lent<'a> {
    shared: &'a Shared,
    outer: u32,
    _turn: MutexGuard<'a, ()>,
    /// Last: memory that nobody wants back is dropped when nothing is locked any more, since that may run code of its owner.
    loan: Option<Loan>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        HAS_SEGMENT.set(self.outer);
        if self.loan.is_none() || self.shared.process.check_fork().is_err() {
            return;
        }
        let mut guard = self.shared.process.lock();
        let state = send::table(&mut guard.engine).endpoints.get(self.shared.number);
        if let Some(segment) = state.and_then(|state| state.segment.as_mut()) {
            segment.take_back(&mut self.loan);
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
        graveyard::leave(guard);
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
        let (table, outbox) =
            guard.engine.handler_and_outbox::<AmTable>(pulc_base::Proto::AM).expect("a bundle has registered it");
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

    /// Changes the tag: requests over mappings that were made with another one go back to their senders. While the tag is
    /// [`TAG_NONE`] nobody finds the endpoint.
    pub fn set_tag(&self, tag: u64) {
        let shared = &self.inner.shared;
        if shared.process.check_fork().is_err() {
            return;
        }
        let mut guard = shared.process.lock();
        shared.tag.store(tag, Ordering::Relaxed);
        if let Some((table, outbox)) = guard.engine.handler_and_outbox::<AmTable>(pulc_base::Proto::AM) {
            table.found(shared, outbox);
        }
        shared.process.poll(&mut guard, &mut Hand::empty());
    }

    pub fn tag(&self) -> u64 {
        self.inner.shared.tag.load(Ordering::Relaxed)
    }

    /// Gives the endpoint memory that long messages land in; what it had before is dropped, at the latest when nobody looks at
    /// it any more.
    pub fn set_segment(&self, memory: impl AsMut<[u8]> + Send + 'static) {
        let shared = &self.inner.shared;
        if shared.process.check_fork().is_err() {
            return;
        }
        // Looking at the new one and dropping the old one may run code of their owners.
        let mut new = Some(Segment::new(Box::new(Settled::new(memory))));
        let mut guard = shared.process.lock();
        let state = send::table(&mut guard.engine).endpoints.get(shared.number);
        let old = state.and_then(|state| std::mem::replace(&mut state.segment, new.take()));
        drop(guard);
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
