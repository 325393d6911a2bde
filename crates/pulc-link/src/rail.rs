//! One path between the two processes as the sender sees it: its round-trip time, how much it may hold (congestion window),
//! when it was silent for too long, and whether it may be used. Called by the engine with times; has no clock.
//!
//! Timers are in milliseconds and back off while the rail is silent, to a ceiling, for ever: a peer that computes does not
//! answer and is not dead. What they send is a header without a packet, so a peer that does not poll is not buried.
//!
//! Source: RFC 6298 (round-trip times), RFC 8985 (tail-loss probe), RFC 5681 and 9002 (window on loss), Kumar et al. 2020 (Swift:
//! window on delay).

use pulc_base::clock::Nanos;

/// How the other end may hold an acknowledgement back.
pub(crate) const ACK_DELAY: Nanos = Nanos::from_us(50);
/// Before anything is known of the path.
const FIRST_PROBE: Nanos = Nanos::from_ms(2);
pub(crate) const RETRANSMIT_MIN: Nanos = Nanos::from_ms(1);
/// The back-off doubles up to here; beyond, it is a quarter of the silence so far,
pub(crate) const PROBE_MAX: Nanos = Nanos::from_ms(500);
/// and never more than this.
const PROBE_CEILING: Nanos = Nanos::from_ms(10_000);
/// A rail that was given up is looked at again after this, then at doubled distances.
const REVIVE_FIRST: Nanos = Nanos::from_ms(100);
/// The step of the back-off that a rail given up continues from: some 100 ms.
const REVIVE_BACK_OFF: u32 = 8;
/// The step of the back-off at which it stays while the peer is known to be awake: a few ms.
const PROBES_AWAKE_MAX: u32 = 2;
const WINDOW_FIRST_BYTES: usize = 128 << 10;
const WINDOW_MIN_BYTES: usize = 16 << 10;
pub(crate) const WINDOW_MAX_BYTES: usize = 16 << 20;
/// What small windows are allowed beyond, see [`RailState::allowed`].
const QUEUE_TARGET: Nanos = Nanos::from_ms(1);
/// Round trips up to here are allowed on any path. Beyond them, and a quarter more than the fastest one, a window does not grow;
/// it shrinks if every answer of a round trip tells of it, for a single one may have waited for a peer that computed. Paths
/// inside a cluster differ by far less: who came when the queue was long already takes that for the path and may not have more.
const ROUND_TRIP_ALLOWED: Nanos = Nanos::from_ms(2);
/// The window grows by one frame in so much time of a round trip, so that flows with long queues find their shares as soon.
const GROWTH_STEP: Nanos = Nanos::from_us(100);
/// Queueing alone shrinks no window below this: with so little under way it is not this rail that fills the queue.
const WINDOW_OF_QUEUE_MIN_BYTES: usize = 64 << 10;
/// Who did not look for so long was not given its core. Shorter times are part of every round trip.
const AWAY_MIN: Nanos = Nanos::from_us(500);
/// Unanswered probes after which another rail that answers takes over.
pub(crate) const SILENT_PROBES_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    Up,
    /// Silent while others answered; looked at again from time to time.
    Suspended,
    /// The owner said so.
    Down,
}

/// A probe on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub counter: u64,
    pub order: u64,
    pub sent_at: Nanos,
}

pub(crate) struct RailState {
    pub health: Health,
    /// Smoothed round-trip time and its variation; zero: none known.
    srtt: Nanos,
    variation: Nanos,
    fastest: Nanos,
    /// When the present round trip of measuring began, and its fastest answer.
    round_from: Nanos,
    round_fastest: Nanos,
    window_bytes: usize,
    growth_ends_bytes: usize,
    pub in_flight_bytes: usize,
    /// Next place in the order of frames sent on this rail, and the latest place known to have arrived.
    order: u64,
    pub latest_arrived: Option<u64>,
    /// A loss before this place has been answered already.
    recovered_from: u64,
    pub probe: Option<Probe>,
    pub probe_at: Option<Nanos>,
    pub probe_due: bool,
    silent_probes: u32,
    pub silent_since: Nanos,
    /// When the last probe was due.
    probed_at: Nanos,
    pub last_heard: Nanos,
    /// When the owner looked at the rail before its present look; zero: it does not say.
    pub looked_before: Nanos,
}

impl RailState {
    pub fn new(health: Health, now: Nanos) -> RailState {
        RailState {
            health,
            srtt: Nanos(0),
            variation: Nanos(0),
            fastest: Nanos::MAX,
            round_from: now,
            round_fastest: Nanos::MAX,
            window_bytes: WINDOW_FIRST_BYTES,
            growth_ends_bytes: WINDOW_MAX_BYTES,
            in_flight_bytes: 0,
            order: 0,
            latest_arrived: None,
            recovered_from: 0,
            probe: None,
            probe_at: None,
            probe_due: false,
            silent_probes: 0,
            silent_since: now,
            probed_at: now,
            last_heard: now,
            looked_before: Nanos(0),
        }
    }

    /// Bytes that may still be put on the rail. An empty rail takes any one frame.
    pub fn room_bytes(&self) -> usize {
        if self.in_flight_bytes == 0 { usize::MAX } else { self.window_bytes.saturating_sub(self.in_flight_bytes) }
    }

    pub fn srtt(&self) -> Nanos {
        self.srtt
    }

    /// Bytes that may be under way on the rail.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    pub fn silent_probes(&self) -> u32 {
        self.silent_probes
    }

    /// The next place in this rail's order of frames.
    pub fn take_order(&mut self) -> u64 {
        self.order += 1;
        self.order - 1
    }

    /// A packet has left on this rail.
    pub fn sent(&mut self, now: Nanos, bytes: usize) {
        self.in_flight_bytes += bytes;
        // While the rail is silent, sending more must not put the next probe off.
        if self.silent_probes == 0 || self.probe_at.is_none() {
            self.probe_at = Some(now + self.patience(Nanos(0)));
        }
    }

    /// Nothing is under way: there is no silence to measure.
    pub fn rest(&mut self) {
        (self.probe_at, self.silent_probes) = (None, 0);
    }

    /// Something on this rail was answered: it lives. `waits`: there is still something under way on it.
    pub fn answered(&mut self, now: Nanos, waits: bool) {
        if self.health != Health::Up {
            return;
        }
        self.silent_probes = 0;
        self.probe_due = false;
        self.probe_at = waits.then(|| now + self.patience(Nanos(0)));
    }

    /// How long to wait for an answer before the first probe, or the next.
    fn patience(&self, silence: Nanos) -> Nanos {
        let retransmit = if self.srtt == Nanos(0) {
            FIRST_PROBE
        } else {
            Nanos(self.srtt.0 * 3).max(Nanos(self.srtt.0 + 4 * self.variation.0)).max(RETRANSMIT_MIN)
        };
        match self.silent_probes {
            // Tail-loss probe: twice the round trip and what the other end may hold back, doubled for slack.
            0 if self.srtt != Nanos(0) => (Nanos(2 * self.srtt.0) + ACK_DELAY + ACK_DELAY).min(PROBE_MAX),
            0 => retransmit,
            tries => {
                Nanos(retransmit.0 << (tries - 1).min(20)).min(PROBE_MAX).max(Nanos(silence.0 / 4).min(PROBE_CEILING))
            }
        }
    }

    /// Something was heard since the last probe, and it was no answer: the peer is awake, and what is under way got lost.
    pub fn is_heard(&self) -> bool {
        self.silent_probes > 0 && self.last_heard > self.probed_at
    }

    /// The rail was silent until `probe_at`: send a probe, and be more patient with the next. `awake`: that nobody answers is no
    /// reason for more patience.
    pub fn silent(&mut self, now: Nanos, awake: bool) {
        if self.silent_probes == 0 || awake {
            self.silent_since = now;
            self.silent_probes = self.silent_probes.min(PROBES_AWAKE_MAX);
        }
        self.probe_due = true;
        self.silent_probes = self.silent_probes.saturating_add(1);
        self.probed_at = now;
        self.probe_at = Some(now + self.patience(now - self.silent_since));
    }

    /// Gives the rail up: for now, and looks at it again later, or until the owner says otherwise. Nothing is under way on
    /// it any more.
    pub fn give_up(&mut self, now: Nanos, health: Health) {
        self.health = health;
        self.in_flight_bytes = 0;
        self.probe_due = false;
        self.silent_probes = REVIVE_BACK_OFF;
        self.probe_at = (health == Health::Suspended).then_some(now + REVIVE_FIRST);
    }

    /// The rail as new, its order of frames continued.
    pub fn continued(&self, now: Nanos) -> RailState {
        RailState { order: self.order, recovered_from: self.order, ..RailState::new(Health::Up, now) }
    }

    /// Starts the timer if it does not run.
    pub fn watch(&mut self, now: Nanos) {
        self.probe_at = self.probe_at.or(Some(now + self.patience(Nanos(0))));
    }

    /// When what is read now may have come at the earliest, after a long time without a look: at once after the look before.
    pub fn came_from(&self, now: Nanos) -> Nanos {
        let was_away = self.looked_before != Nanos(0) && now.since(self.looked_before) >= AWAY_MIN;
        if was_away { self.looked_before } else { now }
    }

    /// A round trip was measured without doubt about which frame was answered. The answer may have waited here since the last
    /// look: a process that was not given its core must not take that for a queue in the network.
    pub fn measured(&mut self, now: Nanos, sample: Nanos) {
        let sample = sample.since(now.since(self.came_from(now))).max(sample.min(self.fastest)).max(Nanos(1));
        self.react_to_queue(now, sample);
        self.fastest = self.fastest.min(sample);
        if self.srtt == Nanos(0) {
            self.srtt = sample;
            self.variation = Nanos(sample.0 / 2);
            return;
        }
        // A peer that was computing answers late; one such answer must not make the timers lazy.
        let sample = sample.min(Nanos(4 * self.srtt.0).max(Nanos::from_ms(1)));
        let off = self.srtt.0.abs_diff(sample.0);
        self.variation = Nanos((3 * self.variation.0 + off) / 4);
        self.srtt = Nanos((7 * self.srtt.0 + sample.0) / 8);
        if sample > self.allowed() {
            self.growth_ends_bytes = self.growth_ends_bytes.min(self.window_bytes);
        }
    }

    /// Once a round trip: shrinks the window by how far even its fastest answer was delayed beyond the target, to a half at most.
    fn react_to_queue(&mut self, now: Nanos, sample: Nanos) {
        self.round_fastest = self.round_fastest.min(sample);
        if now.since(self.round_from) < self.srtt {
            return;
        }
        let (delay, allowed) = (self.round_fastest, self.allowed());
        (self.round_from, self.round_fastest) = (now, Nanos::MAX);
        if delay > allowed && self.window_bytes > WINDOW_OF_QUEUE_MIN_BYTES {
            let kept_permille = 1000 - ((delay.0 - allowed.0) * 800 / delay.0).min(500) as usize;
            self.window_bytes = (self.window_bytes / 1000 * kept_permille).max(WINDOW_OF_QUEUE_MIN_BYTES);
            self.growth_ends_bytes = self.window_bytes;
        }
    }

    /// The round trip beyond which there is too much in the network's queues. Small windows are allowed more, so that a large one
    /// beside them gives way first.
    fn allowed(&self) -> Nanos {
        let path = Nanos(self.fastest.0.min(PROBE_CEILING.0) / 4 * 5).max(ROUND_TRIP_ALLOWED);
        let small = QUEUE_TARGET.0 * 2 * WINDOW_OF_QUEUE_MIN_BYTES as u64 / self.window_bytes.max(1) as u64;
        path + Nanos(small)
    }

    /// A frame of `bytes` arrived; the window grows if it was what held the sender back: was there no room for two more such?
    pub fn arrived(&mut self, bytes: usize, frame_max: usize) {
        let was_limit = self.in_flight_bytes + 2 * frame_max.max(bytes) >= self.window_bytes;
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        if !was_limit {
            return;
        }
        if self.window_bytes < self.growth_ends_bytes {
            self.window_bytes += bytes;
        } else if self.srtt <= self.allowed() {
            let steps = 1 + (self.srtt.0 / GROWTH_STEP.0) as usize;
            self.window_bytes += (steps * frame_max * bytes / self.window_bytes).max(1);
        }
        self.window_bytes = self.window_bytes.min(WINDOW_MAX_BYTES);
    }

    /// A frame at this place of the order was lost: the window shrinks, once for all losses of one round trip.
    pub fn lost(&mut self, order: u64, bytes: usize, frame_max: usize) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        if order < self.recovered_from {
            return;
        }
        self.recovered_from = self.order;
        self.window_bytes = (self.window_bytes * 7 / 10).max(WINDOW_MIN_BYTES).max(4 * frame_max);
        self.growth_ends_bytes = self.window_bytes;
    }

    /// A frame is taken for lost without reproach: it will be sent again.
    pub fn forgotten(&mut self, bytes: usize) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }

    /// How long after a frame that arrived an earlier one may still be on its way.
    pub fn reorder_allowance(&self) -> Nanos {
        Nanos(self.srtt.0 + (self.srtt.0 / 4).max(4 * self.variation.0)).max(Nanos::from_us(20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_rail_is_probed_ever_more_rarely_and_never_given_up() {
        let mut rail = RailState::new(Health::Up, Nanos(0));
        rail.measured(Nanos(0), Nanos::from_us(30));
        rail.sent(Nanos(0), 100);
        let mut gaps = Vec::new();
        let mut now = Nanos(0);
        for _ in 0..100 {
            let at = rail.probe_at.expect("a rail with something under way always has a timer");
            gaps.push(at - now);
            now = at;
            rail.silent(now, false);
        }
        assert!(gaps[0] < RETRANSMIT_MIN, "the first is a tail-loss probe");
        assert_eq!(gaps[1], RETRANSMIT_MIN);
        assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(gaps[10..13].iter().all(|&gap| gap == PROBE_MAX));
        assert!(gaps[80..].iter().all(|&gap| gap == PROBE_CEILING));
    }

    #[test]
    fn a_peer_that_is_heard_and_does_not_answer_is_asked_again_soon() {
        let mut rail = RailState::new(Health::Up, Nanos(0));
        rail.measured(Nanos(0), Nanos::from_us(30));
        rail.sent(Nanos(0), 100);
        for _ in 0..100 {
            let now = rail.probe_at.expect("a rail with something under way always has a timer");
            assert!(!rail.is_heard(), "not since the last probe");
            rail.last_heard = now;
            rail.silent(now, rail.is_heard() || now == Nanos(0));
            rail.last_heard = now + Nanos(1);
            let awake = rail.is_heard();
            rail.silent(now + Nanos(2), awake);
            assert!(rail.probe_at.expect("it asks again") - now < Nanos::from_ms(10));
        }
    }

    #[test]
    fn a_rail_that_rested_has_a_timer_again_with_the_next_frame() {
        let mut rail = RailState::new(Health::Up, Nanos(0));
        rail.sent(Nanos(0), 100);
        rail.silent(Nanos::from_ms(2), false);
        rail.rest();
        assert_eq!(rail.probe_at, None);
        rail.sent(Nanos::from_ms(3), 100);
        assert_eq!(rail.probe_at, Some(Nanos::from_ms(3) + FIRST_PROBE));
    }

    #[test]
    fn one_late_answer_does_not_make_the_timers_lazy() {
        let mut rail = RailState::new(Health::Up, Nanos(0));
        (0..20).for_each(|_| rail.measured(Nanos(0), Nanos::from_us(30)));
        rail.measured(Nanos::from_ms(3_600_000), Nanos::from_ms(3_600_000));
        assert!(rail.srtt() < Nanos::from_ms(1));
    }

    #[test]
    fn a_round_of_delayed_answers_shrinks_the_window_and_a_single_one_does_not() {
        let mut rail = RailState::new(Health::Up, Nanos(0));
        rail.window_bytes = 1 << 20;
        let mut now = Nanos(0);
        for sample_us in [50, 50, 50, 9_000, 50, 50, 50] {
            now = now + Nanos::from_us(20);
            rail.measured(now, Nanos::from_us(sample_us));
        }
        assert_eq!(rail.window_bytes, 1 << 20, "others of that round trip were fast");
        (0..400).for_each(|_| {
            now = now + Nanos::from_us(50);
            rail.measured(now, Nanos::from_us(8_000));
        });
        assert!(rail.window_bytes < 1 << 20 && rail.window_bytes > WINDOW_OF_QUEUE_MIN_BYTES, "{}", rail.window_bytes);
        (0..10_000).for_each(|_| {
            now = now + Nanos::from_us(50);
            rail.measured(now, Nanos::from_us(8_000));
        });
        assert_eq!(rail.window_bytes, WINDOW_OF_QUEUE_MIN_BYTES);
    }

    #[test]
    fn answers_that_waited_for_this_process_shrink_nothing() {
        let mut rail = RailState::new(Health::Up, Nanos(0));
        rail.window_bytes = 1 << 20;
        (0..20).for_each(|_| rail.measured(Nanos(0), Nanos::from_us(50)));
        let mut now = Nanos::from_ms(1);
        for _ in 0..400 {
            rail.looked_before = now;
            now = now + Nanos::from_ms(8);
            rail.measured(now, Nanos::from_ms(8));
        }
        assert_eq!((rail.window_bytes, rail.srtt()), (1 << 20, Nanos::from_us(50)));
        // A queue is told from that: looked at all the time, the answers still come late.
        for _ in 0..400 {
            rail.looked_before = now;
            now = now + Nanos::from_us(50);
            rail.measured(now, Nanos::from_ms(8));
        }
        assert!(rail.window_bytes < 1 << 20, "{}", rail.window_bytes);
    }

    #[test]
    fn losses_of_one_round_trip_shrink_the_window_once() {
        let mut rail = RailState::new(Health::Up, Nanos(0));
        for _ in 0..50 {
            let order = rail.take_order();
            rail.sent(Nanos(0), 1000);
            assert_eq!(order + 1, rail.order);
        }
        (0..10).for_each(|order| rail.lost(order, 1000, 1000));
        assert_eq!(rail.window_bytes, WINDOW_FIRST_BYTES * 7 / 10);
        let later = rail.take_order();
        rail.lost(later, 1000, 1000);
        assert_eq!(rail.window_bytes, WINDOW_FIRST_BYTES * 7 / 10 * 7 / 10);
        (0..100).for_each(|_| {
            let order = rail.take_order();
            rail.lost(order, 0, 1000);
        });
        assert_eq!(rail.window_bytes, WINDOW_MIN_BYTES);
    }
}
