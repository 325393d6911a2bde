//! `pulc bench socket-layer`, hidden: TCP through the sockets bypass as a measured layer, between two processes or two threads of one. An
//! ordinary program with blocking calls of the C library, started by `rounds` with the bypass before it.

use crate::Error;
use crate::job::this_program;
use crate::measure::{Buffers, Channel, answer, ask};
use crate::rounds::OfBoth;
use crate::row::{self, Layer, Row};
use crate::sockets::{LIMIT, Path, before, ring_bytes, start};
use pulc_base::clock::Nanos;
use pulc_hal::os::cpu;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;

#[derive(clap::Args, Clone)]
pub struct Args {
    #[command(flatten)]
    of_both: OfBoth,
    /// Both ends are threads of this process
    #[arg(long)]
    threads: bool,
    /// The other end's place; without one this end waits for the other, and says its own
    #[arg(long)]
    server: Option<String>,
}

impl Channel for TcpStream {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.write_all(message).map_err(Error::system("write into a socket"))
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        self.read_exact(message).map_err(Error::system("read out of a socket"))
    }
}

pub fn run(args: &Args) -> Result<(), Error> {
    // Whoever has started this may be killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(Error::system("end with the benchmark"))?;
    if let Some(server) = &args.server {
        return asking(args, server);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::system("listen"))?;
    let address = listener.local_addr().map_err(Error::system("ask for the address"))?.to_string();
    if !args.threads {
        println!("{address}");
        return answering(args, &listener);
    }
    let of_thread = args.clone();
    let other = std::thread::spawn(move || answering(&of_thread, &listener));
    asking(args, &address)?;
    other.join().map_err(|_| Error::Worker("the answering thread has failed".into()))?
}

fn sit_down(args: &Args, index: usize) -> Result<(), Error> {
    args.of_both.cores.get(index).map_or(Ok(()), |core| Ok(cpu::pin_to(&[*core])?))
}

fn asking(args: &Args, server: &str) -> Result<(), Error> {
    sit_down(args, 0)?;
    let mut stream = TcpStream::connect(server).map_err(Error::system("connect"))?;
    stream.set_nodelay(true).map_err(Error::system("switch delays off"))?;
    let layer = if args.threads { Layer::Threads } else { Layer::Socket };
    for &bytes in &args.of_both.bytes {
        let figures =
            ask(&mut stream, Buffers::new(bytes, args.of_both.apart), Nanos::from_us(args.of_both.budget_us))?;
        print!("{}", row::json_lines(&[Row::new(layer, args.of_both.place, bytes, figures)]));
    }
    Ok(())
}

fn answering(args: &Args, listener: &TcpListener) -> Result<(), Error> {
    sit_down(args, 1)?;
    let mut stream = listener.accept().map_err(Error::system("accept"))?.0;
    stream.set_nodelay(true).map_err(Error::system("switch delays off"))?;
    args.of_both.bytes.iter().try_for_each(|bytes| answer(&mut stream, Buffers::new(*bytes, args.of_both.apart)))
}

/// Starts what is measured with these options and returns what it wrote.
pub fn launch(layer: Layer, options: &[&str]) -> Result<String, Error> {
    let before = ring_bytes()?;
    let text = ends(layer, options)?;
    if ring_bytes()? == before {
        return Err(Error::NotHere { layer: layer.name(), why: "nothing went through rings".into() });
    }
    Ok(text)
}

fn ends(layer: Layer, options: &[&str]) -> Result<String, Error> {
    let mut words = before(Path::Bypass)?;
    words.push(this_program()?);
    words.extend(["bench", "socket-layer"].iter().chain(options).map(OsString::from));
    if layer == Layer::Threads {
        words.push("--threads".into());
        return crate::job::output(&words, LIMIT);
    }
    let mut server = start(&words, Stdio::piped())?;
    words.extend(["--server", &server.place()?].map(OsString::from));
    crate::job::output(&words, LIMIT)
}
