//! Persistent requests: what is to be done is kept, and every start does it again in the request's own place.
//! Source: MPI-5.0, 3.9 and 6.13.

use crate::collective::{self, Program};
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, Datatype, Request};
use crate::matcher::{Phase, Requests, Work, matcher};
use crate::memory::Addr;
use crate::p2p::{self, Mode};
use crate::world;
use std::sync::Arc;

/// What a persistent request does at every start.
pub(crate) enum Plan {
    Send { buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm, mode: Mode },
    Recv { buf: Addr, count: i64, datatype: Datatype, source: i32, tag: i32, comm: Comm },
    Collective(Arc<Program>),
}

/// Keeps a plan as an inactive request.
pub(crate) fn keep(plan: Plan, comm: Comm) -> Result<Request> {
    let process = world::process()?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    table.comm(comm)?;
    let index = table.requests.add(Work::None, comm);
    let place = table.requests.place(index);
    place.phase = Phase::Inactive;
    place.persistent = Some(Arc::new(plan));
    Ok(Requests::handle(index))
}

macro_rules! send_inits {
    ($($name:ident $mode:ident;)*) => {$(
        /// A persistent send.
        pub fn $name(buf: Addr, count: i64, datatype: Datatype, dest: i32, tag: i32, comm: Comm) -> Result<Request> {
            p2p::check_send(buf, count, datatype, dest, tag, comm)?;
            keep(Plan::Send { buf, count, datatype, dest, tag, comm, mode: Mode::$mode }, comm)
        }
    )*};
}

send_inits! {
    send_init Standard;
    rsend_init Standard;
    ssend_init Synchronous;
    bsend_init Buffered;
}

/// A persistent receive.
pub fn recv_init(buf: Addr, count: i64, datatype: Datatype, source: i32, tag: i32, comm: Comm) -> Result<Request> {
    p2p::check_recv(buf, count, datatype, source, tag, comm)?;
    keep(Plan::Recv { buf, count, datatype, source, tag, comm }, comm)
}

/// Starts a persistent request.
pub fn start(request: &mut Request) -> Result<()> {
    let process = world::process()?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    let index = table.requests.index(*request).ok_or_else(|| not_persistent(*request))?;
    let place = table.requests.place(index);
    let Some(plan) = place.persistent.clone() else { return Err(not_persistent(*request)) };
    if place.phase != Phase::Inactive {
        return Err(Error::new(Class::REQUEST, "the persistent request is started already: complete it first"));
    }
    let comm = place.comm;
    if let Plan::Send { buf, count, datatype, dest, tag, comm, mode: Mode::Buffered } = *plan {
        drop(guard);
        p2p::ibsend(buf, count, datatype, dest, tag, comm)?;
        let mut guard = process.lock();
        matcher(&mut guard.engine).requests.set_done(index);
        return Ok(());
    }
    table.requests.use_next(index);
    let begun = match &*plan {
        Plan::Send { buf, count, datatype, dest, tag, comm, mode } => {
            p2p::begin_locked(process, &mut guard, *buf, *count, *datatype, *dest, *tag, *comm, *mode)
        }
        Plan::Recv { buf, count, datatype, source, tag, comm } => {
            p2p::irecv_locked(&mut guard.engine, *buf, *count, *datatype, *source, *tag, *comm)
        }
        Plan::Collective(program) => {
            let schedule = collective::begin(&mut guard.engine, Arc::clone(program), comm)?;
            drop(guard);
            collective::launch(process, schedule);
            return Ok(());
        }
    };
    let table = matcher(&mut guard.engine);
    table.requests.end_use(index);
    begun.map(|_| ())
}

pub fn startall(requests: &mut [Request]) -> Result<()> {
    requests.iter_mut().try_for_each(start)
}

#[cold]
fn not_persistent(request: Request) -> Error {
    Error::new(Class::REQUEST, format!("{:#010x} is no persistent request", request.0))
}
