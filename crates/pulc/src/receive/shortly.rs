//! The way of most small messages: nothing is kept, and what comes next is what is wanted. The first try of every receive with a
//! buffer; leaves nothing behind that the long way would have to know, but a message in parts that has begun to come.

use super::{state, table};
use crate::port::Envelope;
use crate::waiting::{Ticket, lane_of};
use pulc_handler::matching::Pattern;
use pulc_handler::{Guard, Hand, Process, Want};

/// What a short look for a message gave.
pub(super) enum Shortly {
    Landed(Envelope),
    /// It comes in parts to this receive.
    Begun(Ticket),
    Nothing,
}

/// The way of most small messages: nothing is kept, and what comes next is what is wanted.
#[inline]
pub(super) fn receive_shortly(
    process: &'static Process,
    guard: &mut Guard<'_>,
    port: u32,
    pattern: Pattern,
    buffer: &mut [u8],
) -> Shortly {
    if state(table(&mut guard.engine), port).queue.kept_len() > 0 {
        return Shortly::Nothing;
    }
    let mut hand = Hand::wanting(Want { lane: lane_of(port), pattern }, buffer);
    process.poll_shortly(guard, &mut hand);
    match (hand.landed, hand.posted_ticket()) {
        (Some((src, tag, len)), _) => Shortly::Landed(Envelope { src, tag, len }),
        (None, Some(ticket)) => Shortly::Begun(Ticket(ticket)),
        (None, None) => Shortly::Nothing,
    }
}
