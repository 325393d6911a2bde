//! `pulc queue`, `pulc job`, `pulc history`: jobs for people and, with `--json`, for programs.

use super::{ask, fail, print, words};
use pulc_control::queue::{JobState, JobView, Placed, QueueReply, QueueRequest, Target};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct QueueArgs {
    /// One JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: Filter,
    /// Only these jobs, or the tasks of these arrays
    #[arg(short = 'j', long, value_name = "JOB,…", value_delimiter = ',')]
    job: Vec<Target>,
    /// No line with the names of the columns
    #[arg(long)]
    no_header: bool,
}

/// Which jobs are meant, by what they are.
#[derive(clap::Args)]
pub struct Filter {
    /// Only jobs in these states (running, pending, suspended …, or R, PD, S …)
    #[arg(short = 't', long, value_name = "STATE,…", value_delimiter = ',')]
    state: Vec<String>,
    /// Only jobs of these users, by name or number
    #[arg(short = 'u', long, value_name = "USER,…", value_delimiter = ',')]
    user: Vec<String>,
    /// Only jobs of your own
    #[arg(long)]
    me: bool,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.state.is_empty() && self.user.is_empty() && !self.me
    }

    /// Leaves those that are meant.
    ///
    /// # Errors
    /// One line for the user.
    pub fn keep(&self, jobs: &mut Vec<JobView>) -> Result<(), String> {
        if let Some(word) = self.state.iter().find(|word| !JobState::ALL.iter().any(|state| is_called(*state, word))) {
            let known: Vec<&str> = JobState::ALL.iter().map(|state| state.word()).collect();
            return Err(format!("{word:?} is no state; there are {}", known.join(", ")));
        }
        let mut users = self.user.iter().map(|user| user_number(user)).collect::<Result<Vec<u32>, String>>()?;
        if self.me {
            users.push(rustix::process::getuid().as_raw());
        }
        jobs.retain(|job| self.state.is_empty() || self.state.iter().any(|word| is_called(job.state, word)));
        jobs.retain(|job| users.is_empty() || users.contains(&job.user));
        Ok(())
    }
}

fn is_called(state: JobState, word: &str) -> bool {
    state.word().eq_ignore_ascii_case(word) || state.short().eq_ignore_ascii_case(word)
}

/// The number of a user that is named.
fn user_number(user: &str) -> Result<u32, String> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = |line: &&str| line.split(':').next() == Some(user);
    let number = accounts.lines().find(own).and_then(|line| line.split(':').nth(2)?.parse().ok());
    number.ok_or_else(|| format!("there is no user {user:?} in /etc/passwd; give the number"))
}

/// Whether a job is this one, or a task of this array.
pub fn is_meant(job: &JobView, target: Target) -> bool {
    match target.index {
        None => job.number == target.number || job.task.is_some_and(|(array, _)| array == target.number),
        index => job.task == index.map(|index| (target.number, index)),
    }
}

#[derive(clap::Args)]
pub struct JobArgs {
    /// Number of the job; 17 for all tasks of array 17, 17_3 for one of them
    job: Target,
    /// One JSON array
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct HistoryArgs {
    /// Number of jobs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    at_most: u32,
    /// Only these jobs, or the tasks of these arrays
    #[arg(short = 'j', long, value_name = "JOB,…", value_delimiter = ',')]
    job: Vec<Target>,
    /// One JSON array
    #[arg(long)]
    json: bool,
}

pub fn queue(args: &QueueArgs) -> ExitCode {
    print(jobs(QueueRequest::Queue).and_then(|mut jobs| {
        args.filter.keep(&mut jobs)?;
        jobs.retain(|job| args.job.is_empty() || args.job.iter().any(|target| is_meant(job, *target)));
        Ok(match (args.json, args.no_header) {
            (true, _) => json(&jobs),
            (false, true) if jobs.is_empty() => String::new(),
            (false, true) => queue_table(&jobs).split_inclusive('\n').skip(1).collect(),
            (false, false) => queue_table(&jobs),
        })
    }))
}

pub fn job(args: &JobArgs) -> ExitCode {
    print(jobs(QueueRequest::Job(args.job)).map(|jobs| {
        if args.json {
            return json(&jobs);
        }
        if jobs.len() > 1 { queue_table(&jobs) } else { jobs.iter().map(details).collect() }
    }))
}

/// What has become of jobs that something was done with, as one JSON array.
pub fn after(targets: &[Target]) -> ExitCode {
    let mut all = Vec::new();
    for target in targets {
        match jobs(QueueRequest::Job(*target)) {
            Ok(jobs) => all.extend(jobs),
            Err(why) => return fail(&why),
        }
    }
    print(Ok(json(&all)))
}

pub fn history(args: &HistoryArgs) -> ExitCode {
    // Of what is named all is looked through.
    let at_most = if args.job.is_empty() { args.at_most } else { u32::MAX };
    print(jobs(QueueRequest::History { at_most }).map(|mut jobs| {
        jobs.retain(|job| args.job.is_empty() || args.job.iter().any(|target| is_meant(job, *target)));
        if args.json { json(&jobs) } else { history_table(&jobs) }
    }))
}

/// # Errors
/// One line for the user.
pub fn jobs(request: QueueRequest) -> Result<Vec<JobView>, String> {
    match ask(request)? {
        QueueReply::Jobs(jobs) => Ok(jobs),
        _ => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    }
}

pub fn queue_table(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs wait or run\n".to_owned();
    }
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            let why = if job.nodes.is_empty() || job.state != JobState::Running {
                job.text.clone().map(|text| format!("({text})")).unwrap_or_default()
            } else {
                nodes(&job.nodes)
            };
            vec![
                job.label(),
                job.name.clone(),
                job.user.to_string(),
                job.state.word().to_owned(),
                job.class.word().to_owned(),
                words::span(job.ran_ms),
                job.limit_ms.map_or_else(|| "-".to_owned(), words::span),
                job.slots.to_string(),
                why,
            ]
        })
        .collect();
    words::table(&["JOB", "NAME", "USER", "STATE", "CLASS", "TIME", "LIMIT", "SLOTS", "NODES (WHY)"], &rows)
}

fn history_table(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no job has ended yet\n".to_owned();
    }
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                job.label(),
                job.name.clone(),
                job.user.to_string(),
                job.state.word().to_owned(),
                job.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
                words::span(job.ran_ms),
                format!("{:.1} s", job.used.cpu_ms as f64 / 1000.0),
                job.ended.map(words::date).unwrap_or_default(),
                job.text.clone().unwrap_or_default(),
            ]
        })
        .collect();
    words::table(&["JOB", "NAME", "USER", "STATE", "EXIT", "TIME", "CPU", "ENDED (UTC)", "HOW"], &rows)
}

fn nodes(placed: &[Placed]) -> String {
    placed.iter().map(|part| format!("{}:{}", part.name, part.ranks)).collect::<Vec<_>>().join(",")
}

fn details(job: &JobView) -> String {
    let mut rows = vec![
        ("job", job.label()),
        ("name", job.name.clone()),
        ("command", job.command.clone()),
        ("user", job.user.to_string()),
        ("state", job.state.word().to_owned()),
    ];
    if let Some(text) = &job.text {
        rows.push((if job.state.has_ended() { "how" } else { "why" }, text.clone()));
    }
    if let Some(at) = job.may_start {
        rows.push(("may start", format!("{} UTC at the latest, if nothing more urgent comes", words::date(at))));
    }
    rows.push(("class", job.class.word().to_owned()));
    rows.push(("processes", format!("{} in {} slots", job.ranks, job.slots)));
    if !job.nodes.is_empty() {
        rows.push(("nodes", nodes(&job.nodes)));
    }
    rows.push(("submitted", words::date(job.submitted)));
    rows.extend(job.started.map(|at| ("started", words::date(at))));
    rows.extend(job.ended.map(|at| ("ended", words::date(at))));
    let limit = job.limit_ms.map_or_else(|| "no limit".to_owned(), |ms| format!("limit {}", words::span(ms)));
    rows.push(("ran", format!("{} ({limit})", words::span(job.ran_ms))));
    rows.extend(job.exit_code.map(|code| ("exit status", code.to_string())));
    if job.used.cpu_ms > 0 {
        rows.push(("cpu time", format!("{:.2} s", job.used.cpu_ms as f64 / 1000.0)));
    }
    if job.used.memory_peak_kib > 0 {
        rows.push(("memory", format!("{} MiB at most", job.used.memory_peak_kib >> 10)));
    }
    if job.attempt > 0 {
        rows.push(("earlier attempts", job.attempt.to_string()));
    }
    rows.push(("directory", job.directory.clone()));
    rows.extend(job.files.output.clone().map(|file| ("output", file)));
    rows.extend(job.files.error.clone().map(|file| ("error", file)));
    rows.iter().map(|(name, value)| format!("{name:<17} {value}\n")).collect()
}

pub fn json(jobs: &[JobView]) -> String {
    let rows: Vec<_> = jobs
        .iter()
        .map(|job| {
            serde_json::json!({
                "job": job.label(),
                "number": job.number.0,
                "array": job.task.map(|(array, _)| array.0),
                "index": job.task.map(|(_, index)| index),
                "name": job.name,
                "user": job.user,
                "command": job.command,
                "state": job.state.word(),
                "class": job.class.word(),
                "ranks": job.ranks,
                "slots": job.slots,
                "nodes": job.nodes.iter().map(|part| serde_json::json!({
                    "name": part.name, "ranks": part.ranks, "slots": part.slots,
                })).collect::<Vec<_>>(),
                "submitted_ms": job.submitted,
                "started_ms": job.started,
                "ended_ms": job.ended,
                "ran_ms": job.ran_ms,
                "limit_ms": job.limit_ms,
                "attempt": job.attempt,
                "attempt_id": job.attempt_id.map(|id| id.to_string()),
                "exit_code": job.exit_code,
                "text": job.text,
                "may_start_ms": job.may_start,
                "held": job.held,
                "requeue": job.requeue,
                "cpu_ms": job.used.cpu_ms,
                "memory_peak_kib": job.used.memory_peak_kib,
                "output": job.files.output,
                "error": job.files.error,
                "directory": job.directory,
            })
        })
        .collect();
    format!("{}\n", serde_json::Value::Array(rows))
}
