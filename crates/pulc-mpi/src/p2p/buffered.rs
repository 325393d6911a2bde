//! Buffered sends: complete at once, because the message is copied. The program says how much may be copied by lending a buffer; the
//! copies are this library's own, and the buffer's size is the limit that they are counted against.
//! Source: MPI-5.0, 3.6.

use super::{Mode, begin};
use crate::consts::BSEND_OVERHEAD;
use crate::data::Data;
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, Datatype, Request};
use crate::matcher::{Matcher, Requests, matcher};
use crate::memory::Addr;
use crate::{request, world};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The buffer that the program has lent, and what is counted against it.
struct Lent {
    start: Addr,
    bytes: i64,
    under_way: Vec<(Request, i64)>,
}

static LENT: Mutex<Option<Lent>> = Mutex::new(None);

fn lent() -> MutexGuard<'static, Option<Lent>> {
    LENT.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn buffer_attach(start: Addr, bytes: i64) -> Result<()> {
    world::process()?;
    if bytes < 0 {
        return Err(Error::new(Class::ARG, format!("a buffer of {bytes} bytes")));
    }
    let mut lent = lent();
    if lent.is_some() {
        return Err(Error::new(Class::BUFFER, "a buffer is attached already: detach it first"));
    }
    *lent = Some(Lent { start, bytes, under_way: Vec::new() });
    Ok(())
}

/// Waits until all buffered messages have left, and gives the buffer back.
pub fn buffer_detach() -> Result<(Addr, i64)> {
    buffer_flush()?;
    let taken = lent().take();
    taken.map(|lent| (lent.start, lent.bytes)).ok_or_else(|| Error::new(Class::BUFFER, "no buffer is attached"))
}

/// Waits until all buffered messages have left.
pub fn buffer_flush() -> Result<()> {
    let process = world::process()?;
    let requests: Vec<Request> = match &mut *lent() {
        Some(lent) => lent.under_way.drain(..).map(|(request, _)| request).collect(),
        None => Vec::new(),
    };
    for request in requests {
        request::wait_blocking(process, process.lock(), request)?;
    }
    Ok(())
}

pub fn bsend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<()> {
    ibsend(buf, count, datatype, dest, tag, comm).map(|_| ())
}

/// Begins a buffered send, which is complete as soon as it has begun.
pub fn ibsend(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<Request> {
    let bytes = Data::new(buf, count, datatype)?.len() as i64 + BSEND_OVERHEAD as i64;
    make_room(bytes)?;
    let request = begin(buf, count, datatype, dest, tag, comm, Mode::Buffered)?;
    if request != Request::SENT
        && let Some(lent) = &mut *lent()
    {
        lent.under_way.push((request, bytes));
    }
    Ok(Request::SENT)
}

/// Counts a message against the lent buffer; those that have left count no longer.
fn make_room(bytes: i64) -> Result<()> {
    let process = world::process()?;
    let mut lent = lent();
    let Some(lent) = &mut *lent else {
        return Err(Error::new(Class::BUFFER, "no buffer is attached: call MPI_Buffer_attach first"));
    };
    let mut guard = process.lock();
    process.poll(&mut guard, &mut pulc_handler::Hand::empty());
    let table = matcher(&mut guard.engine);
    lent.under_way.retain(|(request, _)| !has_left(table, *request));
    let used: i64 = lent.under_way.iter().map(|(_, bytes)| bytes).sum();
    if used + bytes > lent.bytes {
        let text = format!("{bytes} bytes do not fit the attached buffer: {used} of {} are in use", lent.bytes);
        return Err(Error::new(Class::BUFFER, text));
    }
    Ok(())
}

/// Whether a buffered message has left; then its request is gone.
fn has_left(table: &mut Matcher, request: Request) -> bool {
    match table.requests.index(request) {
        Some(index) if table.requests.is_active(index) => false,
        Some(index) => {
            debug_assert_eq!(Requests::handle(index), request);
            table.take(index);
            true
        }
        None => true,
    }
}
