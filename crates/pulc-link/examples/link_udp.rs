//! The link over the `udp` device beside that device alone, between two network namespaces joined by a veth pair, both ends
//! polling: latency of small messages and throughput of long ones, in one run. Run by hand, as root, on an idle machine:
//! `cargo run --release -p pulc-link --example link_udp [rounds [what [size]]]`. Needs the program `ip`; removes what it made.
//!
//! The device alone has no acknowledgements: its stream is held back by a count that the receiver returns now and then, and
//! would hang if a frame got lost.

use pulc_base::clock::{Nanos, now};
use pulc_base::{JobId, Rank};
use pulc_hal::device::udp::Udp;
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_link::{Config, Full, Link, LinkKeys, Outlet, Rail, credit_share};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command};
use std::time::Duration;

const ADDRESSES: [&str; 2] = ["10.214.9.1:7001", "10.214.9.2:7001"];
const SIZES: [usize; 5] = [8, 1024, 16 << 10, 64 << 10, 1 << 20];
const BUDGET: Nanos = Nanos::from_ms(200);
const HANG: Nanos = Nanos::from_ms(20_000);

/// Whole messages between two processes; calls return when the message is handed over or has come.
trait Channel {
    fn send(&mut self, message: &[u8]);
    fn recv(&mut self, len: usize);
    fn note(&self) -> String;
}

/// The device alone.
struct Bare {
    udp: Udp,
    peer: Peer,
    segment: usize,
    arrived: BareSink,
    taken: u64,
    sent: u64,
    told: u64,
}

#[derive(Default)]
struct BareSink {
    bytes: u64,
    cost: u64,
    peer_has: u64,
    counts: u64,
}

/// What may be under way of the device alone, in the kernel's coin: bytes, and its own burden of every frame.
const BARE_WINDOW: u64 = 2 << 20;
const FRAME_COST: u64 = 768;
/// Length of a frame that only tells how many bytes have come.
const COUNT_LEN: usize = 13;

impl Sink for BareSink {
    fn frame(&mut self, _from: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame {
            match bytes.len() {
                COUNT_LEN => {
                    self.peer_has = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                    self.counts += 1;
                }
                len => {
                    self.bytes += len as u64;
                    self.cost += len as u64 + FRAME_COST;
                }
            }
        }
    }

    fn peer_failed(&mut self, _from: Peer, _why: PeerFault) {}
}

impl Bare {
    /// Counts are exchanged until both ends hear the other.
    fn greet(mut self) -> Bare {
        for _ in 0..5_000 {
            let _ = self.udp.send_short(self.peer, [&[0; COUNT_LEN], &[]]);
            self.udp.flush();
            self.poll();
            if self.arrived.counts >= 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self
    }

    fn poll(&mut self) {
        self.udp.poll(&mut self.arrived, 256);
        if self.arrived.cost - self.told >= BARE_WINDOW / 4 {
            self.told = self.arrived.cost;
            let _ = self.udp.send_short(self.peer, [&self.told.to_le_bytes(), &[0; COUNT_LEN - 8]]);
            self.udp.flush();
        }
    }
}

impl Channel for Bare {
    fn send(&mut self, message: &[u8]) {
        for run in message.chunks(self.segment * 44) {
            let cost = run.len() as u64 + run.len().div_ceil(self.segment) as u64 * FRAME_COST;
            while self.sent + cost > self.arrived.peer_has + BARE_WINDOW {
                self.poll();
            }
            while self.udp.send_run(self.peer, &[run], self.segment) == Err(SendError::Again) {}
            self.sent += cost;
        }
    }

    fn recv(&mut self, len: usize) {
        let start = now();
        while self.arrived.bytes < self.taken + len as u64 {
            self.poll();
            assert!(now().since(start) < HANG, "the bare device lost a frame");
        }
        self.taken += len as u64;
    }

    fn note(&self) -> String {
        format!("{} calls", self.udp.counters().system_calls)
    }
}

/// The link over the device.
struct Linked {
    udp: Udp,
    peer: Peer,
    link: Link,
    message: Vec<u8>,
    arrived: usize,
}

struct LinkSink<'a> {
    link: &'a mut Link,
    message: &'a mut Vec<u8>,
    arrived: &'a mut usize,
    now: Nanos,
}

struct ToUdp<'a>(&'a mut Udp, Peer);

impl Outlet for ToUdp<'_> {
    fn send_run(&mut self, _rail: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full> {
        self.0.send_run(self.1, pieces, segment).map_err(|_| Full)
    }
}

impl LinkSink<'_> {
    fn take(message: &mut [u8], arrived: &mut usize, packet: &[u8]) {
        let at = *arrived % message.len();
        let end = (at + packet.len()).min(message.len());
        message[at..end].copy_from_slice(&packet[..end - at]);
        *arrived += packet.len();
    }
}

impl Sink for LinkSink<'_> {
    fn frame(&mut self, _from: Peer, frame: Frame<'_>) {
        let Frame::Private(bytes) = frame else { return };
        if let Ok(Some(packet)) = self.link.receive(self.now, Rail(0), bytes) {
            Self::take(self.message, self.arrived, packet);
        }
        while let Some(packet) = self.link.next_packet() {
            Self::take(self.message, self.arrived, packet);
        }
    }

    fn takes_runs(&self) -> bool {
        true
    }

    fn run(&mut self, from: Peer, run: &mut [u8]) -> usize {
        let (mut at, mut frames) = (0, 0);
        while at < run.len() {
            let len = self.link.next_frame_len(Rail(0), &run[at..]);
            self.frame(from, Frame::Private(&mut run[at..at + len]));
            (at, frames) = (at + len, frames + 1);
        }
        frames
    }

    fn peer_failed(&mut self, _from: Peer, _why: PeerFault) {}
}

impl Linked {
    fn poll(&mut self) {
        let now = now();
        let (link, message, arrived) = (&mut self.link, &mut self.message, &mut self.arrived);
        let came = self.udp.poll(&mut LinkSink { link, message, arrived, now }, 256);
        if came > 0 || self.link.deadline().is_some_and(|at| at <= now) {
            self.link.transmit_runs(now, &mut ToUdp(&mut self.udp, self.peer));
        }
    }
}

impl Channel for Linked {
    fn send(&mut self, message: &[u8]) {
        let start = now();
        for (index, packet) in message.chunks(self.link.packet_max()).enumerate() {
            while self.link.send(start, [packet, &[]]).is_err() {
                self.poll();
            }
            if self.link.has_a_run() || index % 44 == 43 {
                self.link.transmit_runs(now(), &mut ToUdp(&mut self.udp, self.peer));
            }
        }
        self.link.transmit_runs(start, &mut ToUdp(&mut self.udp, self.peer));
    }

    fn recv(&mut self, len: usize) {
        let start = now();
        while self.arrived < len {
            self.poll();
            assert!(now().since(start) < HANG, "the link is stuck: {:?}", self.link.counters());
        }
        self.arrived -= len;
    }

    fn note(&self) -> String {
        let counters = self.link.counters();
        let (repeated, acks) = (counters.packets_retransmitted, counters.acks_sent);
        format!("{} calls, {repeated} repeated, {acks} acks", self.udp.counters().system_calls)
    }
}

fn open(side: usize, what: &str) -> Box<dyn Channel> {
    let local: SocketAddr = ADDRESSES[side].parse().expect("a literal address");
    let mut udp = Udp::new(UdpSocket::bind(local).expect("the namespace has this address")).expect("usable");
    let peer = udp.open(ADDRESSES[1 - side].parse().expect("a literal address"));
    let segment = udp.frame_max(peer);
    if what == "device" {
        let bare = Bare { udp, peer, segment, arrived: BareSink::default(), taken: 0, sent: 0, told: 0 };
        return Box::new(bare.greet());
    }
    let window = credit_share(udp.receive_buffer_bytes(), 1, segment);
    let config = Config { encrypt: what == "encrypted", ..Config::from_params(segment, 1, window) };
    let keys = LinkKeys::derive(&[1; 32], JobId(1), Rank(side as u32), Rank(1 - side as u32));
    let link = Link::new(config, keys, now());
    Box::new(Linked { udp, peer, link, message: vec![0; 1 << 20], arrived: 0 })
}

/// One process: ping-pong, then streams each answered by one message, with a number of repetitions that both compute alike.
fn side(side: usize, what: &str, size: usize) {
    let mut channel = open(side, what);
    let message = vec![7u8; size];
    let (trips, streamed) = repetitions(size);
    let mut samples = Vec::new();
    for _ in 0..trips {
        let start = now();
        if side == 0 {
            channel.send(&message);
            channel.recv(size);
            samples.push(now().since(start).0 / 2);
        } else {
            channel.recv(size);
            channel.send(&message);
        }
    }
    let mut rates = Vec::new();
    for _ in 0..STREAMS {
        let start = now();
        for _ in 0..streamed {
            if side == 0 { channel.send(&message) } else { channel.recv(size) }
        }
        // The word that all of it has come, and the one that lets the other end go on.
        if side == 1 {
            channel.send(&[1; 8]);
            channel.recv(8);
        } else {
            channel.recv(8);
            rates.push((streamed * size) as f64 / now().since(start).0 as f64);
            channel.send(&[2; 8]);
        }
    }
    if side == 1 {
        return;
    }
    samples.sort_unstable();
    rates.sort_by(f64::total_cmp);
    let at = |tenths: usize| samples[trips * tenths / 10] as f64 / 1e3;
    println!(
        "{what:<10} {size:>8} B  one way p10 {:>7.2} p50 {:>8.2} p90 {:>8.2} us   stream p50 {:>6.2} p90 {:>6.2} GB/s   ({})",
        at(1),
        at(5),
        at(9),
        rates[STREAMS / 2],
        rates[STREAMS * 9 / 10],
        channel.note()
    );
}

/// Streams measured for themselves, short ones, so that some of them meet nothing else on their cores.
const STREAMS: usize = 100;

fn repetitions(size: usize) -> (usize, usize) {
    let trips = (BUDGET.0 as usize / (12_000 + size)).max(50);
    (trips, (BUDGET.0 as usize * 3 / (1_000 + size) / STREAMS).max(4))
}

/// Two namespaces, removed when dropped.
struct Wire;

fn name(side: usize) -> String {
    format!("pulc-link-{}-{side}", std::process::id())
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().expect("the program ip is needed");
    assert!(done.success(), "ip {words}: failed; this needs root");
}

impl Wire {
    fn lay() -> Wire {
        (0..2).for_each(|side| ip(&format!("netns add {}", name(side))));
        let wire = Wire;
        ip(&format!("-n {} link add wire type veth peer name wire netns {}", name(0), name(1)));
        for (side, address) in ADDRESSES.iter().enumerate() {
            let address = address.split(':').next().expect("address and port");
            ip(&format!("-n {} address add {address}/24 dev wire", name(side)));
            ip(&format!("-n {} link set wire up", name(side)));
        }
        wire
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for side in 0..2 {
            let _ = Command::new("ip").args(["netns", "delete", &name(side)]).status();
        }
    }
}

fn start(side: usize, what: &str, size: usize) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &name(side), "taskset", "-c", &side.to_string()]);
    command.arg(program).args(["side", &side.to_string(), what, &size.to_string()]);
    command.spawn().expect("the program ip is needed")
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "side") {
        let number = |index: usize| arguments[index].parse().expect("a number");
        return side(number(2), &arguments[3], number(4));
    }
    let rounds = arguments.get(1).map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    let _wire = Wire::lay();
    let wanted = |index: usize, word: &str| arguments.get(index).is_none_or(|argument| argument == word);
    for _ in 0..rounds {
        for size in SIZES.into_iter().filter(|size| wanted(3, &size.to_string())) {
            for what in ["device", "link", "encrypted"].into_iter().filter(|what| wanted(2, what)) {
                let mut both = [start(1, what, size), start(0, what, size)];
                let ended = both.iter_mut().map(|child| child.wait().expect("our child")).all(|end| end.success());
                assert!(ended, "{what} with {size} bytes failed");
            }
        }
    }
}
