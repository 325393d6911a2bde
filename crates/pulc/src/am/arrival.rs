//! Messages that wait for their handlers. They are put together in place and used again, so that a short one costs no memory and no
//! counting of references. Filled by `arrive` and `parts`, emptied by `run`, all with the engine locked but for the handler itself.

use super::args::Words;
use super::endpoint::Shared;
use super::returned::Status;
use super::table::AmTable;
use super::token::Landing;
use super::wire::Kind;
use pulc_base::Rank;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Handled messages kept for use again.
const IDLE_MAX: usize = 256;

/// A message that waits for its handler. Used again and again: messages are put together and taken apart in place.
pub(crate) struct Arrival {
    pub about: About,
    pub payload: Payload,
}

/// What there is to know of a message beside its payload.
pub(crate) struct About {
    /// One that rests still shares the endpoint of its last message: the next one is mostly for the same.
    pub endpoint: Option<Arc<Shared>>,
    pub kind: Kind,
    pub handler: u8,
    pub slot: u16,
    /// Its sender wants a word when the handler has returned.
    pub tell: bool,
    /// Ours: the incoming channel of a request, the outgoing one of a reply.
    pub channel: u32,
    /// Theirs: where the answer to a request goes.
    pub reply_to: u32,
    pub src: Rank,
    pub words: Words,
}

impl Arrival {
    fn new() -> Arrival {
        let (kind, src, words) = (Kind::Short, Rank(0), Words::none());
        let about =
            About { endpoint: None, kind, handler: 0, slot: 0, tell: false, channel: 0, reply_to: 0, src, words };
        Arrival { about, payload: Payload::None }
    }
}

impl About {
    /// For a message to this endpoint.
    #[inline(always)]
    pub fn is_for(&mut self, endpoint: &Arc<Shared>) {
        if !self.endpoint.as_ref().is_some_and(|last| Arc::ptr_eq(last, endpoint)) {
            self.endpoint = Some(Arc::clone(endpoint));
        }
    }
}

pub(crate) enum Payload {
    None,
    /// The bytes behind the first `skip`, which are arguments.
    Bytes {
        bytes: Vec<u8>,
        skip: usize,
    },
    Landed {
        offset: usize,
        len: usize,
    },
    Offer {
        len: u64,
    },
    Fetched(Box<dyn Landing>),
    Returned(Status),
}

impl AmTable {
    /// An empty message to be filled.
    #[inline(always)]
    pub fn fresh(&mut self) -> Box<Arrival> {
        self.idle.pop().unwrap_or_else(|| Box::new(Arrival::new()))
    }

    /// A message is not needed any more.
    #[inline]
    pub fn used(&mut self, mut arrival: Box<Arrival>) {
        match &mut arrival.payload {
            Payload::None => {}
            Payload::Bytes { bytes, .. } => {
                let bytes = std::mem::take(bytes);
                self.spare.give(bytes);
                arrival.payload = Payload::None;
            }
            Payload::Fetched(_) => return self.graves.bury(arrival),
            Payload::Landed { .. } | Payload::Offer { .. } | Payload::Returned(_) => arrival.payload = Payload::None,
        }
        // Of an endpoint that is closed this may be the last one to have its handlers.
        let is_closed = |endpoint: &Arc<Shared>| endpoint.closed.load(Ordering::Relaxed);
        if arrival.about.endpoint.as_ref().is_some_and(is_closed) {
            self.graves.bury(arrival);
        } else if self.idle.len() < IDLE_MAX {
            self.idle.push(arrival);
        }
    }

    /// No message is kept to be used again. The endpoints that they still name are open, so that none ends here.
    pub fn forget_idle(&mut self) {
        self.idle = Vec::new();
    }
}
