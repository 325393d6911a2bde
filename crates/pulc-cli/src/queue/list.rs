//! `pulc queue`, `pulc job`, `pulc history`: jobs for people and, with `--json`, for programs.

use super::{ask, print, words};
use pulc_control::queue::{JobState, JobView, Placed, QueueReply, QueueRequest, Target};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct QueueArgs {
    /// One JSON array
    #[arg(long)]
    json: bool,
    /// Only jobs in this state (running, pending, suspended …)
    #[arg(short = 't', long, value_name = "STATE")]
    state: Option<String>,
    /// Only this job, or the tasks of this array
    #[arg(short = 'j', long, value_name = "JOB")]
    job: Option<Target>,
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
    /// One JSON array
    #[arg(long)]
    json: bool,
}

pub fn queue(args: &QueueArgs) -> ExitCode {
    print(jobs(QueueRequest::Queue).map(|mut jobs| {
        jobs.retain(|job| {
            let state = args.state.as_ref().is_none_or(|state| job.state.word().eq_ignore_ascii_case(state));
            let named = args.job.is_none_or(|target| match target.index {
                None => job.number == target.number || job.task.is_some_and(|(array, _)| array == target.number),
                index => job.task == index.map(|index| (target.number, index)),
            });
            state && named
        });
        if args.json { json(&jobs) } else { queue_table(&jobs) }
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

pub fn history(args: &HistoryArgs) -> ExitCode {
    let request = QueueRequest::History { at_most: args.at_most };
    print(jobs(request).map(|jobs| if args.json { json(&jobs) } else { history_table(&jobs) }))
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
