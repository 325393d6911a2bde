//! Buffered sends: complete at once, because the message is copied. The program says how much may be copied by lending a buffer, to the
//! process, a communicator or a session; the copies are this library's own, and the buffer's size is the limit that they are
//! counted against.
//! Source: MPI-5.0, 3.6.

use super::{Mode, begin};
use crate::consts::BSEND_OVERHEAD;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, Datatype, Request, Session};
use crate::matcher::{Matcher, matcher};
use crate::memory::Addr;
use crate::{comm, request, session, world};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whose messages use a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Process,
    Comm(Comm),
    Session(Session),
}

/// A buffer that the program has lent, and what is counted against it.
struct Lent {
    owner: Owner,
    start: Addr,
    bytes: i64,
    under_way: Vec<(Request, i64)>,
}

static LENT: Mutex<Vec<Lent>> = Mutex::new(Vec::new());

fn lent() -> MutexGuard<'static, Vec<Lent>> {
    LENT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attach(owner: Owner, start: Addr, bytes: i64) -> Result<()> {
    world::process()?;
    if bytes < 0 && start != Addr::AUTOMATIC {
        return Err(Error::new(Class::ARG, format!("a buffer of {bytes} bytes")));
    }
    let mut all = lent();
    if all.iter().any(|lent| lent.owner == owner) {
        return Err(Error::new(Class::BUFFER, "a buffer is attached already: detach it first"));
    }
    all.push(Lent { owner, start, bytes, under_way: Vec::new() });
    Ok(())
}

/// Waits until all messages of the buffer have left, and gives it back.
fn detach(owner: Owner) -> Result<(Addr, i64)> {
    flush(owner)?;
    let mut all = lent();
    let at = all.iter().position(|lent| lent.owner == owner);
    let at = at.ok_or_else(|| Error::new(Class::BUFFER, "no buffer is attached"))?;
    let taken = all.swap_remove(at);
    Ok((taken.start, if taken.start == Addr::AUTOMATIC { 0 } else { taken.bytes }))
}

fn flush(owner: Owner) -> Result<()> {
    let process = world::process()?;
    let requests: Vec<Request> = match lent().iter_mut().find(|lent| lent.owner == owner) {
        Some(lent) => lent.under_way.drain(..).map(|(request, _)| request).collect(),
        None => Vec::new(),
    };
    for request in requests {
        request::wait_blocking(process, process.lock(), request)?;
    }
    Ok(())
}

pub fn buffer_attach(start: Addr, bytes: i64) -> Result<()> {
    attach(Owner::Process, start, bytes)
}

pub fn buffer_detach() -> Result<(Addr, i64)> {
    detach(Owner::Process)
}

/// Waits until all buffered messages have left.
pub fn buffer_flush() -> Result<()> {
    flush(Owner::Process)
}

/// As [`buffer_flush`]; they have left when the call returns, and the request is complete.
pub fn buffer_iflush() -> Result<Request> {
    flush(Owner::Process).map(|()| Request::SENT)
}

pub fn comm_attach_buffer(on: Comm, start: Addr, bytes: i64) -> Result<()> {
    comm::find(on)?;
    attach(Owner::Comm(on), start, bytes)
}

pub fn comm_detach_buffer(on: Comm) -> Result<(Addr, i64)> {
    comm::find(on)?;
    detach(Owner::Comm(on))
}

pub fn comm_flush_buffer(on: Comm) -> Result<()> {
    comm::find(on)?;
    flush(Owner::Comm(on))
}

pub fn comm_iflush_buffer(on: Comm) -> Result<Request> {
    comm_flush_buffer(on).map(|()| Request::SENT)
}

pub fn session_attach_buffer(on: Session, start: Addr, bytes: i64) -> Result<()> {
    session::find(on)?;
    attach(Owner::Session(on), start, bytes)
}

pub fn session_detach_buffer(on: Session) -> Result<(Addr, i64)> {
    session::find(on)?;
    detach(Owner::Session(on))
}

pub fn session_flush_buffer(on: Session) -> Result<()> {
    session::find(on)?;
    flush(Owner::Session(on))
}

pub fn session_iflush_buffer(on: Session) -> Result<Request> {
    session_flush_buffer(on).map(|()| Request::SENT)
}

pub fn bsend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<()> {
    ibsend(buf, count, datatype, dest, tag, comm).map(|_| ())
}

/// Begins a buffered send, which is complete as soon as it has begun.
pub fn ibsend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<Request> {
    let bytes = Data::new(buf, count, datatype)?.len() as i64 + BSEND_OVERHEAD as i64;
    let owner = make_room(comm, bytes)?;
    let request = begin(buf, count, datatype, dest, tag, comm, Mode::Buffered)?;
    if request != Request::SENT
        && let Some(lent) = lent().iter_mut().find(|lent| lent.owner == owner)
    {
        lent.under_way.push((request, bytes));
    }
    Ok(Request::SENT)
}

/// Counts a message against the communicator's buffer, or against that of the process; those that have left count no longer.
fn make_room(comm: Comm, bytes: i64) -> Result<Owner> {
    let process = world::process()?;
    let mut all = lent();
    let own = all.iter().position(|lent| lent.owner == Owner::Comm(comm));
    let at = own.or_else(|| all.iter().position(|lent| lent.owner == Owner::Process));
    let Some(lent) = at.map(|at| &mut all[at]) else {
        return Err(Error::new(Class::BUFFER, "no buffer is attached: call MPI_Buffer_attach first"));
    };
    let mut guard = process.lock();
    process.poll(&mut guard, &mut pulc_handler::Hand::empty());
    let table = matcher(&mut guard.engine);
    lent.under_way.retain(|(request, _)| !has_left(table, *request));
    let used: i64 = lent.under_way.iter().map(|(_, bytes)| bytes).sum();
    if lent.start != Addr::AUTOMATIC && used + bytes > lent.bytes {
        let text = format!("{bytes} bytes do not fit the attached buffer: {used} of {} are in use", lent.bytes);
        return Err(Error::new(Class::BUFFER, text));
    }
    Ok(lent.owner)
}

/// Whether a buffered message has left; then its request is gone.
fn has_left(table: &mut Matcher, request: Request) -> bool {
    match table.requests.index(request) {
        Some(index) if table.requests.is_active(index) => false,
        Some(index) => {
            table.take(index);
            true
        }
        None => true,
    }
}
