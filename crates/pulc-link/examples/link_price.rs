//! What does the engine itself cost a packet, without any device? Two links in one process hand frames to each other; best of
//! some rounds, in nanoseconds a packet, for each step. Run by hand:
//! `cargo run --release -p pulc-link --example link_price`. Says where the time goes that `link_udp` sees.

use pulc_base::clock::{Nanos, now};
use pulc_base::{JobId, Rank};
use pulc_link::{Config, Full, Link, LinkKeys, OVERHEAD, Outlet, Rail};
use std::time::Instant;

const PACKETS: usize = 64;
const ROUNDS: usize = 2000;

/// Keeps what leaves, as a wire would.
#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    runs: Vec<(usize, usize)>,
}

impl Outlet for Wire {
    fn send_run(&mut self, _rail: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full> {
        let before = self.bytes.len();
        pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        self.runs.push((self.bytes.len() - before, segment));
        Ok(())
    }
}

impl Wire {
    /// Hands every frame to the other end; returns the packets that came out.
    fn deliver(&mut self, now: Nanos, to: &mut Link) -> usize {
        let (mut start, mut packets) = (0, 0);
        for &(len, segment) in &self.runs {
            for frame in self.bytes[start..start + len].chunks_mut(segment) {
                packets += usize::from(to.receive(now, Rail(0), frame).is_ok_and(|packet| packet.is_some()));
            }
            start += len;
        }
        packets
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
    }
}

fn price(len: usize, encrypt: bool) {
    let config = Config {
        frame_max: 1472,
        rails: 1,
        window_bytes: 4 << 20,
        first_window_bytes: 4 << 20,
        retention_max_bytes: 4 << 20,
        encrypt,
        train_max_bytes: 0,
    };
    let keys = |here, peer| LinkKeys::derive(&[1; 32], JobId(1), Rank(here), Rank(peer));
    let mut one = Link::new(config, keys(0, 1), now());
    let mut two = Link::new(config, keys(1, 0), now());
    let packet = vec![5; len];
    let (mut there, mut back) = (Wire::default(), Wire::default());
    let mut best = [f64::MAX; 4];
    for _ in 0..ROUNDS {
        let mut steps = [0.0; 4];
        let at = now();
        let mut timed = |step: usize, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            steps[step] = start.elapsed().as_nanos() as f64 / PACKETS as f64;
        };
        timed(0, &mut || (0..PACKETS).for_each(|_| one.send(at, [&packet, &[]]).expect("there is room")));
        timed(1, &mut || assert!(one.transmit_runs(at, &mut there) >= PACKETS / 3));
        let mut came = 0;
        timed(2, &mut || came = there.deliver(at, &mut two));
        timed(3, &mut || {
            two.transmit_runs(at, &mut back);
            back.deliver(at, &mut one);
        });
        there.clear();
        back.clear();
        // What the congestion window held back.
        while one.unacknowledged() > 0 {
            one.transmit_runs(at, &mut there);
            came += there.deliver(at, &mut two);
            two.transmit_runs(at + Nanos::from_ms(1), &mut back);
            back.deliver(at, &mut one);
            there.clear();
            back.clear();
        }
        assert_eq!(came, PACKETS);
        best.iter_mut().zip(steps).for_each(|(best, step)| *best = best.min(step));
    }
    let mode = if encrypt { "encrypted" } else { "tagged" };
    println!(
        "{mode:<10} {:>5} B frames: send {:>5.0}  transmit {:>5.0}  receive {:>5.0}  acknowledge {:>5.1}   ns a packet",
        len + OVERHEAD,
        best[0],
        best[1],
        best[2],
        best[3]
    );
}

fn main() {
    for encrypt in [false, true] {
        for len in [8, 192, 1408] {
            price(len, encrypt);
        }
    }
}
