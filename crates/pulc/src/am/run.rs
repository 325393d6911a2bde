//! One run of one handler: called by `bundle` with the engine unlocked, finished with it locked. A handler that panics leaves
//! nothing locked and nothing half done: its request goes back to the sender, then the panic goes on.

use super::bundle::Inner;
use super::endpoint::Shared;
use super::returned::{Opcode, Returned, Status};
use super::send;
use super::table::{Arrival, Payload};
use super::token::{Answer, Call, Data, Landed, Message, Offer, Source, Token, Verdict};
use super::wire::{Header, Kind};
use pulc_handler::Shared as Locked;
use std::cell::Cell;
use std::sync::atomic::Ordering;

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// This thread runs a handler.
#[inline]
pub(crate) fn in_handler() -> bool {
    IN_HANDLER.get()
}

/// A message whose handler has run, and what is to be done about it.
pub(crate) struct Ran {
    arrival: Arrival,
    answer: Answer,
    verdict: Verdict,
    bundle: u32,
}

/// Restores order when a handler panics.
struct Unwinding<'a> {
    inner: &'a Inner,
    arrival: Option<Arrival>,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        IN_HANDLER.set(false);
        let Some(arrival) = self.arrival.take() else { return };
        let mut guard = self.inner.process.lock();
        let ran = Ran { arrival, answer: Answer::None, verdict: Err(Status::Panicked), bundle: self.inner.number };
        ran.finish(&mut guard);
        send::flush_acks(&mut guard.engine);
        self.inner.process.announce(&guard);
    }
}

impl Ran {
    /// Runs the handler of a message.
    #[inline]
    pub fn of(inner: &Inner, mut arrival: Arrival) -> Ran {
        let payload = std::mem::replace(&mut arrival.payload, Payload::None);
        let mut unwinding = Unwinding { inner, arrival: Some(arrival) };
        IN_HANDLER.set(true);
        let mut answer = Answer::None;
        let mut payload = Some(payload);
        let verdict = match &unwinding.arrival {
            Some(arrival) => handle(inner, arrival, &mut payload, &mut answer),
            None => Ok(()),
        };
        IN_HANDLER.set(false);
        let mut arrival = unwinding.arrival.take().expect("only a panic takes it away");
        arrival.payload = payload.unwrap_or(Payload::None);
        Ran { arrival, answer, verdict, bundle: inner.number }
    }

    /// Answers a request, gives the memory of the message back, and lets the next handler run.
    #[inline]
    pub fn finish(self, guard: &mut Locked) {
        let Ran { arrival, answer, verdict, bundle } = self;
        let engine = &mut guard.engine;
        let table = send::table(engine);
        table.tally.handled += 1;
        if let Some(state) = table.bundles.get(bundle) {
            state.running -= 1;
        }
        let Arrival { kind, slot, tell, channel, src, payload, .. } = &arrival;
        let is_request = matches!(kind, Kind::Short | Kind::Medium | Kind::Long | Kind::Fetch);
        if is_request && !matches!(payload, Payload::Returned(_)) {
            match (verdict, answer) {
                (Err(why), _) => refuse(guard, *channel, *slot, why),
                (Ok(()), Answer::Declined) => refuse(guard, *channel, *slot, Status::Declined),
                (Ok(()), Answer::Fetched) => {}
                (Ok(()), Answer::None) => send::acknowledge(engine, *channel, *slot),
                (Ok(()), Answer::Left) if *tell => send::tell(engine, *channel, *slot),
                (Ok(()), Answer::Left) => {}
                (Ok(()), Answer::Short { handler, words }) => {
                    if !*tell {
                        send::free_slot(table, *channel, *slot);
                    }
                    table.tally.replies += 1;
                    let header = Header {
                        kind: Kind::ReplyShort,
                        words: words.all().len() as u8,
                        handler,
                        slot: *slot,
                        tell: false,
                        channel: arrival.reply_to,
                        offset: 0,
                    };
                    let sent = match send::try_short(engine, *src, header, &words) {
                        Ok(true) => Ok(()),
                        Ok(false) => send::now(engine, *src, header, &words, send::Payload::None),
                        Err(fault) => Err(fault),
                    };
                    if sent.is_err() {
                        send::reply_came_back(engine, &arrival, Kind::ReplyShort, handler, words);
                    }
                    if *tell {
                        send::tell(engine, *channel, *slot);
                    }
                }
            }
        }
        if let Payload::Bytes { bytes, .. } = arrival.payload {
            send::table(&mut guard.engine).spare.give(bytes);
        }
    }
}

#[cold]
fn refuse(guard: &mut Locked, channel: u32, slot: u16, why: Status) {
    if let Some((table, outbox)) = guard.engine.handler_and_outbox::<super::table::AmTable>(pulc_base::Proto::AM) {
        table.refuse(channel, slot, why, outbox);
    }
}

/// Finds the handler of a message and calls it.
#[inline]
fn handle(inner: &Inner, arrival: &Arrival, payload: &mut Option<Payload>, answer: &mut Answer) -> Verdict {
    let shared = &arrival.endpoint;
    let call = Call::of(inner.process, arrival);
    let data = match payload {
        Some(Payload::Returned(status)) => {
            returned(shared, arrival, *status);
            return Ok(());
        }
        Some(Payload::Fetched(_)) => {
            if let Some(Payload::Fetched(fetched)) = payload.take() {
                fetched.there(Token { call: &call });
            }
            *answer = call.answer.into_inner();
            return Ok(());
        }
        Some(Payload::Bytes { bytes, skip }) => Data::Bytes(&bytes[*skip..]),
        Some(Payload::Landed { offset, len }) => Data::Landed(Landed { endpoint: shared, offset: *offset, len: *len }),
        Some(Payload::Offer { len }) => {
            call.answer.set(Answer::Declined);
            Data::Offer(Offer { call: &call, len: *len })
        }
        Some(Payload::None) | None => Data::None,
    };
    if shared.closed.load(Ordering::Relaxed) {
        return Err(Status::BadEndpoint);
    }
    let is_answer = is_reply(arrival.kind);
    let verdict = match shared.handlers[usize::from(arrival.handler)].get() {
        Some(run) => run(Message {
            opcode: Opcode::of(arrival.kind),
            source: Source { rank: arrival.src },
            token: (!is_answer).then_some(Token { call: &call }),
            words: &arrival.words,
            data,
        }),
        None => Err(Status::BadHandler),
    };
    if let (true, Err(why)) = (is_answer, verdict) {
        returned(shared, arrival, why);
        return Ok(());
    }
    *answer = call.answer.into_inner();
    verdict
}

fn is_reply(kind: Kind) -> bool {
    matches!(kind, Kind::ReplyShort | Kind::ReplyMedium | Kind::ReplyLong)
}

/// Tells the error handler of an endpoint.
#[cold]
fn returned(shared: &Shared, arrival: &Arrival, status: Status) {
    let (peer, handler, args) = (arrival.src, arrival.handler, arrival.words);
    let opcode = Opcode::of(arrival.kind);
    match shared.on_error.get() {
        Some(run) => run(Returned { status, opcode, peer, handler, args }),
        None => pulc_base::log!(
            Warn,
            "am",
            "a message of endpoint {:?} for handler {handler} of rank {peer} came back: {status}",
            shared.name
        ),
    }
}
