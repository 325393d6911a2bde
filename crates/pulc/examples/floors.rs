//! What each floor adds to a message of eight bytes, in bursts so short that a machine whose cores wander stays the same for a round:
//! `pulc run -n 2 floors [ROUNDS]`. A round is one burst of ping-pong and one of a stream over the bare hand-over of a line, the
//! device, rawdata, a port and active messages, all in the same two processes and in turn. Written are medians over the rounds
//! whose hop was near (the lower half), and how each floor compares with hop and device within a round.

use pulc::am::{Bundle, Endpoint, Mode, Peer, Reply, Short};
use pulc::rawdata::Channel;
use pulc::{Address, Error, From, Match, Port, Pulc, Rank};
use pulc_hal::board::Board;
use pulc_hal::device::shm::{Shm, ShmConfig};
use pulc_hal::device::{self, Device, Frame, PeerFault, SendError, Sink};
use pulc_hal::os::cpu;
use pulc_hal::os::memfd::{self, WriteMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const TRIPS: u64 = 1500;
const STREAM: u64 = 20_000;
const TAG: u64 = 1;
const PING: Short<(u64,)> = Short::new(1);
const PONG: Reply<(u64,)> = Reply::new(2);
const NOTE: Short<(u64,)> = Short::new(3);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One floor: both ranks call the same, the first one asks.
trait Floor {
    fn name(&self) -> &'static str;
    fn send(&mut self, n: u64) -> Result<()>;
    fn recv(&mut self) -> Result<()>;
    /// Whether it has a stream of its own kind.
    fn streams(&self) -> bool {
        true
    }
    fn note(&mut self, n: u64) -> Result<()> {
        self.send(n)
    }
    /// The end of a stream, backwards.
    fn end(&mut self) -> Result<()> {
        self.send(0)
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
        Box::new(Ports { port, to, peer }),
        Box::new(Active::new(&pulc, peer)?),
    ];
    let mut found = Vec::new();
    for _ in 0..rounds {
        let mut round = Vec::new();
        for floor in &mut floors {
            let hop_ns = ping_pong(floor.as_mut(), me.0 == 0)?;
            let rate = if floor.streams() { stream(floor.as_mut(), me.0 == 0)? } else { 0.0 };
            round.push((hop_ns, rate));
        }
        found.push(round);
    }
    if me.0 == 0 {
        tell(&floors, found);
    }
    Ok(())
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
        (0..STREAM).try_for_each(|_| floor.recv())?;
        floor.end()?;
        return Ok(0.0);
    }
    let began = Instant::now();
    (0..STREAM).try_for_each(|n| floor.note(n))?;
    floor.recv()?;
    Ok(STREAM as f64 / began.elapsed().as_secs_f64() / 1e6)
}

/// Nanoseconds of a message and millions of them a second, floor by floor.
type Round = Vec<(f64, f64)>;

fn median(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

fn tell(floors: &[Box<dyn Floor>], mut found: Vec<Round>) {
    found.sort_by(|a, b| a[0].0.total_cmp(&b[0].0));
    for (what, rounds) in [("near half", &found[..found.len().div_ceil(2)]), ("all", &found[..])] {
        println!(
            "{what}: {} rounds\n{:>9} {:>8} {:>6} {:>8} {:>8}",
            rounds.len(),
            "",
            "ns",
            "x hop",
            "x device",
            "M/s"
        );
        for (at, floor) in floors.iter().enumerate() {
            let (ns, rate) = (median(rounds, |round| round[at].0), median(rounds, |round| round[at].1));
            let (hop, device) = (median(rounds, |r| r[at].0 / r[0].0), median(rounds, |r| r[at].0 / r[1].0));
            println!("{:>9} {ns:>8.1} {hop:>6.2} {device:>8.2} {rate:>8.2}", floor.name());
        }
    }
}

/// Hands a descriptor to the other rank of this example.
fn hand_over(port: &Port, to: &Address, fd: &OwnedFd, text: &[u8]) -> Result<()> {
    let mut message = format!("/proc/{}/fd/{}\0", std::process::id(), fd.as_raw_fd()).into_bytes();
    message.extend(text);
    port.send(to, TAG, &message)?;
    port.recv_vec(From::Any, Match::Tag(TAG + 1))?;
    Ok(())
}

fn take_over(port: &Port, to: &Address, writes: bool) -> Result<(OwnedFd, Vec<u8>)> {
    let (_, message) = port.recv_vec(From::Any, Match::Tag(TAG))?;
    let at = message.iter().position(|byte| *byte == 0).ok_or("no path")?;
    let path = std::str::from_utf8(&message[..at])?;
    let file = File::options().read(true).write(writes).open(path)?;
    port.send(to, TAG + 1, &[])?;
    Ok((file.into(), message[at + 1..].to_vec()))
}

/// A line that is handed to and fro.
struct Line {
    map: WriteMap,
    mine: usize,
    theirs: usize,
    seen: u64,
    said: u64,
}

impl Line {
    fn new(port: &Port, to: &Address, me: Rank) -> Result<Line> {
        let map = if me.0 == 0 {
            let (map, fd) = memfd::create_common("floors", 4096)?;
            hand_over(port, to, &fd, &[])?;
            map
        } else {
            memfd::map_common(take_over(port, to, true)?.0.as_fd(), 4096)?
        };
        let (mine, theirs) = if me.0 == 0 { (0, 512) } else { (512, 0) };
        Ok(Line { map, mine, theirs, seen: 0, said: 0 })
    }
}

impl Floor for Line {
    fn name(&self) -> &'static str {
        "hop"
    }

    fn streams(&self) -> bool {
        false
    }

    fn send(&mut self, _: u64) -> Result<()> {
        self.said += 1;
        self.map.u64_at(self.mine).store(self.said, Ordering::Release);
        Ok(())
    }

    fn recv(&mut self) -> Result<()> {
        while self.map.u64_at(self.theirs).load(Ordering::Acquire) == self.seen {
            cpu::pause();
        }
        self.seen += 1;
        Ok(())
    }
}

/// The device.
struct Bare {
    device: Shm,
    peer: device::Peer,
}

impl Bare {
    fn new(port: &Port, to: &Address, me: Rank) -> Result<Bare> {
        let board = if me.0 == 0 {
            let (board, fd) = Board::create(2)?;
            hand_over(port, to, &fd, &[])?;
            board
        } else {
            Board::attach(take_over(port, to, true)?.0.as_fd(), 2)?
        };
        let mut device = Shm::new(ShmConfig::default(), Arc::new(board), me.0)?;
        let (peer, offer) = device.open(1 - me.0)?;
        let give = || offer.fds.iter().try_for_each(|fd| hand_over(port, to, fd, &offer.what));
        let take = || -> Result<(Vec<OwnedFd>, Vec<u8>)> {
            let mut fds = Vec::new();
            let mut what = Vec::new();
            for _ in &offer.fds {
                let (fd, text) = take_over(port, to, false)?;
                fds.push(fd);
                what = text;
            }
            Ok((fds, what))
        };
        let (fds, what) = if me.0 == 0 {
            give()?;
            take()?
        } else {
            let taken = take()?;
            give()?;
            taken
        };
        device.accept(1 - me.0, &what, fds)?;
        Ok(Bare { device, peer })
    }
}

struct One(bool);

impl Sink for One {
    fn frame(&mut self, _: device::Peer, frame: Frame<'_>) {
        self.0 = true;
        if let Frame::Private(bytes) = frame {
            std::hint::black_box(bytes.first());
        }
    }

    fn is_full(&self) -> bool {
        self.0
    }

    fn peer_failed(&mut self, _: device::Peer, why: PeerFault) {
        panic!("{why}");
    }
}

impl Floor for Bare {
    fn name(&self) -> &'static str {
        "device"
    }

    fn send(&mut self, n: u64) -> Result<()> {
        loop {
            match self.device.send_short(self.peer, [&n.to_ne_bytes(), &[]]) {
                Ok(()) => return Ok(()),
                Err(SendError::Again) => cpu::pause(),
                Err(error) => return Err(error.to_string().into()),
            }
        }
    }

    fn recv(&mut self) -> Result<()> {
        let mut sink = One(false);
        while self.device.poll(&mut sink, 1) == 0 {
            cpu::pause();
        }
        Ok(())
    }
}

struct Raw(Channel);

impl Floor for Raw {
    fn name(&self) -> &'static str {
        "rawdata"
    }

    fn send(&mut self, n: u64) -> Result<()> {
        Ok(self.0.send(&n.to_ne_bytes())?)
    }

    fn recv(&mut self) -> Result<()> {
        self.0.recv(&mut [0; 8])?;
        Ok(())
    }
}

struct Ports {
    port: Port,
    to: Address,
    peer: Rank,
}

impl Floor for Ports {
    fn name(&self) -> &'static str {
        "port"
    }

    fn send(&mut self, n: u64) -> Result<()> {
        Ok(self.port.send(&self.to, 0, &n.to_ne_bytes())?)
    }

    fn recv(&mut self) -> Result<()> {
        self.port.recv(From::Rank(self.peer), Match::Tag(0), &mut [0; 8])?;
        Ok(())
    }
}

/// Requests and replies; what answers is a handler, so the asked side only waits.
struct Active {
    bundle: Bundle,
    _endpoint: Endpoint,
    peer: Peer,
    seen: Arc<AtomicU64>,
    taken: u64,
    asks: bool,
}

impl Active {
    fn new(pulc: &Pulc, peer: Rank) -> std::result::Result<Active, Error> {
        let bundle = Bundle::new(pulc, Mode::Sequential)?;
        let endpoint = bundle.endpoint("floors", 1)?;
        let seen = Arc::new(AtomicU64::new(0));
        // Counted by one thread only.
        let count = || {
            let seen = Arc::clone(&seen);
            move || seen.store(seen.load(Ordering::Relaxed) + 1, Ordering::Relaxed)
        };
        let (ping, pong, note) = (count(), count(), count());
        endpoint.on(PING, move |token, (n,)| {
            ping();
            token.reply(PONG, (n,));
        })?;
        endpoint.on_reply(PONG, move |_, (_,)| pong())?;
        endpoint.on(NOTE, move |_, (_,)| note())?;
        let peer = endpoint.map(&bundle, peer, "floors", 1, 64)?;
        Ok(Active { bundle, _endpoint: endpoint, peer, seen, taken: 0, asks: pulc.rank().0 == 0 })
    }
}

impl Floor for Active {
    fn name(&self) -> &'static str {
        "am"
    }

    fn send(&mut self, n: u64) -> Result<()> {
        if self.asks {
            return Ok(self.peer.request(&self.bundle, PING, (n,))?);
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<()> {
        self.taken += 1;
        while self.seen.load(Ordering::Relaxed) < self.taken {
            self.bundle.wait(None)?;
        }
        Ok(())
    }

    fn note(&mut self, n: u64) -> Result<()> {
        Ok(self.peer.request(&self.bundle, NOTE, (n,))?)
    }

    fn end(&mut self) -> Result<()> {
        self.note(0)
    }
}
