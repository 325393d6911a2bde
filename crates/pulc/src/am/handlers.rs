//! The table of handlers of an endpoint: typed handlers of every kind, and the one kind below them that takes any message.
//! Public, as methods of [`Endpoint`].

use super::args::{Args, Fetch, Long, LongReply, Medium, MediumReply, Reply, Short};
use super::endpoint::{Endpoint, Entry};
use super::returned::{Opcode, Returned, Status};
use super::token::{Data, Landed, Message, Offer, Source, Token};
use crate::Error;

impl Endpoint {
    /// Handles requests that carry arguments only.
    ///
    /// # Errors
    /// [`Error::HandlerTaken`], also of the other kinds of handlers: an endpoint has one table for all.
    pub fn on<A: Args>(
        &self,
        handler: Short<A>,
        run: impl Fn(Token<'_>, A) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.on_request(handler.index, Opcode::Short, move |token, args, _| run(token, args))
    }

    /// Handles requests with a payload, which is valid until the handler returns.
    pub fn on_medium<A: Args>(
        &self,
        handler: Medium<A>,
        run: impl Fn(Token<'_>, A, &[u8]) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.on_request(handler.index, Opcode::Medium, move |token, args, data| match data {
            Data::Bytes(bytes) => run(token, args, bytes),
            _ => run(token, args, &[]),
        })
    }

    /// Handles requests whose payload has landed in the segment.
    pub fn on_long<A: Args>(
        &self,
        handler: Long<A>,
        run: impl Fn(Token<'_>, A, Landed<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.on_request(handler.index, Opcode::Long, move |token, args, data| {
            if let Data::Landed(landed) = data {
                run(token, args, landed);
            }
        })
    }

    /// Handles offers of a payload: the handler chooses where it goes, or declines.
    pub fn on_fetch<A: Args>(
        &self,
        handler: Fetch<A>,
        run: impl Fn(Offer<'_>, A) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.on_request(handler.index, Opcode::Fetch, move |_token, args, data| {
            if let Data::Offer(offer) = data {
                run(offer, args);
            }
        })
    }

    /// Handles replies that carry arguments only.
    pub fn on_reply<A: Args>(
        &self,
        handler: Reply<A>,
        run: impl Fn(Source, A) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.on_answer(handler.index, Opcode::Reply, move |from, args, _| run(from, args))
    }

    /// Handles replies with a payload, which is valid until the handler returns.
    pub fn on_reply_medium<A: Args>(
        &self,
        handler: MediumReply<A>,
        run: impl Fn(Source, A, &[u8]) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.on_answer(handler.index, Opcode::MediumReply, move |from, args, data| match data {
            Data::Bytes(bytes) => run(from, args, bytes),
            _ => run(from, args, &[]),
        })
    }

    /// Handles replies whose payload has landed in the segment.
    pub fn on_reply_long<A: Args>(
        &self,
        handler: LongReply<A>,
        run: impl Fn(Source, A, Landed<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.on_answer(handler.index, Opcode::LongReply, move |from, args, data| {
            if let Data::Landed(landed) = data {
                run(from, args, landed);
            }
        })
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

    /// Handles messages of any kind and any number of arguments, for doors to other languages. What the handler does not take
    /// goes back with the status it returns; it must not have used the token then.
    pub fn on_message(
        &self,
        index: u8,
        run: impl Fn(Message<'_>) -> Result<(), Status> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.add(index, Entry::Usual(Box::new(run)))
    }

    fn on_request<A: Args>(
        &self,
        index: u8,
        opcode: Opcode,
        run: impl Fn(Token<'_>, A, Data<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |message: Message<'_>| {
            let args = args_of(&message, opcode)?;
            let token = message.token.ok_or(Status::BadHandler)?;
            run(token, args, message.data);
            Ok(())
        };
        self.add(index, Entry::Usual(Box::new(run)))
    }

    fn on_answer<A: Args>(
        &self,
        index: u8,
        opcode: Opcode,
        run: impl Fn(Source, A, Data<'_>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let run = move |message: Message<'_>| {
            run(message.source, args_of(&message, opcode)?, message.data);
            Ok(())
        };
        self.add(index, Entry::Usual(Box::new(run)))
    }

    pub(super) fn add(&self, index: u8, entry: Entry) -> Result<(), Error> {
        let place = &self.inner.shared.handlers[usize::from(index)];
        place.set(entry).map_err(|_| Error::HandlerTaken { name: self.name().to_owned(), index: Some(index) })
    }
}

/// The arguments of a message for a handler of one kind.
#[inline]
fn args_of<A: Args>(message: &Message<'_>, opcode: Opcode) -> Result<A, Status> {
    if message.opcode != opcode {
        return Err(Status::BadHandler);
    }
    if message.words.all().len() != A::COUNT {
        return Err(Status::BadArguments);
    }
    Ok(A::from_words(message.words))
}
