//! `pulc kill`: stops a job of the cluster from any of its nodes, or one that a `pulc run` of this user has here without a daemon.

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

pub fn parse_job(text: &str) -> Result<JobId, String> {
    u64::from_str_radix(text, 16).map(JobId).map_err(|_| "a job number has up to 16 hexadecimal digits".to_owned())
}

pub fn run(args: &Args) -> ExitCode {
    let kind = if args.now { StopKind::AtOnce } else { StopKind::Gently };
    let request = Request::Kill { job: args.job, kind };
    let answer = daemon::connect().and_then(|client| client.map(|mut client| client.call(&request)).transpose());
    if matches!(answer, Ok(Some(Reply::Done))) {
        return ExitCode::SUCCESS;
    }
    for mut client in daemon::connect_embedded() {
        if let Ok(Reply::Done) = client.call(&request) {
            return ExitCode::SUCCESS;
        }
    }
    let why = match answer {
        Ok(Some(Reply::Refused { why })) => why,
        Ok(Some(_)) => "the daemon gave an answer to another question; use the same pulc for both".to_owned(),
        Ok(None) => format!("no running job {}; see `pulc ps`", args.job),
        Err(error) => error.to_string(),
    };
    eprintln!("pulc: {why}");
    ExitCode::FAILURE
}
