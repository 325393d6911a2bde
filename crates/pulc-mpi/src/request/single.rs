//! Waiting for, testing, cancelling and freeing one request.

use super::arrays::Each;
use super::{Known, wait_blocking};
use crate::collective;
use crate::consts::UNDEFINED;
use crate::error::{Class, Error, Result};
use crate::handle::Request;
use crate::matcher::{Matcher, Phase, Work, matcher};
use crate::status::Status;
use crate::world;
use pulc_handler::{Hand, Process};

/// Whether a request of this handle is gone once its result has been taken.
fn is_persistent(table: &mut Matcher, request: Request) -> bool {
    table.requests.index(request).is_some_and(|index| table.requests.place(index).persistent.is_some())
}

/// Waits for one operation.
pub fn wait(request: &mut Request) -> Result<Status> {
    if *request == Request::SENT {
        *request = Request::NULL;
        return Ok(Status::EMPTY);
    }
    let process = world::process()?;
    let mut guard = process.lock();
    let waited = *request;
    if !is_persistent(matcher(&mut guard.engine), waited) {
        *request = Request::NULL;
    }
    wait_blocking(process, guard, waited)
}

/// Whether it is complete; then its status.
pub fn test(request: &mut Request) -> Result<Option<Status>> {
    if *request == Request::SENT {
        *request = Request::NULL;
        return Ok(Some(Status::EMPTY));
    }
    let process = world::process()?;
    let Some(index) = look(process, *request)? else { return Ok(None) };
    let Some(index) = index else { return Ok(Some(Status::EMPTY)) };
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    if !is_persistent(table, *request) {
        *request = Request::NULL;
    }
    let taken = table.take(index);
    drop(guard);
    taken.into_result().map(Some)
}

/// Makes progress for a request. `None`: not complete; `Some(None)`: there is nothing to complete.
fn look(process: &'static Process, request: Request) -> Result<Option<Option<u32>>> {
    for round in 0..2 {
        let mut guard = process.lock();
        match matcher(&mut guard.engine).look_up(request)? {
            Known::Nothing | Known::Sent => return Ok(Some(None)),
            Known::Done(index) => return Ok(Some(Some(index))),
            Known::Active(_) if round == 0 => {
                process.poll(&mut guard, &mut Hand::empty());
                drop(guard);
                if collective::any_active() {
                    collective::drive(process);
                }
            }
            Known::Active(_) => {}
        }
    }
    Ok(None)
}

/// As [`test`], and the request stays as it is.
pub fn request_get_status(request: Request) -> Result<Option<Status>> {
    let process = world::process()?;
    match look(process, request)? {
        None => Ok(None),
        Some(None) => Ok(Some(Status::EMPTY)),
        Some(Some(index)) => {
            let mut guard = process.lock();
            let place = matcher(&mut guard.engine).requests.place(index);
            let (mut status, generalized) = (place.status, place.generalized.clone());
            drop(guard);
            if let Some(generalized) = generalized {
                generalized.query(&mut status);
            }
            Ok(Some(status))
        }
    }
}

/// As [`request_get_status`] of all: whether all are complete, and then each is told.
pub fn request_get_status_all(requests: &[Request], each: Each<'_>) -> Result<bool> {
    let mut statuses = Vec::with_capacity(requests.len());
    for request in requests {
        match request_get_status(*request)? {
            Some(status) => statuses.push(status),
            None => return Ok(false),
        }
    }
    statuses.iter().enumerate().for_each(|(at, status)| each(at, status));
    Ok(true)
}

/// The first that is complete: its place, or `UNDEFINED` when there is none to wait for.
pub fn request_get_status_any(requests: &[Request]) -> Result<Option<(i32, Status)>> {
    let mut any_active = false;
    for (at, request) in requests.iter().enumerate() {
        if is_nothing(*request)? {
            continue;
        }
        match request_get_status(*request)? {
            Some(status) => return Ok(Some((at as i32, status))),
            None => any_active = true,
        }
    }
    Ok(if any_active { None } else { Some((UNDEFINED, Status::EMPTY)) })
}

/// All that are complete. `each` is told: count so far, place, status. How many, or `UNDEFINED`.
pub fn request_get_status_some(requests: &[Request], each: &mut dyn FnMut(usize, usize, &Status)) -> Result<i32> {
    let (mut count, mut any) = (0, false);
    for (at, request) in requests.iter().enumerate() {
        if is_nothing(*request)? {
            continue;
        }
        any = true;
        if let Some(status) = request_get_status(*request)? {
            each(count, at, &status);
            count += 1;
        }
    }
    Ok(if any { count as i32 } else { UNDEFINED })
}

/// Null, or persistent and not started.
fn is_nothing(request: Request) -> Result<bool> {
    let process = world::process()?;
    let mut guard = process.lock();
    Ok(matcher(&mut guard.engine).look_up(request)? == Known::Nothing)
}

fn not_null(request: Request) -> Result<()> {
    if request.is_null() { Err(Error::new(Class::REQUEST, "the request is MPI_REQUEST_NULL")) } else { Ok(()) }
}

/// Lets go of a request; its operation goes on.
pub fn request_free(request: &mut Request) -> Result<()> {
    let process = world::process()?;
    not_null(*request)?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    table.look_up(*request)?;
    let index = table.requests.index(*request);
    *request = Request::NULL;
    let Some(index) = index else { return Ok(()) };
    let place = table.requests.place(index);
    place.persistent = None;
    if place.phase == Phase::Active {
        place.released = true;
        return Ok(());
    }
    let generalized = table.requests.remove(index).generalized;
    drop(guard);
    if let Some(generalized) = generalized {
        generalized.free();
    }
    Ok(())
}

/// Takes an operation back if nothing of it has happened yet; it completes in any case.
pub fn cancel(request: &mut Request) -> Result<()> {
    let process = world::process()?;
    not_null(*request)?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    let index = match table.look_up(*request)? {
        Known::Active(index) | Known::Done(index) => index,
        Known::Nothing | Known::Sent => return Ok(()),
    };
    if let Some(generalized) = table.requests.place(index).generalized.clone() {
        let complete = !table.requests.is_active(index);
        drop(guard);
        return match generalized.cancel(complete) {
            0 => Ok(()),
            code => Err(Error::new(Class(code), "a function of a generalized request failed")),
        };
    }
    let taken_back = match &table.requests.place(index).work {
        Work::Recv(_) => table.unpost(index),
        Work::Send(out) if out.dst == process.rank() => table.unsend_own(index),
        Work::Send(_) => table.unsend(index),
        Work::None | Work::Schedule(_) => false,
    };
    if taken_back {
        table.requests.complete(index, Status { cancelled: true, ..Status::EMPTY }, None);
    }
    Ok(())
}

pub fn test_cancelled(status: &Status) -> Result<bool> {
    Ok(status.cancelled)
}
