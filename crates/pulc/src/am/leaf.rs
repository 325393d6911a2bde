//! Leaf handlers: handlers that call nothing of PULC, and so may run where their message is found, inside of the poll, with the
//! engine locked. What such a handler is given, and how an endpoint gets one. Public; run by `arrive_leaf`.

use super::answer::Said;
use super::args::{Args, Reply, Short, Words};
use super::endpoint::{Endpoint, Entry};
use super::returned::{Opcode, Status};
use super::token::{Source, Verdict};
use crate::Error;
use pulc_handler::leaf;
use std::cell::Cell;
use std::panic::RefUnwindSafe;

/// Whether this thread runs a leaf handler at the moment, for doors to other languages, which cannot let it panic.
pub fn in_leaf_handler() -> bool {
    leaf::is_running()
}

/// A leaf handler of a user. It says why it does not take a message.
pub(crate) type LeafEntry = Box<dyn Fn(LeafMessage<'_>) -> Verdict + Send + Sync + RefUnwindSafe>;

/// One run of a leaf handler: what it answers.
pub(crate) struct LeafCall {
    pub handler: Cell<Option<u8>>,
    pub said: Said,
}

impl LeafCall {
    #[inline(always)]
    pub fn new() -> LeafCall {
        LeafCall { handler: Cell::new(None), said: Said::nothing() }
    }
}

/// The right of a leaf handler to answer its request, once, with arguments only. Dropped unused, the request is acknowledged
/// without a reply.
///
/// A second reply does not compile:
/// ```compile_fail,E0382
/// # use pulc::am::{LeafToken, Reply};
/// const PONG: Reply<(u64,)> = Reply::new(1);
/// fn handler(token: LeafToken<'_>, _args: (u64,)) {
///     token.reply(PONG, (1,));
///     token.reply(PONG, (2,));
/// }
/// ```
pub struct LeafToken<'a> {
    pub(crate) call: &'a LeafCall,
    pub(crate) source: Source,
}

impl LeafToken<'_> {
    /// Who has sent the request.
    #[inline]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Replies. The reply leaves in the poll that has found the request.
    #[inline(always)]
    pub fn reply<A: Args>(self, handler: Reply<A>, args: A) {
        self.reply_words(handler.index, &args.to_words());
    }

    /// As [`LeafToken::reply`], with a handler and words that are not typed.
    #[inline(always)]
    pub fn reply_words(self, handler: u8, words: &Words) {
        self.call.said.say(words);
        self.call.handler.set(Some(handler));
    }
}

/// What a leaf handler that is not typed is given.
pub struct LeafMessage<'a> {
    /// [`Opcode::Short`] or [`Opcode::Reply`], else it is not for leaf handlers.
    pub opcode: Opcode,
    pub source: Source,
    /// Of requests only.
    pub token: Option<LeafToken<'a>>,
    pub words: &'a Words,
}

impl Endpoint {
    /// Handles requests that carry arguments only, in the poll that finds them: in any thread of the process that waits for
    /// anything, with nothing let go of before or after, and whatever other handlers run meanwhile (the bundle's [`Mode`](super::Mode)
    /// does not count for it). That is the quickest that a request can be answered; for it the handler promises to be short, and
    /// to call nothing of PULC.
    ///
    /// Nothing of PULC can be captured: such handles are not `RefUnwindSafe`.
    /// ```compile_fail,E0277
    /// # use pulc::am::{Bundle, Endpoint, Short};
    /// const ASK: Short<()> = Short::new(1);
    /// fn open(bundle: Bundle, endpoint: &Endpoint) {
    ///     endpoint.on_leaf(ASK, move |_token, ()| drop(bundle.tally())).unwrap();
    /// }
    /// ```
    /// What reaches PULC all the same (by a `static`, by a `Mutex` that is captured) panics there instead of waiting for itself. A
    /// panic leaves the poll in order: the request goes back to its sender, and whoever polls or waits on the bundle next has the
    /// panic. A lock that is held while PULC is called must not be taken, since its holder may wait for this very thread.
    ///
    /// A reply to a process that is gone is dropped.
    ///
    /// # Errors
    /// [`Error::HandlerTaken`], also of the other kinds of handlers: an endpoint has one table for all.
    pub fn on_leaf<A: Args>(
        &self,
        handler: Short<A>,
        run: impl Fn(LeafToken<'_>, A) + Send + Sync + RefUnwindSafe + 'static,
    ) -> Result<(), Error> {
        let run = move |message: LeafMessage<'_>| {
            let args = args_of(&message, Opcode::Short)?;
            run(message.token.ok_or(Status::BadHandler)?, args);
            Ok(())
        };
        self.on_leaf_message(handler.index, run)
    }

    /// Handles replies that carry arguments only, as [`Endpoint::on_leaf`] handles requests.
    ///
    /// # Errors
    /// As there.
    pub fn on_leaf_reply<A: Args>(
        &self,
        handler: Reply<A>,
        run: impl Fn(Source, A) + Send + Sync + RefUnwindSafe + 'static,
    ) -> Result<(), Error> {
        let run = move |message: LeafMessage<'_>| {
            run(message.source, args_of(&message, Opcode::Reply)?);
            Ok(())
        };
        self.on_leaf_message(handler.index, run)
    }

    /// Handles requests and replies that carry any number of arguments and nothing else, for doors to other languages, under the same
    /// promise. What the handler does not take goes back with the status it returns; it must not have used the token then.
    ///
    /// # Errors
    /// As there.
    pub fn on_leaf_message(
        &self,
        index: u8,
        run: impl Fn(LeafMessage<'_>) -> Result<(), Status> + Send + Sync + RefUnwindSafe + 'static,
    ) -> Result<(), Error> {
        self.add(index, Entry::Leaf(Box::new(run)))
    }
}

/// The arguments of a message for a handler of one kind.
#[inline(always)]
fn args_of<A: Args>(message: &LeafMessage<'_>, opcode: Opcode) -> Result<A, Status> {
    if message.opcode != opcode {
        return Err(Status::BadHandler);
    }
    if message.words.all().len() != A::COUNT {
        return Err(Status::BadArguments);
    }
    Ok(A::from_words(message.words))
}
