//! `pulc alloc`: waits in the queue for slots, then runs a command (or a shell) here whose `pulc run`s use them, and gives them back when it
//! ends. `pulc attach`: shows the output of a job as it comes, wherever its file lies.

use super::submit::{self, Options};
use super::{ask_on, connect, fail, unwrap};
use crate::terminal::Sink;
use pulc_control::queue::{JobNumber, JobState, JobView, Placed, QueueReply, QueueRequest, Target, Verb};
use pulc_control::{Client, Host, Reply, Request, RunSpec, StopKind};
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Duration;

#[derive(clap::Args)]
pub struct AllocArgs {
    #[command(flatten)]
    options: Options,
    /// What to run [default: your shell]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
pub struct AttachArgs {
    /// Number of the job
    job: Target,
    /// Its standard error, if that has a file of its own
    #[arg(long)]
    error: bool,
}

/// Between two questions whether the slots are there.
const PAUSE: Duration = Duration::from_millis(100);

pub fn alloc(args: AllocArgs) -> ExitCode {
    let outcome = allocate(args.options).and_then(|(mut client, job)| {
        eprintln!("pulc: job {} has {}", job.label(), list(&job.nodes));
        let ended = run_inside(&job, args.command);
        let target = Target { number: job.number, index: None };
        let verb = Verb::Cancel(StopKind::Gently);
        ask_on(&mut client, QueueRequest::Change { targets: vec![target], verb })?;
        ended
    });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(why) => fail(&why),
    }
}

/// Waits until the slots are ours. Something has to hold them: a script that only sleeps.
fn allocate(mut options: Options) -> Result<(Client, JobView), String> {
    options.hold_slots();
    let spec = submit::spec(submit::Args { options, command: Vec::new() })?;
    let mut client = connect()?;
    let QueueReply::Accepted { number, .. } = ask_on(&mut client, QueueRequest::Submit(Box::new(spec)))? else {
        return Err("no job number came back".to_owned());
    };
    let mut told = false;
    loop {
        let job = one(&mut client, number)?;
        match job.state {
            JobState::Running => return Ok((client, job)),
            JobState::Ended(_) => {
                return Err(format!(
                    "job {number} has ended: {}",
                    job.text.unwrap_or_else(|| job.state.word().to_owned())
                ));
            }
            _ if !told => {
                if let Some(text) = &job.text {
                    eprintln!("pulc: job {number} waits: {text}");
                }
                told = true;
            }
            _ => {}
        }
        std::thread::sleep(PAUSE);
    }
}

fn one(client: &mut Client, number: JobNumber) -> Result<JobView, String> {
    match ask_on(client, QueueRequest::Job(Target { number, index: None }))? {
        QueueReply::Jobs(jobs) => jobs.into_iter().next().ok_or_else(|| format!("there is no job {number}")),
        _ => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    }
}

fn run_inside(job: &JobView, command: Vec<OsString>) -> Result<u8, String> {
    let mut words = command.into_iter();
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let program = words.next().unwrap_or_else(shell);
    let instance = job.attempt_id.map(|id| id.to_string()).unwrap_or_default();
    let status = Command::new(&program)
        .args(words)
        .env("PULC_ALLOCATION", instance)
        .env("PULC_QUEUE_JOB", job.label())
        .env("PULC_NODE_LIST", list(&job.nodes))
        .status();
    let status = status.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn list(nodes: &[Placed]) -> String {
    nodes.iter().map(|part| format!("{}:{}", part.name, part.ranks)).collect::<Vec<_>>().join(",")
}

pub fn attach(args: &AttachArgs) -> ExitCode {
    match follow(args) {
        Ok(code) => code,
        Err(why) => fail(&why),
    }
}

/// A process on the job's first node reads the file for us until the job has ended.
fn follow(args: &AttachArgs) -> Result<ExitCode, String> {
    let mut client = connect()?;
    let job = match ask_on(&mut client, QueueRequest::Job(args.job))? {
        QueueReply::Jobs(jobs) if jobs.len() == 1 => jobs.into_iter().next().ok_or("no job")?,
        QueueReply::Jobs(jobs) => return Err(format!("{} tasks are meant; name one, like {}_1", jobs.len(), args.job)),
        _ => return Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    };
    let Some(first) = job.nodes.first() else {
        return Err(format!("job {} has not been started; `pulc job {}` says why", job.label(), job.label()));
    };
    let own = if args.error { &job.files.error } else { &job.files.output };
    let pattern = own.as_ref().or(job.files.output.as_ref()).ok_or("the job has no output file")?;
    let file = job.file(pattern);
    let mut launch = crate::run::launch_of(crate::run::Wanted {
        ranks: 1,
        nodes: None,
        hosts: Vec::new(),
        label: false,
        timeout_ms: None,
        directory: Some(job.directory.clone().into()),
        variables: Vec::new(),
        native: true,
        command: vec!["tail".into(), "-n".into(), "+1".into(), "-F".into(), "--".into(), file.into()],
    })?;
    launch.pin = false;
    let hosts = vec![Host { name: first.name.clone(), ranks: None }];
    let run = RunSpec { ranks: 1, nodes: None, hosts, timeout_ms: None, allocation: None, launch };
    let mut reader = connect()?;
    reader.send(&Request::Run(Box::new(run))).map_err(|error| error.to_string())?;
    let stop = reader.sender();
    let waiting = std::thread::spawn(move || {
        let target = Target { number: job.number, index: None };
        let wait = Request::Queue(Box::new(QueueRequest::Wait(target)));
        let ended = client.call(&wait).map_err(|error| error.to_string()).and_then(unwrap);
        // What was written last has to come through.
        std::thread::sleep(Duration::from_millis(1500));
        let _ = stop.send(&Request::Stop(StopKind::AtOnce));
        ended
    });
    let mut sink = Sink::new(false, reader.sender());
    loop {
        match reader.receive() {
            Ok(Reply::Output { node, rank, stream, more, bytes }) => sink.put(node, rank, stream, more, bytes),
            Ok(Reply::Ended(_)) => break,
            Ok(Reply::Refused { why }) => return Err(why),
            Ok(_) => {}
            Err(error) => return Err(format!("the daemon is gone: {error}")),
        }
    }
    match waiting.join() {
        Ok(Ok(QueueReply::Jobs(jobs))) => Ok(ExitCode::from(jobs.iter().map(submit::status).max().unwrap_or(0))),
        Ok(Err(why)) => Err(why),
        _ => Ok(ExitCode::SUCCESS),
    }
}
