//! The receiving half: which packets are here, those that came too early, and what there is to acknowledge. Called by the
//! engine with frames that verified; knows neither keys nor devices.

use crate::PACKETS_UNDER_WAY_MAX;
use crate::credit;
use crate::partial::Partial;
use crate::rail::ACK_DELAY;
use crate::wire::{Place, SACK_BYTES_MAX};
use pulc_base::clock::Nanos;
use std::collections::BTreeMap;

/// Packets after which an acknowledgement is due at once; or so much of the window, if that is less.
const ACK_EVERY: u32 = 64;
const ACK_EVERY_COST: u64 = 128 << 10;
const ACK_EVERY_WINDOW_PART: u64 = 8;
const WORDS: usize = SACK_BYTES_MAX / 8;

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The next in order, and nothing waits before it: the owner takes it from the frame.
    Next,
    /// Kept until its turn comes.
    Kept,
    Duplicate,
    OutsideWindow,
}

/// Where a received packet number belongs.
pub(crate) struct Arrivals {
    /// First packet number not received.
    missing: u64,
    /// First packet number not handed to the owner; behind `missing` while packets wait to be taken.
    untaken: u64,
    /// Kept packets by number modulo their length; empty until the first one.
    kept: Vec<Option<Box<[u8]>>>,
    kept_count: usize,
    /// Long packets of which some parts are here, by number.
    partial: BTreeMap<u64, Partial>,
    /// Of packets kept, and of long ones that are still to be completed.
    kept_bytes: usize,
    kept_bytes_max: usize,
    /// What a datagram of the peer is taken to hold, for the account of its window.
    frame_max: usize,
    /// The packet lent out last.
    lent: Option<Box<[u8]>>,
    window_bytes: u32,
    unacknowledged: u32,
    unacknowledged_cost: u64,
    pub ack_at: Option<Nanos>,
    pub ack_due: bool,
    pub duplicate: bool,
}

impl Arrivals {
    pub fn new(window_bytes: u32, frame_max: usize) -> Arrivals {
        Arrivals {
            missing: 0,
            untaken: 0,
            kept: Vec::new(),
            kept_count: 0,
            partial: BTreeMap::new(),
            kept_bytes: 0,
            kept_bytes_max: window_bytes as usize,
            frame_max,
            lent: None,
            window_bytes,
            unacknowledged: 0,
            unacknowledged_cost: 0,
            ack_at: None,
            ack_due: false,
            duplicate: false,
        }
    }

    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The peer may have so much under way from now on. What may be kept never shrinks: the peer may have believed what it was
    /// told before.
    pub fn allow(&mut self, window_bytes: u32) {
        self.window_bytes = window_bytes;
        self.kept_bytes_max = self.kept_bytes_max.max(window_bytes as usize);
    }

    /// Whether packets later than the first missing one are here.
    pub fn has_gap(&self) -> bool {
        self.kept_count as u64 > self.missing - self.untaken
    }

    /// Bytes of packets kept, and of those begun.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Notes a packet; keeps a copy of it if its turn has not come, or if `keep` says that the caller cannot lend it.
    pub fn packet(&mut self, now: Nanos, number: u64, packet: &[u8], keep: bool) -> Arrival {
        if let Some(refused) = self.refuses(number, packet.len()) {
            return refused;
        }
        let next = self.is_next(number) && !keep;
        if let Some(begun) = self.partial.remove(&number) {
            self.kept_bytes -= begun.len();
        }
        if !next {
            self.keep(number, packet.into());
        }
        self.note(now, number, packet.len(), next);
        if next { Arrival::Next } else { Arrival::Kept }
    }

    /// Whether this is the next packet in order and nothing waits before it.
    pub fn is_next(&self, number: u64) -> bool {
        number == self.missing && self.untaken == self.missing
    }

    /// Notes a packet of which [`Arrivals::is_next`] was true, and which is where it belongs already.
    pub fn landed(&mut self, now: Nanos, number: u64, len: usize) {
        if let Some(begun) = self.partial.remove(&number) {
            self.kept_bytes -= begun.len();
        }
        self.note(now, number, len, true);
    }

    /// Notes a part of a long packet, which is kept until all of it is here.
    pub fn part(&mut self, now: Nanos, number: u64, place: Place, bytes: &[u8]) -> Arrival {
        let total = place.total as usize;
        let is_begun = self.partial.contains_key(&number);
        if let Some(refused) = self.refuses(number, if is_begun { 0 } else { total }) {
            return refused;
        }
        if !is_begun {
            self.kept_bytes += total;
        }
        let partial = self.partial.entry(number).or_insert_with(|| Partial::new(total));
        if partial.len() != total {
            return Arrival::OutsideWindow;
        }
        if !partial.fill(place.offset as usize, bytes) {
            return Arrival::Kept;
        }
        if let Some(whole) = self.partial.remove(&number) {
            self.kept_bytes -= total;
            self.keep(number, whole.into_bytes());
            self.note(now, number, total, false);
        }
        Arrival::Kept
    }

    /// Why nothing of this packet is wanted, if so.
    fn refuses(&mut self, number: u64, more_bytes: usize) -> Option<Arrival> {
        if number < self.missing || self.is_kept(number) {
            self.duplicate = true;
            self.ack_due = true;
            return Some(Arrival::Duplicate);
        }
        // The next in order always has its place.
        let too_much = number != self.missing && self.kept_bytes + more_bytes > self.kept_bytes_max;
        let beyond = number - self.untaken >= PACKETS_UNDER_WAY_MAX as u64;
        (beyond || too_much).then_some(Arrival::OutsideWindow)
    }

    /// A packet is here; `lent`: it goes to the owner at once.
    fn note(&mut self, now: Nanos, number: u64, len: usize, lent: bool) {
        let filled_or_made_gap = number != self.missing || self.has_gap();
        if number == self.missing {
            self.missing += u64::from(lent);
            self.untaken += u64::from(lent);
            while self.is_kept(self.missing) {
                self.missing += 1;
            }
        }
        self.unacknowledged += 1;
        self.unacknowledged_cost += credit::cost(len, self.frame_max);
        let many = self.unacknowledged >= ACK_EVERY
            || self.unacknowledged_cost >= ACK_EVERY_COST.min(u64::from(self.window_bytes) / ACK_EVERY_WINDOW_PART);
        if filled_or_made_gap || many {
            self.ack_due = true;
        } else if !self.ack_due && self.ack_at.is_none() {
            self.ack_at = Some(now + ACK_DELAY);
        }
    }

    fn is_kept(&self, number: u64) -> bool {
        !self.kept.is_empty()
            && (self.untaken..self.untaken + PACKETS_UNDER_WAY_MAX as u64).contains(&number)
            && self.kept[number as usize % PACKETS_UNDER_WAY_MAX].is_some()
    }

    fn keep(&mut self, number: u64, packet: Box<[u8]>) {
        if self.kept.is_empty() {
            self.kept.resize_with(PACKETS_UNDER_WAY_MAX, || None);
        }
        self.kept_count += 1;
        self.kept_bytes += packet.len();
        self.kept[number as usize % PACKETS_UNDER_WAY_MAX] = Some(packet);
    }

    /// The next kept packet whose turn has come.
    pub fn take(&mut self) -> Option<&[u8]> {
        self.lent = None;
        if self.untaken == self.missing {
            return None;
        }
        let packet = self.kept[self.untaken as usize % PACKETS_UNDER_WAY_MAX].take().expect("received and not taken");
        self.untaken += 1;
        self.kept_count -= 1;
        self.kept_bytes -= packet.len();
        if self.kept_count == 0 && self.untaken == self.missing {
            self.kept = Vec::new();
        }
        Some(self.lent.insert(packet))
    }

    /// Writes the selective acknowledgement, as many 64-bit words as there is to say; returns the bytes written.
    pub fn write_sack(&self, out: &mut [u8; SACK_BYTES_MAX]) -> usize {
        let mut words = [0u64; WORDS];
        let mut used = 0;
        let last = (self.untaken + PACKETS_UNDER_WAY_MAX as u64).saturating_sub(self.missing + 1);
        for bit in (0..last).filter(|bit| self.is_kept(self.missing + 1 + bit)) {
            words[bit as usize / 64] |= 1 << (bit % 64);
            used = bit as usize / 64 + 1;
        }
        for (out, word) in out.chunks_exact_mut(8).zip(&words[..used]) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        used * 8
    }

    pub fn owes_acknowledgement(&self) -> bool {
        self.unacknowledged > 0
    }

    /// An acknowledgement has left; `whole`: with everything there is to say about gaps.
    pub fn acknowledged(&mut self, whole: bool) {
        self.duplicate = false;
        if whole || !self.has_gap() {
            (self.unacknowledged, self.unacknowledged_cost) = (0, 0);
            self.ack_at = None;
            self.ack_due = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_packets_wait_for_those_before_them() {
        let mut arrivals = Arrivals::new(1 << 20, 1472);
        assert_eq!(arrivals.packet(Nanos(0), 2, b"c", false), Arrival::Kept);
        assert_eq!(arrivals.take(), None);
        assert_eq!(arrivals.packet(Nanos(0), 1, b"b", false), Arrival::Kept);
        assert!(arrivals.has_gap());
        assert_eq!(arrivals.packet(Nanos(0), 0, b"a", false), Arrival::Next);
        assert_eq!((arrivals.missing(), arrivals.has_gap()), (3, false));
        assert_eq!(arrivals.take(), Some(&b"b"[..]));
        assert_eq!(arrivals.packet(Nanos(0), 3, b"d", false), Arrival::Kept, "c has not been taken yet");
        assert_eq!(arrivals.take(), Some(&b"c"[..]));
        assert_eq!(arrivals.take(), Some(&b"d"[..]));
        assert_eq!(arrivals.take(), None);
        assert_eq!(arrivals.packet(Nanos(0), 3, b"d", false), Arrival::Duplicate);
        assert_eq!(arrivals.kept_bytes(), 0);
    }

    #[test]
    fn an_early_packet_that_comes_twice_is_kept_once() {
        let mut arrivals = Arrivals::new(1 << 20, 1472);
        assert_eq!(arrivals.packet(Nanos(0), 1, b"bb", false), Arrival::Kept);
        assert_eq!(arrivals.packet(Nanos(0), 1, b"bb", false), Arrival::Duplicate);
        assert_eq!(arrivals.kept_bytes(), 2);
        assert_eq!(arrivals.packet(Nanos(0), 0, b"a", false), Arrival::Next);
        assert!(!arrivals.has_gap());
        assert_eq!(
            arrivals.packet(Nanos(0), 1, b"bb", false),
            Arrival::Duplicate,
            "its turn has come, it is not taken yet"
        );
        assert_eq!(arrivals.take(), Some(&b"bb"[..]));
        assert_eq!(arrivals.take(), None);
    }

    #[test]
    fn what_lies_beyond_the_window_is_not_kept() {
        let mut arrivals = Arrivals::new(10, 1472);
        assert_eq!(arrivals.packet(Nanos(0), PACKETS_UNDER_WAY_MAX as u64, b"x", false), Arrival::OutsideWindow);
        assert_eq!(arrivals.packet(Nanos(0), 1, &[0; 10], false), Arrival::Kept);
        assert_eq!(
            arrivals.packet(Nanos(0), 2, &[0; 1], false),
            Arrival::OutsideWindow,
            "more bytes than were allowed"
        );
        assert_eq!(
            arrivals.packet(Nanos(0), 0, &[0; 1], false),
            Arrival::Next,
            "the next in order always has its place"
        );
    }

    #[test]
    fn the_selective_acknowledgement_tells_exactly_what_is_here() {
        let mut arrivals = Arrivals::new(1 << 20, 1472);
        for number in [1, 3, 66, 1023] {
            arrivals.packet(Nanos(0), number, b"x", false);
        }
        let mut out = [0; SACK_BYTES_MAX];
        assert_eq!(arrivals.write_sack(&mut out), SACK_BYTES_MAX);
        let bits: Vec<usize> = (0..1024).filter(|bit| out[bit / 8] & (1 << (bit % 8)) != 0).collect();
        assert_eq!(bits, [0, 2, 65, 1022]);
    }

    #[test]
    fn acknowledgements_come_after_many_packets_or_a_while_and_at_once_on_a_gap() {
        let mut arrivals = Arrivals::new(1 << 20, 1472);
        arrivals.packet(Nanos(5), 0, b"x", false);
        assert_eq!((arrivals.ack_due, arrivals.ack_at), (false, Some(Nanos(5) + ACK_DELAY)));
        (1..ACK_EVERY).for_each(|number| _ = arrivals.packet(Nanos(6), number.into(), b"x", false));
        assert!(arrivals.ack_due);
        arrivals.acknowledged(true);
        assert_eq!((arrivals.ack_due, arrivals.ack_at), (false, None));
        arrivals.packet(Nanos(7), 70, b"x", false);
        assert!(arrivals.ack_due);
        arrivals.acknowledged(false);
        assert!(arrivals.ack_due, "a packet's header cannot tell of the gap");
    }

    fn place(offset: u32, total: u32) -> Place {
        Place { offset, total }
    }

    #[test]
    fn a_long_packet_is_here_when_all_its_parts_are_in_whatever_order_and_number_they_come() {
        let mut arrivals = Arrivals::new(1 << 20, 1472);
        assert_eq!(arrivals.part(Nanos(0), 0, place(4, 10), b"efgh"), Arrival::Kept);
        assert_eq!(arrivals.packet(Nanos(0), 1, b"behind", false), Arrival::Kept);
        assert_eq!(arrivals.part(Nanos(0), 0, place(2, 10), b"cde"), Arrival::Kept, "overlapping");
        assert_eq!((arrivals.missing(), arrivals.take()), (0, None));
        assert_eq!(arrivals.part(Nanos(0), 0, place(8, 10), b"ij"), Arrival::Kept);
        assert_eq!(arrivals.part(Nanos(0), 0, place(0, 10), b"ab"), Arrival::Kept);
        assert_eq!(arrivals.missing(), 2);
        assert_eq!(arrivals.part(Nanos(0), 0, place(0, 10), b"ab"), Arrival::Duplicate);
        assert_eq!(arrivals.take(), Some(&b"abcdefghij"[..]));
        assert_eq!(arrivals.take(), Some(&b"behind"[..]));
        assert_eq!(arrivals.take(), None);
        assert_eq!(arrivals.kept_bytes(), 0);
    }

    #[test]
    fn parts_and_the_whole_of_a_packet_do_not_deliver_it_twice() {
        let mut arrivals = Arrivals::new(1 << 20, 1472);
        assert_eq!(arrivals.part(Nanos(0), 0, place(0, 4), b"ab"), Arrival::Kept);
        assert_eq!(arrivals.packet(Nanos(0), 0, b"abcd", false), Arrival::Next);
        assert_eq!(arrivals.part(Nanos(0), 0, place(2, 4), b"cd"), Arrival::Duplicate);
        assert_eq!(arrivals.take(), None);
        assert_eq!(arrivals.kept_bytes(), 0);
    }

    #[test]
    fn begun_packets_count_against_what_may_be_kept() {
        let mut arrivals = Arrivals::new(100, 1472);
        assert_eq!(arrivals.part(Nanos(0), 3, place(0, 60), b"x"), Arrival::Kept);
        assert_eq!(arrivals.part(Nanos(0), 4, place(0, 60), b"x"), Arrival::OutsideWindow);
        assert_eq!(arrivals.part(Nanos(0), 3, place(1, 60), b"x"), Arrival::Kept);
        assert_eq!(arrivals.part(Nanos(0), 3, place(1, 59), b"x"), Arrival::OutsideWindow, "another length");
        assert_eq!(arrivals.part(Nanos(0), 0, place(0, 500), b"x"), Arrival::Kept, "the next in order has its place");
    }
}
