//! `pulc kill`: stops a job, from any node of the cluster.

use crate::daemon;
use pulc_base::JobId;
use pulc_control::{Reply, Request, StopKind};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// The job's number, as `pulc ps` shows it
    #[arg(value_parser = parse_job)]
    job: JobId,
    /// Send SIGKILL at once instead of SIGTERM first
    #[arg(short = '9', long)]
    now: bool,
}

fn parse_job(text: &str) -> Result<JobId, String> {
    u64::from_str_radix(text, 16).map(JobId).map_err(|_| "a job number has up to 16 hexadecimal digits".to_owned())
}

pub fn run(args: &Args) -> ExitCode {
    let kind = if args.now { StopKind::AtOnce } else { StopKind::Gently };
    let request = Request::Kill { job: args.job, kind };
    let answer = daemon::connect().and_then(|client| client.map(|mut client| client.call(&request)).transpose());
    let why = match answer {
        Ok(Some(Reply::Done)) => return ExitCode::SUCCESS,
        Ok(Some(Reply::Refused { why })) => why,
        Ok(Some(_)) => "the daemon gave an answer to another question; use the same pulc for both".to_owned(),
        Ok(None) => "no daemon runs here; start one with `pulc up` or `pulc join TOKEN`".to_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("pulc: {why}");
    ExitCode::FAILURE
}
