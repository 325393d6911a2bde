//! `pulc bench memory`: what a process of a job takes from the machine (its proportional share, PSS), idle and after everybody has
//! talked with everybody. Called by the command line; `rank` is the same seen from inside a process.

use crate::Error;
use crate::job::Job;
use pulc::rawdata::Channel;
use pulc::{Pulc, Rank};
use pulc_base::clock::Nanos;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Processes
    #[arg(short = 'n', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: u32,
    /// Lengths of the messages that everybody sends to everybody, one exchange after the other
    #[arg(long, value_delimiter = ',', default_value = "8,1024,16384,65536")]
    bytes: Vec<usize>,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

const LIMIT: Nanos = Nanos::from_ms(300_000);
const MIB: f64 = (1 << 20) as f64;

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let list = args.bytes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let job = Job { enter: &[], ranks: args.ranks, nodes: None, limit: LIMIT, options: &[] };
    let text = job.run_ranks(&["memory", "--bytes", &list])?;
    let shares: Vec<Vec<u64>> = text.lines().map(parse).collect::<Result<_, _>>()?;
    if shares.len() != args.ranks as usize || shares.iter().any(|of_one| of_one.len() != args.bytes.len() + 1) {
        return Err(Error::Nonsense(text));
    }
    if !args.json {
        println!("{} processes, share of memory (PSS) of one\n{:>10} {:>10}  when", args.ranks, "mean", "most");
    }
    let moments = std::iter::once("attached, idle".to_owned())
        .chain(args.bytes.iter().map(|bytes| format!("everybody has sent {bytes} bytes to everybody")));
    for (at, when) in moments.enumerate() {
        let column = shares.iter().map(|of_one| of_one[at]);
        let (most, sum) = (column.clone().max().unwrap_or(0), column.sum::<u64>());
        let mean = sum / u64::from(args.ranks);
        if args.json {
            println!("{}", serde_json::json!({ "when": when, "mean_bytes": mean, "most_bytes": most }));
        } else {
            println!("{:>6.2} MiB {:>6.2} MiB  {when}", mean as f64 / MIB, most as f64 / MIB);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(line: &str) -> Result<Vec<u64>, Error> {
    line.split(' ').map(|word| word.parse().map_err(|_| Error::Nonsense(line.to_owned()))).collect()
}

/// One process: exchanges, looks at its share, and waits until all have looked.
pub fn rank(sizes: &[usize]) -> Result<(), Error> {
    let failed = |error: pulc::Error| Error::Worker(error.to_string());
    let pulc = Pulc::attach().map_err(failed)?;
    let (me, size) = (pulc.rank().0, pulc.size());
    let channels: Vec<Channel> =
        (0..size).map(|rank| pulc.open_channel(Rank(rank), 1)).collect::<Result<_, _>>().map_err(failed)?;
    let mut shares = vec![share()?];
    meet(&channels, me).map_err(failed)?;
    for &bytes in sizes {
        // Gone before anyone looks: what the program itself needs is not what is measured.
        let mut message = vec![1; bytes];
        for turn in 1..size {
            channels[((me + turn) % size) as usize].send(&message).map_err(failed)?;
            channels[((me + size - turn) % size) as usize].recv(&mut message).map_err(failed)?;
        }
        drop(message);
        meet(&channels, me).map_err(failed)?;
        shares.push(share()?);
        meet(&channels, me).map_err(failed)?;
    }
    println!("{}", shares.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    meet(&channels, me).map_err(failed)
}

/// Returns when all have called it.
fn meet(channels: &[Channel], me: u32) -> Result<(), pulc::Error> {
    if me != 0 {
        channels[0].send(&[])?;
        return channels[0].recv(&mut []).map(drop);
    }
    channels[1..].iter().try_for_each(|channel| channel.recv(&mut []).map(drop))?;
    channels[1..].iter().try_for_each(|channel| channel.send(&[]))
}

/// This process's share of the machine's memory, in bytes.
fn share() -> Result<u64, Error> {
    share_at("/proc/self/smaps_rollup")
}

/// The share of another process.
pub fn share_of(pid: i32) -> Result<u64, Error> {
    share_at(&format!("/proc/{pid}/smaps_rollup"))
}

fn share_at(path: &str) -> Result<u64, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::system("read the share of memory"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or(Error::Nonsense(text))
}
