//! The measurements: two threads on two cores hand over messages as two processes would. Called by `measure_once`. A candidate
//! replaces the default only when it is clearly faster, so that noise changes nothing.

use crate::device::shm::{MEMORY_PART_MAX, MEMORY_READ_MIN_BYTES, POOL_BYTES, REFERENCE_MIN_BYTES, SLOT_BYTES};
use crate::os::copy_kernel::{COPY_KERNEL, Kernel};
use crate::os::cpu;
use crate::os::memfd::{self, ReadMap, WriteMap};
use crate::os::peer_memory;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How much faster than the default a candidate must be, in hundredths.
const CLEARLY: u64 = 115;
/// Timings of one candidate, of which the best counts: others only ever slow it down.
const TIMINGS: usize = 12;
/// About what one timing moves, in messages of which there are neither too few to be timed nor more than are of use.
const TIMING_BYTES: usize = 1 << 20;
const MESSAGES_MIN: usize = 2;
const MESSAGES_MAX: usize = 24;
const MESSAGE_BYTES: usize = 1 << 20;
const LONE_BYTES: usize = 64 << 10;
/// Polls before a waiting thread gives its core away, should both have landed on one.
const POLLS: u32 = 20_000;

/// Measures everything within `limit`; what is not reached stays with its default. Nothing is measured on a single core. `None`: there was
/// no memory or no thread to measure with.
pub fn all(limit: Duration) -> Option<Vec<(String, u64)>> {
    let until = Instant::now() + limit;
    let cores = match cpu::allowed_cores() {
        Ok(cores) if cores.len() > 1 => [cores[0], cores[1]],
        _ => return Some(Vec::new()),
    };
    let before = Kernel::chosen();
    // A thread of its own, so that this one is not pinned afterwards.
    let found = std::thread::scope(|scope| {
        let measuring = Builder::new().spawn_scoped(scope, || bench(cores, until)).ok()?;
        measuring.join().ok()?
    });
    before.choose();
    found
}

fn bench(cores: [u32; 2], until: Instant) -> Option<Vec<(String, u64)>> {
    let (pool, fd) = memfd::create_produced("pulc-calibration", LARGEST_POOL).ok()?;
    let view = memfd::map_produced(fd, LARGEST_POOL).ok()?;
    let line = Line {
        plan: AtomicU64::new(0),
        source: AtomicU64::new(0),
        asked: Padded::default(),
        answered: Padded::default(),
        ended: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let reading = || {
            let _ = cpu::pin_to(&[cores[1]]);
            read(&line, &view);
        };
        let reader = Builder::new().spawn_scoped(scope, reading).ok()?;
        let _ = cpu::pin_to(&[cores[0]]);
        let mut run = Run { line: &line, pool: &pool, source: vec![1; MESSAGE_BYTES], until, written: 0 };
        let found = run.find();
        line.ended.store(true, Ordering::Release);
        let _ = reader.join();
        Some(found)
    })
}

const LARGEST_POOL: usize = 4 << 20;

/// The words by which the threads talk; each on lines of its own.
struct Line {
    /// Bytes of a piece (upper half) and of the ring that the pieces go round in (lower half).
    plan: AtomicU64,
    /// Where in memory the next piece lies that is to be read there; zero: the pieces lie in the ring.
    source: AtomicU64,
    /// Pieces written, and pieces copied out.
    asked: Padded,
    answered: Padded,
    ended: AtomicBool,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// Copies out what it is asked to, and says so.
fn read(line: &Line, view: &ReadMap) {
    let mut to = vec![0; MESSAGE_BYTES];
    let mut staging = vec![0; MEMORY_PART_MAX];
    let own = std::process::id() as i32;
    let mut seen = 0;
    let mut polls = 0;
    loop {
        // Acquire: pairs with the release of `message`; plan and bytes are there before.
        let asked = line.asked.0.load(Ordering::Acquire);
        if asked == seen {
            if line.ended.load(Ordering::Acquire) {
                return;
            }
            wait(&mut polls);
            continue;
        }
        polls = 0;
        let plan = line.plan.load(Ordering::Relaxed);
        let (piece, ring) = ((plan >> 32) as usize, (plan & 0xffff_ffff) as usize);
        match line.source.load(Ordering::Relaxed) {
            0 => view.copy_out(place(seen, piece, ring), &mut to[..piece]),
            source => {
                // As the device does: first into private memory, then to where it belongs. Where it is forbidden nothing is faster.
                if peer_memory::read(own, source, &mut staging[..piece]).is_err() {
                    std::thread::sleep(Duration::from_micros(100));
                }
                to[..piece].copy_from_slice(&staging[..piece]);
            }
        }
        seen += 1;
        // Release: pairs with the acquire of `message`.
        line.answered.0.store(seen, Ordering::Release);
    }
}

/// Where a piece lies.
fn place(number: u64, piece: usize, ring: usize) -> usize {
    (number as usize % (ring / piece)) * piece
}

fn wait(polls: &mut u32) {
    *polls += 1;
    if polls.is_multiple_of(POLLS) {
        cpu::yield_now();
    }
}

struct Run<'a> {
    line: &'a Line,
    pool: &'a WriteMap,
    source: Vec<u8>,
    until: Instant,
    /// Pieces so far.
    written: u64,
}

/// How a message goes.
#[derive(Clone, Copy)]
enum Way {
    /// In pieces of a slot through the first so many bytes.
    Pool(usize),
    /// Read where it lies.
    Reference,
    /// Read in ordinary memory by a system call, one part after the other.
    Memory,
}

/// One of several ways that are compared.
#[derive(Clone, Copy)]
struct Trial {
    kernel: Kernel,
    way: Way,
    bytes: usize,
}

impl Run<'_> {
    fn find(&mut self) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        let usual = Trial { kernel: Kernel::chosen(), way: Way::Pool(POOL_BYTES.default as usize), bytes: LONE_BYTES };
        let kernels = Kernel::ALL.into_iter().filter(|kernel| kernel.is_here() && *kernel != usual.kernel);
        let kernel = self.best(usual, kernels.map(|kernel| Trial { kernel, ..usual }).collect());
        let usual = Trial { bytes: MESSAGE_BYTES, ..kernel.unwrap_or(usual) };
        usual.kernel.choose();
        if kernel.is_some() {
            found.push((COPY_KERNEL.name.to_owned(), usual.kernel as u64));
        }
        let pools = [1 << 20, 2 << 20, LARGEST_POOL].into_iter().filter(|pool| *pool as u64 != POOL_BYTES.default);
        let best = self.best(usual, pools.map(|pool| Trial { way: Way::Pool(pool), ..usual }).collect());
        if let Some(Trial { way: Way::Pool(pool), .. }) = best {
            found.push((POOL_BYTES.name.to_owned(), pool as u64));
        }
        let pool = best.unwrap_or(usual);
        if let Some(bytes) = self.shortest_reference(pool) {
            found.push((REFERENCE_MIN_BYTES.name.to_owned(), bytes));
        }
        if let Some(bytes) = self.shortest_reading(pool) {
            found.push((MEMORY_READ_MIN_BYTES.name.to_owned(), bytes));
        }
        found
    }

    /// The clearly fastest candidate, or the usual one. `None`: not measured.
    fn best(&mut self, usual: Trial, others: Vec<Trial>) -> Option<Trial> {
        let trials: Vec<Trial> = [usual].into_iter().chain(others).collect();
        let took = self.compare(&trials)?;
        let mut best = (usual, took[0] * 100 / CLEARLY);
        for (trial, took) in trials.into_iter().zip(took).skip(1) {
            if took < best.1 {
                best = (trial, took);
            }
        }
        Some(best.0)
    }

    /// The shortest message that is read faster where it lies than through the pool; so are all longer ones. Those below 32 KiB
    /// are never found: a sender by reference waits for its receiver, and short messages shall not.
    fn shortest_reference(&mut self, pool: Trial) -> Option<u64> {
        let mut shortest = REFERENCE_MIN_BYTES.default;
        for bytes in [256 << 10, 128 << 10, 64 << 10, 32 << 10] {
            let pool = Trial { bytes, ..pool };
            let took = self.compare(&[pool, Trial { way: Way::Reference, ..pool }])?;
            if took[1] >= took[0] {
                break;
            }
            shortest = bytes as u64;
        }
        Some(shortest)
    }

    /// The shortest message that is clearly faster read in its sender's memory than through the pool, if any is.
    fn shortest_reading(&mut self, pool: Trial) -> Option<u64> {
        let mut shortest = MEMORY_READ_MIN_BYTES.default;
        for bytes in [1 << 20, 256 << 10, 64 << 10] {
            let pool = Trial { bytes, ..pool };
            let took = self.compare(&[pool, Trial { way: Way::Memory, ..pool }])?;
            if took[1] >= took[0] * 100 / CLEARLY {
                break;
            }
            shortest = bytes as u64;
        }
        Some(shortest)
    }

    /// Ticks of one lone message in each of these ways, timed in turn: what comes in between hits all alike. `None` when the time
    /// is over. The kernel of the first one copies afterwards.
    fn compare(&mut self, trials: &[Trial]) -> Option<Vec<u64>> {
        let mut best = vec![u64::MAX; trials.len()];
        for _ in 0..TIMINGS {
            for (trial, best) in trials.iter().zip(&mut best) {
                if Instant::now() >= self.until {
                    trials[0].kernel.choose();
                    return None;
                }
                trial.kernel.choose();
                let messages = (TIMING_BYTES / trial.bytes).clamp(MESSAGES_MIN, MESSAGES_MAX);
                let start = cpu::ticks();
                for _ in 0..messages {
                    self.message(trial.way, trial.bytes);
                }
                *best = (*best).min(cpu::ticks().saturating_sub(start) / messages as u64);
            }
        }
        trials[0].kernel.choose();
        Some(best)
    }

    fn message(&mut self, way: Way, bytes: usize) {
        let (piece, ring) = match way {
            Way::Pool(pool) => (SLOT_BYTES.default as usize, pool),
            Way::Reference => (bytes, LARGEST_POOL),
            Way::Memory => (bytes.min(MEMORY_PART_MAX), LARGEST_POOL),
        };
        self.line.plan.store((piece as u64) << 32 | ring as u64, Ordering::Relaxed);
        for part in self.source[..bytes].chunks(piece) {
            if let Way::Pool(_) = way {
                // The reader has had everything of the last message, and this one is no longer than the ring.
                self.pool.copy_in(place(self.written, piece, ring), part);
            }
            let source = if let Way::Memory = way { part.as_ptr() as u64 } else { 0 };
            self.line.source.store(source, Ordering::Relaxed);
            self.written += 1;
            self.line.asked.0.store(self.written, Ordering::Release);
            if let Way::Memory = way {
                self.await_reader();
            }
        }
        self.await_reader();
    }

    fn await_reader(&self) {
        let mut polls = 0;
        while self.line.answered.0.load(Ordering::Acquire) < self.written {
            wait(&mut polls);
        }
    }
}
