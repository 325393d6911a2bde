//! A network that exists only in memory and virtual time, for tests: it loses, delays, reorders, doubles and bends frames and
//! lets paths die, all drawn from one seed, so that every run can be repeated exactly. Called by tests of the link and of the
//! floors above it; must never look at a real clock.

use super::{Caps, Device, Frame, Limits, Peer, SendError, Sink};
use pulc_base::clock::Nanos;
use pulc_base::metrics::DeviceCounters;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// Longest frame, as on an Ethernet with UDP.
pub const FRAME_MAX: usize = 1472;
/// Frames that one endpoint has sent and the network has not delivered yet.
const IN_FLIGHT_MAX: usize = 1 << 16;

/// What a path does to frames. Chances are in parts of a thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    pub loss_permille: u32,
    pub duplicate_permille: u32,
    pub corrupt_permille: u32,
    /// Every frame takes this long,
    pub delay: Nanos,
    /// and up to this much more: what makes frames overtake each other.
    pub jitter: Nanos,
    pub dead: bool,
}

impl Path {
    /// Loses nothing and keeps the order.
    pub const PERFECT: Path = Path {
        loss_permille: 0,
        duplicate_permille: 0,
        corrupt_permille: 0,
        delay: Nanos(10_000),
        jitter: Nanos(0),
        dead: false,
    };
}

/// What the network has done to frames so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SimCounters {
    pub sent: u64,
    pub delivered: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    /// Dropped because the receiver's queue was full.
    pub overflowed: u64,
}

/// The network. Clones are handles of the same one.
#[derive(Clone)]
pub struct SimNet(Arc<Mutex<Net>>);

struct Net {
    now: Nanos,
    random: Random,
    everywhere: Path,
    paths: HashMap<(u32, u32), Path>,
    endpoints: Vec<Endpoint>,
    bottlenecks: Vec<Bottleneck>,
    under_way: BinaryHeap<Reverse<Flight>>,
    flights: u64,
    counters: SimCounters,
}

/// A port of a switch: frames to these endpoints leave through it one after the other, and wait in its queue.
struct Bottleneck {
    to: Vec<u32>,
    bytes_per_us: u64,
    queue_max_bytes: u64,
    busy_until: Nanos,
}

struct Endpoint {
    queue: VecDeque<(u32, Vec<u8>)>,
    queued_bytes: usize,
    queue_max_bytes: usize,
    in_flight: usize,
}

/// A frame on its way, ordered by arrival, then by departure.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Nanos,
    number: u64,
    from: u32,
    to: u32,
    bytes: Vec<u8>,
}

/// A small generator, the same on every machine (splitmix64).
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    pub fn happens(&mut self, permille: u32) -> bool {
        permille > 0 && self.below(1000) < u64::from(permille)
    }
}

impl SimNet {
    /// An empty network at time zero whose every path is like `everywhere`.
    pub fn new(seed: u64, everywhere: Path) -> SimNet {
        SimNet(Arc::new(Mutex::new(Net {
            now: Nanos(0),
            random: Random(seed),
            everywhere,
            paths: HashMap::new(),
            endpoints: Vec::new(),
            bottlenecks: Vec::new(),
            under_way: BinaryHeap::new(),
            flights: 0,
            counters: SimCounters::default(),
        })))
    }

    /// A new endpoint whose queue holds `queue_max_bytes` of frames that are not polled yet, like a socket's buffer.
    pub fn endpoint(&self, queue_max_bytes: usize) -> Sim {
        let mut net = self.net();
        net.endpoints.push(Endpoint { queue: VecDeque::new(), queued_bytes: 0, queue_max_bytes, in_flight: 0 });
        let address = net.endpoints.len() as u32 - 1;
        drop(net);
        Sim { net: self.clone(), address, peers: Vec::new(), counters: DeviceCounters::default() }
    }

    /// Changes one direction between two endpoints, also for frames that are sent already and not yet lost.
    pub fn set_path(&self, from: u32, to: u32, path: Path) {
        self.net().paths.insert((from, to), path);
    }

    /// From now on all frames to these endpoints share a line of this speed behind a queue of this size, which drops what does
    /// not fit.
    pub fn add_bottleneck(&self, to: &[u32], bytes_per_us: u64, queue_max_bytes: u64) {
        let bottleneck = Bottleneck { to: to.to_vec(), bytes_per_us, queue_max_bytes, busy_until: Nanos(0) };
        self.net().bottlenecks.push(bottleneck);
    }

    /// Changes every path that was not set for itself.
    pub fn set_everywhere(&self, path: Path) {
        self.net().everywhere = path;
    }

    pub fn now(&self) -> Nanos {
        self.net().now
    }

    /// When the next frame arrives somewhere.
    pub fn next_arrival(&self) -> Option<Nanos> {
        self.net().under_way.peek().map(|flight| flight.0.at)
    }

    /// Lets time pass until `to`; frames that arrive by then wait at their endpoints.
    pub fn advance_to(&self, to: Nanos) {
        let mut net = self.net();
        net.now = net.now.max(to);
        while net.under_way.peek().is_some_and(|flight| flight.0.at <= net.now) {
            let Reverse(flight) = net.under_way.pop().expect("there is a first one");
            net.land(flight);
        }
    }

    pub fn counters(&self) -> SimCounters {
        self.net().counters
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        self.0.lock().expect("no test panics while it holds the network")
    }
}

impl Net {
    fn path(&self, from: u32, to: u32) -> Path {
        *self.paths.get(&(from, to)).unwrap_or(&self.everywhere)
    }

    fn depart(&mut self, from: u32, to: u32, bytes: Vec<u8>) {
        let path = self.path(from, to);
        self.counters.sent += 1;
        if path.dead || self.random.happens(path.loss_permille) {
            self.counters.lost += 1;
            return;
        }
        if self.random.happens(path.duplicate_permille) {
            self.counters.duplicated += 1;
            self.launch(from, to, bytes.clone(), path);
        }
        self.launch(from, to, bytes, path);
    }

    fn launch(&mut self, from: u32, to: u32, mut bytes: Vec<u8>, path: Path) {
        if self.random.happens(path.corrupt_permille) && !bytes.is_empty() {
            self.counters.corrupted += 1;
            let bit = self.random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            if self.random.happens(200) {
                let len = self.random.below(bytes.len() as u64) as usize;
                bytes.truncate(len);
            }
        }
        let jitter = self.random.below(path.jitter.0 + 1);
        let Some(departs) = self.pass_bottleneck(to, bytes.len() as u64) else {
            self.counters.lost += 1;
            return;
        };
        let at = departs + path.delay + Nanos(jitter);
        self.flights += 1;
        self.endpoints[from as usize].in_flight += 1;
        self.under_way.push(Reverse(Flight { at, number: self.flights, from, to, bytes }));
    }

    /// When a frame to this endpoint leaves the queue before it; `None`: the queue is full.
    fn pass_bottleneck(&mut self, to: u32, bytes: u64) -> Option<Nanos> {
        let now = self.now;
        let Some(port) = self.bottlenecks.iter_mut().find(|port| port.to.contains(&to)) else { return Some(now) };
        let queued_bytes = port.busy_until.since(now).0 * port.bytes_per_us / 1000;
        if queued_bytes + bytes > port.queue_max_bytes {
            return None;
        }
        port.busy_until = port.busy_until.max(now) + Nanos((bytes * 1000).div_ceil(port.bytes_per_us));
        Some(port.busy_until)
    }

    fn land(&mut self, flight: Flight) {
        self.endpoints[flight.from as usize].in_flight -= 1;
        if self.path(flight.from, flight.to).dead {
            self.counters.lost += 1;
            return;
        }
        let endpoint = &mut self.endpoints[flight.to as usize];
        if endpoint.queued_bytes + flight.bytes.len() > endpoint.queue_max_bytes {
            self.counters.overflowed += 1;
            return;
        }
        self.counters.delivered += 1;
        endpoint.queued_bytes += flight.bytes.len();
        endpoint.queue.push_back((flight.from, flight.bytes));
    }
}

/// One endpoint of a [`SimNet`].
pub struct Sim {
    net: SimNet,
    address: u32,
    peers: Vec<Option<u32>>,
    counters: DeviceCounters,
}

impl Sim {
    pub fn address(&self) -> u32 {
        self.address
    }

    /// A peer at this address. Opening the same address again gives the same peer.
    pub fn open(&mut self, address: u32) -> Peer {
        if let Some(known) = self.peers.iter().position(|&peer| peer == Some(address)) {
            return Peer(known as u32);
        }
        self.peers.push(Some(address));
        Peer(self.peers.len() as u32 - 1)
    }

    /// Frames and bytes that wait to be polled.
    pub fn waiting(&self) -> (usize, usize) {
        let net = self.net.net();
        let endpoint = &net.endpoints[self.address as usize];
        (endpoint.queue.len(), endpoint.queued_bytes)
    }
}

impl Device for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn caps(&self) -> Caps {
        Caps::BULK
    }

    fn limits(&self) -> Limits {
        Limits { short_max: FRAME_MAX, frame_max: FRAME_MAX }
    }

    fn send_short(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        let len = parts[0].len() + parts[1].len();
        let Some(Some(address)) = self.peers.get(to.0 as usize).copied() else { return Err(SendError::PeerGone) };
        if len > FRAME_MAX {
            return Err(SendError::TooLong { len, max: FRAME_MAX });
        }
        let mut net = self.net.net();
        if net.endpoints[self.address as usize].in_flight >= IN_FLIGHT_MAX {
            self.counters.again += 1;
            return Err(SendError::Again);
        }
        net.depart(self.address, address, parts.concat());
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += len as u64;
        Ok(())
    }

    fn send_bulk(&mut self, to: Peer, parts: [&[u8]; 2]) -> Result<(), SendError> {
        self.send_short(to, parts)
    }

    fn flush(&mut self) {}

    fn poll(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        let mut handed = 0;
        while handed < budget {
            let mut net = self.net.net();
            let endpoint = &mut net.endpoints[self.address as usize];
            let Some((from, mut bytes)) = endpoint.queue.pop_front() else { break };
            endpoint.queued_bytes -= bytes.len();
            drop(net);
            let Some(peer) = self.peers.iter().position(|&peer| peer == Some(from)) else {
                self.counters.frames_refused += 1;
                continue;
            };
            self.counters.frames_received += 1;
            self.counters.bytes_received += bytes.len() as u64;
            sink.frame(Peer(peer as u32), Frame::Private(&mut bytes));
            handed += 1;
        }
        handed
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close_peer(&mut self, peer: Peer) {
        if let Some(open) = self.peers.get_mut(peer.0 as usize) {
            *open = None;
        }
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
