//! What each floor adds to a message, in bursts so short that a machine whose cores wander stays the same for a round:
//! `pulc run -n 2 floors [ROUNDS]`. A round is, over the bare hand-over of a line, the device, rawdata, a port, active messages and leaf handlers in turn,
//! all in the same two processes, a burst of ping-pong and one of a stream of eight bytes, then of blocks of 64 KiB and of 1 MiB, beside
//! memcpy. Written are medians over the rounds whose hop was near (the lower half), and how each floor compares with hop, device and
//! memcpy within a round.

mod bare;
mod kinds;

use bare::{Bare, Line};
use kinds::{Active, Batches, Memcpy, Ports, Raw, Referred};
use pulc::{Address, Pulc, Rank};
use pulc_hal::os::cpu;
use std::time::Instant;

const TRIPS: u64 = 1500;
const STREAM: u64 = 20_000;
/// Blocks, how many there are in a stream and in a ping-pong.
const BLOCKS: [(usize, u64, u64); 2] = [(64 << 10, 128, 20), (1 << 20, 16, 8)];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One floor: both ranks call the same, the first one asks.
trait Floor {
    fn name(&self) -> &'static str;
    /// Whether it has a ping-pong and a stream of eight bytes.
    fn does(&self) -> (bool, bool) {
        (true, true)
    }
    /// Whether it moves blocks.
    fn moves(&self) -> bool {
        true
    }
    fn send(&mut self, n: u64) -> Result<()>;
    fn recv(&mut self) -> Result<()>;
    /// One of a stream.
    fn note(&mut self, n: u64) -> Result<()> {
        self.send(n)
    }
    fn pour(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|n| self.note(n))
    }
    fn drain(&mut self, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.recv())
    }
    /// The end of a stream, backwards.
    fn end(&mut self) -> Result<()> {
        self.send(0)
    }
    fn put(&mut self, _block: &[u8]) -> Result<()> {
        Ok(())
    }
    fn get(&mut self, _block: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(200);
    let pulc = Pulc::attach()?;
    let cores = cpu::allowed_cores()?;
    let me = pulc.rank();
    let peer = Rank(1 - me.0);
    if cores.len() > 1 {
        cpu::pin_to(&[cores[me.0 as usize % cores.len()]])?;
    }
    let port = pulc.open_port("floors")?;
    let to = Address::new(peer, "floors");
    let mut floors: Vec<Box<dyn Floor>> = vec![
        Box::new(Line::new(&port, &to, me)?),
        Box::new(Bare::new(&port, &to, me)?),
        Box::new(Raw(pulc.open_channel(peer, 1)?)),
        Box::new(Batches::new(pulc.open_channel(peer, 2)?)),
        Box::new(Ports { port, to, peer }),
        Box::new(Active::new(&pulc, peer, false)?),
        Box::new(Active::new(&pulc, peer, true)?),
        Box::new(Referred::new(&pulc, peer)?),
        Box::new(Memcpy { asks: me.0 == 0, other: vec![1; 1 << 20] }),
    ];
    let mut found = Vec::new();
    for _ in 0..rounds {
        let mut round = Vec::new();
        for floor in &mut floors {
            round.push(burst(floor.as_mut(), me.0 == 0)?);
        }
        found.push(round);
    }
    if me.0 == 0 {
        tell(&floors, found);
    }
    Ok(())
}

/// What one floor did in a round: nanoseconds of a message of eight bytes, millions of them a second, and for each size of blocks GB/s in a
/// stream and back and forth.
#[derive(Clone, Copy, Default)]
struct Burst {
    hop_ns: f64,
    rate: f64,
    stream: [f64; BLOCKS.len()],
    lone: [f64; BLOCKS.len()],
}

fn burst(floor: &mut dyn Floor, asks: bool) -> Result<Burst> {
    let mut burst = Burst::default();
    let (bounces, streams) = floor.does();
    if bounces {
        burst.hop_ns = ping_pong(floor, asks)?;
    }
    if streams {
        burst.rate = stream(floor, asks)?;
    }
    if floor.moves() {
        for (at, (bytes, count, trips)) in BLOCKS.into_iter().enumerate() {
            let mut block = vec![1; bytes];
            burst.lone[at] = lone(floor, asks, &mut block, trips)?;
            burst.stream[at] = blocks(floor, asks, &mut block, count)?;
        }
    }
    Ok(burst)
}

fn ping_pong(floor: &mut dyn Floor, asks: bool) -> Result<f64> {
    let mut began = Instant::now();
    for trip in 0..TRIPS + 50 {
        if trip == 50 {
            began = Instant::now();
        }
        if asks {
            floor.send(trip)?;
        }
        floor.recv()?;
        if !asks {
            floor.send(trip)?;
        }
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / (2 * TRIPS) as f64)
}

/// Millions of messages a second.
fn stream(floor: &mut dyn Floor, asks: bool) -> Result<f64> {
    if !asks {
        floor.drain(STREAM)?;
        floor.end()?;
        return Ok(0.0);
    }
    let began = Instant::now();
    floor.pour(STREAM)?;
    floor.recv()?;
    Ok(STREAM as f64 / began.elapsed().as_secs_f64() / 1e6)
}

/// GB/s of blocks that are sent to and fro. The first trip finds everything cold and takes several times as long: it is not counted.
fn lone(floor: &mut dyn Floor, asks: bool, block: &mut [u8], trips: u64) -> Result<f64> {
    let mut began = Instant::now();
    for trip in 0..=trips {
        if trip == 1 {
            began = Instant::now();
        }
        if asks {
            floor.put(block)?;
        }
        floor.get(block)?;
        if !asks {
            floor.put(block)?;
        }
    }
    Ok((2 * trips * block.len() as u64) as f64 / began.elapsed().as_secs_f64() / 1e9)
}

/// GB/s of a stream of them.
fn blocks(floor: &mut dyn Floor, asks: bool, block: &mut [u8], count: u64) -> Result<f64> {
    if !asks {
        (0..count).try_for_each(|_| floor.get(block))?;
        floor.put(&block[..8])?;
        return Ok(0.0);
    }
    let began = Instant::now();
    (0..count).try_for_each(|_| floor.put(block))?;
    floor.get(&mut block[..8])?;
    Ok((count * block.len() as u64) as f64 / began.elapsed().as_secs_f64() / 1e9)
}

type Round = Vec<Burst>;

fn median(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

fn tell(floors: &[Box<dyn Floor>], mut found: Vec<Round>) {
    found.sort_by(|a, b| a[0].hop_ns.total_cmp(&b[0].hop_ns));
    for (what, rounds) in [("near half", &found[..found.len().div_ceil(2)]), ("all", &found[..])] {
        println!("{what}: {} rounds", rounds.len());
        println!("{:>9} {:>8} {:>6} {:>8} {:>8}", "8 bytes", "ns", "x hop", "x device", "M/s");
        for (at, floor) in floors.iter().enumerate() {
            let (bounces, streams) = floor.does();
            if bounces || streams {
                let (ns, rate) = (median(rounds, |round| round[at].hop_ns), median(rounds, |round| round[at].rate));
                let hop = median(rounds, |r| r[at].hop_ns / r[0].hop_ns);
                let device = median(rounds, |r| r[at].hop_ns / r[1].hop_ns);
                println!("{:>9} {ns:>8.1} {hop:>6.2} {device:>8.2} {rate:>8.2}", floor.name());
            }
        }
        for (size, (bytes, ..)) in BLOCKS.into_iter().enumerate() {
            tell_blocks(floors, rounds, size, &format!("{} KiB", bytes >> 10));
        }
    }
}

fn tell_blocks(floors: &[Box<dyn Floor>], rounds: &[Round], size: usize, title: &str) {
    let memcpy = floors.len() - 1;
    println!("{title:>9} {:>8} {:>8} {:>8} {:>8} {:>8}", "stream", "/device", "/memcpy", "lone", "/device");
    for (at, floor) in floors.iter().enumerate().filter(|(_, floor)| floor.moves()) {
        let stream = median(rounds, |r| r[at].stream[size]);
        let device = median(rounds, |r| r[at].stream[size] / r[1].stream[size]);
        let of_memcpy = median(rounds, |r| r[at].stream[size] / r[memcpy].stream[size]);
        let (lone, of_lone) =
            (median(rounds, |r| r[at].lone[size]), median(rounds, |r| r[at].lone[size] / r[1].lone[size]));
        println!("{:>9} {stream:>8.1} {device:>8.2} {of_memcpy:>8.2} {lone:>8.1} {of_lone:>8.2}", floor.name());
    }
}
