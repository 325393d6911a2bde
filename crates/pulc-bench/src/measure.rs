//! How a channel is measured: ping-pong for the latency, then a one-way stream for bandwidth and rate. Both sides run the
//! same file; the first byte of a message tells the answering side when to stop, so that no side needs to know a count.

use crate::Error;
use pulc_base::clock::{Nanos, now};
use serde::{Deserialize, Serialize};

/// A way to move whole messages between two processes. Calls return when the message is handed over or has come.
pub trait Channel {
    fn send(&mut self, message: &[u8]) -> Result<(), Error>;
    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error>;
    /// Gets through what is still under way, for channels that could lose it when dropped.
    fn finish(&mut self) {}
}

/// The figures of one channel with one message size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub latency_ns_p50: Option<f64>,
    pub latency_ns_p99: Option<f64>,
    pub bandwidth_bytes_per_s: Option<f64>,
    pub messages_per_s: Option<f64>,
}

/// Smallest message: one byte for the order, and the rest of a word.
pub const BYTES_MIN: usize = 8;

const GO_ON: u8 = 0;
pub const LAST: u8 = 1;

/// A clock read costs about 20 ns: shorter round trips are timed in blocks of about this long.
const BLOCK: Nanos = Nanos(2_000);
const WARM_UP: u64 = 100;
const BLOCK_TRIPS_MAX: u64 = 256;

/// What a side sends, and where it receives: the same buffer, as programs do that work on their data, or two, of which the first one rests,
/// as benchmarks of MPI do. A message that was just written costs its reader more, because it comes out of the writer's cache.
pub struct Buffers {
    pub out: Vec<u8>,
    apart: Option<Vec<u8>>,
}

impl Buffers {
    pub fn new(bytes: usize, apart: bool) -> Buffers {
        let out = vec![GO_ON; bytes.max(BYTES_MIN)];
        Buffers { apart: apart.then(|| out.clone()), out }
    }

    fn landing(&mut self) -> &mut [u8] {
        self.apart.as_mut().unwrap_or(&mut self.out)
    }

    fn trip(&mut self, channel: &mut impl Channel) -> Result<(), Error> {
        channel.send(&self.out)?;
        channel.recv(self.landing())
    }
}

/// The asking side: for about `budget` each of ping-pong and stream.
pub fn ask(channel: &mut impl Channel, mut buffers: Buffers, budget: Nanos) -> Result<Figures, Error> {
    let trips = block_trips(channel, &mut buffers)?;
    let mut blocks = Vec::new();
    let started = now();
    loop {
        let block = now();
        for _ in 0..trips {
            buffers.trip(channel)?;
        }
        let ended = now();
        blocks.push(ended.since(block).0 as f64 / (2 * trips) as f64);
        if ended.since(started) >= budget {
            break;
        }
    }
    buffers.out[0] = LAST;
    buffers.trip(channel)?;
    let (p50, p99) = percentiles(&mut blocks);
    let (count, took) = stream(channel, &mut buffers, budget, p50)?;
    let per_s = count as f64 / (took.0 as f64 / 1e9);
    Ok(Figures {
        latency_ns_p50: Some(p50),
        latency_ns_p99: Some(p99),
        bandwidth_bytes_per_s: Some(per_s * buffers.out.len() as f64),
        messages_per_s: Some(per_s),
    })
}

/// The answering side.
pub fn answer(channel: &mut impl Channel, mut buffers: Buffers) -> Result<(), Error> {
    while buffers.out[0] != LAST {
        channel.recv(buffers.landing())?;
        if buffers.landing()[0] == LAST {
            buffers.out[0] = LAST;
        }
        channel.send(&buffers.out)?;
    }
    loop {
        channel.recv(buffers.landing())?;
        if buffers.landing()[0] == LAST {
            return channel.send(&buffers.out);
        }
    }
}

/// Warms up and finds how many round trips fill a block.
fn block_trips(channel: &mut impl Channel, buffers: &mut Buffers) -> Result<u64, Error> {
    let started = now();
    let mut done = 0;
    while done < WARM_UP && now().since(started) < Nanos::from_ms(50) {
        buffers.trip(channel)?;
        done += 1;
    }
    let trip = now().since(started).0 / done.max(1);
    Ok((BLOCK.0 / trip.max(1)).clamp(1, BLOCK_TRIPS_MAX))
}

/// Sends until the budget is over, then waits for the word that everything has arrived.
fn stream(
    channel: &mut impl Channel,
    buffers: &mut Buffers,
    budget: Nanos,
    hop_ns: f64,
) -> Result<(u64, Nanos), Error> {
    buffers.out[0] = GO_ON;
    // Look at the clock about every 20 us, not at every message.
    let burst = (20_000.0 / hop_ns.max(1.0)).clamp(1.0, 512.0) as u64;
    let started = now();
    let mut count = 0;
    while now().since(started) < budget {
        for _ in 0..burst {
            channel.send(&buffers.out)?;
        }
        count += burst;
    }
    buffers.out[0] = LAST;
    buffers.trip(channel)?;
    Ok((count + 1, now().since(started)))
}

/// Median and 99th percentile.
pub fn percentiles(samples: &mut [f64]) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples.get(((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1)));
    (at(0.5).copied().unwrap_or(0.0), at(0.99).copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    struct Queue(Sender<Vec<u8>>, Receiver<Vec<u8>>);

    impl Channel for Queue {
        fn send(&mut self, message: &[u8]) -> Result<(), Error> {
            self.0.send(message.to_vec()).map_err(|_| Error::Ended)
        }
        fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
            message.copy_from_slice(&self.1.recv().map_err(|_| Error::Ended)?);
            Ok(())
        }
    }

    #[test]
    fn both_sides_agree_on_the_end_and_every_figure_is_there() {
        for apart in [false, true] {
            let (to_b, from_a) = channel();
            let (to_a, from_b) = channel();
            let b = std::thread::spawn(move || answer(&mut Queue(to_a, from_a), Buffers::new(64, apart)));
            let figures = ask(&mut Queue(to_b, from_b), Buffers::new(64, apart), Nanos::from_ms(2)).unwrap();
            b.join().unwrap().unwrap();
            assert!(figures.latency_ns_p50.unwrap() > 0.0);
            assert!(figures.latency_ns_p99.unwrap() >= figures.latency_ns_p50.unwrap());
            assert_eq!(figures.bandwidth_bytes_per_s.unwrap(), figures.messages_per_s.unwrap() * 64.0);
        }
    }

    #[test]
    fn percentiles_of_a_hundred_numbers_are_the_middle_and_the_last() {
        let mut samples: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(percentiles(&mut samples), (50.0, 99.0));
        assert_eq!(percentiles(&mut []), (0.0, 0.0));
    }
}
