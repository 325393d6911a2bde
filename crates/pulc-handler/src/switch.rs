//! The protocol switch: one receive handler per protocol, chosen by one byte of the frame. Handlers sit side by side and
//! never on each other. They are called with the engine locked: they must not block, wait, or call back into the engine; what
//! they want to send or grant goes to the [`Outbox`] and leaves after the poll that called them.

use crate::error::End;
use crate::matching::Pattern;
use crate::outbox::Outbox;
use crate::wire::{Head, Kind};
use pulc_base::{Proto, Rank};
use pulc_hal::device::SharedFrame;
use std::any::Any;

/// A message in the course of arriving in parts: the sender's number for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferId {
    pub src: Rank,
    pub id: u32,
}

/// What became of a whole message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Received or dropped: its room is free again.
    Done,
    /// Kept; the handler calls `Engine::release` when it is received.
    Kept,
}

/// Whether a message in parts may come. The number is the handler's own and comes back with every part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    Take(u64),
    /// A message that was asked for: granted later, or never. Of one that was not it means that there is no memory, which ends
    /// the process.
    Hold(u64),
}

/// What a handler is given with every call.
pub struct Here<'a, 'h> {
    pub hand: &'a mut Hand<'h>,
    pub outbox: &'a mut Outbox,
}

/// Receives the messages of one protocol.
pub trait ReceiveHandler: Any + Send {
    /// A whole message. `cost` is what to give back to `Engine::release` if it is kept and received later.
    fn message(&mut self, src: Rank, header: &[u8], body: Body<'_>, cost: u64, here: &mut Here<'_, '_>) -> Fate;

    /// A message of `total` bytes will come in parts. When `asked`, the sender waits for a grant.
    fn begin(
        &mut self,
        id: TransferId,
        header: &[u8],
        total: usize,
        asked: bool,
        cost: u64,
        here: &mut Here<'_, '_>,
    ) -> Begin;

    /// The next part of a taken message, in order.
    fn part(&mut self, number: u64, body: Body<'_>, here: &mut Here<'_, '_>);

    /// Where the next part of a taken message will go, if that is at hand: the memory for all that is still to come of it. It may be
    /// written to before it is known that a part came.
    fn place<'a>(&'a mut self, _number: u64, _hand: &'a mut Hand<'_>) -> Option<&'a mut [u8]> {
        None
    }

    /// Where the beginning of the next message from this rank will go if it is long, and how long its header is. As above.
    fn place_of_first<'a>(&'a mut self, _src: Rank, _hand: &'a mut Hand<'_>) -> Option<(usize, &'a mut [u8])> {
        None
    }

    /// Whether a message of `total` bytes with this header would go there. Then [`ReceiveHandler::begin`] takes it, and
    /// [`ReceiveHandler::place`] names the same memory.
    fn goes_there(&mut self, _src: Rank, _header: &[u8], _total: usize, _hand: &Hand<'_>) -> bool {
        false
    }

    /// The next part of a taken message: so many bytes are where [`ReceiveHandler::place`] said.
    fn landed(&mut self, _number: u64, _bytes: usize, _hand: &mut Hand<'_>) {}

    /// All parts have come.
    fn end(&mut self, number: u64, here: &mut Here<'_, '_>) -> Fate;

    /// The rest of a message will not come: withdrawn by its sender, or the sender has ended.
    fn withdrawn(&mut self, number: u64, here: &mut Here<'_, '_>);

    /// Whether messages that were kept lie in this rank's memory. They stay readable when it ends.
    fn borrows_from(&self, _rank: Rank) -> bool {
        false
    }

    /// Behind a poll in which [`Outbox::call_after_poll`] asked for it.
    fn after_poll(&mut self, _outbox: &mut Outbox) {}

    /// Nothing more will come from this rank.
    fn peer_gone(&mut self, rank: Rank, end: End, here: &mut Here<'_, '_>);

    /// Nothing has come for a while: memory that is only kept to be used again goes back to the machine.
    fn rest(&mut self) {}

    /// Whether this process may end without harm to what others were promised.
    fn is_settled(&self) -> bool {
        true
    }
}

/// The buffer of the thread that polls at the moment, so that what it waits for is copied straight to its place. Handlers of
/// other threads' receives keep the bytes until their owner fetches them.
///
/// A receive whose thread polls needs no place in a queue: the hand itself says what it *wants*, and its handler looks there
/// after all receives that were posted earlier. Only when the thread lets go of the engine its receive is posted.
pub struct Hand<'a> {
    ticket: u64,
    want: Option<Want>,
    /// Head and header of the only message that can satisfy the want; see [`Hand::exactly`].
    exact: Option<(u64, u64)>,
    watched: u64,
    buffer: &'a mut [u8],
    /// Set by the handler when it has filled the buffer from a whole message, or put one where it is watched for; meaning is the
    /// handler's.
    pub landed: Option<(Rank, u64, usize)>,
    /// Set by the handler when a message of this length came that was wanted and is longer than the buffer; it is kept.
    pub too_long: Option<usize>,
}

/// No queue has this number.
const NOTHING: u64 = u64::MAX;

/// What a receive that is not posted waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// The number of the queue, which no other handler gives to one of its own.
    pub lane: u64,
    pub pattern: Pattern,
}

impl<'a> Hand<'a> {
    /// A buffer for the receive that its handler knows as `ticket`.
    pub fn new(ticket: u64, buffer: &'a mut [u8]) -> Hand<'a> {
        Hand { ticket, want: None, exact: None, watched: NOTHING, buffer, landed: None, too_long: None }
    }

    /// A buffer for a receive that is not posted yet.
    pub fn wanting(want: Want, buffer: &'a mut [u8]) -> Hand<'a> {
        Hand { ticket: u64::MAX, want: Some(want), exact: None, watched: NOTHING, buffer, landed: None, too_long: None }
    }

    /// What is wanted comes behind just this header of one word, from the one sender of its pattern. It lands before its handler is
    /// asked: whoever says this knows that the handler would give it to nobody else for as long as this hand polls.
    #[inline(always)]
    pub fn exactly(self, proto: Proto, header: u64) -> Hand<'a> {
        let head = Head { proto: proto.0, kind: Kind::Whole, header_len: 8, flags: 0, id: 0, total: 0 };
        Hand { exact: Some((head.word(), header)), ..self }
    }

    /// The body of a frame that is exactly what is wanted, if there is room for it: one that is too long is its handler's to keep.
    #[inline(always)]
    pub(crate) fn exact_body<'f>(&self, src: Rank, frame: &'f [u8]) -> Option<&'f [u8]> {
        let (head, header) = self.exact?;
        let want = self.want?;
        // Word by word, as they were stored.
        let ([first, second, ..], body) = (frame.as_chunks::<8>().0, frame.get(16..)?) else { return None };
        let is_it = u64::from_le_bytes(*first) == head && u64::from_le_bytes(*second) == header;
        (is_it && want.pattern.src == Some(src.0) && body.len() <= self.buffer.len()).then_some(body)
    }

    /// Takes it.
    #[inline(always)]
    pub(crate) fn land(&mut self, src: Rank, body: &[u8]) {
        copy_private(&mut self.buffer[..body.len()], body);
        let tag = self.want.take().and_then(|want| want.pattern.tag);
        self.landed = Some((src, tag.unwrap_or_default(), body.len()));
    }

    /// For a thread that waits until there is something in one queue of a handler, known by a number that no other handler uses.
    #[inline]
    pub fn watching(lane: u64) -> Hand<'static> {
        Hand { watched: lane, ..Hand::empty() }
    }

    /// For threads that wait for something else.
    pub fn empty() -> Hand<'static> {
        Hand {
            ticket: u64::MAX,
            want: None,
            exact: None,
            watched: NOTHING,
            buffer: &mut [],
            landed: None,
            too_long: None,
        }
    }

    /// For handlers: something was put in the queue with this number. Whether this thread watches it.
    #[inline(always)]
    pub fn found(&mut self, lane: u64, src: Rank) -> bool {
        let is_watched = self.watched == lane;
        if is_watched {
            self.landed = Some((src, 0, 0));
        }
        is_watched
    }

    /// What is wanted and neither posted nor found.
    #[inline]
    pub fn want(&self) -> Option<Want> {
        self.want
    }

    /// Whether this message is wanted; then it is not any more.
    #[inline(always)]
    pub fn take_want(&mut self, lane: u64, src: u32, tag: u64) -> bool {
        let is_wanted = self.want.is_some_and(|want| want.lane == lane && want.pattern.accepts(src, tag));
        if is_wanted {
            self.want = None;
        }
        is_wanted
    }

    /// The ticket of the receive, once it has one.
    #[inline(always)]
    pub fn posted_ticket(&self) -> Option<u64> {
        (self.ticket != u64::MAX).then_some(self.ticket)
    }

    /// From now on the receive is known by its ticket.
    pub fn posted_as(&mut self, ticket: u64) {
        self.want = None;
        self.ticket = ticket;
    }

    /// The buffer, if it belongs to this receive.
    #[inline]
    pub fn buffer_of(&mut self, ticket: u64) -> Option<&mut [u8]> {
        (ticket == self.ticket).then_some(&mut *self.buffer)
    }

    #[inline]
    pub fn buffer(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// Length of the buffer.
    #[inline]
    pub fn room(&self) -> usize {
        self.buffer.len()
    }

    /// Whose buffer it is, for handlers that give out tickets with a meaning.
    #[inline]
    pub fn ticket(&self) -> u64 {
        self.ticket
    }
}

/// The bytes of a message or a part of it, valid during the call. They may lie in memory that the sender can still
/// change: copy once, then look.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    bytes: Bytes<'a>,
    at: usize,
    len: usize,
}

#[derive(Clone, Copy)]
enum Bytes<'a> {
    Private(&'a [u8]),
    Shared(&'a SharedFrame<'a>),
    /// As `Shared`, of a message that is too long to stay in a cache.
    Long(&'a SharedFrame<'a>),
}

impl<'a> Body<'a> {
    /// # Panics
    /// When `at` lies behind the end.
    #[inline]
    pub fn private(bytes: &'a [u8], at: usize) -> Body<'a> {
        assert!(at <= bytes.len(), "a body cannot begin behind its frame");
        Body { bytes: Bytes::Private(bytes), at, len: bytes.len() - at }
    }

    /// # Panics
    /// When `at` lies behind the end.
    #[inline]
    pub fn shared(frame: &'a SharedFrame<'a>, at: usize) -> Body<'a> {
        assert!(at <= frame.len(), "a body cannot begin behind its frame");
        Body { bytes: Bytes::Shared(frame), at, len: frame.len() - at }
    }

    /// The same bytes, to be copied past the caches: they belong to a message that is too long to stay there.
    #[inline]
    pub(crate) fn of_long(self) -> Body<'a> {
        match self.bytes {
            Bytes::Shared(frame) => Body { bytes: Bytes::Long(frame), ..self },
            _ => self,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the whole body to the front of `to`; returns how many bytes.
    ///
    /// # Panics
    /// When `to` is shorter.
    #[inline(always)]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let to = &mut to[..self.len];
        match self.bytes {
            Bytes::Private(bytes) => copy_private(to, &bytes[self.at..]),
            Bytes::Shared(frame) => frame.copy_range_to(self.at, to),
            Bytes::Long(frame) => frame.copy_range_past_caches(self.at, to),
        }
        self.len
    }

    /// Appends the body to `to`.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        match self.bytes {
            Bytes::Private(bytes) => to.extend_from_slice(&bytes[self.at..]),
            Bytes::Shared(frame) | Bytes::Long(frame) => {
                let old = to.len();
                to.resize(old + self.len, 0);
                frame.copy_range_to(self.at, &mut to[old..]);
            }
        }
    }
}

/// A copy to the front of `to`. Few bytes go in one or two pairs of words that may overlap: no loop and no call.
///
/// # Panics
/// When `to` is shorter.
#[inline(always)]
fn copy_private(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    let to = &mut to[..len];
    match len {
        8 => to[..8].copy_from_slice(&from[..8]),
        9..=16 => {
            to[..8].copy_from_slice(&from[..8]);
            to[len - 8..].copy_from_slice(&from[len - 8..]);
        }
        17..=32 => {
            to[..16].copy_from_slice(&from[..16]);
            to[len - 16..].copy_from_slice(&from[len - 16..]);
        }
        _ => to.copy_from_slice(from),
    }
}

/// The switch itself.
#[derive(Default)]
pub(crate) struct Handlers {
    table: [Option<Box<dyn ReceiveHandler>>; Proto::COUNT],
}

impl Handlers {
    /// Whether the place was free.
    pub(crate) fn register(&mut self, proto: Proto, handler: Box<dyn ReceiveHandler>) -> bool {
        match self.table.get_mut(usize::from(proto.0)) {
            Some(place @ None) if proto != Proto::CONTROL => {
                *place = Some(handler);
                true
            }
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn of(&mut self, proto: u8) -> Option<&mut dyn ReceiveHandler> {
        self.table.get_mut(usize::from(proto))?.as_deref_mut()
    }

    /// The handler of a protocol as what it is, for the interface that owns it.
    #[inline(always)]
    pub(crate) fn as_its_own<H: ReceiveHandler>(&mut self, proto: u8) -> Option<&mut H> {
        let handler: &mut dyn Any = self.table.get_mut(usize::from(proto))?.as_deref_mut()?;
        handler.downcast_mut()
    }

    pub(crate) fn all_settled(&self) -> bool {
        self.table.iter().flatten().all(|handler| handler.is_settled())
    }

    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut (dyn ReceiveHandler + 'static)> {
        self.table.iter_mut().flatten().map(|handler| &mut **handler)
    }
}
