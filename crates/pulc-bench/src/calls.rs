//! `pulc bench calls`: how many system calls two processes that are awake make for a million small messages, on each interface, both
//! where the program itself asks again and again and where it waits in a receive. Called by the command line; `rank` is the same
//! seen from inside a process. What is counted is counted by the kernel, in the program itself.

use crate::Error;
use crate::am::Am;
use crate::job::Job;
use crate::measure::{BYTES_MIN, Channel, LAST};
use crate::rank::{NAME, Ports, Raw, port_error};
use crate::row::Layer;
use pulc::{Address, Pulc, Rank};
use pulc_base::clock::Nanos;
use pulc_hal::os::call_count::CallCount;
use pulc_hal::os::cpu;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Messages of each interface
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    messages: u64,
    /// Only these interfaces
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = LAYERS)]
    layers: Vec<Layer>,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct OfRank {
    #[arg(long)]
    messages: u64,
    #[arg(long, value_enum, value_delimiter = ',')]
    layers: Vec<Layer>,
}

const LAYERS: [Layer; 3] = [Layer::Port, Layer::Rawdata, Layer::Am];
const LIMIT: Nanos = Nanos::from_ms(280_000);
/// Messages that are under way at most: sends never have to wait.
const WINDOW: u64 = 32;

/// Long enough for the keeper of a busy machine.
const SETTLED: Duration = Duration::from_millis(300);

/// What one process made in one exchange.
#[derive(Serialize, Deserialize)]
struct Made {
    layer: Layer,
    /// The program asks again and again; else it waits in receives.
    polls: bool,
    /// By number.
    calls: Vec<(usize, u64)>,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    if cpu::allowed_cores()?.len() < 2 {
        return Err(Error::NotHere { layer: "calls", why: "processes that are both awake need two cores".into() });
    }
    // Beside another job the launcher may have one core left for both; processes that are awake need one each.
    let job = Job { enter: &[], ranks: 2, nodes: None, limit: LIMIT, options: &["--no-pin"] };
    let layers = args.layers.iter().map(|layer| layer.name()).collect::<Vec<_>>().join(",");
    let text = job.run_ranks(&["calls", "--messages", &args.messages.to_string(), "--layers", &layers])?;
    let lines = text.lines().map(|line| serde_json::from_str(line).map_err(|_| Error::Nonsense(line.to_owned())));
    let made: Vec<Made> = lines.collect::<Result<_, _>>()?;
    if made.len() != 4 * args.layers.len() {
        return Err(Error::Nonsense(text));
    }
    if !args.json {
        println!("system calls of two processes for {} messages of 8 bytes", args.messages);
    }
    for &layer in &args.layers {
        for polls in [true, false] {
            let of_both = || made.iter().filter(|made| made.layer == layer && made.polls == polls);
            let calls = of_both().flat_map(|made| &made.calls).map(|(_, count)| count).sum::<u64>();
            let numbers: Vec<&(usize, u64)> = of_both().flat_map(|made| &made.calls).collect();
            if args.json {
                let line = serde_json::json!({
                    "layer": layer, "polls": polls, "messages": args.messages, "calls": calls, "by_number": numbers,
                });
                println!("{line}");
            } else {
                let how = if polls { "asking again and again" } else { "waiting in receives" };
                println!("{:<8} {how:<24} {calls:>8}  {}", layer.name(), named(&numbers));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The calls by which a waiting process gives its core away, by name.
fn named(numbers: &[&(usize, u64)]) -> String {
    const NAMES: [(usize, &str); 3] = [(24, "sched_yield"), (202, "futex"), (7, "poll")];
    let words = numbers.iter().map(|(number, count)| {
        let name = NAMES.iter().find(|(known, _)| known == number).map(|(_, name)| (*name).to_owned());
        format!("{count} x {}", name.unwrap_or_else(|| format!("call {number}")))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// One of the two processes.
pub fn rank(args: &OfRank) -> Result<(), Error> {
    let pulc = Pulc::attach().map_err(port_error)?;
    let me = pulc.rank().0;
    let cores = cpu::allowed_cores()?;
    if let Some(core) = cores.get(me as usize % cores.len().max(1)) {
        cpu::pin_to(&[*core])?;
    }
    let peer = Rank(1 - me.min(1));
    let port = pulc.open_port(NAME).map_err(port_error)?;
    let mut ports = Ports { port, peer, address: Address::new(peer, NAME), polls: false };
    let mut raw = Raw { channel: pulc.open_channel(peer, 1).map_err(port_error)?, polls: false };
    let mut am = Am::open(&pulc, BYTES_MIN, false)?;
    // Names are asked for and channels made by the first messages.
    warm_up(&mut ports, me)?;
    warm_up(&mut raw, me)?;
    // What the keeper still has to say about them comes in its own time, and is heard in the next receive.
    std::thread::sleep(SETTLED);
    warm_up(&mut ports, me)?;
    let count = CallCount::of_this_thread()?;
    let mut made = Vec::new();
    for &layer in &args.layers {
        for polls in [true, false] {
            let before = count.by_number();
            match layer {
                Layer::Port => {
                    ports.polls = polls;
                    exchange(&mut ports, me, args.messages, &count)
                }
                Layer::Rawdata => {
                    raw.polls = polls;
                    exchange(&mut raw, me, args.messages, &count)
                }
                Layer::Am => {
                    am.polls = polls;
                    requests(&mut am, me, args.messages, &count)
                }
                other => return Err(Error::NotHere { layer: other.name(), why: "it is no interface".into() }),
            }
            .map(|calls| made.push(Made { layer, polls, calls: calls_since(&before, calls) }))?;
        }
    }
    for made in made {
        println!("{}", serde_json::to_string(&made).map_err(|error| Error::Nonsense(error.to_string()))?);
    }
    Ok(())
}

/// Once there and back.
fn warm_up(channel: &mut impl Channel, me: u32) -> Result<(), Error> {
    let mut message = [0; BYTES_MIN];
    if me == 0 {
        channel.send(&message)?;
        return channel.recv(&mut message);
    }
    channel.recv(&mut message)?;
    channel.send(&message)
}

/// Windows of messages one way, each answered by one; what had been called when they were over.
fn exchange(channel: &mut impl Channel, me: u32, messages: u64, count: &CallCount) -> Result<Vec<(usize, u64)>, Error> {
    let mut message = [0; BYTES_MIN];
    for _ in 0..messages.div_ceil(WINDOW + 1) {
        for _ in 0..WINDOW {
            if me == 0 { channel.send(&message)? } else { channel.recv(&mut message)? }
        }
        if me == 0 { channel.recv(&mut message)? } else { channel.send(&message)? }
    }
    Ok(count.by_number())
}

/// Windows of requests, each with its reply.
fn requests(am: &mut Am, me: u32, messages: u64, count: &CallCount) -> Result<Vec<(usize, u64)>, Error> {
    if me != 0 {
        am.answer()?;
        return Ok(count.by_number());
    }
    let mut message = [0; BYTES_MIN];
    for _ in 0..messages.div_ceil(2 * WINDOW) {
        for _ in 0..WINDOW {
            am.send(&message)?;
        }
        for _ in 0..WINDOW {
            am.recv(&mut message)?;
        }
    }
    let calls = count.by_number();
    // The first one is replied to, the second one ends the other side.
    message[0] = LAST;
    am.send(&message)?;
    am.recv(&mut message)?;
    am.send(&message)?;
    am.recv(&mut message)?;
    Ok(calls)
}

/// What was called between two moments.
fn calls_since(before: &[(usize, u64)], after: Vec<(usize, u64)>) -> Vec<(usize, u64)> {
    let earlier = |number| before.iter().find(|(known, _)| *known == number).map_or(0, |(_, count)| *count);
    after.into_iter().map(|(number, count)| (number, count - earlier(number))).filter(|(_, count)| *count > 0).collect()
}
