//! What a handler is given: the token that answers its request, what landed, what is offered. Called with the engine unlocked,
//! in the thread that runs the handler; a token lives no longer than its handler and answers at most once, by its type.

use super::answer::Said;
use super::args::{Args, LongReply, MediumReply, Reply, Words};
use super::arrival::About;
use super::endpoint::Shared;
use super::peer::{Bytes, settled};
use super::returned::{Opcode, Status};
use super::send::{self, Payload};
use super::table::{Target, Transfer, header};
use super::wire::{Header, Kind};
use crate::Error;
use pulc_base::{Proto, Rank};
use pulc_hal::os::settled::Settled;
use pulc_handler::{Process, TransferId};
use std::cell::Cell;
use std::sync::Arc;

/// How a request is answered.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// Not at all: an empty acknowledgement gives the credit back.
    None,
    /// Leaves when the handler has returned, with the words of the call.
    Short { handler: u8 },
    /// Has left.
    Left,
    /// The payload was asked for; its continuation answers.
    Fetched,
    /// The payload is not wanted.
    Declined,
}

/// One run of a request's handler.
pub(crate) struct Call<'a> {
    pub process: &'static Process,
    pub request: &'a About,
    /// Not one of ours that came back, nor a reply.
    pub is_request: bool,
    pub answer: Cell<Answer>,
    /// Arguments of a short answer.
    pub said: Said,
}

impl<'a> Call<'a> {
    #[inline]
    pub fn of(process: &'static Process, request: &'a About, is_request: bool) -> Call<'a> {
        Call { process, request, is_request, answer: Cell::new(Answer::None), said: Said::nothing() }
    }

    #[inline(always)]
    pub fn answer_short(&self, handler: u8, words: &Words) {
        self.said.say(words);
        self.answer.set(Answer::Short { handler });
    }
}

/// The right to answer one request, once. Dropped unused, it answers with an empty acknowledgement.
///
/// A second reply does not compile:
/// ```compile_fail,E0382
/// # use pulc::am::{Reply, Token};
/// const PONG: Reply<(u64,)> = Reply::new(1);
/// fn handler(token: Token<'_>, _args: (u64,)) {
///     token.reply(PONG, (1,));
///     token.reply(PONG, (2,));
/// }
/// ```
/// Nor does keeping a token beyond its handler:
/// ```compile_fail
/// # use pulc::am::Token;
/// static KEPT: std::sync::Mutex<Option<Token<'static>>> = std::sync::Mutex::new(None);
/// fn handler(token: Token<'_>, _args: (u64,)) {
///     *KEPT.lock().unwrap() = Some(token);
/// }
/// ```
pub struct Token<'a> {
    pub(crate) call: &'a Call<'a>,
}

/// Where a reply comes from. It cannot be answered:
/// ```compile_fail,E0599
/// # use pulc::am::{Reply, Source};
/// const AGAIN: Reply<(u64,)> = Reply::new(1);
/// fn reply_handler(from: Source, _args: (u64,)) {
///     from.reply(AGAIN, (1,));
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    pub rank: Rank,
}

impl Token<'_> {
    /// Who has sent the request.
    pub fn source(&self) -> Source {
        Source { rank: self.call.request.src }
    }

    /// Name of the endpoint that has sent the request; empty when it has ended meanwhile.
    pub fn source_name(&self) -> Arc<str> {
        if self.call.process.check_fork().is_err() {
            return "".into();
        }
        let mut guard = self.call.process.lock();
        let incoming = send::table(&mut guard.engine).incoming.get(self.call.request.channel);
        incoming.map_or_else(|| "".into(), |incoming| Arc::clone(&incoming.src_name))
    }

    /// Replies with arguments only. Leaves when the handler returns.
    #[inline]
    pub fn reply<A: Args>(self, handler: Reply<A>, args: A) {
        self.reply_words(handler.index, args.to_words());
    }

    /// As [`Token::reply`], with a handler and words that are not typed.
    #[inline]
    pub fn reply_words(self, handler: u8, words: Words) {
        self.call.answer_short(handler, &words);
    }

    /// Replies with a payload of at most [`MEDIUM_MAX`](super::MEDIUM_MAX) bytes, which are free on return.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`]; then the request is acknowledged without a reply.
    pub fn reply_medium<A: Args>(self, handler: MediumReply<A>, args: A, bytes: &[u8]) -> Result<(), Error> {
        self.reply_medium_words(handler.index, args.to_words(), bytes)
    }

    /// As [`Token::reply_medium`], with a handler and words that are not typed.
    pub fn reply_medium_words(self, handler: u8, words: Words, bytes: &[u8]) -> Result<(), Error> {
        send::check_medium(bytes.len())?;
        self.leave(Kind::ReplyMedium, handler, &words, 0, Payload::Medium(bytes));
        Ok(())
    }

    /// Replies with a payload that lands at `offset` of the requester's segment. The bytes are kept until they have left.
    pub fn reply_long<A: Args>(
        self,
        handler: LongReply<A>,
        args: A,
        offset: u64,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) {
        self.reply_long_words(handler.index, args.to_words(), offset, Arc::new(bytes));
    }

    /// As [`Token::reply_long`], with a handler and words that are not typed.
    pub fn reply_long_words(self, handler: u8, words: Words, offset: u64, bytes: Bytes) {
        self.leave(Kind::ReplyLong, handler, &words, offset, Payload::Long(settled(bytes), None));
    }

    fn leave(self, kind: Kind, handler: u8, words: &Words, offset: u64, payload: Payload<'_>) {
        let (call, request) = (self.call, self.call.request);
        let (slot, channel, count) = (request.slot, request.reply_to, words.all().len() as u8);
        let front = Header { kind, words: count, handler, slot, tell: false, channel, offset };
        // Bytes that cannot leave are dropped after the guard: they are the user's.
        let _kept = match &payload {
            Payload::Long(bytes, _) => Some(Arc::clone(bytes)),
            Payload::None | Payload::Medium(_) => None,
        };
        // A fork's child answers nobody: its parent will.
        if call.process.check_fork().is_err() {
            return;
        }
        let mut guard = call.process.lock();
        let table = send::table(&mut guard.engine);
        if !request.tell {
            send::free_slot(table, request.channel, request.slot);
        }
        table.tally.replies += 1;
        if send::now(&mut guard.engine, request.src, front, words, payload).is_err() {
            send::reply_came_back(&mut guard.engine, request, kind, handler, *words);
        }
        call.process.announce(&guard);
        call.answer.set(Answer::Left);
    }
}

/// A payload that has landed in the endpoint's segment.
pub struct Landed<'a> {
    pub(crate) endpoint: &'a Shared,
    /// Where, in bytes from the beginning of the segment.
    pub offset: usize,
    /// How many bytes.
    pub len: usize,
}

impl Landed<'_> {
    /// Looks at the bytes that have landed. Nothing arrives in the segment meanwhile.
    ///
    /// # Panics
    /// When this thread has the segment already.
    pub fn with<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        let (from, to) = (self.offset, self.offset + self.len);
        self.endpoint.with_segment(|bytes| {
            let len = bytes.len();
            look(&mut bytes[from.min(len)..to.min(len)])
        })
    }
}

/// A payload whose sender lets its receiver choose where it goes. Dropped unused, it is declined: the request goes back.
pub struct Offer<'a> {
    pub(crate) call: &'a Call<'a>,
    pub(crate) len: u64,
}

impl Offer<'_> {
    /// Length of the payload in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Who offers it.
    pub fn source(&self) -> Source {
        Source { rank: self.call.request.src }
    }

    /// Fetches the payload to the front of `memory`; `then` is called like a handler when it is there, with the token that
    /// answers the request.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; then the offer is declined.
    pub fn fetch<M: AsMut<[u8]> + Send + 'static>(
        self,
        memory: M,
        then: impl FnOnce(Token<'_>, M) + Send + 'static,
    ) -> Result<(), Error> {
        let (call, request) = (self.call, self.call.request);
        call.process.check_fork()?;
        let mut memory = Settled::new(memory);
        let (len, total) = (memory.as_mut().len(), usize::try_from(self.len).unwrap_or(usize::MAX));
        if len < total {
            return Err(Error::BufferTooSmall { needed: total, len });
        }
        let target = Target::Fetching(Box::new(Fetched { memory, then }));
        let header = Header {
            words: request.words.all().len() as u8,
            handler: request.handler,
            slot: request.slot,
            tell: request.tell,
            ..header(Kind::Fetch, request.channel)
        };
        let id = TransferId { src: request.src, id: 0 };
        let transfer = Transfer { id, header, words: request.words, target, arrived: 0, total };
        // Without a place for it, it is dropped after the guard: it is the user's.
        let mut transfer = Some(transfer);
        let mut guard = call.process.lock();
        let number = send::table(&mut guard.engine).transfers.add(|_| transfer.take().expect("it is asked for once"));
        let number = number.ok_or_else(|| crate::error::no_memory(total))?;
        let front = Header { words: 1, slot: request.slot, ..super::table::header(Kind::Want, request.reply_to) };
        send::outbox(&mut guard.engine).post(request.src, Proto::AM, front.front(&[u64::from(number)]).bytes(), &[]);
        call.process.announce(&guard);
        call.answer.set(Answer::Fetched);
        Ok(())
    }
}

/// Where a fetched payload goes, and what goes on when it is there.
pub(crate) trait Landing: Send {
    fn memory(&mut self) -> &mut [u8];
    fn there(self: Box<Self>, token: Token<'_>);
}

struct Fetched<M, F> {
    memory: Settled<M>,
    then: F,
}

impl<M: Send, F: FnOnce(Token<'_>, M) + Send> Landing for Fetched<M, F> {
    fn memory(&mut self) -> &mut [u8] {
        self.memory.as_mut()
    }

    fn there(self: Box<Self>, token: Token<'_>) {
        (self.then)(token, self.memory.into_owner());
    }
}

/// What a handler that is not typed is given.
pub struct Message<'a> {
    pub opcode: Opcode,
    pub source: Source,
    /// Of requests only.
    pub token: Option<Token<'a>>,
    pub words: &'a Words,
    pub data: Data<'a>,
}

/// What comes with the arguments.
pub enum Data<'a> {
    None,
    Bytes(&'a [u8]),
    Landed(Landed<'a>),
    Offer(Offer<'a>),
}

/// Why a handler did not run.
pub(crate) type Verdict = Result<(), Status>;
