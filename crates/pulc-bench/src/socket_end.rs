//! One end of a measured socket: an ordinary program that knows nothing of PULC, over TCP or a unix socket. Started by `sockets`, with the
//! bypass before it or not; what the client writes is the figure. Every call is the C library's, so that the bypass sees it. Blocking
//! calls are here, waiting for many connections in `socket_requests.rs`, datagrams in `socket_datagrams.rs`.

use crate::{Error, socket_datagrams, socket_requests};
use pulc_base::clock::{Nanos, now};
use pulc_hal::os::cpu;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

#[derive(clap::Args)]
pub struct Args {
    /// What is done
    #[arg(value_enum)]
    what: What,
    /// The server's place; without one this is the server, which says its own
    #[arg(long)]
    server: Option<String>,
    #[arg(long)]
    unix: bool,
    /// Where to stay
    #[arg(long)]
    core: Option<u32>,
    #[arg(long, default_value_t = 200)]
    millis: u64,
    /// Connections that are there at a time
    #[arg(long, default_value_t = 1)]
    clients: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum What {
    /// Nanoseconds that 64 bytes take one way
    Pingpong,
    /// The same by datagrams, from a connected socket to one that is not
    Datagrams,
    /// Bytes a second in writes of 64 KiB
    Stream,
    /// Connections a second, each with a byte there and back
    Connect,
    /// Requests a second of clients that each wait for their answer, both ends in epoll
    Requests,
}

pub const MESSAGE_BYTES: usize = 64;
const WRITE_BYTES: usize = 64 << 10;
/// Before the clock is read first.
const WARM: u32 = 200;
/// Messages or writes between two looks at the clock.
const BATCH: u32 = 50;

pub trait Stream: Read + Write {
    /// Says that no more is sent.
    fn finish(&self) -> std::io::Result<()>;
}

impl Stream for TcpStream {
    fn finish(&self) -> std::io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn finish(&self) -> std::io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Listener::Unix(listener) => Box::new(listener.accept()?.0),
        })
    }
}

fn connect(server: &str, is_unix: bool) -> std::io::Result<Box<dyn Stream>> {
    if is_unix {
        return Ok(Box::new(unix(server)?));
    }
    Ok(Box::new(tcp(server)?))
}

pub fn unix(server: &str) -> std::io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(server)?)
}

pub fn tcp(server: &str) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub fn run(args: &Args) -> Result<(), Error> {
    // Whoever has started this may be killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(Error::system("end with the benchmark"))?;
    if let Some(core) = args.core {
        cpu::pin_to(&[core])?;
    }
    let failed = || Error::system("talk through a socket");
    match &args.server {
        Some(server) => {
            let time = Nanos::from_ms(args.millis);
            let figure = match args.what {
                What::Pingpong => pingpong(&mut *connect(server, args.unix).map_err(failed())?, time),
                What::Datagrams => socket_datagrams::ask(server, args.unix, time),
                What::Stream => stream(&mut *connect(server, args.unix).map_err(failed())?, time),
                What::Connect => connections(server, args.unix, time),
                What::Requests => socket_requests::ask(server, args.unix, args.clients, time),
            };
            println!("{}", figure.map_err(failed())?);
            Ok(())
        }
        None => serve(args).map_err(failed()),
    }
}

/// Answers one client; of connections, until one brings nothing.
fn serve(args: &Args) -> std::io::Result<()> {
    if args.what == What::Datagrams {
        return socket_datagrams::answer(args.unix);
    }
    let listener = if args.unix {
        let name = format!("pulc-bench-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        println!("{name}");
        Listener::Unix(listener)
    } else {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        println!("{}", listener.local_addr()?);
        Listener::Tcp(listener)
    };
    match args.what {
        What::Datagrams => {}
        What::Requests => socket_requests::answer(&listener, args.clients)?,
        What::Pingpong => {
            let mut stream = listener.accept()?;
            let mut message = [0; MESSAGE_BYTES];
            while stream.read_exact(&mut message).is_ok() {
                stream.write_all(&message)?;
            }
        }
        What::Stream => {
            let mut stream = listener.accept()?;
            let mut bytes = vec![0; WRITE_BYTES];
            while stream.read(&mut bytes)? > 0 {}
        }
        What::Connect => {
            let mut byte = [0];
            loop {
                let mut stream = listener.accept()?;
                if stream.read(&mut byte)? == 0 {
                    break;
                }
                stream.write_all(&byte)?;
                // The end comes from the client.
                while stream.read(&mut byte)? > 0 {}
            }
        }
    }
    Ok(())
}

fn pingpong(stream: &mut dyn Stream, time: Nanos) -> std::io::Result<f64> {
    let mut message = [7; MESSAGE_BYTES];
    let turns = |count: u32| -> std::io::Result<()> {
        for _ in 0..count {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        }
        Ok(())
    };
    middle(time, turns)
}

/// Nanoseconds one way of the middle batch of turns: when another program has one of the cores for its ten milliseconds, that is all that a mean
/// tells of.
pub fn middle(time: Nanos, mut turns: impl FnMut(u32) -> std::io::Result<()>) -> std::io::Result<f64> {
    turns(WARM)?;
    let (started, mut batches) = (now(), Vec::new());
    let mut before = started;
    while batches.is_empty() || before.since(started) < time {
        turns(BATCH)?;
        let after = now();
        batches.push(after.since(before).0);
        before = after;
    }
    let middle = batches.len() / 2;
    let (_, median, _) = batches.select_nth_unstable(middle);
    Ok(*median as f64 / f64::from(BATCH) / 2.0)
}

fn stream(stream: &mut dyn Stream, time: Nanos) -> std::io::Result<f64> {
    let bytes = vec![7; WRITE_BYTES];
    for _ in 0..WARM {
        stream.write_all(&bytes)?;
    }
    let (started, mut sent) = (now(), 0u64);
    while now().since(started) < time {
        for _ in 0..BATCH {
            stream.write_all(&bytes)?;
        }
        sent += (BATCH as usize * WRITE_BYTES) as u64;
    }
    stream.finish()?;
    // Until the other end has taken everything.
    while stream.read(&mut [0])? > 0 {}
    Ok(sent as f64 / (now().since(started).0 as f64 / 1e9))
}

fn connections(server: &str, unix: bool, time: Nanos) -> std::io::Result<f64> {
    let (started, mut count) = (now(), 0u64);
    while now().since(started) < time {
        let mut stream = connect(server, unix)?;
        stream.write_all(&[7])?;
        stream.read_exact(&mut [0])?;
        count += 1;
    }
    let rate = count as f64 / (now().since(started).0 as f64 / 1e9);
    connect(server, unix)?.finish()?;
    Ok(rate)
}
