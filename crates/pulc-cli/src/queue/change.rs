//! `pulc hold`, `release`, `suspend`, `resume`, `requeue`, `alter`: what is done with jobs that are there.

use super::{ask, fail, list, words};
use pulc_control::queue::{Class, QueueReply, QueueRequest, Target, Verb};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Jobs {
    /// Numbers of jobs; 17 for all tasks of array 17, 17_3 for one of them
    #[arg(required = true)]
    jobs: Vec<Target>,
    /// Tell what the jobs are now, as one JSON array
    #[arg(long)]
    json: bool,
}

impl Jobs {
    fn done(&self) -> ExitCode {
        if self.json { list::after(&self.jobs) } else { ExitCode::SUCCESS }
    }
}

#[derive(clap::Args)]
pub struct AlterArgs {
    #[command(flatten)]
    jobs: Jobs,
    /// Another priority class: idle, normal, high, urgent
    #[arg(short = 'q', long, value_name = "CLASS", value_parser = |text: &str| text.parse::<Class>())]
    priority: Option<Class>,
    /// Another time limit, or unlimited
    #[arg(short = 't', long = "time", value_name = "TIME")]
    time: Option<String>,
}

pub fn alter(args: &AlterArgs) -> ExitCode {
    let limit = match args.time.as_deref().map(words::limit_ms).transpose() {
        Ok(limit) => limit,
        Err(why) => return fail(&why),
    };
    let verbs: Vec<Verb> = args.priority.map(Verb::Class).into_iter().chain(limit.map(Verb::Limit)).collect();
    if verbs.is_empty() {
        return fail("nothing to change is named; use --priority or --time");
    }
    for verb in verbs {
        if let Err(why) = ask(QueueRequest::Change { targets: args.jobs.jobs.clone(), verb }) {
            return fail(&why);
        }
    }
    args.jobs.done()
}

pub fn change(jobs: &Jobs, verb: Verb) -> ExitCode {
    match ask(QueueRequest::Change { targets: jobs.jobs.clone(), verb }) {
        Ok(QueueReply::Done { .. }) => jobs.done(),
        Ok(_) => fail("the daemon gave an answer to another question; use the same pulc for both"),
        Err(why) => fail(&why),
    }
}
