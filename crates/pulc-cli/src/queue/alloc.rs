//! `pulc alloc`: waits in the queue for slots, then runs a command (or a shell) here whose `pulc run`s use them, and gives them back when it
//! ends, however it ends: the job that holds them is tied to this process. Never decides what runs where.

use super::options::Options;
use super::submit;
use super::{ask_on, connect, fail, unwrap};
use pulc_base::boot::ENV_RANK;
use pulc_control::queue::{JobNumber, JobState, JobView, Placed, QueueReply, QueueRequest, Target, Verb};
use pulc_control::{Client, ClientSender, Request, StopKind};
use pulc_hal::os::signals::{SIGINT, SIGQUIT, SignalFd};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
pub struct AllocArgs {
    #[command(flatten)]
    options: Options,
    /// What to run [default: your shell]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Between two questions whether the slots are there.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two attempts to reach a controller that is away.
const AGAIN: Duration = Duration::from_secs(1);
/// The number of the job in whose slots something runs.
const ENV_JOB: &str = "PULC_QUEUE_JOB";

pub fn alloc(args: AllocArgs) -> ExitCode {
    let outcome = allocate(args.options).and_then(|(line, job)| {
        eprintln!("pulc: job {} has {}", job.label(), list(&job.nodes));
        run_inside(line, &job, args.command)
    });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(why) => fail(&why),
    }
}

/// Waits until the slots are ours. Something has to hold them: a script that only sleeps. Returns the line to which it is tied.
fn allocate(mut options: Options) -> Result<(Client, JobView), String> {
    options.hold_slots();
    let mut spec = submit::spec(submit::Args { options, times: 1, command: Vec::new() })?;
    // It takes slots only when it is tied to us: nothing may hold them for somebody who died in between.
    spec.hold = true;
    let mut line = connect()?;
    let QueueReply::Accepted { number, .. } = ask_on(&mut line, QueueRequest::Submit(Box::new(spec)))? else {
        return Err("no job number came back".to_owned());
    };
    let target = Target { number, index: None };
    line.send(&Request::Queue(Box::new(QueueRequest::Tie(target)))).map_err(|error| error.to_string())?;
    let release = QueueRequest::Change { targets: vec![target], verb: Verb::Release };
    match ask_on(&mut line, release)? {
        QueueReply::Done { .. } => {}
        _ => return Err(format!("job {number} has ended before it began")),
    }
    let mut client = connect()?;
    let mut told = false;
    loop {
        let job = one(&mut client, number)?;
        match job.state {
            JobState::Running => return Ok((line, job)),
            JobState::Ended(_) => return Err(format!("job {number} has ended: {}", how(&job))),
            JobState::Pending if !told => {
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

fn how(job: &JobView) -> String {
    job.text.clone().unwrap_or_else(|| job.state.word().to_lowercase())
}

fn run_inside(line: Client, job: &JobView, command: Vec<OsString>) -> Result<u8, String> {
    let mut words = command.into_iter();
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let program = words.next().unwrap_or_else(shell);
    let instance = job.attempt_id.map(|id| id.to_string()).unwrap_or_default();
    let mut child = Command::new(&program)
        .args(words)
        .env("PULC_ALLOCATION", instance)
        .env(ENV_JOB, job.label())
        .env("PULC_NODE_LIST", list(&job.nodes))
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    // After the child, which takes them: what a terminal sends is for the command, and must not take its slots away.
    let _signals =
        SignalFd::new(&[SIGINT, SIGQUIT], false).map_err(|error| format!("cannot keep signals off: {error}"))?;
    let target = Target { number: job.number, index: None };
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let tie = std::thread::Builder::new()
        .name("tie".to_owned())
        .spawn(move || {
            let ended = until_it_ends(line, QueueRequest::Tie(target))?;
            if is_over.load(Ordering::Acquire) {
                return Some(ended);
            }
            tell_loss(&ended);
            None
        })
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let status = child.wait().map_err(|error| format!("cannot wait for {}: {error}", program.display()))?;
    over.store(true, Ordering::Release);
    if !give_back(job)
        && let Ok(Some(ended)) = tie.join()
    {
        // It had ended before, and that was not said yet.
        tell_loss(&ended);
    }
    Ok(code_of(status))
}

fn tell_loss(job: &JobView) {
    eprintln!("pulc: job {} has ended: {}; its slots are gone", job.label(), how(job));
}

/// What a shell would say of it.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Waits for the answer to a question that was asked on `line` and is answered when a job has ended; asks again whenever a daemon in between
/// is away. None when the job is not known any more.
fn until_it_ends(mut line: Client, question: QueueRequest) -> Option<JobView> {
    loop {
        match line.receive().map_err(|error| error.to_string()).and_then(unwrap) {
            Ok(QueueReply::Jobs(jobs)) => return jobs.into_iter().next(),
            // The answer to something else.
            Ok(_) => continue,
            Err(_) => {}
        }
        line = loop {
            std::thread::sleep(AGAIN);
            if let Ok(line) = connect()
                && line.send(&Request::Queue(Box::new(question.clone()))).is_ok()
            {
                break line;
            }
        };
    }
}

/// Returns whether there was something to give back.
fn give_back(job: &JobView) -> bool {
    let target = Target { number: job.number, index: None };
    let change = QueueRequest::Change { targets: vec![target], verb: Verb::Cancel(StopKind::Gently) };
    // It may have ended by itself, which the other thread has said.
    match connect().and_then(|mut client| ask_on(&mut client, change)) {
        Ok(_) => true,
        Err(why) if why.contains("has ended already") => false,
        Err(why) => {
            eprintln!(
                "pulc: {why}; the slots of job {} come free by themselves within a minute after that",
                job.label()
            );
            true
        }
    }
}

fn list(nodes: &[Placed]) -> String {
    nodes.iter().map(|part| format!("{}:{}", part.name, part.ranks)).collect::<Vec<_>>().join(",")
}

/// What is started by hand in the slots of a job ends with that job: they are somebody else's then. (What a job's own processes start
/// ends with them.)
pub fn end_with_the_slots(sender: ClientSender) -> io::Result<()> {
    let job = std::env::var(ENV_JOB).ok().and_then(|text| text.parse::<Target>().ok());
    let Some(job) = job.filter(|_| std::env::var_os(ENV_RANK).is_none()) else { return Ok(()) };
    std::thread::Builder::new().name("slots".to_owned()).spawn(move || {
        let question = QueueRequest::Wait(job);
        let line = loop {
            if let Ok(line) = connect()
                && line.send(&Request::Queue(Box::new(question.clone()))).is_ok()
            {
                break line;
            }
            std::thread::sleep(AGAIN);
        };
        if until_it_ends(line, question).is_some() {
            eprintln!("pulc: job {job}, in whose slots this runs, has ended");
            let _ = sender.send(&Request::Stop(StopKind::Gently));
        }
    })?;
    Ok(())
}
