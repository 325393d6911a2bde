//! What is done while somebody floods this process with frames that are not its peers': filters in the kernel, which keep what
//! does not look right out of the sockets' buffers, where it would take the room of honest frames, and out of this process's
//! time. They know only what has come so far, so they are made anew while frames go on being refused, and lifted when the
//! flood is over. Called by `net` after polls; what it costs is bounded by the clock, not by the flood.

use super::{LinkSide, Net, RailSide};
use pulc_base::clock::Nanos;
use pulc_link::Rail;

/// So many refused frames in one span are a flood: some come from networks that repeat frames or tear trains apart.
const FLOOD: u64 = 128;
const SPAN: Nanos = Nanos::from_ms(100);
/// After so many more that got through, the filters are made anew,
const RENEW_AFTER: u64 = 32;
/// but not more often than this.
const RENEWED_MIN: Nanos = Nanos::from_ms(1);
/// Spans without a frame kept out after which everything is heard again.
const QUIET_SPANS: u32 = 10;

/// Frames seen before that pass without a warning.
const REPLAYS_WITHOUT_WORD: u64 = 4096;

#[derive(Default)]
pub(super) struct Siege {
    is_on: bool,
    span_from: Nanos,
    /// Refused frames, by links and by devices, when the span began and when the filters were last made.
    at_span: u64,
    at_renewal: u64,
    renewed: Nanos,
    /// What the kernel had thrown away when the span began, and how much of that while filters were set.
    dropped: u64,
    kept_out: u64,
    quiet_spans: u32,
}

impl Siege {
    /// Frames that the kernel has thrown away while filters were set. Some may have been honest, and found no room.
    pub fn kept_out(&self) -> u64 {
        self.kept_out
    }

    /// Whether frames refused so far, `refused` in all, are reason to look closer.
    #[inline]
    pub fn wants_a_look(&self, now: Nanos, refused: u64) -> bool {
        self.is_on || refused - self.at_span >= FLOOD || (refused != self.at_span && now.since(self.span_from) >= SPAN)
    }

    /// Sets, renews or lifts the filters. True: the links have something to say.
    #[cold]
    pub fn look(&mut self, now: Nanos, refused: u64, rails: &mut [RailSide], links: &mut [LinkSide]) -> bool {
        let is_flood = refused - self.at_span >= FLOOD && now.since(self.span_from) < SPAN;
        let is_due = refused - self.at_renewal >= RENEW_AFTER && now.since(self.renewed) >= RENEWED_MIN;
        if now.since(self.span_from) >= SPAN {
            self.end_span(now, refused, rails, links);
            if self.is_on {
                // Counters go on: what is honest must not run out of what a filter passes.
                self.renew(now, refused, rails, links);
                links.iter_mut().for_each(|side| side.link.is_besieged(now, true));
            }
            return self.is_on;
        }
        let has_reason = if self.is_on { is_due } else { is_flood };
        if !has_reason {
            return false;
        }
        if !self.is_on {
            (self.is_on, self.quiet_spans) = (true, 0);
        }
        self.renew(now, refused, rails, links);
        false
    }

    fn end_span(&mut self, now: Nanos, refused: u64, rails: &mut [RailSide], links: &mut [LinkSide]) {
        let dropped: u64 = rails.iter().map(|rail| rail.device.inner().frames_dropped()).sum();
        let is_quiet = refused == self.at_span && dropped == self.dropped;
        self.quiet_spans = if is_quiet { self.quiet_spans + 1 } else { 0 };
        if self.is_on {
            self.kept_out += dropped.saturating_sub(self.dropped);
        }
        (self.span_from, self.at_span, self.dropped) = (now, refused, dropped);
        if self.is_on && self.quiet_spans >= QUIET_SPANS {
            self.is_on = false;
            rails.iter_mut().for_each(|rail| rail.device.inner_mut().lift_sieves());
            links.iter_mut().for_each(|side| side.link.is_besieged(now, false));
        }
    }

    fn renew(&mut self, now: Nanos, refused: u64, rails: &mut [RailSide], links: &mut [LinkSide]) {
        (self.renewed, self.at_renewal) = (now, refused);
        for side in links {
            for (index, (rail, peer)) in (0..).zip(rails.iter_mut().zip(&side.peers)) {
                rail.device.inner_mut().sieve(*peer, &side.link.sieve(Rail(index)));
            }
        }
        rails.iter_mut().for_each(|rail| rail.device.inner_mut().sieve_strangers());
    }
}

impl Net {
    /// Says so when somebody sends what is not ours: at the first frame, and whenever there are sixteen times as many. Frames
    /// that come twice are any network's right; very many of them are not.
    #[cold]
    pub(super) fn warn_of_refusals(&mut self, strangers: u64) {
        let kept_out = self.siege.kept_out();
        if strangers + self.refused + kept_out < self.warn_at {
            return;
        }
        let links = self.link_counters();
        let (replays, tags, malformed) = (links.replays_refused, links.tags_refused, links.malformed_refused);
        let refused = strangers + tags + malformed + replays + kept_out;
        let certain = strangers + tags + malformed + kept_out;
        if certain >= self.warn_at || replays >= self.warn_at.max(REPLAYS_WITHOUT_WORD) {
            self.warn_at = refused.saturating_mul(16);
            pulc_base::log!(
                Warn,
                "handler",
                "rank {}: {refused} frames from the network refused so far ({strangers} of unknown senders, {tags} with a \
                 wrong tag, {malformed} malformed or for others, {replays} seen before, {kept_out} by the kernel); nothing of \
                 them was delivered",
                self.maker.me
            );
        }
    }
}
