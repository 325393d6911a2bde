//! What a job may be asked for, as options of `pulc submit` and `pulc alloc` and as lines of scripts. Each is defined here once.

use super::words;
use crate::{run, staging};
use pulc_control::queue::Class;
use std::ffi::OsString;

/// Only for lines in scripts.
#[derive(clap::Parser)]
#[command(no_binary_name = true, args_override_self = true, disable_help_flag = true)]
pub struct Line {
    #[command(flatten)]
    pub options: Options,
}

#[derive(clap::Args, Clone, Default)]
pub struct Options {
    /// Number of processes (ranks)
    #[arg(short = 'n', long, visible_alias = "ntasks", value_name = "N")]
    pub ranks: Option<u32>,
    /// Number of nodes
    #[arg(short = 'N', long, value_name = "K")]
    pub nodes: Option<u32>,
    /// Processes on each of these nodes, instead of -n
    #[arg(long, visible_alias = "ntasks-per-node", value_name = "N")]
    pub per_node: Option<u32>,
    /// Slots (cores) for each process
    #[arg(short = 'c', long, visible_alias = "cpus-per-task", value_name = "N")]
    pub threads: Option<u32>,
    /// End the job after so long; 30 is 30 minutes, else 90s, 15m, 2h, HH:MM:SS, D-HH:MM
    #[arg(short = 't', long = "time", value_name = "TIME", value_parser = limit)]
    pub time: Option<Limit>,
    /// Name of the job
    #[arg(short = 'J', long, visible_alias = "job-name", value_name = "NAME")]
    pub name: Option<String>,
    /// Only on these nodes
    #[arg(short = 'w', long = "on", visible_alias = "nodelist", value_name = "NODE,…", value_delimiter = ',')]
    pub on: Vec<String>,
    /// Not on these nodes
    #[arg(short = 'x', long = "not-on", visible_alias = "exclude", value_name = "NODE,…", value_delimiter = ',')]
    pub not_on: Vec<String>,
    /// Only on nodes with these features
    #[arg(short = 'C', long = "features", visible_alias = "constraint", value_name = "NAME,…", value_delimiter = ',')]
    pub features: Vec<String>,
    /// Memory that each node must have (500M, 4G)
    #[arg(long = "mem", value_name = "AMOUNT", value_parser = words::memory_mib)]
    pub memory: Option<u64>,
    /// Cores that each node must have
    #[arg(long, visible_alias = "mincpus", value_name = "N")]
    pub cores: Option<u32>,
    /// Only on nodes in these networks, and its messages go over them, the best one first (10.1.0.0/16,…)
    #[arg(long, value_name = "NETWORK,…", value_parser = words::networks)]
    pub network: Option<String>,
    /// Nobody else on its nodes; =user: no other user
    #[arg(long, value_name = "WHOM", num_args = 0..=1, default_missing_value = "node", require_equals = true,
        value_parser = ["node", "user"])]
    pub exclusive: Option<String>,
    /// Start even where all slots are taken
    #[arg(short = 's', long, visible_alias = "oversubscribe")]
    pub overbook: bool,
    /// idle, normal, high or urgent: urgent jobs take the place of lower ones, all take that of idle ones
    #[arg(short = 'q', long, visible_alias = "qos", value_name = "CLASS", value_parser = class)]
    pub priority: Option<Class>,
    /// Among equals less goes first
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub nice: Option<i32>,
    /// Wait for other jobs: ok:17, any:17, notok:17, start:17; several with commas (afterok: and its like are understood)
    #[arg(short = 'd', long = "after", visible_alias = "dependency", value_name = "HOW:JOB,…", value_parser = words::after)]
    pub after: Option<words::Dependencies>,
    /// Many tasks of one kind: 0-9, 1,3,5-7, 0-20:5, and %4 behind it for at most 4 at once
    #[arg(short = 'a', long, value_name = "INDICES", value_parser = words::array)]
    pub array: Option<pulc_control::queue::Array>,
    /// Not before: now+2h, 18:30 or 2031-05-04T18:30 (UTC)
    #[arg(short = 'b', long, value_name = "MOMENT", value_parser = begin)]
    pub begin: Option<u64>,
    /// Hold the job back until it is released
    #[arg(short = 'H', long)]
    pub hold: bool,
    /// Start again when a node is lost [the default]
    #[arg(long, overrides_with = "no_requeue")]
    pub requeue: bool,
    /// Don't start again when a node is lost
    #[arg(long)]
    pub no_requeue: bool,
    /// What the job does when a more urgent one needs its slots
    #[arg(long = "yield", value_name = "HOW", value_parser = ["suspend", "requeue", "never"])]
    pub yields: Option<String>,
    /// In the slots of a reservation
    #[arg(long, value_name = "NAME")]
    pub reservation: Option<String>,
    /// File for standard output [default: pulc-%j.out, of an array pulc-%A_%a.out]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<String>,
    /// File for standard error [default: with the output]
    #[arg(short = 'e', long, value_name = "FILE")]
    pub error: Option<String>,
    /// File for the first process's standard input
    #[arg(short = 'i', long, value_name = "FILE")]
    pub input: Option<String>,
    /// Keep what is in the output files
    #[arg(long, value_name = "HOW", value_parser = ["append", "truncate"])]
    pub open_mode: Option<String>,
    /// Working directory
    #[arg(short = 'D', long = "wdir", visible_alias = "chdir", value_name = "DIR")]
    pub directory: Option<OsString>,
    /// Set a variable; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = run::variable)]
    pub env: Vec<(OsString, OsString)>,
    /// Time between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub kill_delay: Option<u64>,
    /// Leave the processes on whatever core the kernel puts them
    #[arg(long)]
    pub no_pin: bool,
    /// The MPI that programs get: ours, or the one they were built for
    #[arg(long, value_name = "WHICH", value_parser = ["pulc", "native"])]
    pub mpi: Option<String>,
    #[command(flatten)]
    pub staging: staging::Options,
    /// Run this shell command as the script
    #[arg(long, value_name = "COMMAND")]
    pub wrap: Option<String>,
    /// The file is a script, whatever is in it
    #[arg(long)]
    pub script: bool,
    /// Return when the job has ended, with its exit status
    #[arg(short = 'W', long)]
    pub wait: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// Print nothing but the job's number
    #[arg(long)]
    pub parsable: bool,
    /// Say and name things as the command of that name does
    #[arg(long, hide = true)]
    pub like_sbatch: bool,
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
pub struct Limit(pub Option<u64>);

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

/// What `over` says counts; what it does not say stays.
pub fn merged(under: Options, over: Options) -> Options {
    let list = |under: Vec<String>, over: Vec<String>| if over.is_empty() { under } else { over };
    let again = over.requeue || over.no_requeue;
    Options {
        ranks: over.ranks.or(under.ranks),
        nodes: over.nodes.or(under.nodes),
        per_node: over.per_node.or(under.per_node),
        threads: over.threads.or(under.threads),
        time: over.time.or(under.time),
        name: over.name.or(under.name),
        on: list(under.on, over.on),
        not_on: list(under.not_on, over.not_on),
        features: list(under.features, over.features),
        memory: over.memory.or(under.memory),
        cores: over.cores.or(under.cores),
        network: over.network.or(under.network),
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
        staging: under.staging.merged(over.staging),
        wrap: over.wrap.or(under.wrap),
        script: over.script || under.script,
        wait: over.wait || under.wait,
        json: over.json || under.json,
        parsable: over.parsable || under.parsable,
        like_sbatch: over.like_sbatch || under.like_sbatch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn the_command_line_counts_more_than_the_script() {
        let line = |words: &[&str]| Line::try_parse_from(words).unwrap().options;
        let all = merged(line(&["-n", "4", "-t", "10", "-J", "script"]), line(&["-n", "2"]));
        assert_eq!((all.ranks, all.time, all.name.as_deref()), (Some(2), Some(Limit(Some(600_000))), Some("script")));
        assert_eq!(line(&["--exclusive"]).exclusive.as_deref(), Some("node"));
        assert!(Line::try_parse_from(["--no-such-option"]).is_err());
    }
}
