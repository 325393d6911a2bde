//! `pulc submit`: puts a job into the queue. A file with `#PULC` or `#SBATCH` lines is a script, which runs once on the first of its nodes;
//! anything else is a program that is started N times. Returns when the job is on the controller's disk.

use super::{ask_on, connect, directives, fail, words};
use crate::run::{self, Wanted};
use clap::Parser as _;
use pulc_control::queue::{
    Class, Exclusive, Files, JobNumber, JobSpec, JobState, JobView, QueueReply, QueueRequest, Target, Yield,
};
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
    /// Program and its arguments, or a script and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// Only for lines in scripts.
#[derive(clap::Parser)]
#[command(no_binary_name = true, args_override_self = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args, Clone, Default)]
pub struct Options {
    /// Number of processes (ranks)
    #[arg(short = 'n', long, visible_alias = "ntasks", value_name = "N")]
    ranks: Option<u32>,
    /// Number of nodes
    #[arg(short = 'N', long, value_name = "K")]
    nodes: Option<u32>,
    /// Slots (cores) for each process
    #[arg(short = 'c', long, visible_alias = "cpus-per-task", value_name = "N")]
    threads: Option<u32>,
    /// End the job after so long; 30 is 30 minutes, else 90s, 15m, 2h, HH:MM:SS, D-HH:MM
    #[arg(short = 't', long = "time", value_name = "TIME", value_parser = limit)]
    time: Option<Limit>,
    /// Name of the job
    #[arg(short = 'J', long, visible_alias = "job-name", value_name = "NAME")]
    name: Option<String>,
    /// Only on these nodes
    #[arg(short = 'w', long = "on", visible_alias = "nodelist", value_name = "NODE,…", value_delimiter = ',')]
    on: Vec<String>,
    /// Not on these nodes
    #[arg(short = 'x', long = "not-on", visible_alias = "exclude", value_name = "NODE,…", value_delimiter = ',')]
    not_on: Vec<String>,
    /// Only on nodes with these features
    #[arg(short = 'C', long = "features", visible_alias = "constraint", value_name = "NAME,…", value_delimiter = ',')]
    features: Vec<String>,
    /// Memory that each node must have (500M, 4G)
    #[arg(long = "mem", value_name = "AMOUNT", value_parser = words::memory_mib)]
    memory: Option<u64>,
    /// Cores that each node must have
    #[arg(long, visible_alias = "mincpus", value_name = "N")]
    cores: Option<u32>,
    /// Nobody else on its nodes; =user: no other user
    #[arg(long, value_name = "WHOM", num_args = 0..=1, default_missing_value = "node", require_equals = true,
        value_parser = ["node", "user"])]
    exclusive: Option<String>,
    /// Start even where all slots are taken
    #[arg(short = 's', long, visible_alias = "oversubscribe")]
    overbook: bool,
    /// idle, normal, high or urgent: urgent jobs take the place of lower ones, all take that of idle ones
    #[arg(short = 'q', long, visible_alias = "qos", value_name = "CLASS", value_parser = class)]
    priority: Option<Class>,
    /// Among equals less goes first
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    nice: Option<i32>,
    /// Wait for other jobs: ok:17, any:17, notok:17, start:17; several with commas (afterok: and its like are understood)
    #[arg(short = 'd', long = "after", visible_alias = "dependency", value_name = "HOW:JOB,…", value_parser = words::after)]
    after: Option<words::Dependencies>,
    /// Many tasks of one kind: 0-9, 1,3,5-7, 0-20:5, and %4 behind it for at most 4 at once
    #[arg(short = 'a', long, value_name = "INDICES", value_parser = words::array)]
    array: Option<pulc_control::queue::Array>,
    /// Not before: now+2h, 18:30 or 2031-05-04T18:30 (UTC)
    #[arg(short = 'b', long, value_name = "MOMENT", value_parser = begin)]
    begin: Option<u64>,
    /// Hold the job back until it is released
    #[arg(short = 'H', long)]
    hold: bool,
    /// Start again when a node is lost [the default]
    #[arg(long, overrides_with = "no_requeue")]
    requeue: bool,
    /// Don't start again when a node is lost
    #[arg(long)]
    no_requeue: bool,
    /// What the job does when a more urgent one needs its slots
    #[arg(long = "yield", value_name = "HOW", value_parser = ["suspend", "requeue", "never"])]
    yields: Option<String>,
    /// In the slots of a reservation
    #[arg(long, value_name = "NAME")]
    reservation: Option<String>,
    /// File for standard output [default: pulc-%j.out, of an array pulc-%A_%a.out]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<String>,
    /// File for standard error [default: with the output]
    #[arg(short = 'e', long, value_name = "FILE")]
    error: Option<String>,
    /// File for the first process's standard input
    #[arg(short = 'i', long, value_name = "FILE")]
    input: Option<String>,
    /// Keep what is in the output files
    #[arg(long, value_name = "HOW", value_parser = ["append", "truncate"])]
    open_mode: Option<String>,
    /// Working directory
    #[arg(short = 'D', long = "wdir", visible_alias = "chdir", value_name = "DIR")]
    directory: Option<OsString>,
    /// Set a variable; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = run::variable)]
    env: Vec<(OsString, OsString)>,
    /// Time between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    kill_delay: Option<u64>,
    /// Leave the processes on whatever core the kernel puts them
    #[arg(long)]
    no_pin: bool,
    /// The MPI that programs get: ours, or the one they were built for
    #[arg(long, value_name = "WHICH", value_parser = ["pulc", "native"])]
    mpi: Option<String>,
    /// Run this shell command as the script
    #[arg(long, value_name = "COMMAND")]
    wrap: Option<String>,
    /// The file is a script, whatever is in it
    #[arg(long)]
    script: bool,
    /// Return when the job has ended, with its exit status
    #[arg(short = 'W', long)]
    wait: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Print nothing but the job's number
    #[arg(long)]
    parsable: bool,
}

impl Options {
    /// Of a job that only holds slots for somebody at a terminal.
    pub fn hold_slots(&mut self) {
        self.wrap = Some("exec sleep 2147483647".to_owned());
        self.output = Some("/dev/null".to_owned());
        self.name.get_or_insert_with(|| "alloc".to_owned());
        (self.no_requeue, self.requeue) = (true, false);
        self.kill_delay = Some(0);
    }
}

/// A limit, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(Option<u64>);

fn limit(text: &str) -> Result<Limit, String> {
    words::limit_ms(text).map(Limit)
}

fn seconds(text: &str) -> Result<u64, String> {
    words::duration_ms(text, 1)
}

fn class(text: &str) -> Result<Class, String> {
    text.parse()
}

fn begin(text: &str) -> Result<u64, String> {
    words::moment(text, words::now())
}

pub fn run(args: Args) -> ExitCode {
    let (wait, json, short) = (args.options.wait, args.options.json, args.options.parsable);
    let outcome = spec(args).and_then(|spec| {
        let mut client = connect()?;
        let reply = ask_on(&mut client, QueueRequest::Submit(Box::new(spec)))?;
        let QueueReply::Accepted { number, tasks } = reply else { return Err("no job number came back".to_owned()) };
        Ok((client, number, tasks))
    });
    let (mut client, number, tasks) = match outcome {
        Ok(accepted) => accepted,
        Err(why) => return fail(&why),
    };
    match (json, short) {
        (true, _) => println!("{}", serde_json::json!({ "job": number.0, "tasks": tasks })),
        (_, true) => println!("{number}"),
        _ if tasks > 1 => println!("job {number} with {tasks} tasks"),
        _ => println!("job {number}"),
    }
    if wait { wait_for(&mut client, number) } else { ExitCode::SUCCESS }
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
    let launch = run::launch_of(Wanted {
        ranks: 1,
        nodes: None,
        hosts: Vec::new(),
        label: false,
        timeout_ms: None,
        directory: options.directory.clone(),
        variables: options.env.clone(),
        native: options.mpi.as_deref() == Some("native"),
        command,
    })?;
    let is_array = options.array.is_some();
    let output = options.output.or_else(|| Some(if is_array { "pulc-%A_%a.out" } else { "pulc-%j.out" }.to_owned()));
    let mut launch = launch;
    launch.pin = !options.no_pin;
    launch.kill_delay_ms = options.kill_delay.unwrap_or(launch.kill_delay_ms);
    Ok(JobSpec {
        name: options.name.or(base).unwrap_or_else(|| "job".to_owned()),
        ranks: options.ranks.or(options.nodes).unwrap_or(1),
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
            output,
            error: options.error,
            input: options.input,
            append: options.open_mode.as_deref() == Some("append"),
        },
        launch,
    })
}

/// What `over` says counts; what it does not say stays.
fn merged(under: Options, over: Options) -> Options {
    let list = |under: Vec<String>, over: Vec<String>| if over.is_empty() { under } else { over };
    let again = over.requeue || over.no_requeue;
    Options {
        ranks: over.ranks.or(under.ranks),
        nodes: over.nodes.or(under.nodes),
        threads: over.threads.or(under.threads),
        time: over.time.or(under.time),
        name: over.name.or(under.name),
        on: list(under.on, over.on),
        not_on: list(under.not_on, over.not_on),
        features: list(under.features, over.features),
        memory: over.memory.or(under.memory),
        cores: over.cores.or(under.cores),
        exclusive: over.exclusive.or(under.exclusive),
        overbook: over.overbook || under.overbook,
        priority: over.priority.or(under.priority),
        nice: over.nice.or(under.nice),
        after: over.after.or(under.after),
        array: over.array.or(under.array),
        begin: over.begin.or(under.begin),
        hold: over.hold || under.hold,
        requeue: if again { over.requeue } else { under.requeue },
        no_requeue: if again { over.no_requeue } else { under.no_requeue },
        yields: over.yields.or(under.yields),
        reservation: over.reservation.or(under.reservation),
        output: over.output.or(under.output),
        error: over.error.or(under.error),
        input: over.input.or(under.input),
        open_mode: over.open_mode.or(under.open_mode),
        directory: over.directory.or(under.directory),
        env: under.env.into_iter().chain(over.env).collect(),
        kill_delay: over.kill_delay.or(under.kill_delay),
        no_pin: over.no_pin || under.no_pin,
        mpi: over.mpi.or(under.mpi),
        wrap: over.wrap.or(under.wrap),
        script: over.script || under.script,
        wait: over.wait || under.wait,
        json: over.json || under.json,
        parsable: over.parsable || under.parsable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_counts_more_than_the_script() {
        let line = |words: &[&str]| Line::try_parse_from(words).unwrap().options;
        let all = merged(line(&["-n", "4", "-t", "10", "-J", "script"]), line(&["-n", "2"]));
        assert_eq!((all.ranks, all.time, all.name.as_deref()), (Some(2), Some(Limit(Some(600_000))), Some("script")));
        assert_eq!(line(&["--exclusive"]).exclusive.as_deref(), Some("node"));
        assert!(Line::try_parse_from(["--no-such-option"]).is_err());
    }
}
