//! The shm device beside what the machine allows, in one run: `cargo run --release -p pulc-hal --example shm_bench`. Two
//! threads pinned to two cores, each with its own device and its own mappings, as two processes would have them. Ratios
//! count, not digits: the hop is measured beside every line.

use pulc_hal::board::Board;
use pulc_hal::device::shm::{Shm, ShmConfig};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_hal::os::cpu;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

const ROUNDS: usize = 9;

fn main() {
    let cores = cpu::allowed_cores().expect("the cores of this process are known");
    let [a, b, ..] = cores[..] else { return println!("two cores are needed") };
    println!("{:<44} {:>10} {:>10}   {:>8}", "", "best", "median", "hop ns");
    let mut from = vec![1u8; 1 << 20];
    let mut to = vec![0u8; 1 << 20];
    for bytes in [64 << 10, 1 << 20] {
        let rates = (0..ROUNDS).map(|round| {
            let repeats = (64 << 20) / bytes;
            let start = Instant::now();
            for _ in 0..repeats {
                from[round] ^= 1;
                to[..bytes].copy_from_slice(std::hint::black_box(&from[..bytes]));
                std::hint::black_box(&mut to);
            }
            (repeats * bytes) as f64 / start.elapsed().as_nanos() as f64
        });
        show(&format!("memcpy {} KiB, GB/s", bytes >> 10), rates.collect(), true, hop(a, b));
    }
    for bytes in [8, 56, 112] {
        show(&format!("send and poll {bytes} B in one core, ns"), one_core(bytes), false, hop(a, b));
    }
    for bytes in [0, 8, 48, 56, 57, 112, 224, 896] {
        let times = ping_pong(a, b, bytes, 1, 20_000);
        show(&format!("short frame {bytes} B one way, ns"), times, false, hop(a, b));
    }
    for bytes in [1024, 4096, 16 << 10] {
        let times = ping_pong(a, b, bytes, 1, 5_000);
        show(&format!("bulk frame {bytes} B one way, ns"), times, false, hop(a, b));
    }
    for frames in [4, 64] {
        let bytes = 16 << 10;
        let times = ping_pong(a, b, bytes, frames, 4000 / frames);
        let rates = times.iter().map(|ns| (bytes * frames) as f64 / ns).collect();
        show(&format!("lone message {} KiB, GB/s", (bytes * frames) >> 10), rates, true, hop(a, b));
    }
    for (bytes, count) in [(8, 400_000), (8 << 10, 20_000), (16 << 10, 10_000)] {
        let times = stream(a, b, bytes, count);
        let millions = times.iter().map(|ns| 1e3 / ns).collect();
        show(&format!("stream of {bytes} B, million frames/s"), millions, true, hop(a, b));
        let rates = times.iter().map(|ns| bytes as f64 / ns).collect();
        show(&format!("stream of {bytes} B, GB/s"), rates, true, hop(a, b));
    }
}

fn show(name: &str, mut values: Vec<f64>, high_is_good: bool, hop_ns: f64) {
    values.sort_by(f64::total_cmp);
    let best = if high_is_good { values[values.len() - 1] } else { values[0] };
    println!("{name:<44} {best:>10.1} {:>10.1}   {hop_ns:>8.0}", values[values.len() / 2]);
}

/// Pins this thread and waits, blocked, until its partner has done the same.
fn start_on(core: u32, both: &Barrier) {
    cpu::pin_to(&[core]).expect("a core of this process");
    both.wait();
}

fn hop(a: u32, b: u32) -> f64 {
    #[repr(align(128))]
    struct Word(AtomicU64);
    let (ping, pong) = (Word(AtomicU64::new(0)), Word(AtomicU64::new(0)));
    let both = Barrier::new(2);
    const N: u64 = 5_000;
    let wait = |word: &Word, value: u64| while word.0.load(Ordering::Acquire) < value {};
    let mut best = f64::MAX;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start_on(b, &both);
            for i in 1..=N * ROUNDS as u64 {
                wait(&ping, i);
                pong.0.store(i, Ordering::Release);
            }
        });
        start_on(a, &both);
        for round in 0..ROUNDS as u64 {
            let start = Instant::now();
            for i in 1..=N {
                ping.0.store(round * N + i, Ordering::Release);
                wait(&pong, round * N + i);
            }
            best = best.min(start.elapsed().as_nanos() as f64 / N as f64 / 2.0);
        }
    });
    best
}

/// Copies what arrives to one private place, as a receiver with a posted buffer does.
struct Taker {
    bytes: Vec<u8>,
    frames: usize,
    /// Length of the message, whose frames go to successive places.
    window: usize,
}

impl Sink for Taker {
    #[inline]
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        match frame {
            Frame::Private(bytes) => self.bytes[..bytes.len()].copy_from_slice(bytes),
            Frame::Shared(shared) => {
                let at = self.frames * shared.len() % self.window;
                shared.copy_to(&mut self.bytes[at..at + shared.len()]);
            }
        }
        self.frames += 1;
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        panic!("{why}");
    }
}

struct End {
    device: Shm,
    to: Peer,
    from: Vec<u8>,
    sink: Taker,
}

impl End {
    fn new(device: Shm, to: Peer) -> End {
        End { device, to, from: vec![3; 2 << 20], sink: Taker { bytes: vec![0; 2 << 20], frames: 0, window: 1 << 20 } }
    }

    #[inline]
    fn send(&mut self, bytes: usize, at: usize) {
        let short = bytes <= self.device.limits().short_max;
        loop {
            let parts = [&self.from[..0], &self.from[at..at + bytes]];
            let result =
                if short { self.device.send_short(self.to, parts) } else { self.device.send_bulk(self.to, parts) };
            match result {
                Ok(()) => return,
                Err(SendError::Again) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[inline]
    fn receive(&mut self, frames: usize) {
        let goal = self.sink.frames + frames;
        while self.sink.frames < goal {
            let left = goal - self.sink.frames;
            self.device.poll(&mut self.sink, left);
        }
    }
}

fn pair() -> (End, End) {
    let (board, fd) = Board::create(2).expect("a board");
    let board_b = Board::attach(std::os::fd::AsFd::as_fd(&fd), 2).expect("the same board");
    let mut a = Shm::new(ShmConfig::default(), Arc::new(board), 0).expect("a device");
    let mut b = Shm::new(ShmConfig::default(), Arc::new(board_b), 1).expect("a device");
    let (b_at_a, offer) = a.open(1).expect("an offer");
    let (a_at_b, answer) = b.accept(0, &offer.what, offer.fds).expect("a good offer");
    let answer = answer.expect("an answer to the first offer");
    a.accept(1, &answer.what, answer.fds).expect("a good answer");
    (End::new(a, b_at_a), End::new(b, a_at_b))
}

/// Time of a send and the poll that takes it, both in this thread: what the instructions cost without the way.
fn one_core(bytes: usize) -> Vec<f64> {
    let (mut a, mut b) = pair();
    const N: usize = 100_000;
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..N {
                a.send(std::hint::black_box(bytes), 0);
                b.receive(1);
            }
            start.elapsed().as_nanos() as f64 / N as f64
        })
        .collect()
}

/// Time of one message of `frames` frames one way, in ns, per round.
fn ping_pong(core_a: u32, core_b: u32, bytes: usize, frames: usize, repeats: usize) -> Vec<f64> {
    let (mut a, mut b) = pair();
    (a.sink.window, b.sink.window) = ((bytes * frames).max(1), (bytes * frames).max(1));
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start_on(core_b, &both);
            for _ in 0..ROUNDS * repeats {
                b.receive(frames);
                for i in 0..frames {
                    b.send(bytes, i * bytes);
                }
            }
        });
        start_on(core_a, &both);
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..repeats {
                for i in 0..frames {
                    a.send(bytes, i * bytes);
                }
                a.receive(frames);
            }
            times.push(start.elapsed().as_nanos() as f64 / repeats as f64 / 2.0);
        }
        times
    })
}

/// Time per frame of a one-way stream, in ns, per round.
fn stream(core_a: u32, core_b: u32, bytes: usize, count: usize) -> Vec<f64> {
    let (mut a, mut b) = pair();
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start_on(core_b, &both);
            for _ in 0..ROUNDS {
                b.receive(count);
                b.send(0, 0);
            }
        });
        start_on(core_a, &both);
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for i in 0..count {
                a.send(bytes, i * bytes % (1 << 20));
            }
            a.receive(1);
            times.push(start.elapsed().as_nanos() as f64 / count as f64);
        }
        times
    })
}
