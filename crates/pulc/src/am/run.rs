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

/// How the handler of a message ended.
pub(crate) struct Ran {
    answer: Answer,
    verdict: Verdict,
}

/// Restores order when a handler panics.
struct Unwinding<'a> {
    inner: &'a Inner,
    call: &'a Call<'a>,
}

impl Drop for Unwinding<'_> {
    #[cold]
    fn drop(&mut self) {
        IN_HANDLER.set(false);
        if self.inner.process.check_fork().is_err() {
            return;
        }
        let mut guard = self.inner.process.lock();
        let table = send::table(&mut guard.engine);
        table.tally.handled += 1;
        if let Some(state) = table.bundles.get(self.inner.number) {
            state.running -= 1;
        }
        let request = self.call.request;
        let &Arrival { channel, slot, tell, .. } = request;
        match self.call.answer.replace(Answer::None) {
            _ if !self.call.is_request => {}
            // The reply is on its way, or what goes on will answer.
            Answer::Left if tell => send::tell(&mut guard.engine, channel, slot),
            Answer::Left | Answer::Fetched => {}
            _ => refuse(&mut guard, channel, slot, Status::Panicked),
        }
        send::flush_acks(&mut guard.engine);
        self.inner.process.announce(&guard);
    }
}

impl Ran {
    /// Runs the handler of a message.
    #[inline]
    pub fn of(inner: &Inner, arrival: &mut Arrival) -> Ran {
        let is_request = is_request(arrival);
        let mut payload = Some(std::mem::replace(&mut arrival.payload, Payload::None));
        let call = Call::of(inner.process, arrival, is_request);
        let unwinding = Unwinding { inner, call: &call };
        IN_HANDLER.set(true);
        let verdict = handle(&call, &mut payload);
        IN_HANDLER.set(false);
        std::mem::forget(unwinding);
        let answer = call.answer.into_inner();
        arrival.payload = payload.unwrap_or(Payload::None);
        Ran { answer, verdict }
    }

    /// Answers a request, gives the memory of the message back, and lets the next handler run.
    #[inline]
    pub fn finish(self, inner: &Inner, guard: &mut Locked, arrival: &mut Arrival) {
        let table = send::table(&mut guard.engine);
        table.tally.handled += 1;
        if let Some(state) = table.bundles.get(inner.number) {
            state.running -= 1;
        }
        if is_request(arrival) {
            self.answer(guard, arrival);
        }
        if let Payload::Bytes { bytes, .. } = &mut arrival.payload {
            let bytes = std::mem::take(bytes);
            send::table(&mut guard.engine).spare.give(bytes);
        }
    }

    #[inline]
    fn answer(self, guard: &mut Locked, arrival: &Arrival) {
        let &Arrival { channel, slot, tell, src, reply_to, .. } = arrival;
        let engine = &mut guard.engine;
        match (self.verdict, self.answer) {
            (Err(why), _) => refuse(guard, channel, slot, why),
            (Ok(()), Answer::Declined) => refuse(guard, channel, slot, Status::Declined),
            (Ok(()), Answer::Fetched) => {}
            (Ok(()), Answer::None) => send::acknowledge(engine, channel, slot),
            (Ok(()), Answer::Left) if tell => send::tell(engine, channel, slot),
            (Ok(()), Answer::Left) => {}
            (Ok(()), Answer::Short { handler, words }) => {
                let table = send::table(engine);
                if !tell {
                    send::free_slot(table, channel, slot);
                }
                table.tally.replies += 1;
                let count = words.all().len() as u8;
                let kind = Kind::ReplyShort;
                let header = Header { kind, words: count, handler, slot, tell: false, channel: reply_to, offset: 0 };
                let sent = match send::try_short(engine, src, header, &words) {
                    Ok(true) => Ok(()),
                    Ok(false) => send::now(engine, src, header, &words, send::Payload::None),
                    Err(fault) => Err(fault),
                };
                if sent.is_err() {
                    send::reply_came_back(engine, arrival, kind, handler, words);
                }
                if tell {
                    send::tell(engine, channel, slot);
                }
            }
        }
    }
}

/// A request that waits for its answer, not one of ours that came back.
#[inline]
fn is_request(arrival: &Arrival) -> bool {
    matches!(arrival.kind, Kind::Short | Kind::Medium | Kind::Long | Kind::Fetch)
        && !matches!(arrival.payload, Payload::Returned(_))
}

#[cold]
fn refuse(guard: &mut Locked, channel: u32, slot: u16, why: Status) {
    if let Some((table, outbox)) = guard.engine.handler_and_outbox::<super::table::AmTable>(pulc_base::Proto::AM) {
        table.refuse(channel, slot, why, outbox);
    }
}

/// Finds the handler of a message and calls it.
#[inline]
fn handle(call: &Call<'_>, payload: &mut Option<Payload>) -> Verdict {
    let arrival = call.request;
    let shared = &arrival.endpoint;
    let data = match payload {
        Some(Payload::Returned(status)) => {
            returned(shared, arrival, *status);
            return Ok(());
        }
        Some(Payload::Fetched(_)) => {
            if let Some(Payload::Fetched(fetched)) = payload.take() {
                fetched.there(Token { call });
            }
            return Ok(());
        }
        Some(Payload::Bytes { bytes, skip }) => Data::Bytes(&bytes[*skip..]),
        Some(Payload::Landed { offset, len }) => Data::Landed(Landed { endpoint: shared, offset: *offset, len: *len }),
        Some(Payload::Offer { len }) => {
            call.answer.set(Answer::Declined);
            Data::Offer(Offer { call, len: *len })
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
            token: (!is_answer).then_some(Token { call }),
            words: &arrival.words,
            data,
        }),
        None => Err(Status::BadHandler),
    };
    if let (true, Err(why)) = (is_answer, verdict) {
        returned(shared, arrival, why);
        return Ok(());
    }
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
