//! What leaves: runs of packets, repetitions first, then acknowledgements and probes. Called by the owner after it has
//! received or sent something and when a timer is due; hands frames to an outlet and does no I/O itself.

use crate::PACKETS_UNDER_WAY_MAX;
use crate::keys::{Seal, TrainTag};
use crate::link::{Full, Link, Outlet, Rail};
use crate::rail::{Health, Probe};
use crate::retention::{PIECES_MAX, State};
use crate::wire::{
    ASK, BESIEGED, CONTROL_FRAME_MAX, COUNTER_END, DATA, DUPLICATE, ECHO, ENCRYPTED, FRAME_BYTES_MAX, HEADER_BYTES,
    Header, OVERHEAD, PART, PART_OVERHEAD, PLACE_BYTES, Place, SACK, SACK_BYTES_MAX, TAG_BYTES,
};
use pulc_base::clock::Nanos;

/// Most frames and bytes in one run: what one system call with UDP segmentation takes.
const RUN_FRAMES_MAX: usize = 64;
const RUN_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Most frames in one run of parts where trains got lost.
const SHORT_RUN_FRAMES: usize = 4;
/// Frames that one round of transmission may use, at most: so many counters are left when a link falls silent.
const COUNTERS_SPARE: u64 = 1 << 20;
/// When an outlet was full it is offered the rest after this, or earlier if the owner comes by.
const RETRY_AFTER: Nanos = Nanos::from_us(200);

/// How packets leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Each in a frame of one datagram.
    Frames,
    /// One long packet, as a train.
    Train,
    /// One long packet, in frames of one datagram.
    Parts,
}

/// Packets that leave together.
struct Run {
    first: u64,
    count: usize,
    segment: usize,
    rail: usize,
    fresh: bool,
    form: Form,
}

/// An outlet for one frame.
struct OneFrame<'a> {
    out: &'a mut [u8],
    taken: Option<(Rail, usize)>,
}

impl Outlet for OneFrame<'_> {
    fn send_run(&mut self, rail: Rail, pieces: &[&[u8]], _segment: usize) -> Result<(), Full> {
        let &[frame] = pieces else { return Err(Full) };
        if self.taken.is_some() || frame.len() > self.out.len() {
            return Err(Full);
        }
        self.out[..frame.len()].copy_from_slice(frame);
        self.taken = Some((rail, frame.len()));
        Ok(())
    }
}

impl Link {
    /// Writes the next frame that is due to `out` (at least `config.frame_max` bytes); its rail and length. For rails that
    /// take single frames and links without trains; [`Link::transmit_runs`] does the same without a copy.
    pub fn transmit(&mut self, now: Nanos, out: &mut [u8]) -> Option<(Rail, usize)> {
        let mut one = OneFrame { out, taken: None };
        self.emit(now, &mut one, 1);
        one.taken
    }

    /// Hands everything that is due to the outlet, in runs as long as possible, straight from retention. Returns the number
    /// of frames taken; stops when the outlet is full.
    pub fn transmit_runs(&mut self, now: Nanos, outlet: &mut impl Outlet) -> usize {
        self.emit(now, outlet, usize::MAX)
    }

    fn emit(&mut self, now: Nanos, outlet: &mut impl Outlet, frames_max: usize) -> usize {
        if self.closed {
            return 0;
        }
        if self.next_counter >= COUNTER_END - COUNTERS_SPARE {
            // To repeat a counter would give the key away.
            self.close();
            return 0;
        }
        self.tick(now);
        let (frames, full) = self.emit_until_full(now, outlet, frames_max);
        self.retry_at = full.then_some(now + RETRY_AFTER);
        self.watch_closed_window(now);
        frames
    }

    /// Frames taken, and whether the outlet refused one.
    fn emit_until_full(&mut self, now: Nanos, outlet: &mut impl Outlet, frames_max: usize) -> (usize, bool) {
        let mut frames = 0;
        while frames < frames_max
            && let Some(run) = self.next_run(frames_max - frames)
        {
            if self.send_run(now, &run, outlet).is_err() {
                return (frames, true);
            }
            frames += run.count;
        }
        for index in 0..self.rails.len() {
            if frames < frames_max && self.control_due(index) {
                if self.send_control(now, index, outlet).is_err() {
                    return (frames, true);
                }
                frames += 1;
            }
        }
        (frames, false)
    }

    /// The next packets to leave and the rail for them, as many as may go together.
    fn next_run(&mut self, frames_max: usize) -> Option<Run> {
        while let Some(&packet) = self.lost.front()
            && (packet < self.retention.base() || self.retention.slot(packet).state != State::Lost)
        {
            self.lost.pop_front();
        }
        let (first, fresh) = match self.lost.front() {
            Some(&packet) => (packet, false),
            None if self.may_send(self.retention.fresh(), 0) => (self.retention.fresh(), true),
            None => return None,
        };
        let segment = self.retention.slot(first).frame_len as usize;
        let rail = self.pick_rail(segment)?;
        if self.retention.slot(first).long {
            return Some(self.long_run(first, rail, fresh));
        }
        let (mut count, mut bytes, mut pieces) = (1, segment, 1);
        let mut cost = self.cost(segment as u32);
        let room = self.rails[rail].room_bytes().min(RUN_BYTES_MAX);
        while count < RUN_FRAMES_MAX.min(frames_max) {
            let next = first + count as u64;
            let goes = if fresh { self.may_send(next, cost) } else { self.lost.get(count) == Some(&next) };
            if !goes || self.retention.slot(next).long || (!fresh && self.retention.slot(next).state != State::Lost) {
                break;
            }
            let frame_len = self.retention.slot(next).frame_len;
            pieces += usize::from(!self.retention.follows(next));
            if frame_len as usize > segment || bytes + frame_len as usize > room || pieces > PIECES_MAX {
                break;
            }
            count += 1;
            bytes += frame_len as usize;
            cost += self.cost(frame_len);
            if (frame_len as usize) < segment {
                break;
            }
        }
        Some(Run { first, count, segment, rail, fresh, form: Form::Frames })
    }

    /// A long packet leaves as a train once; what was lost so goes in parts, of which each that arrives helps.
    fn long_run(&self, first: u64, rail: usize, fresh: bool) -> Run {
        let segment = self.config.frame_max;
        let fits = self.retention.slot(first).frame_len as usize <= self.trains.frames() * segment;
        let form = if fresh && fits { Form::Train } else { Form::Parts };
        Run { first, count: 1, segment, rail, fresh, form }
    }

    /// Whether a packet that was never sent may leave, when a cost of `more` is about to leave before it.
    fn may_send(&self, packet: u64, more: u64) -> bool {
        if packet >= self.retention.end() || packet - self.retention.base() >= PACKETS_UNDER_WAY_MAX as u64 {
            return false;
        }
        let before = self.under_way_cost + more;
        let cost = self.cost(self.retention.slot(packet).frame_len);
        // One packet may always be under way, unless the window is shut: a peer may have smaller frames than this end.
        before + cost <= u64::from(self.peer_window_bytes) || (before == 0 && self.peer_window_bytes > 0)
    }

    /// The fastest rail with room.
    fn pick_rail(&self, bytes: usize) -> Option<usize> {
        let usable = self.rails.iter().enumerate();
        usable
            .filter(|(_, rail)| rail.health == Health::Up && rail.room_bytes() >= bytes)
            .min_by_key(|(_, rail)| rail.srtt())
            .map(|(index, _)| index)
    }

    fn header(&self, now: Nanos, flags: u8, rail: usize) -> Header {
        let (echo, echo_delay, has_echo) = match self.heard[rail].newest {
            Some((counter, at)) => (counter as u32, now.since(at).0, ECHO),
            None => (0, 0, 0),
        };
        let secret = if self.config.encrypt { ENCRYPTED } else { 0 };
        let duplicate = if self.arrivals.duplicate { DUPLICATE } else { 0 };
        let besieged = if self.besieged { BESIEGED } else { 0 };
        Header {
            flags: flags | has_echo | secret | duplicate | besieged,
            rail: rail as u8,
            epoch: self.epoch,
            src: self.keys.here,
            dst: self.keys.peer,
            window_bytes: self.window_bytes,
            counter: self.next_counter,
            packet: self.retention.fresh(),
            ack: self.arrivals.missing(),
            echo,
            echo_delay_ns: u32::try_from(echo_delay).unwrap_or(u32::MAX),
        }
    }

    fn send_run(&mut self, now: Nanos, run: &Run, outlet: &mut impl Outlet) -> Result<(), Full> {
        // Counters are used up whether the outlet takes the run or not: a nonce never serves twice.
        let first_counter = match run.form {
            Form::Frames => self.send_frames(now, run, outlet)?,
            Form::Train => self.send_train(now, run, outlet)?,
            Form::Parts => self.send_parts(now, run, outlet)?,
        };
        self.note_sent(now, run, first_counter);
        self.arrivals.acknowledged(false);
        Ok(())
    }

    /// Returns the counter of the first frame.
    fn send_frames(&mut self, now: Nanos, run: &Run, outlet: &mut impl Outlet) -> Result<u64, Full> {
        let mut header = self.header(now, DATA, run.rail);
        let first_counter = header.counter;
        let seal = Seal { encrypt: self.config.encrypt, part: false, train: false };
        self.next_counter += run.count as u64;
        self.scratch.clear();
        for packet in run.first..run.first + run.count as u64 {
            let mut frame = self.retention.frame_mut(packet);
            if self.config.encrypt {
                let start = self.scratch.len();
                self.scratch.extend_from_slice(frame);
                frame = &mut self.scratch[start..];
            }
            header.packet = packet;
            header.write(frame);
            self.keys.seal(header.counter, frame, seal);
            header.counter += 1;
        }
        let rail = Rail(run.rail as u8);
        if self.config.encrypt {
            outlet.send_run(rail, &[&self.scratch], run.segment)?;
        } else {
            let (pieces, used) = self.retention.pieces(run.first, run.count);
            outlet.send_run(rail, &pieces[..used], run.segment)?;
        }
        Ok(first_counter)
    }

    /// One frame that the outlet cuts into datagrams.
    fn send_train(&mut self, now: Nanos, run: &Run, outlet: &mut impl Outlet) -> Result<u64, Full> {
        let len = self.retention.slot(run.first).frame_len;
        // Who may send no more of this kind wants to hear at once, not when it suits the other end.
        let is_last = self.rails[run.rail].room_bytes() < 2 * len as usize
            || self.under_way_cost + 2 * self.cost(len) > u64::from(self.peer_window_bytes);
        let ask = if is_last { ASK } else { 0 };
        let header = Header { packet: run.first, ..self.header(now, DATA | PART | ask, run.rail) };
        self.next_counter += 1;
        let seal = Seal { encrypt: self.config.encrypt, part: true, train: !self.config.encrypt };
        let made = self.retention.tag(run.first).cloned();
        let mut frame = self.retention.frame_mut(run.first);
        if self.config.encrypt {
            self.scratch.clear();
            self.scratch.extend_from_slice(frame);
            frame = &mut self.scratch;
        }
        header.write(frame);
        match made {
            Some(tag) => seal_made(frame, tag),
            None => self.keys.seal(header.counter, frame, seal),
        }
        outlet.send_run(Rail(run.rail as u8), &[frame], run.segment)?;
        Ok(header.counter)
    }

    /// Returns the counter of the last frame: once that is answered, all of them have been overtaken.
    fn send_parts(&mut self, now: Nanos, run: &Run, outlet: &mut impl Outlet) -> Result<u64, Full> {
        let mut header = Header { packet: run.first, ..self.header(now, DATA | PART, run.rail) };
        let packet = self.retention.long_packet(run.first);
        let (total, part_max) = (packet.len() as u32, run.segment.saturating_sub(PART_OVERHEAD).max(1));
        self.scratch.clear();
        for (index, part) in packet.chunks(part_max).enumerate() {
            let start = self.scratch.len();
            self.scratch.resize(start + HEADER_BYTES + PLACE_BYTES, 0);
            self.scratch.extend_from_slice(part);
            self.scratch.resize(self.scratch.len() + TAG_BYTES, 0);
            let frame = &mut self.scratch[start..];
            header.counter = self.next_counter;
            self.next_counter += 1;
            header.write(frame);
            Place { offset: (index * part_max) as u32, total }.write(&mut frame[HEADER_BYTES..]);
            self.keys.seal(header.counter, frame, Seal { encrypt: self.config.encrypt, part: true, train: false });
        }
        // Where trains do not get through, long runs hardly do: whoever is short of room takes a run as a whole or not at all.
        let together = if self.trains.frames() == 0 { SHORT_RUN_FRAMES * run.segment } else { self.scratch.len() };
        for frames in self.scratch.chunks(together.max(1)) {
            outlet.send_run(Rail(run.rail as u8), &[frames], run.segment)?;
        }
        Ok(header.counter)
    }

    fn note_sent(&mut self, now: Nanos, run: &Run, first_counter: u64) {
        for index in 0..run.count as u64 {
            let rail = &mut self.rails[run.rail];
            let slot = self.retention.slot_mut(run.first + index);
            slot.repeated = !run.fresh;
            slot.train = run.form == Form::Train;
            slot.state = State::UnderWay;
            slot.rail = run.rail as u8;
            slot.rail_order = rail.take_order();
            slot.counter = first_counter + index;
            slot.sent_at = now;
            let frame_len = slot.frame_len;
            rail.sent(now, frame_len as usize);
            if run.fresh {
                self.under_way_cost += self.cost(frame_len);
            }
        }
        if run.fresh {
            self.retention.sent_fresh(run.count);
            self.counters.packets_sent += run.count as u64;
        } else {
            self.lost.drain(..run.count);
            self.counters.packets_retransmitted += run.count as u64;
        }
    }

    /// Whether a frame without a packet wants to leave on this rail.
    pub(crate) fn control_due(&self, index: usize) -> bool {
        if self.rails[index].health == Health::Down {
            return false;
        }
        self.heard[index].asked || self.rails[index].probe_due || (self.arrivals.ack_due && index == self.ack_index())
    }

    /// The rail for acknowledgements: where the newest packet came, unless that one does not answer.
    fn ack_index(&self) -> usize {
        let newest = usize::from(self.ack_rail);
        if self.rails[newest].health == Health::Up {
            return newest;
        }
        self.rails.iter().position(|rail| rail.health == Health::Up).unwrap_or(newest)
    }

    /// An acknowledgement of all there is to say, which may also ask for one.
    fn send_control(&mut self, now: Nanos, index: usize, outlet: &mut impl Outlet) -> Result<(), Full> {
        let mut sack = [0; SACK_BYTES_MAX];
        let sack_bytes = self.arrivals.write_sack(&mut sack);
        let asks = self.rails[index].probe_due;
        let flags = if asks { ASK } else { 0 } | if sack_bytes > 0 { SACK } else { 0 };
        let header = self.header(now, flags, index);
        self.next_counter += 1;
        let mut buffer = [0; CONTROL_FRAME_MAX];
        let frame = &mut buffer[..OVERHEAD + sack_bytes];
        header.write(frame);
        frame[HEADER_BYTES..HEADER_BYTES + sack_bytes].copy_from_slice(&sack[..sack_bytes]);
        self.keys.seal(header.counter, frame, Seal { encrypt: self.config.encrypt, part: false, train: false });
        outlet.send_run(Rail(index as u8), &[frame], frame.len())?;
        let rail = &mut self.rails[index];
        if asks {
            rail.probe = Some(Probe { counter: header.counter, order: rail.take_order(), sent_at: now });
            rail.probe_due = false;
        }
        self.heard[index].asked = false;
        self.counters.acks_sent += 1;
        self.arrivals.acknowledged(true);
        Ok(())
    }

    /// When the peer's window is shut and nothing is under way, only a probe brings news of its opening.
    fn watch_closed_window(&mut self, now: Nanos) {
        if self.under_way_cost == 0
            && self.retention.len() > 0
            && let Some(index) = self.rails.iter().position(|rail| rail.health == Health::Up)
        {
            self.rails[index].watch(now);
        }
    }
}

/// Completes a train whose tag was made but for the header.
fn seal_made(frame: &mut [u8], tag: TrainTag) {
    let (body, end) = frame.split_at_mut(frame.len() - TAG_BYTES);
    end.copy_from_slice(&tag.end(&body[..HEADER_BYTES]));
}
