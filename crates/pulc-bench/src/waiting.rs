//! `pulc bench waiting`: how long a message takes and how much processor time is burnt where processes have cores of their own, where
//! they share them, and where strangers are beside them. Called by the command line; `rank` is the same seen from inside a process.

use crate::job::Job;
use crate::measure::percentiles;
use crate::rank::{NAME, burnt, port_error};
use crate::{Error, row};
use pulc::{Address, From, Match, Port, Pulc, Rank};
use pulc_base::clock::{Nanos, now};
use pulc_hal::os::cpu;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Interleaved rounds, of which the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One short round: does it all work
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct OfRank {
    /// Moments of the machine's monotonic clock, in nanoseconds: traffic begins and ends
    #[arg(long)]
    begin: u64,
    #[arg(long)]
    end: u64,
    /// How long everybody is blocked afterwards
    #[arg(long)]
    blocked_ms: u64,
    /// Pairs are half the job apart instead of neighbours
    #[arg(long)]
    far: bool,
    /// Core of each rank
    #[arg(long, value_delimiter = ',')]
    cores: Vec<u32>,
}

const LIMIT: Nanos = Nanos::from_ms(120_000);
/// Time for the jobs to start.
const START: Nanos = Nanos::from_ms(1000);
const TRAFFIC: Nanos = Nanos::from_ms(500);
const TRAFFIC_QUICK: Nanos = Nanos::from_ms(50);

/// One way of being placed.
struct Situation {
    name: &'static str,
    text: &'static str,
    jobs: u32,
    ranks: u32,
    far: bool,
    no_pin: bool,
    cores: Vec<u32>,
    /// Core of a process that computes all the time.
    hog: Option<u32>,
}

/// What one process found.
#[derive(Serialize, Deserialize)]
struct Told {
    /// None: it only answered.
    latency_ns_p50: Option<f64>,
    latency_ns_p99: Option<f64>,
    /// With all that came between, which percentiles of messages hide.
    latency_ns_mean: Option<f64>,
    /// Processor time and time during traffic and while blocked, in seconds.
    traffic_cpu_s: f64,
    traffic_s: f64,
    blocked_cpu_s: f64,
    blocked_s: f64,
}

/// A round of one situation.
struct Seen {
    latency_ns_p50: f64,
    latency_ns_p99: f64,
    latency_ns_mean: f64,
    traffic_cpu_share: f64,
    blocked_cpu_ms_per_s: f64,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let cores = cpu::allowed_cores()?;
    let situations = situations(&cores);
    let (rounds, traffic) = if args.quick { (1, TRAFFIC_QUICK) } else { (args.rounds, TRAFFIC) };
    let mut seen: Vec<Vec<Seen>> = situations.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (situation, seen) in situations.iter().zip(&mut seen) {
            seen.push(situation.look(traffic)?);
        }
    }
    if !args.json {
        println!("ports, 8 bytes one way between pairs; medians of {rounds} rounds, p99 the worst of all pairs");
        println!(
            "cpu: share of a core that one process takes during traffic; blocked: processor time burnt a second in a receive\n"
        );
        println!("{:>10} {:>10} {:>10} {:>6} {:>10}  situation", "p50", "mean", "p99", "cpu", "blocked");
    }
    for (situation, seen) in situations.iter().zip(&seen) {
        let of = |figure: fn(&Seen) -> f64| median(seen.iter().map(figure));
        let (p50, p99) = (of(|seen| seen.latency_ns_p50), of(|seen| seen.latency_ns_p99));
        let mean = of(|seen| seen.latency_ns_mean);
        let (share, blocked) = (of(|seen| seen.traffic_cpu_share), of(|seen| seen.blocked_cpu_ms_per_s));
        if args.json {
            let line = serde_json::json!({
                "situation": situation.name, "jobs": situation.jobs, "ranks": situation.ranks, "latency_ns_p50": p50,
                "latency_ns_mean": mean, "latency_ns_p99": p99, "traffic_cpu_share": share, "blocked_cpu_ms_per_s": blocked,
            });
            println!("{line}");
        } else {
            let (p50, mean, p99) = (row::time(p50), row::time(mean), row::time(p99));
            println!(
                "{p50:>10} {mean:>10} {p99:>10} {share:>6.2} {blocked:>7.2} ms  {}: {}",
                situation.name, situation.text
            );
        }
    }
    if cores.len() < 2 {
        eprintln!("pulc: this process may use one core only; what needs two is left out");
    }
    Ok(ExitCode::SUCCESS)
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

fn situations(cores: &[u32]) -> Vec<Situation> {
    let first = cores.first().copied().unwrap_or(0);
    let usual = |name, text| Situation {
        name,
        text,
        jobs: 1,
        ranks: 2,
        far: false,
        no_pin: false,
        cores: Vec::new(),
        hog: None,
    };
    let one_core = vec![first; 2];
    let mut all = vec![
        Situation { cores: one_core.clone(), no_pin: true, ..usual("one-core", "both processes on one core") },
        Situation { cores: one_core, no_pin: true, hog: Some(first), ..usual("one-core-hog", "and a hog beside them") },
    ];
    let Some(&second) = cores.get(1) else { return all };
    let two = vec![first, second];
    // Four processes for each core; more would only be slower to start on large machines.
    let many = 4 * cores.len().min(16) as u32;
    all.extend([
        usual("pinned", "as the launcher puts them, each on its own core"),
        Situation { no_pin: true, ..usual("unpinned", "wherever the kernel puts them") },
        Situation { ranks: many, ..usual("oversubscribed", "four processes for each core, neighbours in pairs") },
        Situation {
            ranks: many,
            far: true,
            ..usual("oversubscribed-far", "the same, pairs half the job apart, on different cores")
        },
        Situation {
            jobs: 2,
            cores: two.clone(),
            no_pin: true,
            ..usual("two-jobs", "two jobs of two on the same two cores")
        },
        Situation {
            cores: two,
            no_pin: true,
            hog: Some(first),
            ..usual("hog", "on two cores, a hog beside the asking one")
        },
    ]);
    all
}

impl Situation {
    /// Measures it once.
    fn look(&self, traffic: Nanos) -> Result<Seen, Error> {
        let begin = machine_time() + START;
        let end = begin + traffic;
        let (begin, end, blocked) = (begin.0.to_string(), end.0.to_string(), (traffic.0 / 1_000_000).to_string());
        let mut words = vec!["waiting", "--begin", &begin, "--end", &end, "--blocked-ms", &blocked];
        if self.far {
            words.push("--far");
        }
        let cores = self.cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        if !self.cores.is_empty() {
            words.extend(["--cores", &cores]);
        }
        let options: &[&str] = if self.no_pin { &["--no-pin"] } else { &[] };
        let job = Job { enter: &[], ranks: self.ranks, nodes: None, limit: LIMIT, options };
        let over = AtomicBool::new(false);
        let texts: Result<Vec<String>, Error> = std::thread::scope(|scope| {
            if let Some(core) = self.hog {
                let over = &over;
                scope.spawn(move || hog(core, over));
            }
            let jobs: Vec<_> = (0..self.jobs).map(|_| scope.spawn(|| job.run_ranks(&words))).collect();
            let texts = jobs.into_iter().map(|job| job.join().unwrap_or(Err(Error::Ended))).collect();
            over.store(true, Ordering::Relaxed);
            texts
        });
        let lines: Vec<String> = texts?.iter().flat_map(|text| text.lines().map(str::to_owned)).collect();
        let told = lines.iter().map(|line| serde_json::from_str(line).map_err(|_| Error::Nonsense(line.clone())));
        self.sum_up(&told.collect::<Result<Vec<Told>, _>>()?)
    }

    fn sum_up(&self, told: &[Told]) -> Result<Seen, Error> {
        let askers: Vec<&Told> = told.iter().filter(|told| told.latency_ns_p50.is_some()).collect();
        if told.len() != (self.jobs * self.ranks) as usize || askers.len() != told.len() / 2 {
            return Err(Error::Nonsense(format!("{} of {} processes have told", told.len(), self.jobs * self.ranks)));
        }
        let sum = |figure: fn(&Told) -> f64| told.iter().map(figure).sum::<f64>();
        Ok(Seen {
            latency_ns_p50: median(askers.iter().filter_map(|told| told.latency_ns_p50)),
            latency_ns_mean: median(askers.iter().filter_map(|told| told.latency_ns_mean)),
            latency_ns_p99: askers.iter().filter_map(|told| told.latency_ns_p99).fold(0.0, f64::max),
            traffic_cpu_share: sum(|told| told.traffic_cpu_s) / sum(|told| told.traffic_s),
            blocked_cpu_ms_per_s: 1e3 * sum(|told| told.blocked_cpu_s) / sum(|told| told.blocked_s),
        })
    }
}

/// The machine's monotonic clock, which all processes share; [`now`] counts from a moment of each process's own.
fn machine_time() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec.max(0) as u64 * 1_000_000_000 + time.tv_nsec.max(0) as u64)
}

/// Computes until it is over.
fn hog(core: u32, over: &AtomicBool) {
    // Where it cannot be pinned it still takes time from somebody.
    let _ = cpu::pin_to(&[core]);
    let mut number = 1_u64;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

const GO_ON: u8 = 0;
const LAST: u8 = 1;

/// One process: the lower one of a pair asks.
pub fn rank(args: &OfRank) -> Result<(), Error> {
    let pulc = Pulc::attach().map_err(port_error)?;
    let (me, size) = (pulc.rank().0, pulc.size());
    if let Some(core) = args.cores.get(me as usize) {
        cpu::pin_to(&[*core])?;
    }
    let peer = Rank(if args.far { (me + size / 2) % size } else { me ^ 1 });
    let port = pulc.open_port(NAME).map_err(port_error)?;
    let mut line = Line { port, peer, address: Address::new(peer, NAME), message: [GO_ON; 8] };
    // Once there and back, so that everything is set up.
    let asks = me < peer.0;
    if asks {
        line.round_trip()?;
    } else {
        line.answer()?;
    }
    let (begin, end) = (Nanos(args.begin), Nanos(args.end));
    let (cpu_before, began) = (burnt(), begin.max(machine_time()));
    let mut samples = if asks { line.ask(begin, end)? } else { line.answer_all()? };
    let (traffic_cpu, traffic) = (burnt() - cpu_before, machine_time().since(began));
    let (cpu_before, began) = (burnt(), now());
    line.blocked(Duration::from_millis(args.blocked_ms))?;
    let (blocked_cpu, blocked) = (burnt() - cpu_before, now().since(began));
    // Nobody leaves before the other one has been blocked as well.
    if asks {
        line.round_trip()?;
    } else {
        line.answer()?;
    }
    let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
    let (p50, p99) = percentiles(&mut samples);
    let told = Told {
        latency_ns_p50: asks.then_some(p50),
        latency_ns_p99: asks.then_some(p99),
        latency_ns_mean: asks.then_some(mean),
        traffic_cpu_s: traffic_cpu.as_secs_f64(),
        traffic_s: traffic.as_duration().as_secs_f64(),
        blocked_cpu_s: blocked_cpu.as_secs_f64(),
        blocked_s: blocked.as_duration().as_secs_f64(),
    };
    println!("{}", serde_json::to_string(&told).map_err(|error| Error::Nonsense(error.to_string()))?);
    Ok(())
}

/// The way between the two of a pair.
struct Line {
    port: Port,
    peer: Rank,
    address: Address,
    message: [u8; 8],
}

impl Line {
    fn send(&mut self) -> Result<(), Error> {
        self.port.send(&self.address, 0, &self.message).map_err(port_error)
    }

    fn recv(&mut self) -> Result<(), Error> {
        self.port.recv(From::Rank(self.peer), Match::Tag(0), &mut self.message).map(drop).map_err(port_error)
    }

    fn round_trip(&mut self) -> Result<(), Error> {
        self.send()?;
        self.recv()
    }

    fn answer(&mut self) -> Result<(), Error> {
        self.recv()?;
        self.send()
    }

    /// Round trips from one moment to another, at least one; half of what each took.
    fn ask(&mut self, begin: Nanos, end: Nanos) -> Result<Vec<f64>, Error> {
        std::thread::sleep(begin.since(machine_time()).as_duration());
        let end = now() + end.since(machine_time());
        let mut samples = Vec::new();
        loop {
            let started = now();
            let is_last = started >= end;
            self.message[0] = if is_last { LAST } else { GO_ON };
            self.round_trip()?;
            if is_last && !samples.is_empty() {
                return Ok(samples);
            }
            samples.push(now().since(started).0 as f64 / 2.0);
            if is_last {
                return Ok(samples);
            }
        }
    }

    /// Answers until the last message.
    fn answer_all(&mut self) -> Result<Vec<f64>, Error> {
        while self.message[0] != LAST {
            self.answer()?;
        }
        Ok(Vec::new())
    }

    /// Blocked in a receive of what nobody sends.
    fn blocked(&mut self, time: Duration) -> Result<(), Error> {
        match self.port.recv_timeout(From::Rank(self.peer), Match::Tag(1), &mut self.message, time) {
            Err(pulc::Error::Timeout) => Ok(()),
            Err(error) => Err(port_error(error)),
            Ok(_) => Err(Error::Nonsense("a message that nobody sent".into())),
        }
    }
}
