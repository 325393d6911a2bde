//! One blocking receive from beginning to end: take what was kept, or wait with the buffer in hand. Called by `channel`; holds
//! the engine's lock except while it sleeps.

use super::kept::Kept;
use super::loan;
use super::table::RawTable;
use crate::receive::Patience;
use crate::{Error, Rank};
use pulc_base::Proto;
use pulc_handler::{Engine, Hand, Process, Waited, Watch};

/// Receives one message of the channel at `place`, whose other end is `peer`; its length. `Ok(None)`: nothing there and no
/// patience.
#[inline]
pub(super) fn receive(
    process: &'static Process,
    place: u32,
    peer: Rank,
    buffer: &mut [u8],
    patience: Patience,
) -> Result<Option<usize>, Error> {
    process.check_fork()?;
    let mut guard = process.lock();
    let table_now = table(&mut guard.engine);
    let ticket = table_now.ticket(place);
    let nothing_kept = table_now.state(place).kept.is_empty();
    let mut hand = Hand::new(ticket, buffer);
    let one = Receive { place, peer, ticket };
    if !nothing_kept && let Some(result) = one.look(&mut guard.engine, &mut hand) {
        return result.map(Some);
    }
    if patience != Patience::None && process.poll_shortly(&mut guard, &mut hand) {
        return Ok(hand.landed.map(|(_, _, len)| len));
    }
    let deadline = match patience {
        Patience::Endless => None,
        Patience::Until(deadline) => Some(deadline),
        Patience::None => {
            process.poll(&mut guard, &mut hand);
            if let Some(result) = one.look(&mut guard.engine, &mut hand) {
                return result.map(Some);
            }
            if table(&mut guard.engine).coming_of(ticket).is_none() {
                return Ok(None);
            }
            // Its message has begun to arrive: its sender is sending at this moment.
            None
        }
    };
    let (mut waited, mut guard) =
        process.wait(guard, &mut hand, deadline, Watch::News, |engine, hand| one.look(engine, hand));
    if matches!(waited, Waited::Timeout) {
        if table(&mut guard.engine).coming_of(ticket).is_none() {
            return Err(Error::Timeout);
        }
        (waited, guard) = process.wait(guard, &mut hand, None, Watch::News, |engine, hand| one.look(engine, hand));
    }
    drop(guard);
    match waited {
        Waited::Ready(result) => result.map(Some),
        Waited::Timeout => Err(Error::Timeout),
    }
}

#[inline]
pub(super) fn table(engine: &mut Engine) -> &mut RawTable {
    engine.handler::<RawTable>(Proto::RAWDATA).expect("the machine registers this handler before it opens a channel")
}

struct Receive {
    place: u32,
    peer: Rank,
    ticket: u64,
}

impl Receive {
    /// What has become of the receive: `None`, nothing yet.
    #[inline]
    fn look(&self, engine: &mut Engine, hand: &mut Hand<'_>) -> Option<Result<usize, Error>> {
        if let Some((_, _, len)) = hand.landed {
            return Some(Ok(len));
        }
        let table = table(engine);
        if !table.coming.is_empty() && table.coming_of(self.ticket).is_some() {
            return self.look_at_parts(engine, hand);
        }
        let state = table.state(self.place);
        if state.kept.is_empty() {
            return self.hopeless(engine);
        }
        if state.has_waiting() {
            loan::settle(engine, self.place, self.peer);
        }
        match self::table(engine).state(self.place).first_len() {
            Some(_) => self.take_kept(engine, hand),
            None => self.hopeless(engine),
        }
    }

    fn look_at_parts(&self, engine: &mut Engine, hand: &mut Hand<'_>) -> Option<Result<usize, Error>> {
        let table = table(engine);
        let coming = table.coming_of(self.ticket)?;
        if coming.withdrawn {
            table.end_coming(self.place, self.ticket);
            return self.look(engine, hand);
        }
        if let Some(buffer) = hand.buffer_of(self.ticket) {
            coming.fetch(buffer);
        }
        let (done, total) = (coming.done, coming.total);
        done.then(|| {
            table.end_coming(self.place, self.ticket);
            Ok(total)
        })
    }

    fn take_kept(&self, engine: &mut Engine, hand: &mut Hand<'_>) -> Option<Result<usize, Error>> {
        let (table, outbox) = engine.handler_and_outbox::<RawTable>(Proto::RAWDATA)?;
        let state = table.state(self.place);
        let kept = state.kept.front()?;
        let (needed, len) = (kept.len(), hand.room());
        if needed > len {
            return Some(Err(Error::BufferTooSmall { needed, len }));
        }
        if matches!(kept, Kept::Lent { .. }) {
            return loan::copy_first(engine, self.place, self.peer, hand.buffer());
        }
        let Some(bytes) = kept.whole() else {
            table.fetch_blocked(self.place, self.ticket, outbox);
            return self.look_at_parts(engine, hand);
        };
        hand.buffer()[..needed].copy_from_slice(bytes);
        let cost = kept.cost();
        if let Some(kept) = state.kept.pop_front() {
            table.spare(kept);
        }
        engine.release(self.peer, cost);
        Some(Ok(needed))
    }

    #[inline]
    fn hopeless(&self, engine: &mut Engine) -> Option<Result<usize, Error>> {
        let end = engine.end_of(self.peer)?;
        Some(Err(Error::PeerGone { rank: self.peer, how: end.to_string() }))
    }
}
