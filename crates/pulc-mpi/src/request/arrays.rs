//! Waiting for and testing several requests at once.

use super::{Known, Taken, sweep, wait_until};
use crate::collective;
use crate::consts::UNDEFINED;
use crate::error::{Class, Error, Result};
use crate::handle::Request;
use crate::matcher::{Matcher, matcher};
use crate::status::Status;
use crate::watch::For;
use crate::world;
use pulc_handler::{Guard, Hand, Process};

/// Told of every completed request: its place in the array and its status.
pub type Each<'a> = &'a mut dyn FnMut(usize, &Status);

/// Waits for all.
pub fn waitall(requests: &mut [Request], each: Each<'_>) -> Result<()> {
    let process = world::process()?;
    let mut guard = process.lock();
    let under_way = check(matcher(&mut guard.engine), requests)?;
    // With nothing to wait for it still makes progress for others.
    let swept = if under_way == 0 { 0 } else { sweep::all_shortly(process, &mut guard, requests, each) };
    let rest = &mut requests[swept..];
    if rest.is_empty() && under_way > 0 {
        return Ok(());
    }
    let mut at = 0;
    let waited: &[Request] = rest;
    ((), guard) = wait_until(process, guard, For::All(waited), |table| {
        while let Some(request) = waited.get(at) {
            if is_active(table, *request) {
                return None;
            }
            at += 1;
        }
        Some(())
    });
    take_all(guard, rest, swept, each)
}

/// Whether all are complete; then as [`waitall`].
pub fn testall(requests: &mut [Request], each: Each<'_>) -> Result<bool> {
    let process = world::process()?;
    for round in 0..2 {
        let mut guard = process.lock();
        let table = matcher(&mut guard.engine);
        check(table, requests)?;
        if !requests.iter().any(|request| is_active(table, *request)) {
            return take_all(guard, requests, 0, each).map(|()| true);
        }
        if round == 0 {
            progress(process, guard);
        }
    }
    Ok(false)
}

/// Waits for one of them: its place, or `UNDEFINED` when there is none to wait for.
pub fn waitany(requests: &mut [Request]) -> Result<(i32, Status)> {
    let process = world::process()?;
    let mut guard = process.lock();
    check(matcher(&mut guard.engine), requests)?;
    let (found, guard) = wait_until(process, guard, For::Any(requests), |table| first_done(table, requests));
    take_one(guard, requests, found)
}

/// As [`waitany`] without waiting: `None` when nothing is complete.
pub fn testany(requests: &mut [Request]) -> Result<Option<(i32, Status)>> {
    let process = world::process()?;
    for round in 0..2 {
        let mut guard = process.lock();
        let table = matcher(&mut guard.engine);
        check(table, requests)?;
        if let Some(found) = first_done(table, requests) {
            return take_one(guard, requests, found).map(Some);
        }
        if round == 0 {
            progress(process, guard);
        }
    }
    Ok(None)
}

/// Waits for at least one. `each` is told: count so far, place, status. How many, or `UNDEFINED`.
pub fn waitsome(requests: &mut [Request], each: &mut dyn FnMut(usize, usize, &Status)) -> Result<i32> {
    let process = world::process()?;
    let mut guard = process.lock();
    check(matcher(&mut guard.engine), requests)?;
    let (found, guard) = wait_until(process, guard, For::Any(requests), |table| first_done(table, requests));
    match found {
        None => Ok(UNDEFINED),
        Some(_) => take_some(guard, requests, each),
    }
}

/// As [`waitsome`] without waiting.
pub fn testsome(requests: &mut [Request], each: &mut dyn FnMut(usize, usize, &Status)) -> Result<i32> {
    let process = world::process()?;
    for round in 0..2 {
        let mut guard = process.lock();
        let table = matcher(&mut guard.engine);
        check(table, requests)?;
        match first_done(table, requests) {
            Some(None) => return Ok(UNDEFINED),
            Some(Some(_)) => return take_some(guard, requests, each),
            None if round == 0 => progress(process, guard),
            None => {}
        }
    }
    Ok(0)
}

/// How many are under way.
fn check(table: &mut Matcher, requests: &[Request]) -> Result<usize> {
    let mut under_way = 0;
    for request in requests {
        if table.requests.is_under_way(*request) {
            under_way += 1;
        } else if *request != Request::SENT {
            table.look_up(*request)?;
        }
    }
    Ok(under_way)
}

fn is_active(table: &mut Matcher, request: Request) -> bool {
    table.requests.is_under_way(request)
}

/// `Some(None)`: none of them is active or complete. `None`: none is complete.
fn first_done(table: &mut Matcher, requests: &[Request]) -> Option<Option<usize>> {
    let mut any_active = false;
    for (at, request) in requests.iter().enumerate() {
        match table.look_up(*request) {
            Ok(Known::Sent | Known::Done(_)) => return Some(Some(at)),
            Ok(Known::Active(_)) => any_active = true,
            Ok(Known::Nothing) | Err(_) => {}
        }
    }
    if any_active { None } else { Some(None) }
}

fn progress(process: &'static Process, mut guard: Guard<'_>) {
    process.poll(&mut guard, &mut Hand::empty());
    drop(guard);
    if collective::any_active() {
        collective::drive(process);
    }
}

/// As [`take`] of what most requests are: sends that were complete when they began, and what has ended well and for good. Whether it is
/// one of these; then it has been told.
#[inline]
fn take_plain(table: &mut Matcher, request: &mut Request, tell: impl FnOnce(&Status)) -> bool {
    let is_plain = if *request == Request::SENT {
        tell(&Status::EMPTY);
        true
    } else {
        table.requests.take_plain(*request, tell)
    };
    if is_plain {
        *request = Request::NULL;
    }
    is_plain
}

/// The same of all that functions of the program and faults have no part in.
#[inline]
pub(super) fn take_simple(table: &mut Matcher, request: &mut Request, mut tell: impl FnMut(&Status)) -> bool {
    if take_plain(table, request, &mut tell) {
        return true;
    }
    match table.look_up(*request) {
        Ok(Known::Nothing) => tell(&Status::EMPTY),
        Ok(Known::Done(index)) if !table.requests.place(index).is_faulty_or_generalized() => {
            tell(&take(table, request).unwrap_or(Taken::EMPTY).status);
        }
        _ => return false,
    }
    true
}

/// Takes the result of a request that is not active; the handle is null afterwards unless it is persistent. `None`: there was
/// nothing to complete.
fn take(table: &mut Matcher, request: &mut Request) -> Option<Taken> {
    match table.look_up(*request) {
        Ok(Known::Done(index)) => {
            if table.requests.place(index).persistent.is_none() {
                *request = Request::NULL;
            }
            Some(table.take(index))
        }
        Ok(Known::Sent) => {
            *request = Request::NULL;
            Some(Taken::EMPTY)
        }
        _ => None,
    }
}

fn take_one(mut guard: Guard<'_>, requests: &mut [Request], found: Option<usize>) -> Result<(i32, Status)> {
    let Some(at) = found else { return Ok((UNDEFINED, Status::EMPTY)) };
    let taken = take(matcher(&mut guard.engine), &mut requests[at]).unwrap_or(Taken::EMPTY);
    drop(guard);
    taken.into_result().map(|status| (at as i32, status))
}

/// Takes the results of the last requests of an array, which begin at its place `first`.
fn take_all(mut guard: Guard<'_>, requests: &mut [Request], first: usize, each: Each<'_>) -> Result<()> {
    let mut failed = None;
    // Results that need the program's own functions come after the lock is free.
    let mut later = Vec::new();
    let table = matcher(&mut guard.engine);
    for (at, request) in (first..).zip(requests.iter_mut()) {
        if take_plain(table, request, |status| each(at, status)) {
            continue;
        }
        match take(table, request) {
            None => each(at, &Status::EMPTY),
            Some(taken) if taken.generalized.is_some() => later.push((at, taken)),
            Some(taken) => tell(at, taken, each, &mut failed),
        }
    }
    drop(guard);
    for (at, taken) in later {
        tell(at, taken, each, &mut failed);
    }
    failed.map_or(Ok(()), Err)
}

fn take_some(
    mut guard: Guard<'_>,
    requests: &mut [Request],
    each: &mut dyn FnMut(usize, usize, &Status),
) -> Result<i32> {
    let table = matcher(&mut guard.engine);
    let mut all = Vec::new();
    for (at, request) in requests.iter_mut().enumerate() {
        if !is_active(table, *request)
            && let Some(taken) = take(table, request)
        {
            all.push((at, taken));
        }
    }
    drop(guard);
    let mut failed = None;
    let count = all.len() as i32;
    for (slot, (at, taken)) in all.into_iter().enumerate() {
        tell(at, taken, &mut |at, status| each(slot, at, status), &mut failed);
    }
    failed.map_or(Ok(count), Err)
}

/// Passes one result on; a failure is in its status, and the call as a whole says that there is one.
fn tell(at: usize, taken: Taken, each: Each<'_>, failed: &mut Option<Error>) {
    let (mut status, error) = taken.settle();
    if let Some(error) = error {
        status.error = error.class.0;
        failed.get_or_insert_with(|| {
            let text = format!("request {at}: {}", error.text);
            Error { on: error.on, ..Error::new(Class::IN_STATUS, text) }
        });
    }
    each(at, &status);
}
