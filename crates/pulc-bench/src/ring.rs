//! `pulc bench ring`: many processes pass a token round, through each interface and through bare futexes in the same processes, so
//! that pinning and core are the same. Called by the command line; `rank` is the same seen from inside a process.

use crate::job::Job;
use crate::rank::{NAME, port_error};
use crate::{Error, row};
use pulc::rawdata::Channel;
use pulc::{Address, From, Match, Port, Pulc, Rank};
use pulc_base::clock::{Nanos, now};
use pulc_hal::os::fdpass::{Listener, Seqpacket};
use pulc_hal::os::futex;
use pulc_hal::os::memfd::{self, WriteMap};
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

#[derive(clap::Args)]
pub struct Args {
    /// Processes
    #[arg(short = 'n', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(3..=1024))]
    ranks: u32,
    /// Interleaved rounds
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Times that the token goes round in one round
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    turns: u32,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct OfRank {
    #[arg(long)]
    rounds: u32,
    #[arg(long)]
    turns: u32,
}

const LIMIT: Nanos = Nanos::from_ms(300_000);

/// Nanoseconds from one process to the next, in one round.
#[derive(Serialize, Deserialize)]
struct Round {
    futex: f64,
    port: f64,
    rawdata: f64,
}

/// A name and its figure.
type Way = (&'static str, fn(&Round) -> f64);

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let job = Job { enter: &[], ranks: args.ranks, nodes: None, limit: LIMIT, options: &[] };
    let (rounds, turns) = (args.rounds.to_string(), args.turns.to_string());
    let text = job.run_ranks(&["ring", "--rounds", &rounds, "--turns", &turns])?;
    let lines = text.lines().map(|line| serde_json::from_str(line).map_err(|_| Error::Nonsense(line.to_owned())));
    let found: Vec<Round> = lines.collect::<Result<_, _>>()?;
    if found.len() != args.rounds as usize {
        return Err(Error::Nonsense(text));
    }
    if !args.json {
        println!("{} processes in a ring, one hop of the token; medians of {} rounds", args.ranks, args.rounds);
        println!("{:>10} {:>8}  what", "hop", "x futex");
    }
    let ways: [Way; 3] =
        [("futex", |round| round.futex), ("port", |round| round.port), ("rawdata", |round| round.rawdata)];
    for (name, hop) in ways {
        let hop_ns = median(found.iter().map(hop));
        let ratio = median(found.iter().map(|round| hop(round) / round.futex));
        if args.json {
            let line = serde_json::json!({ "what": name, "ranks": args.ranks, "hop_ns": hop_ns, "x_futex": ratio });
            println!("{line}");
        } else {
            println!("{:>10} {ratio:>8.2}  {name}", row::time(hop_ns));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// One process of the ring.
pub fn rank(args: &OfRank) -> Result<(), Error> {
    let pulc = Pulc::attach().map_err(port_error)?;
    let (me, size) = (pulc.rank().0, pulc.size());
    let (next, previous) = (Rank((me + 1) % size), Rank((me + size - 1) % size));
    let port = pulc.open_port(NAME).map_err(port_error)?;
    let map = common_memory(&port, me, size)?;
    let mut futexes = Futexes { map, me: me as usize, next: next.0 as usize, turn: 0 };
    let mut ports = Ports { port, next: Address::new(next, NAME), previous };
    let mut channels = Channels {
        next: pulc.open_channel(next, 1).map_err(port_error)?,
        previous: pulc.open_channel(previous, 1).map_err(port_error)?,
    };
    for _ in 0..args.rounds {
        let futex = go_round(&mut futexes, me, size, args.turns)?;
        let port = go_round(&mut ports, me, size, args.turns)?;
        let rawdata = go_round(&mut channels, me, size, args.turns)?;
        if me == 0 {
            let round = Round { futex, port, rawdata };
            println!("{}", serde_json::to_string(&round).map_err(|error| Error::Nonsense(error.to_string()))?);
        }
    }
    Ok(())
}

/// How a process gets the token and passes it on.
trait Token {
    fn take(&mut self) -> Result<(), Error>;
    fn pass(&mut self) -> Result<(), Error>;
}

/// Nanoseconds of one hop, as rank 0 sees it. The first turn warms up.
fn go_round(token: &mut impl Token, me: u32, size: u32, turns: u32) -> Result<f64, Error> {
    let mut started = now();
    for turn in 0..=turns {
        if turn == 1 {
            started = now();
        }
        if me == 0 {
            token.pass()?;
            token.take()?;
        } else {
            token.take()?;
            token.pass()?;
        }
    }
    Ok(now().since(started).0 as f64 / (f64::from(turns) * f64::from(size)))
}

/// One word for each process, on lines of their own.
struct Futexes {
    map: WriteMap,
    me: usize,
    next: usize,
    turn: u32,
}

const WORD_EVERY: usize = 128;

impl Token for Futexes {
    fn take(&mut self) -> Result<(), Error> {
        let word = self.map.u32_at(self.me * WORD_EVERY);
        // Acquire: pairs with the release of `pass`.
        while word.load(Ordering::Acquire) == self.turn {
            futex::wait(word, self.turn, None)?;
        }
        self.turn = self.turn.wrapping_add(1);
        Ok(())
    }

    fn pass(&mut self) -> Result<(), Error> {
        let word = self.map.u32_at(self.next * WORD_EVERY);
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        futex::wake(word, 1)?;
        Ok(())
    }
}

struct Ports {
    port: Port,
    next: Address,
    previous: Rank,
}

impl Token for Ports {
    fn take(&mut self) -> Result<(), Error> {
        self.port.recv(From::Rank(self.previous), Match::Tag(0), &mut [0; 8]).map(drop).map_err(port_error)
    }

    fn pass(&mut self) -> Result<(), Error> {
        self.port.send(&self.next, 0, &[0; 8]).map_err(port_error)
    }
}

struct Channels {
    next: Channel,
    previous: Channel,
}

impl Token for Channels {
    fn take(&mut self) -> Result<(), Error> {
        self.previous.recv(&mut [0; 8]).map(drop).map_err(port_error)
    }

    fn pass(&mut self) -> Result<(), Error> {
        self.next.send(&[0; 8]).map_err(port_error)
    }
}

/// Memory that all processes of the ring write: rank 0 makes it and hands it out.
fn common_memory(port: &Port, me: u32, size: u32) -> Result<WriteMap, Error> {
    const TAG: u64 = 1;
    let bytes = size as usize * WORD_EVERY;
    if me != 0 {
        let (_, name) = port.recv_vec(From::Rank(Rank(0)), Match::Tag(TAG)).map_err(port_error)?;
        let line = Seqpacket::connect(&name).map_err(Error::system("ask for the memory of the ring"))?;
        let got = line.recv(&mut [0; 8]).map_err(Error::system("get the memory of the ring"))?.ok_or(Error::Ended)?;
        let fd = got.fds.first().ok_or_else(|| Error::Nonsense("no memory".into()))?;
        return Ok(memfd::map_common(fd.as_fd(), bytes)?);
    }
    let (map, fd) = memfd::create_common("pulc-bench-ring", bytes)?;
    let name = format!("pulc-bench-ring-{}", std::process::id()).into_bytes();
    let listener = Listener::bind(&name).map_err(Error::system("listen for the processes of the ring"))?;
    for rank in 1..size {
        port.send(&Address::new(Rank(rank), NAME), TAG, &name).map_err(port_error)?;
    }
    for _ in 1..size {
        let failed = Error::system("wait for a process of the ring");
        rustix::event::poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).map_err(failed)?;
        let line = listener.accept().map_err(Error::system("hear a process of the ring"))?;
        line.send(b"memory", &[fd.as_fd()]).map_err(Error::system("hand out the memory of the ring"))?;
    }
    Ok(map)
}
