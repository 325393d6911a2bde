//! `pulc bench switch`: what the kernel takes to hand one core over, from process to process and from thread to thread, by yielding and by
//! sleeping, under the policies that it allows; beside it a port between two processes on that core. It is the floor under every
//! message between two that share a core. Called by the command line; `partner` is the process at the other end.

use crate::Error;
use crate::job::{Job, this_program};
use crate::row::{self, Row};
use pulc_base::clock::{Nanos, now};
use pulc_hal::os::memfd::{self, WriteMap};
use pulc_hal::os::policy::set_policy;
use pulc_hal::os::{cpu, futex, policy};
use serde::Serialize;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Interleaved rounds, of which the best and the median are shown
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One short round: does it all work
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct OfPartner {
    core: u32,
    #[arg(value_enum)]
    way: Way,
    #[arg(value_enum)]
    policy: Policy,
}

/// How the one that waits lets the other one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Way {
    Yield,
    Futex,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Policy {
    Usual,
    Batch,
    Fifo,
}

/// Who hands the core to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Who {
    Processes,
    Threads,
}

#[derive(Clone, Copy)]
struct Kind {
    who: Who,
    way: Way,
    policy: Policy,
}

const KINDS: [Kind; 8] = [
    Kind { who: Who::Processes, way: Way::Yield, policy: Policy::Usual },
    Kind { who: Who::Processes, way: Way::Yield, policy: Policy::Batch },
    Kind { who: Who::Processes, way: Way::Yield, policy: Policy::Fifo },
    Kind { who: Who::Threads, way: Way::Yield, policy: Policy::Usual },
    Kind { who: Who::Threads, way: Way::Yield, policy: Policy::Fifo },
    Kind { who: Who::Processes, way: Way::Futex, policy: Policy::Usual },
    Kind { who: Who::Threads, way: Way::Futex, policy: Policy::Usual },
    Kind { who: Who::Processes, way: Way::Futex, policy: Policy::Fifo },
];

/// What else is measured in every round: what a message adds.
const PORT: &str = "port";

const BUDGET: Nanos = Nanos::from_ms(30);
const BUDGET_QUICK: Nanos = Nanos::from_ms(5);
/// Only ends what hangs.
const LIMIT: Nanos = Nanos::from_ms(60_000);

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let core = *cpu::allowed_cores()?.first().ok_or_else(|| Error::Nonsense("no core to run on".into()))?;
    let (rounds, budget) = if args.quick { (1, BUDGET_QUICK) } else { (args.rounds, BUDGET) };
    let refused: Vec<Policy> =
        [Policy::Batch, Policy::Fifo].into_iter().filter(|policy| !policy.is_allowed()).collect();
    let kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| !refused.contains(&kind.policy)).collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); kinds.len()];
    let mut ports = Vec::new();
    for _ in 0..rounds {
        for (kind, times) in kinds.iter().zip(&mut times) {
            times.push(kind.measure(core, budget)?);
        }
        ports.push(port(core, budget)?);
    }
    if !args.json {
        println!(
            "one core handed over and back, one way; {rounds} rounds\n{:>10} {:>10}  who, how, policy",
            "best", "median"
        );
    }
    for (kind, times) in kinds.iter().zip(&mut times) {
        let name = format!("{:?} {:?} {:?}", kind.who, kind.way, kind.policy).to_lowercase();
        show(args, &name, serde_json::json!({ "who": kind.who, "way": kind.way, "policy": kind.policy }), times);
    }
    show(args, "a port between two processes, 8 bytes", serde_json::json!({ "who": PORT }), &mut ports);
    for policy in refused {
        eprintln!("pulc: {policy:?} is left out: this user may not ask for it");
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Args, name: &str, mut line: serde_json::Value, times: &mut [f64]) {
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    if args.json {
        (line["best_ns"], line["median_ns"]) = (best.into(), median.into());
        println!("{line}");
    } else {
        println!("{:>10} {:>10}  {name}", row::time(best), row::time(median));
    }
}

/// Eight bytes from port to port, as `layers` measures them.
fn port(core: u32, budget: Nanos) -> Result<f64, Error> {
    let job = Job { enter: &[], ranks: 2, nodes: None, limit: LIMIT, options: &[] };
    let (cores, budget) = (format!("{core},{core}"), (budget.0 / 1000).to_string());
    let words =
        ["messages", "--layer", PORT, "--place", "core", "--budget-us", &budget, "--bytes", "8", "--cores", &cores];
    let text = job.run_ranks(&words)?;
    let row: Option<Row> = text.lines().find_map(|line| serde_json::from_str(line).ok());
    row.and_then(|row| row.latency_ns_p50).ok_or(Error::Nonsense(text))
}

impl Policy {
    fn set(self) -> Result<(), Error> {
        set_policy(match self {
            Policy::Usual => policy::Policy::Usual,
            Policy::Batch => policy::Policy::Batch,
            Policy::Fifo => policy::Policy::Fifo,
        })
        .map_err(Error::from)
    }

    /// Tried in a thread that ends at once.
    fn is_allowed(self) -> bool {
        std::thread::spawn(move || self.set().is_ok()).join().unwrap_or(false)
    }
}

impl Kind {
    /// Nanoseconds one way: the median of a round's blocks.
    fn measure(self, core: u32, budget: Nanos) -> Result<f64, Error> {
        let (map, fd) = memfd::create_common("pulc-bench-switch", MAP_BYTES)?;
        let until = now() + budget + LIMIT;
        match self.who {
            Who::Processes => {
                let partner = Partner::start(self, core, fd)?;
                let found = asked(Words { map, mine: A, theirs: B, way: self.way, until }, self.policy, core, budget);
                drop(partner);
                found
            }
            Who::Threads => {
                let theirs = memfd::map_common(fd.as_fd(), MAP_BYTES)?;
                let other = Words { map: theirs, mine: B, theirs: A, way: self.way, until };
                let answering = std::thread::spawn(move || answer(&other, self.policy, core));
                let found = asked(Words { map, mine: A, theirs: B, way: self.way, until }, self.policy, core, budget);
                let ended = answering.join().map_err(|_| Error::Ended)?;
                found.and_then(|found| ended.map(|()| found))
            }
        }
    }
}

/// The process at the other end, ended with this value.
struct Partner(Child);

impl Partner {
    fn start(kind: Kind, core: u32, memory: OwnedFd) -> Result<Partner, Error> {
        let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let mut command = Command::new(this_program()?);
        command.args(["bench", "partner", &core.to_string(), &name(&kind.way), &name(&kind.policy)]);
        let child = command.stdin(Stdio::from(memory)).spawn().map_err(Error::system("start a process to measure"))?;
        Ok(Partner(child))
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // It has been told to end, or does not hear any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other end: its standard input is the memory.
pub fn partner(args: &OfPartner) -> Result<(), Error> {
    let map = memfd::map_common(std::io::stdin().as_fd(), MAP_BYTES)?;
    answer(&Words { map, mine: B, theirs: A, way: args.way, until: now() + BUDGET + LIMIT }, args.policy, args.core)
}

const MAP_BYTES: usize = 4096;
/// The two words, on lines that are no neighbours.
const A: usize = 0;
const B: usize = 512;
/// Said first, by the end that answers: it is on its core.
const READY: u32 = u32::MAX;
const STOP: u32 = u32::MAX - 1;
/// Reading the clock takes a hundredth of a hand-over.
const BLOCK_TRIPS: u32 = 64;
/// Yields between two looks at the clock.
const PATIENCE: u32 = 4096;
/// Sleeps between two looks at the clock.
const NAP: Duration = Duration::from_secs(1);

/// Two words, each written by one end.
struct Words {
    map: WriteMap,
    mine: usize,
    theirs: usize,
    way: Way,
    /// Only against hanging.
    until: Nanos,
}

impl Words {
    fn give(&self, value: u32) -> Result<(), Error> {
        let word = self.map.u32_at(self.mine);
        // Release: pairs with the acquire of `take`.
        word.store(value, Ordering::Release);
        if self.way == Way::Futex {
            futex::wake(word, 1)?;
        }
        Ok(())
    }

    /// Waits for another word than `last`.
    fn take(&self, last: u32) -> Result<u32, Error> {
        let word = self.map.u32_at(self.theirs);
        let mut looks = 0_u32;
        loop {
            // Acquire: pairs with the release of `give`.
            let found = word.load(Ordering::Acquire);
            if found != last {
                return Ok(found);
            }
            looks = looks.wrapping_add(1);
            let is_slow = match self.way {
                Way::Yield => {
                    cpu::yield_now();
                    looks.is_multiple_of(PATIENCE)
                }
                Way::Futex => futex::wait(word, last, Some(NAP))? == futex::Wait::TimedOut,
            };
            if is_slow && now() > self.until {
                return Err(Error::Hung { seconds: LIMIT.0 / 1_000_000_000 });
            }
        }
    }
}

/// The asking end, in a thread of its own: pinning and policy end with it.
fn asked(words: Words, policy: Policy, core: u32, budget: Nanos) -> Result<f64, Error> {
    std::thread::spawn(move || ask(&words, policy, core, budget)).join().map_err(|_| Error::Ended)?
}

fn ask(words: &Words, policy: Policy, core: u32, budget: Nanos) -> Result<f64, Error> {
    let mut answered = words.take(0)?;
    // On that core only with the right to be there: the other end may not let anybody else run.
    policy.set()?;
    cpu::pin_to(&[core])?;
    let (mut blocks, started) = (Vec::new(), now());
    let mut value = 0;
    while blocks.len() < 2 || now().since(started) < budget {
        let block = now();
        for _ in 0..BLOCK_TRIPS {
            value += 1;
            words.give(value)?;
            answered = words.take(answered)?;
        }
        blocks.push(now().since(block).0 as f64 / f64::from(2 * BLOCK_TRIPS));
    }
    words.give(STOP)?;
    // The first one warms up.
    blocks.remove(0);
    blocks.sort_by(f64::total_cmp);
    Ok(blocks[blocks.len() / 2])
}

fn answer(words: &Words, policy: Policy, core: u32) -> Result<(), Error> {
    policy.set()?;
    cpu::pin_to(&[core])?;
    words.give(READY)?;
    let mut value = 0;
    loop {
        value = words.take(value)?;
        if value == STOP {
            return Ok(());
        }
        words.give(value)?;
    }
}
