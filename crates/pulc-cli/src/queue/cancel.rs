//! `pulc cancel`: ends jobs that are named, or all that fit a description.

use super::list::{self, Filter};
use super::{ask, fail};
use pulc_control::StopKind;
use pulc_control::queue::{QueueRequest, Target, Verb};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct CancelArgs {
    /// Numbers of jobs; 17 for all tasks of array 17, 17_3 for one of them
    #[arg(required_unless_present_any = ["user", "me", "name", "state"])]
    jobs: Vec<Target>,
    #[command(flatten)]
    filter: Filter,
    /// Only jobs with this name
    #[arg(short = 'n', long, value_name = "NAME")]
    name: Option<String>,
    /// Send SIGKILL at once instead of SIGTERM first
    #[arg(short = '9', long)]
    now: bool,
    /// Tell what the jobs are now, as one JSON array
    #[arg(long)]
    json: bool,
}

pub fn cancel(args: CancelArgs) -> ExitCode {
    match targets(&args) {
        Ok(targets) if targets.is_empty() => {
            eprintln!("pulc: no job fits");
            if args.json { list::after(&[]) } else { ExitCode::SUCCESS }
        }
        Ok(targets) => {
            let kind = if args.now { StopKind::AtOnce } else { StopKind::Gently };
            match ask(QueueRequest::Change { targets: targets.clone(), verb: Verb::Cancel(kind) }) {
                Ok(_) if args.json => list::after(&targets),
                Ok(_) => ExitCode::SUCCESS,
                Err(why) => fail(&why),
            }
        }
        Err(why) => fail(&why),
    }
}

fn targets(args: &CancelArgs) -> Result<Vec<Target>, String> {
    if args.filter.is_empty() && args.name.is_none() {
        return Ok(args.jobs.clone());
    }
    let mut jobs = list::jobs(QueueRequest::Queue)?;
    args.filter.keep(&mut jobs)?;
    jobs.retain(|job| args.name.as_ref().is_none_or(|name| job.name == *name));
    jobs.retain(|job| args.jobs.is_empty() || args.jobs.iter().any(|target| list::is_meant(job, *target)));
    Ok(jobs.iter().map(|job| Target { number: job.number, index: None }).collect())
}
