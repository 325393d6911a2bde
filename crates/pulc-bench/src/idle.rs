//! `pulc bench idle`: processor time that a process burns while it is blocked in a receive.

use crate::Error;
use crate::job::Job;
use pulc_base::clock::Nanos;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// How long the process is blocked
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// A JSON object instead of a sentence
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let seconds = args.seconds;
    let job = Job { enter: &[], ranks: 2, nodes: None, limit: Nanos::from_ms(seconds * 1000 + 30_000), options: &[] };
    let text = job.run_ranks(&["idle", &seconds.to_string()])?;
    let burnt: f64 = text.trim().parse().map_err(|_| Error::Nonsense(text.clone()))?;
    if args.json {
        println!("{}", serde_json::json!({ "blocked_s": seconds, "burnt_s": burnt }));
    } else {
        println!("blocked for {seconds} s in a receive, burnt {:.1} ms of processor time", burnt * 1e3);
    }
    Ok(ExitCode::SUCCESS)
}
