//! `pulc bench desk`: how fast what a person does at a workstation answers, on the idle machine, beside a job on every core, and beside one that
//! comes last. Rounds are interleaved; what is judged is the median of the rounds' ratios to the idle machine in the same round.

use crate::job::this_program;
use crate::{Error, row};
use pulc_base::boot::ENV_ENDS_WITH;
use pulc_base::clock::{Nanos, now};
use rustix::process::{Pid, Signal, kill_process};
use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Interleaved rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Processes of the job; as many as there are cores unless said
    #[arg(short = 'n', long)]
    ranks: Option<u32>,
    /// One round of little
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }
}

/// Of a person who types: so often something has to be answered, and so much is to do for it.
const PAUSE: Duration = Duration::from_millis(10);
const WORK: Nanos = Nanos::from_ms(2);
const KEYS: usize = 150;
const COMMANDS: usize = 60;

/// What is measured, in words.
const WHATS: [&str; 2] =
    ["2 ms of work for a key, from the time that it is due", "a command (/bin/true), start to end"];
/// Beside what.
const BESIDE: [&str; 3] = ["idle machine", "a job on every core", "the same, where somebody works"];

/// Median and 99th of 100, in nanoseconds.
#[derive(Clone, Copy)]
struct Answer {
    median: f64,
    late: f64,
}

fn answer(mut ns: Vec<f64>) -> Answer {
    ns.sort_by(f64::total_cmp);
    Answer { median: ns[ns.len() / 2], late: ns[ns.len() * 99 / 100] }
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let ranks = args.ranks.unwrap_or(cores);
    let turns = calibrated();
    let mut all: [[Vec<Answer>; 3]; 2] = Default::default();
    let (keys_typed, commands_given) = if args.quick { (KEYS / 10, COMMANDS / 10) } else { (KEYS, COMMANDS) };
    for _ in 0..args.rounds() {
        for (beside, desk) in [None, Some(false), Some(true)].into_iter().enumerate() {
            let job = desk.map(|desk| Hogs::start(ranks, desk)).transpose()?;
            all[0][beside].push(keys(keys_typed, turns));
            all[1][beside].push(commands(commands_given)?);
            drop(job);
        }
    }
    show(args, ranks, &all);
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Args, ranks: u32, all: &[[Vec<Answer>; 3]; 2]) {
    if !args.json {
        println!(
            "{:>10} {:>10} {:>8} {:>8}  what ({ranks} processes, {} rounds)",
            "median",
            "99 %",
            "x idle",
            "99 % x",
            args.rounds()
        );
    }
    for (what, beside) in WHATS.iter().zip(all) {
        for (place, answers) in BESIDE.iter().zip(beside) {
            let of = |part: fn(&Answer) -> f64| median(answers.iter().map(part).collect());
            let times = |part: fn(&Answer) -> f64| {
                median(answers.iter().zip(&beside[0]).map(|(one, idle)| part(one) / part(idle)).collect())
            };
            let (usual, late) = (of(|one| one.median), of(|one| one.late));
            let (times, late_times) = (times(|one| one.median), times(|one| one.late));
            if args.json {
                let line = serde_json::json!({ "what": what, "beside": place, "ranks": ranks, "rounds": args.rounds(),
                    "median_ns": usual, "late_ns": late, "times_idle": times, "late_times_idle": late_times });
                println!("{line}");
            } else {
                let (usual, late) = (row::time(usual), row::time(late));
                println!("{usual:>10} {late:>10} {times:>8.2} {late_times:>8.2}  {what}: {place}");
            }
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn work(turns: u64) {
    let mut value = 1_u64;
    for turn in 0..turns {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(turn));
    }
}

/// Turns that take [`WORK`] on this machine when it does nothing else.
fn calibrated() -> u64 {
    const TRIED: u64 = 200_000;
    let best = (0..20)
        .map(|_| {
            let begin = now();
            work(TRIED);
            now().since(begin).0.max(1)
        })
        .min();
    TRIED * WORK.0 / best.unwrap_or(1)
}

fn keys(count: usize, turns: u64) -> Answer {
    let answers = (0..count).map(|_| {
        let due = now() + Nanos::from(PAUSE);
        std::thread::sleep(PAUSE);
        work(turns);
        now().since(due).0 as f64
    });
    answer(answers.collect())
}

fn commands(count: usize) -> Result<Answer, Error> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        std::thread::sleep(PAUSE);
        let begin = now();
        Command::new("/bin/true").status().map_err(Error::system("start /bin/true"))?;
        times.push(now().since(begin).0 as f64);
    }
    Ok(answer(times))
}

/// A job that takes all that it gets; ended when it is dropped.
struct Hogs(Child);

impl Hogs {
    fn start(ranks: u32, desk: bool) -> Result<Hogs, Error> {
        let mut command = Command::new(this_program()?);
        command.args(["run", "-n", &ranks.to_string(), "--", "sh", "-c", "echo; while :; do :; done"]);
        command.env(ENV_ENDS_WITH, std::process::id().to_string()).env("PULC_DESK", if desk { "1" } else { "0" });
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut hogs = Hogs(command.spawn().map_err(Error::system("start a job"))?);
        let mut lines = BufReader::new(hogs.0.stdout.take().expect("it is a pipe")).lines();
        let ready = (0..ranks).all(|_| matches!(lines.next(), Some(Ok(_))));
        if !ready {
            return Err(Error::Program { program: "pulc run".to_owned(), text: "a process did not start".to_owned() });
        }
        // The first second is that of a job that starts; sessions are weighed in it.
        std::thread::sleep(Duration::from_secs(1));
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
