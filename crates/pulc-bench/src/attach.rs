//! `pulc bench attach`: how long a process takes from the call that attaches it to its job until messages are possible, and until
//! the first one has been answered. Called by the command line; `rank` is the same seen from inside a process.

use crate::job::Job;
use crate::rank::{NAME, port_error};
use crate::{Error, row};
use pulc::{Address, From, Match, Pulc, Rank};
use pulc_base::clock::{Nanos, now};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Processes
    #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: u32,
    /// Jobs
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

const LIMIT: Nanos = Nanos::from_ms(120_000);
/// What a process tells, in this order.
const STEPS: [(&str, &str); 3] = [
    ("attached", "from the call until the process is part of its job"),
    ("ready", "from the call until a port is open and messages may be sent"),
    ("answered", "from the call until a message has been there and back, its channel made on the way"),
];

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let job = Job { enter: &[], ranks: args.ranks, nodes: None, limit: LIMIT, options: &[] };
    let mut times: [Vec<f64>; STEPS.len()] = Default::default();
    for _ in 0..args.rounds {
        let text = job.run_ranks(&["first"])?;
        if text.lines().count() != args.ranks as usize {
            return Err(Error::Nonsense(text));
        }
        for line in text.lines() {
            let of_one: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            if of_one.len() != STEPS.len() {
                return Err(Error::Nonsense(line.to_owned()));
            }
            times.iter_mut().zip(of_one).for_each(|(times, time)| times.push(time));
        }
    }
    if !args.json {
        println!("{} processes in each of {} jobs\n{:>10} {:>10}  what", args.ranks, args.rounds, "median", "most");
    }
    for ((name, what), times) in STEPS.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        if args.json {
            let line = serde_json::json!({ "what": name, "ranks": args.ranks, "median_ns": median, "most_ns": most });
            println!("{line}");
        } else {
            println!("{:>10} {:>10}  {what}", row::time(median), row::time(most));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One process: neighbours in pairs exchange a message; with an odd number the last one sends to itself.
pub fn rank() -> Result<(), Error> {
    let called = now();
    let pulc = Pulc::attach().map_err(port_error)?;
    let attached = now();
    let port = pulc.open_port(NAME).map_err(port_error)?;
    let ready = now();
    let me = pulc.rank().0;
    let peer = Rank(if me ^ 1 < pulc.size() { me ^ 1 } else { me });
    let mut message = [0; 8];
    port.send(&Address::new(peer, NAME), 0, &message).map_err(port_error)?;
    port.recv(From::Rank(peer), Match::Tag(0), &mut message).map_err(port_error)?;
    let answered = now();
    let times = [attached, ready, answered].map(|then| then.since(called).0.to_string());
    println!("{}", times.join(" "));
    Ok(())
}
