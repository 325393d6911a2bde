//! Waiting for posted receives in one sweep: as long as the earliest receive of a queue takes messages of one sender with one tag only,
//! and these come in single cells, they go from there into the program's memory, without the switch and without a search. Called by
//! waits before they wait as usual; must never take what the receive handler would have given to another receive.

use super::{Each, take_simple};
use crate::collective;
use crate::envelope::Envelope;
use crate::handle::Request;
use crate::matcher::{Lane, Matcher, Requests, matcher};
use crate::stats;
use crate::status::Status;
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, Guard, Process, Swept};

/// Completes requests from the front of the array on, after a moment of sweeping; how many. Each is looked for once: what comes for the first
/// one that is not complete is told and forgotten as it lands. It ends where all are complete or one is to be taken in the usual way.
#[inline]
pub(super) fn all_shortly(
    process: &'static Process,
    guard: &mut Guard<'_>,
    requests: &mut [Request],
    each: Each<'_>,
) -> usize {
    // Schedules go on in a usual wait.
    if collective::any_active() {
        return 0;
    }
    let began = stats::start();
    let mut front = Front { requests, at: 0, each };
    process.sweep_shortly(guard, |engine| {
        let mut taken = 0;
        // What was taken may have been for others, and what is waited for may have come in another way.
        while let Some(place) = front.advance(matcher(engine)) {
            let Some((src, envelope)) = matcher(engine).expected_first(place) else { break };
            let more = engine.take_batch_for(src, Proto::MPI, envelope.word(), |table: &mut Matcher, len, words| {
                table.land_first(src, envelope, len, words, Some(&mut front))
            });
            if more == 0 {
                break;
            }
            taken += more;
        }
        match taken {
            _ if front.ends(matcher(engine)) => Swept::All,
            0 => Swept::Nothing,
            _ => Swept::Some,
        }
    });
    stats::end(began);
    front.at
}

/// An array of requests that are completed in order.
struct Front<'a> {
    requests: &'a mut [Request],
    /// Those before it are complete and told.
    at: usize,
    each: Each<'a>,
}

impl Front<'_> {
    /// Takes what is complete already; the place of the first that is not. `None`: there is none, or it is to be taken in the usual way.
    #[inline]
    fn advance(&mut self, table: &mut Matcher) -> Option<u32> {
        let Front { requests, at, each } = self;
        while let Some(request) = requests.get_mut(*at) {
            if table.requests.is_under_way(*request) {
                return table.requests.index(*request);
            }
            if !take_simple(table, request, |status| each(*at, status)) {
                return None;
            }
            *at += 1;
        }
        None
    }

    /// Whether there is nothing left to sweep for.
    #[inline]
    fn ends(&self, table: &Matcher) -> bool {
        self.requests.get(self.at).is_none_or(|request| !table.requests.is_under_way(*request))
    }

    /// The first one, if it is the request in this place.
    #[inline]
    fn is_first(&self, place: u32) -> bool {
        self.requests.get(self.at) == Some(&Requests::handle(place))
    }

    /// The first one has ended so.
    #[inline]
    fn tell(&mut self, status: &Status) {
        (self.each)(self.at, status);
        self.requests[self.at] = Request::NULL;
        self.at += 1;
    }
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

/// Takes what has come for the earliest receives of the queue that this one waits in; how many messages.
#[inline]
fn sweep(engine: &mut Engine, place: u32) -> usize {
    let Some((src, envelope)) = matcher(engine).expected_first(place) else { return 0 };
    engine.take_batch_for(src, Proto::MPI, envelope.word(), |table: &mut Matcher, len, words| {
        table.land_first(src, envelope, len, words, None)
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

    /// Gives the earliest receive its message, if it takes just these and there is room for it. Where that receive is the first of an array
    /// that is waited for, the array is told, and the request is gone.
    #[inline]
    fn land_first(
        &mut self,
        src: Rank,
        envelope: Envelope,
        len: usize,
        words: &[u64],
        front: Option<&mut Front<'_>>,
    ) -> bool {
        let Envelope { context, tag } = envelope;
        let Some(Lane { queue }) = self.lanes.get_mut(context as usize) else { return false };
        let Some((its_src, its_tag, &request)) = queue.first_exact() else { return false };
        if (its_src, its_tag) != (src.0, u64::from(tag as u32)) {
            return false;
        }
        let has_landed = match front.filter(|front| front.is_first(request)) {
            Some(front) => self.requests.land_for_good(request, src, tag, len, words, |status| front.tell(status)),
            None => self.requests.land(request, src, tag, len, words),
        };
        if has_landed {
            queue.unpost_first();
        }
        has_landed
    }
}
