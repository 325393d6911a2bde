//! One run of one handler: called by `bundle` with the engine unlocked, finished with it locked. A handler that panics leaves
//! nothing locked and nothing half done: its request goes back to the sender, then the panic goes on.

use super::arrival::{About, Arrival, Payload};
use super::bundle::Inner;
use super::endpoint::{Entry, Shared};
use super::leaf::{LeafCall, LeafEntry, LeafMessage, LeafToken};
use super::returned::{Opcode, Returned, Status};
use super::send;
use super::token::{Answer, Call, Data, Landed, Message, Offer, Source, Token, Verdict};
use super::wire::{Header, Kind};
use pulc_handler::{Engine, Shared as Locked};
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
        let &About { channel, slot, tell, .. } = request;
        match self.call.answer.get() {
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

/// Runs the handler of a message, with the engine unlocked.
#[inline(always)]
pub(crate) fn run(inner: &Inner, call: &Call<'_>, payload: &mut Payload) -> Verdict {
    let unwinding = Unwinding { inner, call };
    IN_HANDLER.set(true);
    let verdict = handle(call, payload);
    IN_HANDLER.set(false);
    std::mem::forget(unwinding);
    verdict
}

/// Answers a request whose handler has returned, and lets the next handler run.
#[inline(always)]
pub(crate) fn finish(inner: &Inner, guard: &mut Locked, call: &Call<'_>, verdict: Verdict) {
    let table = send::table(&mut guard.engine);
    table.tally.handled += 1;
    if let Some(state) = table.bundles.get(inner.number) {
        state.running -= 1;
    }
    if !call.is_request {
        return;
    }
    let &About { channel, slot, tell, .. } = call.request;
    match (verdict, call.answer.get()) {
        (Ok(()), Answer::Short { handler }) => {
            if !tell {
                send::free_slot(table, channel, slot);
            }
            table.tally.replies += 1;
            reply(&mut guard.engine, call, handler);
        }
        (Ok(()), Answer::None) => send::acknowledge(&mut guard.engine, channel, slot),
        (Err(why), _) => refuse(guard, channel, slot, why),
        (Ok(()), Answer::Declined) => refuse(guard, channel, slot, Status::Declined),
        (Ok(()), Answer::Left) if tell => send::tell(&mut guard.engine, channel, slot),
        (Ok(()), Answer::Left | Answer::Fetched) => {}
    }
}

/// Sends the short answer of a handler that has returned.
#[inline(always)]
fn reply(engine: &mut Engine, call: &Call<'_>, handler: u8) {
    let request = call.request;
    let &About { channel, slot, tell, src, reply_to, .. } = request;
    let (kind, words) = (Kind::ReplyShort, call.said.count() as u8);
    let header = Header { kind, words, handler, slot, tell: false, channel: reply_to, offset: 0 };
    let sent = match call.said.few() {
        Some(few) => send::try_few(engine, src, header, few),
        None => send::try_short(engine, src, header, &call.said.all()),
    };
    let sent = match sent {
        Ok(true) => Ok(()),
        Ok(false) => send::now(engine, src, header, &call.said.all(), send::Payload::None),
        Err(fault) => Err(fault),
    };
    if sent.is_err() {
        send::reply_came_back(engine, request, kind, handler, call.said.all());
    }
    if tell {
        send::tell(engine, channel, slot);
    }
}

/// A request that waits for its answer, not one of ours that came back.
#[inline]
pub(crate) fn is_request(arrival: &Arrival) -> bool {
    matches!(arrival.about.kind, Kind::Short | Kind::Medium | Kind::Long | Kind::Fetch)
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
fn handle(call: &Call<'_>, payload: &mut Payload) -> Verdict {
    let about = call.request;
    let Some(shared) = about.endpoint.as_deref() else { return Err(Status::BadEndpoint) };
    let data = match payload {
        Payload::None => Data::None,
        Payload::Bytes { bytes, skip } => Data::Bytes(&bytes[*skip..]),
        Payload::Landed { offset, len } => Data::Landed(Landed { endpoint: shared, offset: *offset, len: *len }),
        Payload::Offer { len } => {
            call.answer.set(Answer::Declined);
            Data::Offer(Offer { call, len: *len })
        }
        Payload::Returned(status) => {
            returned(shared, about, *status);
            return Ok(());
        }
        Payload::Fetched(_) => {
            if let Payload::Fetched(fetched) = std::mem::replace(payload, Payload::None) {
                fetched.there(Token { call });
            }
            return Ok(());
        }
    };
    if shared.closed.load(Ordering::Relaxed) {
        return Err(Status::BadEndpoint);
    }
    let is_answer = is_reply(about.kind);
    let verdict = match shared.handlers[usize::from(about.handler)].get() {
        Some(Entry::Usual(run)) => run(Message {
            opcode: Opcode::of(about.kind),
            source: Source { rank: about.src },
            token: (!is_answer).then_some(Token { call }),
            words: &about.words,
            data,
        }),
        Some(Entry::Leaf(run)) => handle_late(run, call, is_answer),
        None => Err(Status::BadHandler),
    };
    if let (true, Err(why)) = (is_answer, verdict) {
        returned(shared, about, why);
        return Ok(());
    }
    verdict
}

/// Calls a leaf handler that was not there yet when its message came, or whose kind of message it is not.
#[cold]
fn handle_late(run: &LeafEntry, call: &Call<'_>, is_answer: bool) -> Verdict {
    let (about, leaf) = (call.request, LeafCall::new());
    let (opcode, source) = (Opcode::of(about.kind), Source { rank: about.src });
    let token = (!is_answer).then_some(LeafToken { call: &leaf, source });
    let verdict = run(LeafMessage { opcode, source, token, words: &about.words });
    if let Some(handler) = leaf.handler.get() {
        call.answer_short(handler, &leaf.said.all());
    }
    verdict
}

#[inline]
fn is_reply(kind: Kind) -> bool {
    matches!(kind, Kind::ReplyShort | Kind::ReplyMedium | Kind::ReplyLong)
}

/// Tells the error handler of an endpoint.
#[cold]
fn returned(shared: &Shared, about: &About, status: Status) {
    let (peer, handler, args) = (about.src, about.handler, about.words);
    let opcode = Opcode::of(about.kind);
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
