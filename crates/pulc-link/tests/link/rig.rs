//! Two links, one or more rails between them, and two programs that send numbered messages and check what arrives. Used by all
//! tests here; time is virtual, so a test may wait for an hour.

use pulc_base::clock::Nanos;
use pulc_base::{JobId, Rank};
use pulc_hal::device::sim::{Path, Sim, SimNet};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, Sink};
use pulc_link::{Config, Full, Link, LinkError, LinkKeys, Outlet, Rail};

pub const JOB_KEY: [u8; 32] = [42; 32];
pub const QUEUE_BYTES: usize = 1 << 20;
/// More steps than any honest run takes: a livelock.
const STEPS_MAX: usize = 2_000_000;

pub fn config(rails: u8) -> Config {
    Config {
        frame_max: 1472,
        rails,
        window_bytes: 200_000,
        first_window_bytes: 200_000,
        retention_max_bytes: 256 << 10,
        encrypt: false,
        train_max_bytes: 0,
    }
}

/// What one program does and has seen.
pub struct End {
    pub link: Link,
    pub sims: Vec<Sim>,
    /// The other end's endpoint on each rail.
    pub there: Vec<Peer>,
    pub to_send: u64,
    pub sent: u64,
    pub received: u64,
    pub refused: u64,
    /// When it polled last, if it tells its link.
    pub looked: Option<Nanos>,
    /// Neither polls nor ticks until then.
    pub paused_until: Nanos,
    pub memory_peak_bytes: usize,
    pub frames_out: u64,
    /// Longest message of both programs.
    message_max: usize,
    seed: u64,
}

pub struct Rig {
    pub net: SimNet,
    pub ends: [End; 2],
}

/// Collects frames so that the device is free again when the link answers.
struct Collected(Vec<Vec<u8>>);

impl Sink for Collected {
    fn frame(&mut self, _from: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame {
            self.0.push(bytes.to_vec());
        }
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        panic!("the simulated device gave {from:?} up: {why}");
    }
}

struct ToSims<'a> {
    sims: &'a mut [Sim],
    there: &'a [Peer],
}

impl Outlet for ToSims<'_> {
    fn send_run(&mut self, rail: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full> {
        let index = usize::from(rail.0);
        for frame in pieces.iter().flat_map(|piece| piece.chunks(segment)) {
            self.sims[index].send_short(self.there[index], [frame, &[]]).map_err(|_| Full)?;
        }
        Ok(())
    }
}

impl Rig {
    pub fn new(seed: u64, path: Path, config: Config) -> Rig {
        let net = SimNet::new(seed, path);
        let mut sims: [Vec<Sim>; 2] = [0, 1].map(|_| (0..config.rails).map(|_| net.endpoint(QUEUE_BYTES)).collect());
        let [one, two] = &mut sims;
        let there = [
            one.iter_mut().zip(two.iter()).map(|(here, there)| here.open(there.address())).collect::<Vec<_>>(),
            two.iter_mut().zip(one.iter()).map(|(here, there)| here.open(there.address())).collect::<Vec<_>>(),
        ];
        let mut parts = sims.into_iter().zip(there).zip([(0, 1), (1, 0)]);
        let ends = std::array::from_fn(|_| {
            let ((sims, there), (here, peer)) = parts.next().expect("two ends");
            let keys = LinkKeys::derive(&JOB_KEY, JobId(1), Rank(here), Rank(peer));
            End {
                link: Link::new(config, keys, Nanos(0)),
                sims,
                there,
                to_send: 0,
                sent: 0,
                received: 0,
                refused: 0,
                looked: Some(Nanos(0)),
                paused_until: Nanos(0),
                memory_peak_bytes: 0,
                frames_out: 0,
                message_max: config.packet_max(),
                seed: seed ^ u64::from(here),
            }
        });
        Rig { net, ends }
    }

    /// Both send messages that are longer than a frame of one datagram.
    pub fn with_messages_of(mut self, max: usize) -> Rig {
        self.ends.iter_mut().for_each(|end| end.message_max = max);
        self
    }

    /// Sets both directions of a rail.
    pub fn set_rail(&self, rail: usize, path: Path) {
        let [one, two] = &self.ends;
        let (one, two) = (one.sims[rail].address(), two.sims[rail].address());
        self.net.set_path(one, two, path);
        self.net.set_path(two, one, path);
    }

    /// Both programs do what they can at this moment; then time passes until something can happen, but not past `until`.
    /// False: nothing will ever happen again.
    pub fn step(&mut self, until: Nanos) -> bool {
        let now = self.net.now();
        let [one, two] = &mut self.ends;
        let seeds = [two.seed, one.seed];
        for (end, peer_seed) in self.ends.iter_mut().zip(seeds) {
            if end.paused_until <= now {
                end.work(now, peer_seed);
            }
        }
        let wakes = self.ends.iter().flat_map(|end| {
            let paused = end.paused_until > now;
            if paused { Some(end.paused_until) } else { end.link.deadline() }
        });
        match wakes.chain(self.net.next_arrival()).min() {
            Some(next) if next <= until => self.net.advance_to(next),
            Some(_) => self.net.advance_to(until),
            None => {
                self.net.advance_to(until);
                return false;
            }
        }
        true
    }

    /// Lets both work until `until`.
    pub fn run_until(&mut self, until: Nanos) {
        for _ in 0..STEPS_MAX {
            if self.net.now() >= until {
                return;
            }
            self.step(until);
        }
        panic!("livelock: {} steps and still at {:?}", STEPS_MAX, self.net.now());
    }

    /// Lets both work until everything has arrived and is acknowledged; the time it took.
    pub fn finish(&mut self) -> Nanos {
        let start = self.net.now();
        let limit = start + Nanos::from_ms(24 * 3_600_000);
        for _ in 0..STEPS_MAX {
            if self.is_done() {
                return self.net.now() - start;
            }
            assert!(self.net.now() < limit, "a virtual day was not enough: {}", self.state());
            assert!(self.step(limit) || self.is_done(), "both wait for ever: {}", self.state());
        }
        panic!("livelock: {STEPS_MAX} steps: {}", self.state());
    }

    pub fn is_done(&self) -> bool {
        let [one, two] = &self.ends;
        let arrived = one.to_send == two.received && two.to_send == one.received;
        arrived && one.link.unacknowledged() == 0 && two.link.unacknowledged() == 0
    }

    fn state(&self) -> String {
        let end = |end: &End| {
            let (sent, to_send, received, waits) = (end.sent, end.to_send, end.received, end.link.unacknowledged());
            let (deadline, counters) = (end.link.deadline(), end.link.counters());
            format!("sent {sent} of {to_send}, received {received}, unacknowledged {waits}, {deadline:?}, {counters:?}")
        };
        format!("at {:?}: {} | {} | {:?}", self.net.now(), end(&self.ends[0]), end(&self.ends[1]), self.net.counters())
    }
}

impl End {
    fn work(&mut self, now: Nanos, peer_seed: u64) {
        for rail in 0..self.sims.len() {
            let mut frames = Collected(Vec::new());
            self.sims[rail].poll(&mut frames, usize::MAX);
            if let Some(before) = self.looked {
                self.link.rail_looked(Rail(rail as u8), before);
            }
            for mut frame in frames.0 {
                self.take(now, Rail(rail as u8), &mut frame, peer_seed);
            }
        }
        self.looked = self.looked.map(|_| now);
        self.send_what_fits(now);
        self.frames_out +=
            self.link.transmit_runs(now, &mut ToSims { sims: &mut self.sims, there: &self.there }) as u64;
        assert_ne!(self.link.deadline(), Some(Nanos(0)), "due at once right after everything was sent");
        self.memory_peak_bytes = self.memory_peak_bytes.max(self.link.memory_bytes());
    }

    pub fn take(&mut self, now: Nanos, rail: Rail, frame: &mut [u8], peer_seed: u64) {
        match self.link.receive(now, rail, frame) {
            Ok(Some(packet)) => {
                check(packet, peer_seed, self.received, self.message_max);
                self.received += 1;
            }
            Ok(None) => {}
            Err(_) => self.refused += 1,
        }
        while let Some(packet) = self.link.next_packet() {
            check(packet, peer_seed, self.received, self.message_max);
            self.received += 1;
        }
    }

    fn send_what_fits(&mut self, now: Nanos) {
        while self.sent < self.to_send {
            let message = message(self.seed, self.sent, self.message_max);
            let cut = message.len() / 3;
            match self.link.send(now, [&message[..cut], &message[cut..]]) {
                Ok(()) => self.sent += 1,
                Err(LinkError::Again) => return,
                Err(other) => panic!("message {} was refused: {other}", self.sent),
            }
        }
    }
}

/// Message `number` of a program: its number, then bytes that depend on it, of a length that varies.
fn message(seed: u64, number: u64, max: usize) -> Vec<u8> {
    let mixed = (seed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = match mixed % 7 {
        0..3 => max,
        3 => 8,
        _ => 8 + (mixed >> 8) as usize % (max - 8),
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((8..len).map(|at| (mixed >> 16) as u8 ^ at as u8));
    bytes
}

/// Exactly once, in order, unchanged: the packet is message `number`.
fn check(packet: &[u8], seed: u64, number: u64, max: usize) {
    let expected = message(seed, number, max);
    assert!(packet == expected, "message {number} came changed, twice or out of order: {:?}", packet.get(..8));
}
