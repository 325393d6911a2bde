//! The keeper of a job that another launcher has started (`pulc guest-keeper`): it owns no processes, it only brokers the channels of one
//! node's ranks. The node's first rank starts it, tells it what the job is, and holds its standard input. It ends when that is
//! closed and nobody is attached: with the last rank, however that ends.

use super::broker::{Broker, Event, Seat};
use super::launch::{bind_rail, fill_random, hex};
use super::pair_keys::PairKeys;
use crate::error::is_out_of_descriptors;
use crate::mesh::address::local_addresses;
use pulc_base::boot::{
    ENV_RAILS, GUEST_KEEPER, Gone, GuestGo, GuestOrder, GuestReady, JobSecret, decode, encode, parse_rails,
};
use pulc_base::{PROTOCOL_VERSION, Rank, log};
use pulc_hal::board::Board;
use pulc_hal::os::fdpass::Listener;
use pulc_hal::os::memfd;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

/// Longest order that is read: the table of a million ranks fits.
const ORDER_MAX: usize = 256 << 20;
/// Most ranks of one node.
const RANKS_MAX: u32 = 1 << 16;
const LISTENER: u64 = 1 << 32;
const INPUT: u64 = 2 << 32;
/// Parcels that a rank's socket did not take are tried again after so long.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// Says to this program that it is not the rank's child any more.
const APART: &str = "apart";

/// Called with the words behind `guest-keeper`.
pub fn main(word: Option<&str>) -> ExitCode {
    let outcome = match word {
        None => go_apart(),
        Some(APART) => serve(),
        Some(other) => Err(io::Error::other(format!("{other:?} means nothing to it"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pulc: {GUEST_KEEPER} is started by ranks under another launcher: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A program may wait for all its children: it must not find a keeper among them.
fn go_apart() -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    // Standard input and output are the pipes to the rank.
    command.args([GUEST_KEEPER, APART]).stdin(Stdio::inherit()).stdout(Stdio::inherit());
    command.spawn().map(|_| ())
}

fn serve() -> io::Result<()> {
    // Whoever leads the ranks' terminal does not mean this process.
    let _ = rustix::process::setsid();
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let order: GuestOrder = receive(&mut input)?;
    let (order, listener, seats, ready) = prepare(order)?;
    let bytes = encode(&ready);
    output.write_all(&(bytes.len() as u32).to_le_bytes())?;
    output.write_all(&bytes)?;
    output.flush()?;
    drop(output);
    // The rank may wait for the end of our output.
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdout(null)?;
    let go: GuestGo = receive(&mut input)?;
    drop(input);
    let bytes = encode(&go.boot);
    let keys = PairKeys::new(&go.secret, &go.boot);
    let table = memfd::create_constant("pulc-boot", &bytes).map_err(io::Error::other)?;
    let board = Board::create(order.count).map_err(io::Error::other)?;
    Guest::new(Broker::new(listener, (table, bytes.len() as u32), keys, board, seats))?.run()
}

fn receive<T: for<'a> serde::Deserialize<'a>>(input: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > ORDER_MAX {
        return Err(io::Error::other(format!("an order of {len} bytes exceeds {ORDER_MAX}")));
    }
    let mut bytes = vec![0; len];
    input.read_exact(&mut bytes)?;
    decode(&bytes).map_err(io::Error::other)
}

fn prepare(order: GuestOrder) -> io::Result<(GuestOrder, Listener, Vec<Seat>, GuestReady)> {
    if order.version != PROTOCOL_VERSION {
        let text = format!("the library speaks version {}, this program {PROTOCOL_VERSION}", order.version);
        return Err(io::Error::other(text));
    }
    if !(1..=RANKS_MAX).contains(&order.count) {
        return Err(io::Error::other(format!("{} ranks on a node; 1 to {RANKS_MAX} are possible", order.count)));
    }
    let mut random = [0; 64];
    fill_random(&mut random).map_err(io::Error::other)?;
    let keeper = format!("pulc-guest-{}", hex(&random[..16]));
    let cookie: [u8; 16] = random[16..32].try_into().expect("sixteen of sixty-four bytes");
    let secret: [u8; 32] = random[32..].try_into().expect("thirty-two of sixty-four bytes");
    let listener = Listener::bind(keeper.as_bytes())?;
    let rails = std::env::var(ENV_RAILS).unwrap_or_else(|_| "udp".to_owned());
    let kinds = parse_rails(&rails).map_err(io::Error::other)?;
    let address = local_addresses().into_iter().next().ok_or_else(|| io::Error::other("this host has no address"))?;
    let (mut seats, mut addresses) = (Vec::new(), Vec::new());
    for rank in order.first..order.first + order.count {
        let (mut bound, mut sockets): (Vec<SocketAddr>, Vec<OwnedFd>) = (Vec::new(), Vec::new());
        for kind in kinds.iter().filter(|_| order.is_spread) {
            let (at, socket) = bind_rail(address, *kind)?;
            bound.push(at);
            sockets.push(socket);
        }
        addresses.push(bound);
        seats.push(Seat::new(Rank(rank), cookie, sockets));
    }
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok((order, listener, seats, GuestReady { keeper, cookie, node, secret: JobSecret(secret), addresses }))
}

struct Guest {
    epoll: OwnedFd,
    broker: Broker,
    input: io::Stdin,
    input_open: bool,
    connections: usize,
}

impl Guest {
    fn new(broker: Broker) -> io::Result<Guest> {
        let guest = Guest {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            broker,
            input: io::stdin(),
            input_open: true,
            connections: 0,
        };
        guest.poll(guest.broker.listener(), LISTENER)?;
        guest.poll(guest.input.as_fd(), INPUT)?;
        Ok(guest)
    }

    fn poll(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)?)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        while self.input_open || self.connections > 0 {
            let timeout = self.broker.has_waiting().then_some(&RETRY);
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    INPUT => {
                        // Nothing more is said; only the end counts.
                        self.input_open = false;
                        epoll::delete(&self.epoll, self.input.as_fd())?;
                    }
                    connection => self.read(connection as usize),
                }
            }
            self.broker.retry();
        }
        Ok(())
    }

    fn accept(&mut self) {
        let mut events = Vec::new();
        for _ in 0..super::ACCEPTS_MAX {
            match self.broker.accept(&mut events) {
                Ok(index) => {
                    self.connections += 1;
                    let polled = self.broker.conn_fd(index).map(|fd| self.poll(fd, index as u64));
                    if let Some(Err(error)) = polled {
                        log!(Error, "keeper", "an attaching rank cannot be polled: {error}");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if is_out_of_descriptors(&error) && self.broker.free_a_descriptor(&mut events) => {}
                Err(error) => {
                    log!(Error, "keeper", "a rank cannot attach: {error}");
                    break;
                }
            }
        }
        self.heard(events);
    }

    fn read(&mut self, index: usize) {
        let events = self.broker.read(index);
        self.heard(events);
    }

    /// How a rank ended is the launcher's business; here it is gone.
    fn heard(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Abort { rank, text, .. } => log!(Error, "keeper", "rank {rank} ended the job: {text}"),
                Event::Closed => self.connections -= 1,
            }
        }
        let left: Vec<(Rank, Gone)> = self.broker.left().into_iter().map(|rank| (rank, Gone::Exited(0))).collect();
        if !left.is_empty() {
            self.broker.gone(&left);
        }
    }
}
