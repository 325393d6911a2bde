//! Requests: waiting for operations, testing and freeing them. The state of each is in the receive handler's slab; here is what
//! threads do about it. Nothing is locked while a function of the program runs.
//! Source: MPI-5.0, 3.7.

mod arrays;
mod awaited;
mod generalized;
mod persistent;
mod single;
mod sweep;

pub use arrays::*;
pub use awaited::Pending;
pub use generalized::*;
pub use persistent::*;
pub use single::*;

use crate::callback::GeneralizedRequest;
use crate::collective;
use crate::error::{Class, Error, Result};
use crate::handle::Request;
use crate::matcher::{Matcher, Phase, matcher};
use crate::stats;
use crate::status::Status;
use crate::watch::{self, For};
use pulc_handler::{Engine, Guard, Hand, Process, Waited, Watch};
use std::sync::Arc;

/// What is left of a request that is complete.
pub(crate) struct Taken {
    pub status: Status,
    pub error: Option<Error>,
    pub generalized: Option<Arc<dyn GeneralizedRequest>>,
}

impl Taken {
    const EMPTY: Taken = Taken { status: Status::EMPTY, error: None, generalized: None };

    /// The result, after the program's own functions have been asked. Not to be called with the engine locked.
    pub fn settle(self) -> (Status, Option<Error>) {
        let Some(generalized) = self.generalized else { return (self.status, self.error) };
        let mut status = self.status;
        let query = generalized.query(&mut status);
        let free = generalized.free();
        let code = if query != 0 { query } else { free };
        let error = (code != 0).then(|| Error::new(Class(code), "a function of a generalized request failed"));
        (status, error)
    }

    pub fn into_result(self) -> Result<Status> {
        match self.settle() {
            (status, None) => Ok(status),
            (_, Some(error)) => Err(error),
        }
    }
}

impl Matcher {
    /// Takes the result of a request that is complete; a persistent one is inactive then, any other is gone.
    pub fn take(&mut self, index: u32) -> Taken {
        let place = self.requests.place(index);
        let comm = place.comm;
        let mut taken = if place.persistent.is_some() {
            place.phase = Phase::Inactive;
            Taken { status: place.status, error: place.error.take(), generalized: None }
        } else {
            let (status, error, generalized) = self.requests.remove_done(index);
            Taken { status, error, generalized }
        };
        if let Some(error) = &mut taken.error {
            error.on = Some(comm);
        }
        taken
    }

    /// What a request of the program is at the moment.
    pub fn look_up(&mut self, request: Request) -> Result<Known> {
        if request == Request::NULL {
            return Ok(Known::Nothing);
        }
        if request == Request::SENT {
            return Ok(Known::Sent);
        }
        let index = self.requests.index(request).ok_or_else(|| bad_request(request))?;
        Ok(match self.requests.place(index).phase {
            Phase::Active => Known::Active(index),
            Phase::Done => Known::Done(index),
            Phase::Inactive | Phase::Free => Known::Nothing,
        })
    }
}

/// What a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Null, or persistent and not started.
    Nothing,
    /// A send that was complete from the beginning.
    Sent,
    Active(u32),
    Done(u32),
}

#[cold]
fn bad_request(request: Request) -> Error {
    Error::new(Class::REQUEST, format!("{:#010x} is no request: was it freed?", request.0))
}

/// Waits until `ready` has a result; `what` that is, for whoever asks meanwhile. Schedules of nonblocking collectives go on meanwhile.
#[inline]
pub(crate) fn wait_until<R>(
    process: &'static Process,
    mut guard: Guard<'static>,
    what: For<'_>,
    mut ready: impl FnMut(&mut Matcher) -> Option<R>,
) -> (R, Guard<'static>) {
    let (began, call) = (stats::start(), watch::call());
    let mut why = |engine: &mut Engine| watch::notice(engine, call, what);
    loop {
        if collective::any_active() {
            drop(guard);
            collective::drive(process);
            guard = process.lock();
        }
        let (waited, locked) =
            process.wait_telling(guard, &mut Hand::empty(), None, Watch::News, &mut why, |engine, _| {
                let table = matcher(engine);
                match ready(table) {
                    Some(result) => Some(Some(result)),
                    // Without a schedule under way nobody would take the news, and this wait would neither yield nor sleep.
                    None if table.requests.schedule_news && collective::any_active() => Some(None),
                    None => None,
                }
            });
        guard = locked;
        if let Waited::Ready(Some(result)) = waited {
            stats::end(began);
            return (result, guard);
        }
    }
}

/// Makes progress once, with schedules.
pub(crate) fn drive(process: &'static Process) {
    if collective::any_active() {
        collective::drive(process);
    }
}

/// Waits for one request and takes its result.
#[inline]
pub(crate) fn wait_blocking(process: &'static Process, mut guard: Guard<'static>, request: Request) -> Result<Status> {
    let index = match matcher(&mut guard.engine).look_up(request)? {
        Known::Nothing | Known::Sent => return Ok(Status::EMPTY),
        Known::Done(index) => index,
        Known::Active(index) if sweep::one_shortly(process, &mut guard, index) => index,
        Known::Active(index) => {
            let ((), locked) = wait_until(process, guard, For::Places(&[index]), |table| {
                (!table.requests.is_active(index)).then_some(())
            });
            guard = locked;
            index
        }
    };
    let taken = matcher(&mut guard.engine).take(index);
    drop(guard);
    taken.into_result()
}

/// Gives a receive up that nobody will wait for: what has matched it still lands.
pub(crate) fn abandon(process: &'static Process, request: Request) {
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    let Ok(Known::Active(index) | Known::Done(index)) = table.look_up(request) else { return };
    if table.unpost(index) || !table.requests.is_active(index) {
        table.requests.remove(index);
    } else {
        table.requests.place(index).released = true;
    }
}

/// Waits until every send has left, for the end of MPI.
pub(crate) fn wait_for_sends(process: &'static Process) -> Result<()> {
    let guard = process.lock();
    let ((), _guard) = wait_until(process, guard, For::Sends, |table| table.pending.is_empty().then_some(()));
    Ok(())
}

/// Waits until something is so.
pub(crate) fn keep_going(process: &'static Process, what: For<'_>, mut so: impl FnMut(&mut Matcher) -> bool) {
    let guard = process.lock();
    let ((), _guard) = wait_until(process, guard, what, |table| so(table).then_some(()));
}

/// A request that is complete.
pub(crate) fn set_done() -> Result<Request> {
    crate::world::process()?;
    Ok(Request::SENT)
}
