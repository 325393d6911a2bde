//! One receive from beginning to end: take what was kept, or post and wait. Called by `port`; holds the engine's lock except
//! while it sleeps.

mod shortly;

use self::shortly::{Shortly, receive_shortly};
use crate::header::HEADER_BYTES;
use crate::port::Envelope;
use crate::spare::Spare;
use crate::table::{Kept, PortState, PortTable, Posted};
use crate::transfers::Goal;
use crate::waiting::{Place, Receive, Ticket, lane_of};
use crate::{Error, error};
use pulc_base::clock::Nanos;
use pulc_base::{Proto, Rank};
use pulc_handler::matching::{Entry, Pattern};
use pulc_handler::{Engine, Guard, Hand, MESSAGE_COST, Process, Waited, Want, Watch};

const _: () = assert!(HEADER_BYTES <= 32, "the handler takes protocol headers of 32 bytes");

pub(crate) enum Into<'a> {
    Buffer(&'a mut [u8]),
    /// A vector of its length.
    Vec(&'a mut Vec<u8>),
}

impl Into<'_> {
    fn capacity(&self) -> usize {
        match self {
            Into::Buffer(buffer) => buffer.len(),
            Into::Vec(_) => usize::MAX,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Until(Nanos),
    Endless,
}

enum Found {
    Done(Envelope),
    /// It is on its way here; wait for the ticket.
    OnItsWay(Ticket),
    /// A message is there but not complete, and the caller does not wait.
    NotYet,
    Nothing,
}

#[inline]
pub(crate) fn receive(
    process: &'static Process,
    port: u32,
    pattern: Pattern,
    mut into: Into<'_>,
    patience: Patience,
) -> Result<Option<Envelope>, Error> {
    process.check_fork()?;
    if let Some(src) = pattern.src {
        error::check_rank(process, Rank(src))?;
    }
    let mut guard = process.lock();
    let mut begun = None;
    if let (Into::Buffer(buffer), true) = (&mut into, patience != Patience::None) {
        match receive_shortly(process, &mut guard, port, pattern, buffer) {
            Shortly::Landed(envelope) => return Ok(Some(envelope)),
            Shortly::Begun(ticket) => begun = Some(ticket),
            Shortly::Nothing => {}
        }
    }
    receive_slowly(process, guard, port, pattern, into, patience, begun)
}

#[inline(never)]
fn receive_slowly(
    process: &'static Process,
    mut guard: Guard<'_>,
    port: u32,
    pattern: Pattern,
    mut into: Into<'_>,
    patience: Patience,
    begun: Option<Ticket>,
) -> Result<Option<Envelope>, Error> {
    if let Some(ticket) = begun {
        let (outcome, next) = wait_for(process, guard, Awaited::Posted(ticket), &mut into, Patience::Endless);
        guard = next;
        if let Some(envelope) = outcome? {
            return Ok(Some(envelope));
        }
    }
    let mut polled = false;
    loop {
        match take_kept(&mut guard.engine, port, pattern, &mut into, patience)? {
            Found::Done(envelope) => return Ok(Some(envelope)),
            Found::OnItsWay(ticket) => {
                let (outcome, next) = wait_for(process, guard, Awaited::Posted(ticket), &mut into, Patience::Endless);
                guard = next;
                if let Some(envelope) = outcome? {
                    return Ok(Some(envelope));
                }
            }
            Found::NotYet if patience == Patience::None && polled => return Ok(None),
            Found::Nothing | Found::NotYet if patience == Patience::None => {
                if polled {
                    return check_hope(&mut guard.engine, port, pattern).map(|()| None);
                }
                process.poll(&mut guard, &mut Hand::empty());
                polled = true;
            }
            Found::Nothing | Found::NotYet => {
                let awaited = match into {
                    Into::Buffer(_) => Awaited::Wanted(Want { lane: lane_of(port), pattern }),
                    Into::Vec(_) => Awaited::Posted(post(&mut guard.engine, port, pattern)?),
                };
                let (outcome, next) = wait_for(process, guard, awaited, &mut into, patience);
                guard = next;
                if let Some(envelope) = outcome? {
                    return Ok(Some(envelope));
                }
            }
        }
    }
}

fn table(engine: &mut Engine) -> &mut PortTable {
    engine.handler::<PortTable>(Proto::PORT).expect("the machine registers this handler before it opens a port")
}

fn state(table: &mut PortTable, port: u32) -> &mut PortState {
    table.port(port).expect("a port is closed only when it is dropped, and here it is borrowed")
}

#[inline]
fn take_kept(
    engine: &mut Engine,
    number: u32,
    pattern: Pattern,
    into: &mut Into<'_>,
    patience: Patience,
) -> Result<Found, Error> {
    let Some(entry) = state(table(engine), number).queue.find(pattern) else { return Ok(Found::Nothing) };
    take_found(engine, number, entry, into, patience)
}

fn take_found(
    engine: &mut Engine,
    number: u32,
    entry: Entry,
    into: &mut Into<'_>,
    patience: Patience,
) -> Result<Found, Error> {
    const HERE: &str = "the entry was found a moment ago under the same lock";
    let (table, outbox) = engine.handler_and_outbox::<PortTable>(Proto::PORT).expect("see `table`");
    let port = state(table, number);
    let (src, tag) = port.queue.envelope(entry).expect(HERE);
    let src = Rank(src);
    let kept = port.queue.kept(entry).expect(HERE);
    let len = kept.len();
    if len > into.capacity() {
        return Err(Error::BufferTooSmall { needed: len, len: into.capacity() });
    }
    let envelope = Envelope { src, tag, len };
    let complete = matches!(kept, Kept::Small { .. } | Kept::Whole { .. } | Kept::Coming { done: true, .. });
    if !complete && patience == Patience::None {
        // Whoever asks again and again gets it once it is here.
        table.fetch_held(number, entry, outbox);
        return Ok(Found::NotYet);
    }
    let store_all = matches!(into, Into::Vec(_));
    let mut place = Place::new(store_all);
    if matches!(kept, Kept::Asked { .. }) && !place.reserve(len) {
        return Err(error::no_memory(len));
    }
    let (cost, asked) = match port.queue.take(entry).expect(HERE) {
        Kept::Small { bytes, len, cost } => {
            match into {
                Into::Buffer(buffer) => buffer[..usize::from(len)].copy_from_slice(&bytes[..usize::from(len)]),
                Into::Vec(vec) => **vec = bytes[..usize::from(len)].to_vec(),
            }
            (cost, 0)
        }
        Kept::Whole { bytes, cost } => {
            hand_over(bytes, into, &mut table.spare);
            (cost, 0)
        }
        Kept::Coming { bytes, cost, asked, done: true, .. } => {
            hand_over(bytes, into, &mut table.spare);
            (cost, asked)
        }
        Kept::Coming { bytes, total, asked, transfer, .. } => {
            let place = Place::with(bytes, store_all);
            let ticket = table.receives.add(Receive::Coming { src, tag, total, place, done: false });
            table.transfers.redirect(transfer, Goal::Receive(ticket));
            table.budget += asked;
            return Ok(Found::OnItsWay(ticket));
        }
        // Nobody receives from a port that has moved away.
        Kept::Last => return Ok(Found::Nothing),
        Kept::Asked { total, transfer, id } => {
            let ticket = table.receives.add(Receive::Coming { src, tag, total, place, done: false });
            table.transfers.redirect(transfer, Goal::Receive(ticket));
            outbox.grant(id);
            return Ok(Found::OnItsWay(ticket));
        }
    };
    if cost.bytes == 0 && asked == 0 {
        let port = state(table, number);
        port.backlog = port.backlog.saturating_sub(len as u64 + MESSAGE_COST);
    }
    table.budget += asked;
    engine.release(cost.payer, cost.bytes);
    Ok(Found::Done(envelope))
}

fn hand_over(bytes: Vec<u8>, into: &mut Into<'_>, spare: &mut Spare) {
    match into {
        Into::Buffer(buffer) => {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            spare.give(bytes);
        }
        Into::Vec(vec) => **vec = bytes,
    }
}

/// Posts a receive for a message of any length, unless nothing could ever satisfy it.
fn post(engine: &mut Engine, number: u32, pattern: Pattern) -> Result<Ticket, Error> {
    check_hope(engine, number, pattern)?;
    let table = table(engine);
    let ticket = table.receives.add(Receive::Waiting);
    state(table, number).queue.post(pattern, Posted { ticket, capacity: usize::MAX });
    Ok(ticket)
}

/// Whether somebody is left who could send what the pattern accepts.
fn check_hope(engine: &mut Engine, number: u32, pattern: Pattern) -> Result<(), Error> {
    let port = state(table(engine), number);
    // What its old owner still has may be of ranks that have ended.
    if port.from.is_some() {
        return Ok(());
    }
    if let Some((rank, end)) = port.broken.take() {
        return Err(Error::PeerGone {
            rank,
            how: format!("{end}, before it had handed over all messages of this port"),
        });
    }
    if let Some(src) = pattern.src {
        return match engine.end_of(Rank(src)) {
            Some(end) => Err(Error::PeerGone { rank: Rank(src), how: end.to_string() }),
            None => Ok(()),
        };
    }
    let table = table(engine);
    match table.last_end {
        Some((rank, end)) if table.others_alive == 0 => Err(Error::PeerGone { rank, how: end.to_string() }),
        _ => Ok(()),
    }
}

/// What a thread waits for.
#[derive(Clone, Copy)]
enum Awaited {
    Posted(Ticket),
    /// By a receive with a buffer that is posted only if the thread must let go of the engine.
    Wanted(Want),
}

/// Waits for a receive. `Ok(None)`: look at the kept messages again.
#[inline]
fn wait_for<'p>(
    process: &'p Process,
    guard: Guard<'p>,
    awaited: Awaited,
    into: &mut Into<'_>,
    patience: Patience,
) -> (Result<Option<Envelope>, Error>, Guard<'p>) {
    let deadline = match patience {
        Patience::Until(deadline) => Some(deadline),
        _ => None,
    };
    let mut vec = Vec::new();
    let (mut hand, posted) = match (&mut *into, awaited) {
        (Into::Vec(_), Awaited::Posted(ticket)) => (Hand::empty(), Some(ticket)),
        (Into::Buffer(buffer), Awaited::Posted(ticket)) => (Hand::new(ticket.0, buffer), Some(ticket)),
        (Into::Buffer(buffer), Awaited::Wanted(want)) => (Hand::wanting(want, buffer), None),
        (Into::Vec(_), Awaited::Wanted(_)) => unreachable!("a receive without a buffer is posted at once"),
    };
    let (mut waited, mut guard) =
        process.wait_wanting(guard, &mut hand, deadline, Watch::News, post_hand, |engine, hand| {
            look(engine, hand, posted, &mut vec)
        });
    if matches!(waited, Waited::Timeout) {
        let Some(ticket) = posted.or(hand.posted_ticket().map(Ticket)) else { return (Err(Error::Timeout), guard) };
        if give_up(&mut guard.engine, ticket) {
            return (Err(Error::Timeout), guard);
        }
        // Its message has begun to arrive: its sender is sending at this moment.
        (waited, guard) = process
            .wait(guard, &mut hand, None, Watch::News, |engine, hand| look(engine, hand, Some(ticket), &mut vec));
    }
    let result = match waited {
        Waited::Ready(result) => result,
        Waited::Timeout => Err(Error::Timeout),
    };
    if let (Ok(Some(_)), Into::Vec(out)) = (&result, into) {
        **out = vec;
    }
    (result, guard)
}

/// Posts what the hand wants, because its thread is going to let others have the engine.
fn post_hand(engine: &mut Engine, hand: &mut Hand<'_>) {
    let Some(Want { lane, pattern }) = hand.want() else { return };
    let table = table(engine);
    let ticket = table.receives.add(Receive::Waiting);
    let capacity = hand.buffer().len();
    state(table, lane as u32).queue.post(pattern, Posted { ticket, capacity });
    hand.posted_as(ticket.0);
}

/// What has become of a receive: `None`, nothing yet.
#[inline]
fn look(
    engine: &mut Engine,
    hand: &mut Hand<'_>,
    posted: Option<Ticket>,
    vec: &mut Vec<u8>,
) -> Option<Result<Option<Envelope>, Error>> {
    let ticket = posted.or(hand.posted_ticket().map(Ticket));
    if let Some((src, tag, len)) = hand.landed {
        if let Some(ticket) = ticket {
            table(engine).receives.remove(ticket);
        }
        return Some(Ok(Some(Envelope { src, tag, len })));
    }
    match (ticket, hand.want()) {
        (Some(ticket), _) => look_at_posted(engine, hand, ticket, vec),
        (None, Some(want)) => check_hope(engine, want.lane as u32, want.pattern).err().map(Err),
        (None, None) => {
            let needed = hand.too_long.unwrap_or_default();
            Some(Err(Error::BufferTooSmall { needed, len: hand.buffer().len() }))
        }
    }
}

/// The same for a receive that is posted or whose message comes in parts.
fn look_at_posted(
    engine: &mut Engine,
    hand: &mut Hand<'_>,
    ticket: Ticket,
    vec: &mut Vec<u8>,
) -> Option<Result<Option<Envelope>, Error>> {
    let table = table(engine);
    match table.receives.of(ticket)? {
        Receive::Waiting => return None,
        Receive::Coming { place, done, .. } => {
            if let Some(buffer) = hand.buffer_of(ticket.0) {
                place.fetch(buffer);
            }
            if !*done {
                return None;
            }
        }
        _ => {}
    }
    let result = match table.receives.remove(ticket)? {
        Receive::Whole { src, tag, bytes } => {
            let envelope = Envelope { src, tag, len: bytes.len() };
            match hand.buffer_of(ticket.0) {
                Some(buffer) => buffer[..bytes.len()].copy_from_slice(&bytes),
                None => *vec = bytes,
            }
            Ok(Some(envelope))
        }
        Receive::Coming { src, tag, total, place, .. } => {
            if hand.buffer_of(ticket.0).is_none() {
                *vec = place.into_stored();
            }
            Ok(Some(Envelope { src, tag, len: total }))
        }
        Receive::TooSmall { needed } => Err(Error::BufferTooSmall { needed, len: hand.buffer().len() }),
        Receive::NoMemory { needed } => Err(error::no_memory(needed)),
        Receive::Hopeless { rank, end } => Err(Error::PeerGone { rank, how: end.to_string() }),
        Receive::Again | Receive::Waiting => Ok(None),
    };
    Some(result)
}

/// Takes a receive back; false when its message has begun to arrive.
fn give_up(engine: &mut Engine, ticket: Ticket) -> bool {
    let table = table(engine);
    if !matches!(table.receives.of(ticket), Some(Receive::Waiting)) {
        return false;
    }
    table.receives.remove(ticket);
    table.unpost(ticket);
    true
}
