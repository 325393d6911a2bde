//! Receives: a blocking one polls for a moment with its buffer in hand before it becomes a request.
//! Source: MPI-5.0, 3.2.4 and 3.7.2.

use crate::comm::Communicator;
use crate::data::Data;
use crate::envelope::Envelope;
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, Datatype, Message, Request};
use crate::matcher::{Recv, Requests, Work, matcher, matcher_and_outbox, settle};
use crate::memory::Addr;
use crate::status::Status;
use crate::{request, trace, world};
use pulc_base::{Proto, Rank};
use pulc_handler::matching::Pattern;
use pulc_handler::{Engine, Hand, Want};

/// Receives one message.
#[inline]
pub fn recv(buf: Addr, count: i64, datatype: Datatype, source: i32, tag: i32, comm: Comm) -> Result<Status> {
    let process = world::process()?;
    let (at, len, typed) = match Data::quick(buf, count, datatype) {
        Some((at, len)) => (at, len, None),
        None => match Data::new(buf, count, datatype)? {
            Data::Flat { at, len } => (at, len, None),
            typed => (Addr::NULL, usize::MAX, Some(typed)),
        },
    };
    let mut guard = process.lock();
    // A longer one comes in parts, which land where a posted receive wants them and nowhere else.
    let short_max = guard.engine.uncounted_max();
    let table = matcher(&mut guard.engine);
    let found = table.comm(comm)?;
    let (context, is_whole) = (found.context, found.is_whole());
    let Some(pattern) = found.pattern(source, tag)? else { return Ok(Status::NOBODY) };
    let queue = &mut table.lane(context).queue;
    if len <= short_max && queue.find(pattern).is_none() {
        let mut hand = Hand::wanting(Want { lane: context.into(), pattern }, at.bytes_mut(len));
        // Nothing is posted while this thread polls, and what is posted already is earlier.
        if queue.posted_len() == 0 && pattern.src.is_some() && tag >= 0 {
            hand = hand.exactly(Proto::MPI, Envelope { context, tag }.word());
        }
        process.poll_shortly(&mut guard, &mut hand);
        if let Some((src, tag, len)) = hand.landed {
            let source = if is_whole { src.0 as i32 } else { matcher(&mut guard.engine).comm(comm)?.source_of(src) };
            trace::message(source, tag as u32 as i32, len as u64);
            return Ok(Status { source, tag: tag as u32 as i32, error: 0, bytes: len as u64, cancelled: false });
        }
    }
    let data = typed.unwrap_or(Data::Flat { at, len });
    let request = post(&mut guard.engine, data, pattern, comm)?;
    let status = request::wait_blocking(process, guard, request)?;
    trace::message(status.source, status.tag, status.bytes);
    Ok(status)
}

#[inline]
pub fn irecv(buf: Addr, count: i64, datatype: Datatype, source: i32, tag: i32, comm: Comm) -> Result<Request> {
    let process = world::process()?;
    irecv_locked(&mut process.lock().engine, buf, count, datatype, source, tag, comm)
}

/// Whether a receive with these arguments could begin.
pub(crate) fn check_recv(buf: Addr, count: i64, datatype: Datatype, source: i32, tag: i32, comm: Comm) -> Result<()> {
    let process = world::process()?;
    Data::new(buf, count, datatype)?;
    matcher(&mut process.lock().engine).comm(comm)?.pattern(source, tag).map(|_| ())
}

/// Begins a receive with the engine locked.
#[inline]
pub(crate) fn irecv_locked(
    engine: &mut Engine,
    buf: Addr,
    count: i64,
    datatype: Datatype,
    source: i32,
    tag: i32,
    comm: Comm,
) -> Result<Request> {
    if let Some(request) = post_quickly(engine, buf, count, datatype, source, tag, comm) {
        return Ok(request);
    }
    let data = Data::new(buf, count, datatype)?;
    let (table, outbox) = matcher_and_outbox(engine);
    let found = table.comm(comm)?;
    let Some(pattern) = found.pattern(source, tag)? else {
        let index = table.requests.add(Work::None, comm);
        table.requests.complete(index, Status::NOBODY, None);
        return Ok(Requests::handle(index));
    };
    let recv = recv_of(found, data);
    let index = table.post(recv, pattern, comm, outbox);
    if !table.to_release.is_empty() {
        settle(engine);
    }
    Ok(Requests::handle(index))
}

/// Posts a receive that nothing has come for yet, the usual case. `None`: something is unusual or wrong, and nothing has happened.
#[inline(always)]
fn post_quickly(
    engine: &mut Engine,
    buf: Addr,
    count: i64,
    datatype: Datatype,
    source: i32,
    tag: i32,
    comm: Comm,
) -> Option<Request> {
    let (at, len) = Data::quick(buf, count, datatype)?;
    let table = matcher(engine);
    let found = table.comm(comm).ok()?;
    let pattern = found.pattern(source, tag).ok()??;
    let (context, senders) = (found.context, found.senders());
    table.post_first(at, len, context, senders, pattern, comm).map(Requests::handle)
}

/// Posts a receive.
pub(crate) fn post(engine: &mut Engine, data: Data, pattern: Pattern, comm: Comm) -> Result<Request> {
    let (table, outbox) = matcher_and_outbox(engine);
    let recv = recv_of(table.comm(comm)?, data);
    let index = table.post(recv, pattern, comm, outbox);
    settle(engine);
    Ok(Requests::handle(index))
}

#[inline]
fn recv_of(comm: &Communicator, data: Data) -> Recv {
    let (context, senders) = (comm.context, comm.senders());
    Recv { data, context, entry: None, senders, src: Rank(0), tag: 0, total: 0, arrived: 0 }
}

/// Receives the message of a matched probe.
pub fn mrecv(buf: Addr, count: i64, datatype: Datatype, message: &mut Message) -> Result<Status> {
    let request = imrecv(buf, count, datatype, message)?;
    let process = world::process()?;
    request::wait_blocking(process, process.lock(), request)
}

pub fn imrecv(buf: Addr, count: i64, datatype: Datatype, message: &mut Message) -> Result<Request> {
    let process = world::process()?;
    let data = Data::new(buf, count, datatype)?;
    let mut guard = process.lock();
    let (table, outbox) = matcher_and_outbox(&mut guard.engine);
    if *message == Message::NO_PROC {
        let index = table.requests.add(Work::None, Comm::WORLD);
        table.requests.complete(index, Status::NOBODY, None);
        *message = Message::NULL;
        return Ok(Requests::handle(index));
    }
    let probed = table
        .take_message(*message)
        .ok_or_else(|| Error::new(Class::REQUEST, format!("{:#010x} is no message of a matched probe", message.0)))?;
    let found = table.comm(probed.comm)?;
    let (context, senders) = (found.context, found.senders());
    let recv = Recv { data, context, entry: None, senders, src: probed.src, tag: 0, total: 0, arrived: 0 };
    let index = table.requests.add(Work::Recv(recv), probed.comm);
    table.hand_over(index, probed.src, probed.tag, probed.kept, outbox);
    settle(&mut guard.engine);
    *message = Message::NULL;
    Ok(Requests::handle(index))
}
