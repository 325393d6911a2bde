//! Sends: at once if there is room and nothing earlier waits, otherwise as a request that the engine's progress goes on with.
//! Source: MPI-5.0, 3.2 to 3.7.

use crate::comm::bad_tag;
use crate::data::Data;
use crate::envelope::Envelope;
use crate::error::Result;
use crate::handle::{Comm, Datatype, Request};
use crate::matcher::{Bytes, Out, matcher, of_send_fault, push_pending};
use crate::memory::Addr;
use crate::{request, trace, world};
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, Guard, Process};

/// How a send ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// When its bytes may be used again.
    Standard,
    /// When its receive has begun.
    Synchronous,
    /// At once: the bytes are the library's.
    Buffered,
}

/// Sends and waits until the buffer may be used again.
#[inline]
pub fn send(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<()> {
    let process = world::process()?;
    let mut guard = process.lock();
    let engine = &mut guard.engine;
    engine.prepare_answer();
    if quickly(engine, buf, count, datatype, dest, tag, comm) {
        return Ok(());
    }
    let data = Data::new(buf, count, datatype)?;
    let Some(Address { dst, envelope, may_pass }) = address(engine, dest, tag, comm, data.len())? else {
        return Ok(());
    };
    if may_pass && try_at_once(process, engine, dst, envelope, &data)? {
        return Ok(());
    }
    finish(process, guard, dst, envelope, data, Mode::Standard, comm)
}

/// A send whose receive is known to be posted: there is nothing to gain from it here.
pub fn rsend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<()> {
    send(buf, count, datatype, dest, tag, comm)
}

/// Sends and waits until the receive has begun.
pub fn ssend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<()> {
    let process = world::process()?;
    let data = Data::new(buf, count, datatype)?;
    let mut guard = process.lock();
    let Some(Address { dst, envelope, .. }) = address(&mut guard.engine, dest, tag, comm, data.len())? else {
        return Ok(());
    };
    finish(process, guard, dst, envelope, data, Mode::Synchronous, comm)
}

#[inline]
pub fn isend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<Request> {
    begin(buf, count, datatype, dest, tag, comm, Mode::Standard)
}

pub fn irsend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<Request> {
    isend(buf, count, datatype, dest, tag, comm)
}

pub fn issend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<Request> {
    begin(buf, count, datatype, dest, tag, comm, Mode::Synchronous)
}

/// Begins a send.
#[inline]
pub(crate) fn begin(
    buf: Addr,
    count: i64,
    datatype: Datatype,
    dest: i32,
    tag: i32,
    comm: Comm,
    mode: Mode,
) -> Result<Request> {
    let process = world::process()?;
    begin_locked(process, &mut process.lock(), buf, count, datatype, dest, tag, comm, mode)
}

/// The same with the engine locked.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the standard's, and two more")]
pub(crate) fn begin_locked(
    process: &'static Process,
    guard: &mut Guard<'_>,
    buf: Addr,
    count: i64,
    datatype: Datatype,
    dest: i32,
    tag: i32,
    comm: Comm,
    mode: Mode,
) -> Result<Request> {
    let engine = &mut guard.engine;
    if mode == Mode::Standard && quickly(engine, buf, count, datatype, dest, tag, comm) {
        return Ok(Request::SENT);
    }
    let data = Data::new(buf, count, datatype)?;
    let Some(Address { dst, envelope, may_pass }) = address(engine, dest, tag, comm, data.len())? else {
        return Ok(Request::SENT);
    };
    if may_pass && mode == Mode::Standard && try_at_once(process, engine, dst, envelope, &data)? {
        return Ok(Request::SENT);
    }
    put_out(process, guard, dst, envelope, data, mode, comm)
}

/// Whether a send with these arguments could begin.
pub(crate) fn check_send(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<()> {
    let process = world::process()?;
    let data = Data::new(buf, count, datatype)?;
    address(&mut process.lock().engine, dest, tag, comm, data.len()).map(|_| ())
}

/// Begins a send whose address is known: a message of a collective.
pub(crate) fn begin_to(
    process: &'static Process,
    guard: &mut Guard<'_>,
    dst: Rank,
    envelope: Envelope,
    data: Data,
    mode: Mode,
    comm: Comm,
) -> Result<Request> {
    if matcher(&mut guard.engine).may_pass() && try_at_once(process, &mut guard.engine, dst, envelope, &data)? {
        return Ok(Request::SENT);
    }
    put_out(process, guard, dst, envelope, data, mode, comm)
}

struct Address {
    dst: Rank,
    envelope: Envelope,
    /// No earlier message waits that it might overtake.
    may_pass: bool,
}

/// Where a message goes and what it says in front; `None`: nowhere.
#[inline(always)]
fn address(engine: &mut Engine, dest: i32, tag: i32, comm: Comm, bytes: usize) -> Result<Option<Address>> {
    let table = matcher(engine);
    let may_pass = table.may_pass();
    let comm = table.comm(comm)?;
    if tag < 0 {
        return Err(bad_tag(tag));
    }
    let envelope = Envelope { context: comm.context, tag };
    trace::message(dest, tag, bytes as u64);
    Ok(comm.destination(dest)?.map(|dst| Address { dst, envelope, may_pass }))
}

/// The way of the shortest messages: whether it has left in a cell. If anything about it is unusual or wrong, nothing has happened.
#[inline(always)]
fn quickly(engine: &mut Engine, buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> bool {
    let Some((at, len)) = Data::quick(buf, count, datatype) else { return false };
    let table = matcher(engine);
    let Ok(comm) = table.comm(comm) else { return false };
    if len > size_of::<u64>() || tag < 0 || !table.may_pass() {
        return false;
    }
    let (envelope, world) = (Envelope { context: comm.context, tag }, comm.peers().world(dest));
    let Some(dst) = world.map(Rank) else { return false };
    let is_sent = engine.try_counted_word(dst, Proto::MPI, envelope.word(), at.bytes(len));
    if is_sent {
        trace::message(dest, tag, len as u64);
    }
    is_sent
}

/// The way of most messages: one frame, now.
#[inline(always)]
fn try_at_once(process: &Process, engine: &mut Engine, dst: Rank, envelope: Envelope, data: &Data) -> Result<bool> {
    let Some(body) = data.as_flat() else { return Ok(false) };
    if engine.try_counted_word(dst, Proto::MPI, envelope.word(), body) {
        return Ok(true);
    }
    if dst == process.rank() {
        return Ok(false);
    }
    match engine.try_counted(dst, Proto::MPI, &envelope.encode(), body) {
        Ok(sent) => Ok(sent),
        Err(fault) => Err(of_send_fault(engine, fault)),
    }
}

/// The way of all others: a request.
#[inline(never)]
pub(crate) fn put_out(
    process: &'static Process,
    guard: &mut Guard<'_>,
    dst: Rank,
    envelope: Envelope,
    data: Data,
    mode: Mode,
    comm: Comm,
) -> Result<Request> {
    let bytes = match data {
        Data::Flat { .. } if mode != Mode::Buffered => Bytes::User(data),
        data => Bytes::Own(data.pack()?),
    };
    if dst == process.rank() {
        let keep = match mode {
            Mode::Standard => bytes.as_slice().len() <= guard.engine.limits().eager_max_bytes,
            Mode::Synchronous => false,
            Mode::Buffered => true,
        };
        let request = matcher(&mut guard.engine).send_own(dst, envelope, bytes, keep, comm)?;
        process.announce(guard);
        return Ok(request);
    }
    let synchronous = mode == Mode::Synchronous;
    let out = Out { dst, header: envelope.encode(), bytes, progress: None, synchronous };
    let index = matcher(&mut guard.engine).add_pending(out, comm);
    push_pending(&mut guard.engine);
    Ok(crate::matcher::Requests::handle(index))
}

#[inline(never)]
fn finish(
    process: &'static Process,
    mut guard: Guard<'static>,
    dst: Rank,
    envelope: Envelope,
    data: Data,
    mode: Mode,
    comm: Comm,
) -> Result<()> {
    let request = put_out(process, &mut guard, dst, envelope, data, mode, comm)?;
    request::wait_blocking(process, guard, request).map(|_| ())
}
