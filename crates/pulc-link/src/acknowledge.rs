//! What the peer has acknowledged, what must have been lost, and the timers. Called by `link` with verified headers and by the
//! owner with times. Only a frame sent later on the same rail proves an earlier one lost; silence proves nothing and only
//! makes the link ask.
//!
//! Source: RFC 8985 (loss by time and by order), RFC 9002 (round-trip times without ambiguity).

use crate::link::Link;
use crate::rail::{Health, SILENT_PROBES_MAX};
use crate::retention::{Slot, State};
use crate::wire::{DATA, DUPLICATE, ECHO, Header};
use pulc_base::clock::Nanos;

/// Overtaking by more than this is not waited for, however much a network reorders.
const OVERTAKEN_MAX: u64 = 128;
/// An idle link gives its memory back after this.
const TRIM_AFTER: Nanos = Nanos::from_ms(10);

/// What one frame acknowledges, while it is worked off.
struct Report {
    now: Nanos,
    rail: u8,
    echo: Option<u32>,
    echo_delay: Nanos,
    /// Rails on which something was answered, a bit each.
    answered: u8,
}

impl Link {
    /// A peer that acknowledges what was never sent breaks the rules; nothing of its frame is believed.
    pub(crate) fn acknowledges_only_what_was_sent(&self, header: &Header, sack: &[u8]) -> bool {
        let beyond = sack_packets(header, sack).next_back().map_or(header.ack, |packet| packet.saturating_add(1));
        header.ack <= self.retention.fresh() && beyond <= self.retention.fresh()
    }

    pub(crate) fn on_acknowledgement(&mut self, now: Nanos, header: &Header, sack: &[u8]) {
        let mut report = Report {
            now,
            rail: header.rail,
            echo: header.has(ECHO).then_some(header.echo),
            echo_delay: Nanos(u64::from(header.echo_delay_ns)),
            answered: 0,
        };
        while self.retention.base() < header.ack {
            let slot = self.retention.release();
            self.under_way_cost -= self.cost(slot.frame_len);
            if slot.state != State::Arrived {
                self.arrived(&slot, &mut report);
            }
        }
        let base = self.retention.base();
        for packet in sack_packets(header, sack).filter(|&packet| packet >= base) {
            let slot = *self.retention.slot(packet);
            if slot.state != State::Arrived {
                self.retention.slot_mut(packet).state = State::Arrived;
                self.arrived(&slot, &mut report);
            }
        }
        if header.has(DUPLICATE) && self.counters.packets_retransmitted > 0 {
            self.overtaken_max = (self.overtaken_max * 2).min(OVERTAKEN_MAX);
        }
        // Only a frame without a packet tells all that is here; judged by another one, packets would be repeated in vain.
        let tells_all = !header.has(DATA);
        let probe_answered = tells_all && self.probe_answered(&mut report);
        for index in (0..self.rails.len()).filter(|index| report.answered & (1 << index) != 0) {
            let waits = self.rails[index].in_flight_bytes > 0;
            self.rails[index].answered(now, waits);
        }
        if probe_answered || !sack.is_empty() {
            self.detect_losses(now);
        }
        if self.retention.len() == 0 && self.trim_at.is_none() && self.retention.allocated_bytes() > 0 {
            self.trim_at = Some(now + TRIM_AFTER);
        }
    }

    /// A packet is acknowledged for the first time; `slot` is as it was before.
    fn arrived(&mut self, slot: &Slot, report: &mut Report) {
        let frame_max = self.config.frame_max;
        let rail = &mut self.rails[usize::from(slot.rail)];
        if slot.state == State::UnderWay {
            rail.arrived(slot.frame_len as usize, frame_max);
            if slot.train {
                self.trains.arrived();
            }
        }
        let echoed = report.echo.filter(|_| report.rail == slot.rail);
        // Of a repeated packet it is not known which transmission arrived, unless the echo is as new as the last one.
        if !slot.repeated || echoed.is_some_and(|echo| !is_before(echo, slot.counter)) {
            rail.latest_arrived = rail.latest_arrived.max(Some(slot.rail_order));
            report.answered |= 1 << slot.rail;
        }
        if echoed == Some(slot.counter as u32) {
            rail.measured(report.now, report.now.since(slot.sent_at).since(report.echo_delay));
        }
    }

    fn probe_answered(&mut self, report: &mut Report) -> bool {
        let rail = &mut self.rails[usize::from(report.rail)];
        let (Some(echo), Some(probe)) = (report.echo, rail.probe) else { return false };
        if is_before(echo, probe.counter) {
            return false;
        }
        if echo == probe.counter as u32 {
            rail.measured(report.now, report.now.since(probe.sent_at).since(report.echo_delay));
        }
        rail.latest_arrived = rail.latest_arrived.max(Some(probe.order));
        rail.probe = None;
        report.answered |= 1 << report.rail;
        if rail.health == Health::Suspended {
            rail.health = Health::Up;
            self.epoch = self.epoch.wrapping_add(1);
        }
        true
    }

    /// Finds what was overtaken on its rail by too many later frames, or for too long.
    fn detect_losses(&mut self, now: Nanos) {
        self.loss_at = None;
        for packet in self.retention.base()..self.retention.fresh() {
            let slot = *self.retention.slot(packet);
            let rail = &mut self.rails[usize::from(slot.rail)];
            let overtaken = rail.latest_arrived.map_or(0, |latest| latest.saturating_sub(slot.rail_order));
            if slot.state != State::UnderWay || overtaken == 0 {
                continue;
            }
            let patient_until = slot.sent_at + rail.reorder_allowance();
            if overtaken >= self.overtaken_max || patient_until <= now {
                rail.lost(slot.rail_order, slot.frame_len as usize, self.config.frame_max);
                self.retention.slot_mut(packet).state = State::Lost;
                self.lost.push_back(packet);
                if slot.train {
                    self.trains.lost(now);
                }
            } else {
                self.loss_at = Some(self.loss_at.map_or(patient_until, |at| at.min(patient_until)));
            }
        }
    }

    /// Everything under way on a rail goes over the others.
    pub(crate) fn give_rail_up(&mut self, now: Nanos, index: usize, health: Health) {
        for packet in self.retention.base()..self.retention.fresh() {
            let slot = self.retention.slot_mut(packet);
            if slot.state == State::UnderWay && usize::from(slot.rail) == index {
                slot.state = State::Lost;
                self.lost.push_back(packet);
            }
        }
        self.rails[index].give_up(now, health);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// When `tick` wants to be called next; `None`: only a frame or a packet can change anything.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.closed {
            return None;
        }
        let due_now = self.retry_at.is_none() && (0..self.rails.len()).any(|index| self.control_due(index));
        if due_now {
            return Some(Nanos(0));
        }
        let rails = self.rails.iter().map(|rail| rail.probe_at);
        rails.chain([self.loss_at, self.arrivals.ack_at, self.trim_at, self.retry_at]).flatten().min()
    }

    /// Lets timers act; what they produce leaves with the next `transmit_runs` (which calls this itself). Calling early or
    /// late is harmless.
    pub fn tick(&mut self, now: Nanos) {
        if self.closed {
            return;
        }
        self.trains.tick(now);
        if self.loss_at.is_some_and(|at| at <= now) {
            self.detect_losses(now);
        }
        if self.arrivals.ack_at.is_some_and(|at| at <= now) {
            (self.arrivals.ack_due, self.arrivals.ack_at) = (true, None);
        }
        for index in 0..self.rails.len() {
            if self.rails[index].probe_at.is_some_and(|at| at <= now) {
                self.on_silence(now, index);
            }
        }
        if self.trim_at.is_some_and(|at| at <= now) {
            self.trim_at = None;
            if self.retention.len() == 0 {
                self.retention.trim();
                self.lost = Default::default();
                self.scratch = Vec::new();
            }
        }
    }

    fn on_silence(&mut self, now: Nanos, index: usize) {
        let waits_for_window = self.under_way_cost == 0 && self.retention.len() > 0;
        let rail = &mut self.rails[index];
        let waits = rail.in_flight_bytes > 0 || rail.health == Health::Suspended || waits_for_window;
        if !waits || rail.health == Health::Down {
            rail.rest();
            return;
        }
        let awake = self.besieged || now < self.peer_besieged_until || rail.is_heard();
        // What others have answered since is asked of the silence before this probe: patience may begin anew with it.
        let since = if rail.silent_probes() > 0 { rail.silent_since } else { now };
        rail.silent(now, awake);
        if awake && rail.silent_probes() > 2 {
            self.repeat_oldest(now, index);
        }
        let (tries, health) = (self.rails[index].silent_probes(), self.rails[index].health);
        if health != Health::Up || tries < 2 {
            return;
        }
        let mut others_answer = false;
        for (_, other) in self.rails.iter_mut().enumerate().filter(|(other, _)| *other != index) {
            other.probe_due |= other.health == Health::Up;
            others_answer |= other.health == Health::Up && other.last_heard > since;
        }
        if others_answer && tries >= SILENT_PROBES_MAX {
            self.give_rail_up(now, index, Health::Suspended);
        }
    }
}

impl Link {
    /// While `besieged`, the owner's sockets are flooded by others, and what this end sends may meet the same: silence is then
    /// taken for loss. The peer is told, so that it does the same; to be called again several times a second.
    pub fn is_besieged(&mut self, _now: Nanos, besieged: bool) {
        self.besieged = besieged;
        self.arrivals.ack_due |= besieged && self.heard.iter().any(|heard| heard.newest.is_some());
    }

    /// The first packet under way on a rail leaves once more with the next probe, which only asks: where most frames are lost, a
    /// question, its answer and the repetition would all have to get through in turn.
    fn repeat_oldest(&mut self, now: Nanos, index: usize) {
        let under_way = self.retention.base()..self.retention.fresh();
        let is_here = |slot: &Slot| slot.state == State::UnderWay && usize::from(slot.rail) == index;
        let Some(packet) = under_way.into_iter().find(|&packet| is_here(self.retention.slot(packet))) else { return };
        let slot = self.retention.slot_mut(packet);
        slot.state = State::Lost;
        let (frame_len, train) = (slot.frame_len, slot.train);
        self.rails[index].forgotten(frame_len as usize);
        self.lost.push_back(packet);
        if train {
            self.trains.lost(now);
        }
    }
}

/// Packets that a selective acknowledgement names, ascending.
fn sack_packets(header: &Header, sack: &[u8]) -> impl DoubleEndedIterator<Item = u64> {
    let first = header.ack.saturating_add(1);
    let set = move |bit: &usize| sack[bit / 8] & (1 << (bit % 8)) != 0;
    (0..sack.len() * 8).filter(set).map(move |bit| first.saturating_add(bit as u64))
}

/// Whether the frame echoed was sent before the one with this counter, by the counters' low halves.
fn is_before(echo: u32, counter: u64) -> bool {
    echo.wrapping_sub(counter as u32) > u32::MAX / 2
}
