//! Probes: what a message says before it is received, and taking one out of the queue for a receive of its own.
//! Source: MPI-5.0, 3.8.

use crate::error::Result;
use crate::handle::{self, Comm, Kind, Message};
use crate::matcher::{Matcher, Probed, matcher};
use crate::status::Status;
use crate::watch::For;
use crate::{request, world};
use pulc_handler::Hand;

/// Waits for a message that a receive with these arguments would take.
pub fn probe(source: i32, tag: i32, comm: Comm) -> Result<Status> {
    wait_for(source, tag, comm, peek).map(|found| found.unwrap_or(Status::NOBODY))
}

/// As [`probe`], without waiting.
pub fn iprobe(source: i32, tag: i32, comm: Comm) -> Result<Option<Status>> {
    look_for(source, tag, comm, peek, Status::NOBODY)
}

/// Waits for a message and takes it for a receive of its own.
pub fn mprobe(source: i32, tag: i32, comm: Comm) -> Result<(Message, Status)> {
    wait_for(source, tag, comm, take).map(|found| found.unwrap_or((Message::NO_PROC, Status::NOBODY)))
}

pub fn improbe(source: i32, tag: i32, comm: Comm) -> Result<Option<(Message, Status)>> {
    look_for(source, tag, comm, take, (Message::NO_PROC, Status::NOBODY))
}

/// What is asked of the queue.
type Look<R> = fn(&mut Matcher, u32, pulc_handler::matching::Pattern, Comm) -> Option<R>;

fn peek(table: &mut Matcher, context: u32, pattern: pulc_handler::matching::Pattern, comm: Comm) -> Option<Status> {
    let status = table.peek(context, pattern)?;
    Some(named(table, status, comm))
}

fn take(
    table: &mut Matcher,
    context: u32,
    pattern: pulc_handler::matching::Pattern,
    comm: Comm,
) -> Option<(Message, Status)> {
    let (place, status) = table.take_probed(context, pattern, comm)?;
    Some((Message(handle::made(Kind::Request, place)), named(table, status, comm)))
}

/// The source as a rank of the communicator.
fn named(table: &Matcher, status: Status, comm: Comm) -> Status {
    let source = table.comm(comm).map_or(status.source, |comm| comm.source_of(pulc_base::Rank(status.source as u32)));
    Status { source, ..status }
}

/// `Ok(None)`: from nobody.
fn wait_for<R>(source: i32, tag: i32, comm: Comm, look: Look<R>) -> Result<Option<R>> {
    let process = world::process()?;
    let mut guard = process.lock();
    let found = matcher(&mut guard.engine).comm(comm)?;
    let context = found.context;
    let Some(pattern) = found.pattern(source, tag)? else { return Ok(None) };
    let (result, _guard) = request::wait_until(process, guard, For::Message(comm, pattern), |table| {
        if let Some(result) = look(table, context, pattern, comm) {
            return Some(Ok(result));
        }
        let src = pulc_base::Rank(pattern.src?);
        table.end_of(src).map(|end| Err(crate::matcher::peer_gone(src, end)))
    });
    result.map(Some)
}

fn look_for<R>(source: i32, tag: i32, comm: Comm, look: Look<R>, nobody: R) -> Result<Option<R>> {
    let process = world::process()?;
    let mut guard = process.lock();
    let found = matcher(&mut guard.engine).comm(comm)?;
    let context = found.context;
    let Some(pattern) = found.pattern(source, tag)? else { return Ok(Some(nobody)) };
    if let Some(result) = look(matcher(&mut guard.engine), context, pattern, comm) {
        return Ok(Some(result));
    }
    process.poll(&mut guard, &mut Hand::empty());
    let found = look(matcher(&mut guard.engine), context, pattern, comm);
    drop(guard);
    if found.is_none() {
        request::drive(process);
    }
    Ok(found)
}

impl Matcher {
    /// The message that a matched probe has taken.
    pub fn take_message(&mut self, message: Message) -> Option<Probed> {
        let place = handle::made_index(Kind::Request, message.0)?;
        self.probed.get_mut(place)?.take()
    }
}
