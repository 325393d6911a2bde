//! `pulc bench rank`, hidden: one rank of a measured job. Called by the drivers through `pulc run`.

use crate::am::Am;
use crate::measure::{BYTES_MIN, Buffers, Channel, answer, ask};
use crate::rounds::OfBoth;
use crate::row::{self, Layer, Place, Row};
use crate::{Error, calls, mpi_door, ring, waiting};
use pulc::{Address, From, Match, Port, Pulc, Rank};
use pulc_base::clock::Nanos;
use pulc_hal::os::cpu;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Attach and end
    Attach,
    /// Ping-pong and stream between two ranks; rank 0 writes one row a size
    Messages {
        #[arg(long, value_enum)]
        layer: Layer,
        #[command(flatten)]
        of_both: OfBoth,
    },
    /// Talk with everybody; every rank writes its shares of memory
    Memory {
        #[arg(long, value_delimiter = ',')]
        bytes: Vec<usize>,
    },
    /// Pass a token round all ranks, over each interface and over bare futexes; rank 0 writes one line a round
    Ring(ring::OfRank),
    /// Exchange messages and count system calls; each rank writes one line an interface
    Calls(calls::OfRank),
    /// Ping-pong in pairs until a moment, then block; every rank writes what it found
    Waiting(waiting::OfRank),
    /// Attach and exchange a message; every rank writes how long that took
    First,
    /// Block in a receive; rank 0 writes the processor time it has burnt meanwhile
    Idle { seconds: u64 },
}

pub fn run(args: &Args) -> Result<(), Error> {
    match &args.what {
        What::Attach => Pulc::attach().map(|_| ()).map_err(port_error),
        What::Messages { layer, of_both: OfBoth { place, budget_us, bytes, cores, apart } } => {
            let how = How { layer: *layer, place: *place, budget: Nanos::from_us(*budget_us), apart: *apart };
            messages(how, bytes, cores)
        }
        What::Ring(of_rank) => ring::rank(of_rank),
        What::Calls(of_rank) => calls::rank(of_rank),
        What::Waiting(of_rank) => waiting::rank(of_rank),
        What::First => crate::attach::rank(),
        What::Memory { bytes } => crate::memory::rank(bytes),
        What::Idle { seconds } => idle(Duration::from_secs(*seconds)),
    }
}

pub const NAME: &str = "bench";

/// How one layer is measured, whatever the size.
#[derive(Clone, Copy)]
struct How {
    layer: Layer,
    place: Place,
    budget: Nanos,
    apart: bool,
}

fn messages(how: How, sizes: &[usize], cores: &[u32]) -> Result<(), Error> {
    if how.layer == Layer::Mpi {
        return mpi_door::joined(cores, |mpi| measure(mpi.rank, mpi, how, sizes));
    }
    let pulc = Pulc::attach().map_err(port_error)?;
    if let Some(core) = cores.get(pulc.rank().0 as usize) {
        cpu::pin_to(&[*core])?;
    }
    let me = pulc.rank().0;
    let peer = Rank(1 - me.min(1));
    match how.layer {
        Layer::Rawdata => {
            let channel = pulc.open_channel(peer, 1).map_err(port_error)?;
            measure(me, &mut Raw { channel, polls: false }, how, sizes)
        }
        Layer::Shared => {
            let channel = pulc.open_channel(peer, 1).map_err(port_error)?;
            let longest = sizes.iter().copied().max().unwrap_or_default().max(BYTES_MIN);
            let mut block = pulc::alloc(longest).map_err(port_error)?;
            block.fill(0);
            measure(me, &mut Shared { channel, block }, how, sizes)
        }
        Layer::Port => {
            let port = pulc.open_port(NAME).map_err(port_error)?;
            let mut ports = Ports { port, peer, address: Address::new(peer, NAME), polls: false };
            measure(me, &mut ports, how, sizes)
        }
        Layer::Am | Layer::Leaf => {
            let largest = sizes.iter().copied().max().unwrap_or_default();
            let mut am = Am::open(&pulc, largest, how.layer == Layer::Leaf)?;
            if me != 0 {
                return sizes.iter().try_for_each(|_| am.answer());
            }
            measure(me, &mut am, how, sizes)
        }
        other => Err(Error::NotHere { layer: other.name(), why: "it is no interface".into() }),
    }
}

fn measure(me: u32, channel: &mut impl Channel, how: How, sizes: &[usize]) -> Result<(), Error> {
    for &bytes in sizes {
        let buffers = Buffers::new(bytes, how.apart);
        if me != 0 {
            answer(channel, buffers)?;
            continue;
        }
        let figures = ask(channel, buffers, how.budget)?;
        print!("{}", row::json_lines(&[Row::new(how.layer, how.place, bytes, figures)]));
    }
    Ok(())
}

/// Rawdata as a measured layer.
pub struct Raw {
    pub channel: pulc::rawdata::Channel,
    /// Receives by asking again and again instead of waiting.
    pub polls: bool,
}

impl Channel for Raw {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.channel.send(message).map_err(port_error)
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        if self.polls {
            return poll(|| self.channel.try_recv(message));
        }
        self.channel.recv(message).map(|_| ()).map_err(port_error)
    }
}

/// Asks until there is something.
fn poll<T>(mut ask: impl FnMut() -> Result<Option<T>, pulc::Error>) -> Result<(), Error> {
    loop {
        match ask() {
            Ok(None) => cpu::pause(),
            other => return other.map(|_| ()).map_err(port_error),
        }
    }
}

/// Sends out of memory that rests but for its first byte, which is the order that the stream needs.
struct Shared {
    channel: pulc::rawdata::Channel,
    block: pulc::Block,
}

impl Channel for Shared {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.block[0] = message[0];
        self.channel.send(&self.block[..message.len()]).map_err(port_error)
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        self.channel.recv(message).map(|_| ()).map_err(port_error)
    }
}

/// Ports as a measured layer.
pub struct Ports {
    pub port: Port,
    pub peer: Rank,
    pub address: Address,
    pub polls: bool,
}

impl Channel for Ports {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.port.send(&self.address, 0, message).map_err(port_error)
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        if self.polls {
            return poll(|| self.port.try_recv(From::Rank(self.peer), Match::Tag(0), message));
        }
        self.port.recv(From::Rank(self.peer), Match::Tag(0), message).map(|_| ()).map_err(port_error)
    }
}

fn idle(time: Duration) -> Result<(), Error> {
    let pulc = Pulc::attach().map_err(port_error)?;
    let port = pulc.open_port(NAME).map_err(port_error)?;
    let mut message = [0; 8];
    let peer = Rank(1 - pulc.rank().0.min(1));
    let address = Address::new(peer, NAME);
    // Once there and back, so that everything is set up.
    if pulc.rank() == Rank(0) {
        port.send(&address, 0, &message).map_err(port_error)?;
        port.recv(From::Any, Match::Any, &mut message).map_err(port_error)?;
        let before = burnt();
        port.recv(From::Any, Match::Any, &mut message).map_err(port_error)?;
        println!("{}", (burnt() - before).as_secs_f64());
    } else {
        port.recv(From::Any, Match::Any, &mut message).map_err(port_error)?;
        port.send(&address, 0, &message).map_err(port_error)?;
        std::thread::sleep(time);
        port.send(&address, 0, &message).map_err(port_error)?;
    }
    Ok(())
}

/// Processor time of this process, user and system.
pub fn burnt() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

pub fn port_error(error: pulc::Error) -> Error {
    Error::Worker(error.to_string())
}
