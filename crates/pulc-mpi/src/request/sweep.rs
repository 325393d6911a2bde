//! Waiting for posted receives in one sweep: as long as the earliest receive of a queue takes messages of one sender with one tag only,
//! and these come in single cells, they go from there into the program's memory, without the switch and without a search. Called by
//! waits before they wait as usual; must never take what the receive handler would have given to another receive.

use crate::collective;
use crate::envelope::Envelope;
use crate::handle::Request;
use crate::matcher::{Lane, Matcher, matcher};
use crate::stats;
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, Guard, Process, Swept};

/// Whether all of these, of which so many are under way, are complete after a moment of sweeping.
#[inline]
pub(super) fn all_shortly(
    process: &'static Process,
    guard: &mut Guard<'_>,
    requests: &[Request],
    mut under_way: usize,
) -> bool {
    // Schedules go on in a usual wait.
    if collective::any_active() {
        return false;
    }
    let began = stats::start();
    // Those before it are complete.
    let mut at = 0;
    let mut expected = None;
    let is_all = process.sweep_shortly(guard, |engine| {
        let mut taken = expected.map_or(0, |expected| take(engine, expected));
        under_way = under_way.saturating_sub(taken);
        if taken > 0 && under_way > 0 {
            return Swept::Some;
        }
        // What was taken may have been for others, and what is waited for may have come in another way.
        while let Some(place) = first_under_way(matcher(engine), requests, &mut at) {
            expected = matcher(engine).expected_first(place);
            let more = expected.map_or(0, |expected| take(engine, expected));
            if more == 0 {
                return if taken == 0 { Swept::Nothing } else { Swept::Some };
            }
            under_way = under_way.saturating_sub(more);
            taken += more;
        }
        Swept::All
    });
    stats::end(began);
    is_all
}

/// The same for one request that is active.
#[inline]
pub(super) fn one_shortly(process: &'static Process, guard: &mut Guard<'_>, place: u32) -> bool {
    if collective::any_active() {
        return false;
    }
    let began = stats::start();
    let is_complete = process.sweep_shortly(guard, |engine| {
        let taken = sweep(engine, place);
        match (matcher(engine).requests.is_active(place), taken) {
            (false, _) => Swept::All,
            (true, 0) => Swept::Nothing,
            (true, _) => Swept::Some,
        }
    });
    stats::end(began);
    is_complete
}

/// The place of the first that is not complete.
#[inline]
fn first_under_way(table: &Matcher, requests: &[Request], at: &mut usize) -> Option<u32> {
    let behind = requests[*at..].iter().position(|request| table.requests.is_under_way(*request))?;
    *at += behind;
    table.requests.index(requests[*at])
}

/// Takes what has come for the earliest receives of the queue that this one waits in; how many messages.
#[inline]
fn sweep(engine: &mut Engine, place: u32) -> usize {
    matcher(engine).expected_first(place).map_or(0, |expected| take(engine, expected))
}

#[inline]
fn take(engine: &mut Engine, (src, envelope): (Rank, Envelope)) -> usize {
    engine.take_batch_for(src, Proto::MPI, envelope.word(), |table: &mut Matcher, len, words| {
        table.land_first(src, envelope, len, words)
    })
}

impl Matcher {
    /// Sender and envelope of the only messages that the earliest receive takes which is posted where this one is.
    #[inline]
    fn expected_first(&self, place: u32) -> Option<(Rank, Envelope)> {
        let recv = self.requests.peek_recv(place)?;
        let context = recv.entry.map(|_| recv.context)?;
        let (src, tag, _) = self.lanes.get(context as usize)?.queue.first_exact()?;
        Some((Rank(src), Envelope { context, tag: tag as u32 as i32 }))
    }

    /// Gives the earliest receive its message, if it takes just these and there is room for it.
    #[inline]
    fn land_first(&mut self, src: Rank, envelope: Envelope, len: usize, words: &[u64]) -> bool {
        let Envelope { context, tag } = envelope;
        let Some(Lane { queue }) = self.lanes.get_mut(context as usize) else { return false };
        let Some((its_src, its_tag, &request)) = queue.first_exact() else { return false };
        let is_for_it = (its_src, its_tag) == (src.0, u64::from(tag as u32));
        if !is_for_it || !self.requests.land(request, src, tag, len, words) {
            return false;
        }
        queue.unpost_first();
        true
    }
}
