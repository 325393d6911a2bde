//! What an empty poll costs the message that comes after it, with a PAUSE between polls and without, for one cache line and for
//! the shm device: `cargo run --release -p pulc-hal --example poll_price`. Two threads pinned to two cores; short bursts of every
//! kind in turn, so that a host that moves its cores disturbs all alike. The figures behind `docs/adr/0006`.

use pulc_hal::board::Board;
use pulc_hal::device::shm::{Shm, ShmConfig};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, Sink};
use pulc_hal::os::cpu;
use std::error::Error;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const TRIPS: usize = 1000;
const BURSTS: usize = 300;

#[derive(Clone, Copy, PartialEq)]
enum What {
    Line,
    /// A poll ends with the frame it was made for.
    Device,
    /// And looks for the next one at once.
    DeviceGreedy,
}

const KINDS: [(&str, What, bool); 6] = [
    ("one line, PAUSE", What::Line, true),
    ("one line, bare", What::Line, false),
    ("device, PAUSE", What::Device, true),
    ("device, bare", What::Device, false),
    ("device polls on, PAUSE", What::DeviceGreedy, true),
    ("device polls on, bare", What::DeviceGreedy, false),
];

#[repr(align(128))]
struct Line(AtomicU64);

struct Taker {
    bytes: [u8; 8],
    frames: usize,
    is_content: bool,
}

impl Sink for Taker {
    #[inline(always)]
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        if let Frame::Private(bytes) = frame
            && bytes.len() == self.bytes.len()
        {
            self.bytes.copy_from_slice(bytes);
        }
        self.frames += 1;
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.is_content && self.frames > 0
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        panic!("{why}");
    }
}

/// One of the two sides, with the line it writes and the line it reads.
struct Side<'a> {
    asks: bool,
    mine: &'a Line,
    theirs: &'a Line,
    device: Shm,
}

impl Side<'_> {
    fn run(&mut self) -> Vec<Vec<f64>> {
        let mut times = vec![Vec::with_capacity(BURSTS); KINDS.len()];
        let mut sequence = 0;
        for _ in 0..BURSTS {
            for (&(_, what, pause), times) in KINDS.iter().zip(&mut times) {
                let started = Instant::now();
                for _ in 0..TRIPS {
                    sequence += 1;
                    if self.asks {
                        self.send(what, sequence);
                    }
                    self.receive(what, pause, sequence);
                    if !self.asks {
                        self.send(what, sequence);
                    }
                }
                times.push(started.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0);
            }
        }
        times
    }

    #[inline(always)]
    fn send(&mut self, what: What, sequence: u64) {
        match what {
            What::Line => self.mine.0.store(sequence, Ordering::Release),
            _ => self.device.send_short(Peer(0), [&sequence.to_ne_bytes(), &[]]).expect("one frame fits"),
        }
    }

    #[inline(always)]
    fn receive(&mut self, what: What, pause: bool, sequence: u64) {
        let mut taker = Taker { bytes: [0; 8], frames: 0, is_content: what == What::Device };
        loop {
            let came = match what {
                What::Line => self.theirs.0.load(Ordering::Acquire) == sequence,
                _ => self.device.poll(&mut taker, 4) > 0,
            };
            if came {
                return;
            }
            if pause {
                cpu::pause();
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let cores = cpu::allowed_cores()?;
    let [core_a, core_b, ..] = cores[..] else { return Err("two cores are needed".into()) };
    let (board, fd) = Board::create(2)?;
    let other_board = Board::attach(fd.as_fd(), 2)?;
    let mut a = Shm::new(ShmConfig::read(), Arc::new(board), 0)?;
    let mut b = Shm::new(ShmConfig::read(), Arc::new(other_board), 1)?;
    let (_, offer) = a.open(1)?;
    let (_, answer) = b.accept(0, &offer.what, offer.fds)?;
    let answer = answer.ok_or("the first offer is answered")?;
    a.accept(1, &answer.what, answer.fds)?;
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let mut asking = Side { asks: true, mine: &ping, theirs: &pong, device: a };
    let mut answering = Side { asks: false, mine: &pong, theirs: &ping, device: b };
    let times = std::thread::scope(|scope| {
        scope.spawn(move || {
            cpu::pin_to(&[core_b]).expect("a core of this process");
            answering.run()
        });
        cpu::pin_to(&[core_a]).expect("a core of this process");
        asking.run()
    });
    println!("{:<24} {:>6} {:>6} {:>6}   ns one way", "", "p10", "p50", "p75");
    for ((name, ..), mut times) in KINDS.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!("{name:<24} {:>6.0} {:>6.0} {:>6.0}", times[BURSTS / 10], times[BURSTS / 2], times[BURSTS * 3 / 4]);
    }
    Ok(())
}
