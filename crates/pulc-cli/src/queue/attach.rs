//! `pulc attach`: shows the output of a queued job as it comes, wherever its file lies: a process on the job's first node reads the file
//! along until the job has ended, and then to its end. Changes nothing about the job.

use super::submit;
use super::{ask_on, connect, fail, unwrap};
use crate::terminal::Sink;
use pulc_control::queue::{JobView, QueueReply, QueueRequest, Target};
use pulc_control::{Client, ClientSender, Host, Reply, Request, RunSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread::JoinHandle;

#[derive(clap::Args)]
pub struct AttachArgs {
    /// Number of the job
    job: Target,
    /// Its standard error, if that has a file of its own
    #[arg(long)]
    error: bool,
}

/// The hidden subcommand that reads a file along.
pub const READ_ALONG: &str = "read-along";
/// A keeper's own binary, as the processes see it that it starts: the same `pulc` on every node, wherever it lies there.
const OWN_BINARY: &str = "/proc/self/exe";

pub fn attach(args: &AttachArgs) -> ExitCode {
    match follow(args) {
        Ok(code) => ExitCode::from(code),
        Err(why) => fail(&why),
    }
}

fn follow(args: &AttachArgs) -> Result<u8, String> {
    let mut client = connect()?;
    let job = match ask_on(&mut client, QueueRequest::Job(args.job))? {
        QueueReply::Jobs(jobs) if jobs.len() == 1 => jobs.into_iter().next().ok_or("no job")?,
        QueueReply::Jobs(jobs) => return Err(format!("{} tasks are meant; name one, like {}_1", jobs.len(), args.job)),
        _ => return Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
    };
    let run = reader_of(&job, args.error)?;
    let mut reader = connect()?;
    reader.send(&Request::Run(Box::new(run))).map_err(|error| error.to_string())?;
    let mut sink = Sink::new(false, reader.sender());
    let mut client = Some(client);
    let mut waiting = None;
    loop {
        match reader.receive() {
            Ok(Reply::Output { node, rank, stream, more, bytes }) => sink.put(node, rank, stream, more, bytes),
            Ok(Reply::Started { .. }) => {
                waiting = client.take().map(|client| until_over(client, &job, reader.sender()));
            }
            Ok(Reply::Ended(ended)) => {
                if let Some(why) = sink.why_broken().or(ended.text) {
                    return Err(why);
                }
                break;
            }
            Ok(Reply::Refused { why }) => return Err(why),
            Ok(_) => {}
            Err(error) => return Err(format!("the daemon is gone: {error}")),
        }
    }
    match waiting.map(JoinHandle::join) {
        Some(Ok(Ok(jobs))) => Ok(jobs.iter().map(submit::status).max().unwrap_or(0)),
        Some(Ok(Err(why))) => Err(why),
        _ => Ok(0),
    }
}

/// The process that reads the job's file.
fn reader_of(job: &JobView, error: bool) -> Result<RunSpec, String> {
    let Some(first) = job.nodes.first() else {
        return Err(format!("job {} has not been started; `pulc job {}` says why", job.label(), job.label()));
    };
    let own = if error { &job.files.error } else { &job.files.output };
    let pattern = own.as_ref().or(job.files.output.as_ref()).ok_or("the job has no output file")?;
    let wanted = crate::run::Wanted {
        ranks: 1,
        nodes: None,
        hosts: Vec::new(),
        label: false,
        timeout_ms: None,
        directory: Some(job.directory.clone().into()),
        variables: Vec::new(),
        native: false,
        network: None,
        staging: crate::staging::Options::default(),
        command: vec![OWN_BINARY.into(), READ_ALONG.into(), job.file(pattern).into()],
    };
    let mut launch = crate::run::launch_of(wanted, false)?;
    launch.pin = false;
    let hosts = vec![Host { name: first.name.clone(), ranks: None }];
    Ok(RunSpec { ranks: 1, nodes: None, hosts, timeout_ms: None, allocation: None, launch })
}

/// Tells the reader when the job has ended, by closing its input: all output is in the file then.
fn until_over(mut client: Client, job: &JobView, reader: ClientSender) -> JoinHandle<Result<Vec<JobView>, String>> {
    let target = Target { number: job.number, index: None };
    std::thread::spawn(move || {
        let wait = Request::Queue(Box::new(QueueRequest::Wait(target)));
        let ended = client.call(&wait).map_err(|error| format!("the daemon is gone: {error}")).and_then(unwrap);
        let _ = reader.send(&Request::InputEnd);
        match ended? {
            QueueReply::Jobs(jobs) => Ok(jobs),
            _ => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
        }
    })
}

/// `pulc read-along FILE`: writes a file out as it grows, until standard input is closed, and then what is left of it.
pub fn read_along(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(path) = words.next() else {
        eprintln!("pulc: {READ_ALONG} is started by `pulc attach` only");
        return ExitCode::FAILURE;
    };
    match copy_along(Path::new(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pulc: cannot read {}: {error}", Path::new(&path).display());
            ExitCode::FAILURE
        }
    }
}

fn copy_along(path: &Path) -> io::Result<()> {
    let mut file: Option<File> = None;
    let mut is_over = false;
    loop {
        if file.is_none() {
            file = match File::open(path) {
                Ok(file) => Some(file),
                // The job is just being started.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_over => None,
                Err(error) => return Err(error),
            };
        }
        if let Some(file) = &mut file {
            let mut out = io::stdout();
            io::copy(file, &mut out)?;
            out.flush()?;
        }
        if is_over {
            return Ok(());
        }
        is_over = input_closes()?;
    }
}

/// Whether standard input is closed within a moment.
fn input_closes() -> io::Result<bool> {
    let stdin = io::stdin();
    let moment = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&moment)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
        Ok(_) => Ok(stdin.lock().read(&mut [0; 64])? == 0),
        Err(error) => Err(error.into()),
    }
}
