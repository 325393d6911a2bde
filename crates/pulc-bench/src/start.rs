//! `pulc bench start`: how long a job of many processes takes from the command to its end, beside Hydra, the launcher of
//! MPICH and Intel MPI, when it is installed. Rounds are interleaved; best and median are shown.

use crate::job::{Job, output};
use crate::{Error, row};
use pulc_base::clock::{Nanos, now};
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Processes
    #[arg(short = 'n', long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Interleaved rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

const LIMIT: Nanos = Nanos::from_ms(120_000);
const TRUE: &str = "/bin/true";
const HYDRA: &str = "mpiexec.hydra";

/// What is started, in words, and how.
type Contest<'a> = (String, Box<dyn Fn() -> Result<(), Error> + 'a>);

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let ranks = args.ranks;
    let job = Job { enter: &[], ranks, nodes: None, limit: LIMIT, options: &[] };
    let hydra = [HYDRA, "-n", &ranks.to_string(), TRUE].map(OsString::from);
    let mut contests: Vec<Contest<'_>> = vec![
        (format!("pulc run -n {ranks} {TRUE}"), Box::new(|| job.run(&[TRUE]).map(drop))),
        (format!("pulc run -n {ranks}, each process attaches"), Box::new(|| job.run_ranks(&["attach"]).map(drop))),
    ];
    match output(&[HYDRA.into(), "--version".into()], LIMIT) {
        Ok(_) => {
            contests.push((format!("{HYDRA} -n {ranks} {TRUE}"), Box::new(|| output(&hydra, LIMIT).map(drop))));
        }
        Err(_) => eprintln!("pulc: {HYDRA} is not installed and is left out"),
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); contests.len()];
    for _ in 0..args.rounds {
        for (index, (_, start)) in contests.iter().enumerate() {
            let started = now();
            start()?;
            times[index].push(now().since(started).0 as f64);
        }
    }
    if !args.json {
        println!("{:>10} {:>10}  what ({} interleaved rounds)", "best", "median", args.rounds);
    }
    for ((what, _), times) in contests.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (best, median) = (times[0], times[times.len() / 2]);
        if args.json {
            let line = serde_json::json!({ "what": what, "ranks": ranks, "best_ns": best, "median_ns": median });
            println!("{line}");
        } else {
            println!("{:>10} {:>10}  {what}", row::time(best), row::time(median));
        }
    }
    Ok(ExitCode::SUCCESS)
}
