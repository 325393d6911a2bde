//! `pulc submit`: puts a job into the queue. A file with `#PULC` or `#SBATCH` lines is a script, which runs once on the first of its nodes;
//! anything else is a program that is started N times. Returns when the job is on the controller's disk.

use super::options::{Line, Options, merged};
use super::{ask_on, connect, directives, fail};
use crate::run::{self, Wanted};
use clap::Parser as _;
use pulc_control::queue::{
    Exclusive, Files, JobNumber, JobSpec, JobState, JobView, QueueReply, QueueRequest, Target, Yield,
};
use pulc_control::stage::{Stage, as_path};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const NOTES: &str = "A file with #PULC or #SBATCH lines, or given with --script, is a script: it runs once, on the first of \
its nodes, and `pulc run` inside of it starts processes in the job's slots. Anything else is started -n times. Output goes \
to a file on the job's first node; in its name %j is the job, %A and %a array and index, %x the job's name, %N the node.";

#[derive(clap::Args)]
#[command(after_help = NOTES, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    pub options: Options,
    /// Submit it so often, each time as a job of its own, over one connection
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub times: u32,
    /// Program and its arguments, or a script and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

pub fn run(args: Args) -> ExitCode {
    let (times, wait, how) = (args.times, args.options.wait, How::of(&args.options));
    let outcome = spec(args).and_then(|spec| {
        let mut client = connect()?;
        let mut numbers = Vec::new();
        for _ in 0..times {
            let reply = ask_on(&mut client, QueueRequest::Submit(Box::new(spec.clone())))?;
            let QueueReply::Accepted { number, tasks } = reply else {
                return Err("no job number came back".to_owned());
            };
            how.tell(number, tasks);
            numbers.push(number);
        }
        Ok((client, numbers))
    });
    let (mut client, numbers) = match outcome {
        Ok(accepted) => accepted,
        Err(why) => return fail(&why),
    };
    let ends = numbers.into_iter().filter(|_| wait).map(|number| wait_for(&mut client, number));
    // All of them are waited for.
    ends.fold(ExitCode::SUCCESS, |first, status| if first == ExitCode::SUCCESS { status } else { first })
}

/// How a job's number is told.
struct How {
    json: bool,
    short: bool,
    like_sbatch: bool,
}

impl How {
    fn of(options: &Options) -> How {
        How { json: options.json, short: options.parsable, like_sbatch: options.like_sbatch }
    }

    fn tell(&self, number: JobNumber, tasks: u32) {
        match (self.json, self.short) {
            (true, _) => println!("{}", serde_json::json!({ "job": number.0, "tasks": tasks })),
            (_, true) => println!("{number}"),
            // Scripts look for these words.
            _ if self.like_sbatch => println!("Submitted batch job {number}"),
            _ if tasks > 1 => println!("job {number} with {tasks} tasks"),
            _ => println!("job {number}"),
        }
    }
}

/// Waits for the end; the status is that of the first task that failed.
fn wait_for(client: &mut pulc_control::Client, number: JobNumber) -> ExitCode {
    let request = pulc_control::Request::Queue(Box::new(QueueRequest::Wait(Target { number, index: None })));
    let reply = client.call(&request).map_err(|error| format!("the daemon is gone: {error}; job {number} goes on"));
    match reply.and_then(super::unwrap) {
        Ok(QueueReply::Jobs(jobs)) => ExitCode::from(jobs.iter().map(status).find(|code| *code != 0).unwrap_or(0)),
        Ok(_) => fail("the daemon gave an answer to another question; use the same pulc for both"),
        Err(why) => fail(&why),
    }
}

/// What a shell should see of an ended job.
pub fn status(job: &JobView) -> u8 {
    use pulc_control::queue::Outcome;
    match job.state {
        JobState::Ended(Outcome::Completed) => 0,
        JobState::Ended(_) => job.exit_code.filter(|code| *code != 0).unwrap_or(1),
        _ => 0,
    }
}

/// The script's text and where the command's name stands; none for a program that is started as it is.
fn script_of(args: &Args) -> Result<Option<String>, String> {
    if let Some(command) = &args.options.wrap {
        if !args.command.is_empty() {
            return Err("--wrap is the whole script; leave the program out".to_owned());
        }
        return Ok(Some(format!("#!/bin/sh\n{command}\n")));
    }
    let Some(name) = args.command.first() else {
        return Err("no program given; name one, or a script, or use --wrap COMMAND".to_owned());
    };
    if name == "-" {
        return std::io::read_to_string(std::io::stdin())
            .map(Some)
            .map_err(|error| format!("cannot read the script: {error}"));
    }
    let read = std::fs::read(Path::new(name));
    let text = read.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match text {
        Some(text) if args.options.script || !directives::find(&text)?.is_empty() => Ok(Some(text)),
        None if args.options.script => Err(format!("cannot read the script {}", Path::new(name).display())),
        _ => Ok(None),
    }
}

/// The job as asked for.
///
/// # Errors
/// One line for the user.
pub fn spec(args: Args) -> Result<JobSpec, String> {
    let text = script_of(&args)?;
    let mut options = Options::default();
    for directive in text.as_deref().map(directives::find).transpose()?.unwrap_or_default() {
        match Line::try_parse_from(&directive.words) {
            Ok(line) => options = merged(options, line.options),
            Err(_) if directive.foreign => {
                eprintln!(
                    "pulc: line {}: {} is not understood here and left out",
                    directive.line,
                    directive.words.join(" ")
                );
            }
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                return Err(format!("line {} of the script: {first}", directive.line));
            }
        }
    }
    let options = merged(options, args.options);
    let mut command = args.command;
    if command.is_empty() {
        command.push(options.name.clone().unwrap_or_else(|| "wrap".to_owned()).into());
    }
    let base = Path::new(&command[0]).file_name().map(|name| name.to_string_lossy().into_owned());
    let wanted = Wanted {
        ranks: 1,
        nodes: None,
        hosts: Vec::new(),
        label: false,
        timeout_ms: None,
        directory: options.directory.clone(),
        variables: options.env.clone(),
        native: options.mpi.as_deref() == Some("native"),
        network: options.network.clone(),
        staging: options.staging.clone(),
        command,
    };
    let launch = run::launch_of(wanted, text.is_some())?;
    let is_array = options.array.is_some();
    let stage = Stage::of(&launch)?.filter(|_| is_array).unwrap_or_default();
    if let Some(output) = stage.outputs.iter().find(|output| !output.differs_by(b'a') && !output.differs_by(b'j')) {
        let path = as_path(&output.path).display();
        return Err(format!("--stage-out: all tasks of the array would come back as {path}; put %a into that name"));
    }
    let output = options.output.unwrap_or_else(|| {
        let who = if options.like_sbatch { "slurm" } else { "pulc" };
        format!("{who}-{}.out", if is_array { "%A_%a" } else { "%j" })
    });
    let mut launch = launch;
    launch.pin = !options.no_pin;
    launch.kill_delay_ms = options.kill_delay.unwrap_or(launch.kill_delay_ms);
    Ok(JobSpec {
        name: options.name.or(base).unwrap_or_else(|| "job".to_owned()),
        ranks: match (options.ranks, options.nodes, options.per_node) {
            (Some(ranks), ..) => ranks,
            (None, nodes, Some(each)) => nodes.unwrap_or(1).saturating_mul(each),
            (None, nodes, None) => nodes.unwrap_or(1),
        },
        threads: options.threads.unwrap_or(1),
        nodes: options.nodes,
        on: options.on,
        not_on: options.not_on,
        features: options.features,
        memory_mib: options.memory,
        cores: options.cores,
        exclusive: match options.exclusive.as_deref() {
            Some("user") => Exclusive::User,
            Some(_) => Exclusive::Node,
            None => Exclusive::No,
        },
        overbook: options.overbook,
        class: options.priority.unwrap_or_default(),
        nice: options.nice.unwrap_or(0),
        limit_ms: options.time.and_then(|limit| limit.0),
        after: options.after.map(|after| after.0).unwrap_or_default(),
        array: options.array,
        begin: options.begin,
        hold: options.hold,
        requeue: options.requeue || !options.no_requeue,
        yields: match options.yields.as_deref() {
            Some("requeue") => Yield::Requeue,
            Some("never") => Yield::Never,
            _ => Yield::Suspend,
        },
        reservation: options.reservation,
        script: text.is_some(),
        text: text.map(String::into_bytes),
        files: Files {
            output: Some(output),
            error: options.error,
            input: options.input,
            append: options.open_mode.as_deref() == Some("append"),
        },
        launch,
    })
}
