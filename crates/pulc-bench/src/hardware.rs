//! What memory itself allows: a cache line handed over between two processes, and memcpy. On one core the line is in the
//! cache anyway, and what counts is the hand-over of the core: the waiting side yields.

use crate::Error;
use crate::measure::{Figures, percentiles};
use crate::pair::{Side, Task};
use crate::row::Place;
use crate::worker::Line;
use pulc_base::clock::{Nanos, now};
use pulc_hal::os::cpu;
use pulc_hal::os::memfd::{self, WriteMap};
use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / 8;
const MAP_BYTES: usize = 4096;
/// Two lines apart, so that the prefetcher for neighbours stays out of it.
const A_TO_B: usize = 0;
const B_TO_A: usize = 512;
const PAGE_BYTES: usize = 4096;
const STOP: u64 = u64::MAX;
/// A clock read costs about 20 ns; a hop between cores 50.
const BLOCK_TRIPS: u64 = 64;
/// Shorter copies measure the loop, not the memory.
const COPY_BYTES_MIN: usize = 1024;

pub fn measure(task: &Task, line: &Line) -> Result<Option<Figures>, Error> {
    let mut figures = Figures::default();
    let budget = Nanos::from_us(task.budget_us);
    if task.bytes <= LINE_BYTES {
        let wait = if task.place == Place::Core { cpu::yield_now } else { cpu::pause };
        if task.side == Side::A {
            let (map, fd) = memfd::create_common("pulc-bench", MAP_BYTES)?;
            line.tell(b"line", &[fd])?;
            line.hear()?;
            let mut samples = ask(&Lines { map, bytes: task.bytes, wait }, budget);
            let (p50, p99) = percentiles(&mut samples);
            (figures.latency_ns_p50, figures.latency_ns_p99) = (Some(p50), Some(p99));
        } else {
            let (_, fds) = line.hear()?;
            let fd = fds.first().ok_or_else(|| Error::Nonsense("no memory".into()))?;
            let map = memfd::map_common(fd.as_fd(), MAP_BYTES)?;
            line.tell(b"mapped", &[])?;
            answer(&Lines { map, bytes: task.bytes, wait });
        }
    }
    if task.side == Side::A && task.bytes >= COPY_BYTES_MIN {
        figures.bandwidth_bytes_per_s = Some(copy(task.bytes, budget));
    }
    Ok((task.side == Side::A).then_some(figures))
}

struct Lines {
    map: WriteMap,
    bytes: usize,
    wait: fn(),
}

impl Lines {
    /// The payload first, the sequence number last, all in one line.
    fn put(&self, base: usize, sequence: u64) {
        for word in (1..LINE_WORDS).take_while(|word| (word + 1) * 8 <= self.bytes) {
            self.map.u64_at(base + word * 8).store(sequence, Ordering::Relaxed);
        }
        // Release: pairs with the acquire of `take`.
        self.map.u64_at(base).store(sequence, Ordering::Release);
    }

    /// Waits for a sequence number above `last`.
    fn take(&self, base: usize, last: u64) -> u64 {
        loop {
            // Acquire: pairs with the release of `put`.
            let sequence = self.map.u64_at(base).load(Ordering::Acquire);
            if sequence != last {
                for word in (1..LINE_WORDS).take_while(|word| (word + 1) * 8 <= self.bytes) {
                    black_box(self.map.u64_at(base + word * 8).load(Ordering::Relaxed));
                }
                return sequence;
            }
            (self.wait)();
        }
    }
}

fn ask(lines: &Lines, budget: Nanos) -> Vec<f64> {
    let mut samples = Vec::new();
    let mut sequence = 0;
    let started = now();
    while samples.is_empty() || now().since(started) < budget {
        let block = now();
        for _ in 0..BLOCK_TRIPS {
            lines.put(A_TO_B, sequence + 1);
            sequence = lines.take(B_TO_A, sequence);
        }
        samples.push(now().since(block).0 as f64 / (2 * BLOCK_TRIPS) as f64);
    }
    lines.put(A_TO_B, STOP);
    // The first block warms up.
    if samples.len() > 1 {
        samples.remove(0);
    }
    samples
}

fn answer(lines: &Lines) {
    let mut sequence = 0;
    loop {
        sequence = lines.take(A_TO_B, sequence);
        if sequence == STOP {
            return;
        }
        lines.put(B_TO_A, sequence);
    }
}

/// Bytes a second of memcpy between two private buffers.
fn copy(bytes: usize, budget: Nanos) -> f64 {
    // At page borders: string moves between buffers that lie otherwise are many times slower on some processors.
    let (mut from, mut to) = (vec![1u8; bytes + PAGE_BYTES], vec![2u8; bytes + PAGE_BYTES]);
    let (from, to) = (from_page(&mut from, bytes), from_page(&mut to, bytes));
    let burst = ((1 << 20) / bytes).max(1);
    let mut rate = 0.0;
    // The first half warms up.
    for _ in 0..2 {
        let (started, mut copied) = (now(), 0);
        while now().since(started) < Nanos(budget.0 / 2) {
            for _ in 0..burst {
                black_box(&mut *to).copy_from_slice(black_box(from));
            }
            copied += burst * bytes;
        }
        rate = copied as f64 / (now().since(started).0 as f64 / 1e9);
    }
    rate
}

/// The part that starts at a page border.
fn from_page(buffer: &mut [u8], bytes: usize) -> &mut [u8] {
    let start = buffer.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
    &mut buffer[start..start + bytes]
}
