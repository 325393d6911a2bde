//! `pulc run`: starts a job and is its terminal until it ends. Asks the local daemon if one runs, else a psid embedded in
//! this process. The threads here only move bytes; how the job ends is decided by psid.

use crate::queue::words;
use crate::terminal::{Sink, end_with, feed_input, watch_signals};
use crate::{daemon, mpi_choice, preload, sockets_broker, staging};
use pulc_base::JobId;
use pulc_base::boot::{ENV_ENDS_WITH, ENV_RAILS, ENV_TERMINAL, parse_rails};
use pulc_control::network;
use pulc_control::{Client, FrameError, Host, LaunchSpec, Limit, Reply, Request, RunSpec, Tie};
use pulc_hal::os::signals::{SIGHUP, SIGINT, SIGTERM, SignalFd};
use pulc_psid::error::shortage;
use pulc_psid::jobs::patience::Patience;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;
use std::time::Duration;

const NOTES: &str = "Output comes in whole lines, standard input goes to rank 0. The exit status is that of the first \
process that failed, and a line says which one and why. Ctrl-C sends SIGTERM to all of them, and SIGKILL after the kill \
delay; a second Ctrl-C kills at once. A process finds its number in PULC_RANK and how many there are in PULC_SIZE.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Number of processes (ranks)
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Number of nodes; without a daemon: of nodes of a local cluster on this machine
    #[arg(short = 'N', long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Put the rank before each line of output
    #[arg(short, long)]
    label: bool,
    /// Stop the job after so long (90, 90s, 15m, 2h)
    #[arg(short, long, value_name = "TIME", value_parser = parse_time_ms)]
    timeout: Option<u64>,
    /// Time between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time_ms)]
    kill_delay: u64,
    /// Leave the ranks on whatever core the kernel puts them
    #[arg(long)]
    no_pin: bool,
    /// Working directory of the ranks
    #[arg(long = "wdir", visible_alias = "chdir", value_name = "DIR")]
    directory: Option<OsString>,
    /// What carries messages between nodes: udp, tcp where UDP is filtered, or udp,tcp for both [default: udp]
    #[arg(long, value_name = "RAIL", value_parser = rail)]
    rail: Option<String>,
    /// What messages between nodes may go over, the best one first (10.1.0.0/16,…) [default: what is set for the cluster, else what nodes have in common]
    #[arg(long, value_name = "NETWORK,…", value_parser = words::networks)]
    network: Option<String>,
    /// Encrypt messages between nodes; they are authenticated in any case
    #[arg(long)]
    encrypt: bool,
    /// Set a variable for the ranks; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(OsString, OsString)>,
    /// Nodes by name, with commas between them, instead of --nodes; NAME:N puts N ranks there
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = words::host, conflicts_with = "nodes")]
    hosts: Vec<Host>,
    /// The MPI that programs get: ours, or the one they were built for
    #[arg(long, value_name = "WHICH", default_value = "pulc", value_parser = ["pulc", "native"])]
    mpi: String,
    /// Place long blocks of the program's own allocator in memory that job-mates of a node read: messages out of them are copied once
    #[arg(long)]
    alloc: bool,
    /// Put the sockets bypass in front of every rank, see `pulc bypass`
    #[arg(long)]
    bypass: bool,
    /// At the end of an MPI program, show what each rank has sent and received and how long it waited
    #[arg(long)]
    stats: bool,
    /// Write a timeline of all calls of an MPI program to this file, for Perfetto (ui.perfetto.dev) or Chrome
    #[arg(long, value_name = "FILE")]
    trace: Option<std::path::PathBuf>,
    /// Don't ask a daemon: run on this machine alone
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    staging: staging::Options,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// What `mpiexec` was asked for.
pub struct Wanted {
    pub ranks: u32,
    pub nodes: Option<u32>,
    pub hosts: Vec<Host>,
    pub label: bool,
    pub timeout_ms: Option<u64>,
    pub directory: Option<OsString>,
    pub variables: Vec<(OsString, OsString)>,
    pub native: bool,
    pub network: Option<String>,
    pub staging: staging::Options,
    pub command: Vec<OsString>,
}

impl Args {
    /// The same job as `pulc run` would start.
    pub fn of_mpiexec(wanted: Wanted) -> Args {
        Args {
            ranks: wanted.ranks,
            nodes: wanted.nodes,
            label: wanted.label,
            timeout: wanted.timeout_ms,
            kill_delay: KILL_DELAY_MS,
            no_pin: false,
            directory: wanted.directory,
            rail: None,
            network: wanted.network,
            encrypt: false,
            env: wanted.variables,
            hosts: wanted.hosts,
            mpi: if wanted.native { "native" } else { "pulc" }.to_owned(),
            alloc: false,
            bypass: false,
            stats: false,
            trace: None,
            alone: false,
            staging: wanted.staging,
            command: wanted.command,
        }
    }
}

/// Variables of this process alone.
const NOT_FOR_JOBS: [&str; 4] = [ENV_TERMINAL, ENV_ENDS_WITH, crate::join::ENV_TOKEN, pulc_control::stage::ENV_STAGE];

/// The default of `--kill-delay`.
const KILL_DELAY_MS: u64 = 10_000;

pub fn variable(text: &str) -> Result<(OsString, OsString), String> {
    let (name, value) = text.split_once('=').ok_or("a variable is NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

/// Nodes of a local cluster: each one is a daemon with its own keys in this process.
const LOCAL_NODES_MAX: u32 = 64;

/// Milliseconds of `90`, `1.5s`, `15m`, `2h`.
fn parse_time_ms(text: &str) -> Result<u64, String> {
    let (number, unit_ms) = match text.trim().strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.trim().ends_with('h') => (number, 3_600_000.0),
        Some(number) if text.trim().ends_with('m') => (number, 60_000.0),
        Some(number) => (number, 1000.0),
        None => (text.trim(), 1000.0),
    };
    match number.parse::<f64>() {
        Ok(value) if (0.0..1e9).contains(&value) => Ok((value * unit_ms) as u64),
        _ => Err("a time is a number of seconds, or a number with s, m or h behind it".to_owned()),
    }
}

pub fn run(args: Args) -> ExitCode {
    // The first job on a machine has its thresholds already. Before signals are taken over: an interrupt ends this at once.
    pulc_hal::calibration::measure_once();
    // Before any thread is started, so that all of them leave these signals to the one that reads them.
    let signals = match SignalFd::new(&[SIGINT, SIGTERM, SIGHUP], false) {
        Ok(signals) => signals,
        Err(error) => return fail(&format!("cannot watch signals: {error}"), 1),
    };
    let (label, alone, nodes) = (args.label, args.alone, args.nodes);
    let patience = Patience::read().of_client(Duration::from_millis(args.kill_delay));
    let tie = match Tie::of_environment() {
        Ok(tie) => tie,
        Err(why) => return fail(&why, 1),
    };
    let spec = match spec(args, false) {
        Ok(spec) => spec,
        Err(why) => return fail(&why, 1),
    };
    let in_slots = spec.allocation.is_some();
    let mut client = match connect(alone, nodes.unwrap_or(1)) {
        Ok(client) => client,
        Err(why) => return fail(&why, 1),
    };
    if let Err(error) = client.send(&Request::Run(Box::new(spec))) {
        return fail(&error.to_string(), 1);
    }
    let threads = || {
        if let Some(tie) = tie {
            end_with(tie, client.sender())?;
        }
        if in_slots {
            crate::queue::alloc::end_with_the_slots(client.sender())?;
        }
        Ok((watch_signals(signals, client.sender())?, feed_input(client.sender())?))
    };
    // A job that has begun ends with this process.
    let (stopped, input) = match threads() {
        Ok(threads) => threads,
        Err(error) => return fail(&format!("cannot start a thread: {}", shortage(&error)), 1),
    };
    let mut sink = Sink::new(label, client.sender());
    // Once it has said anything, its silence means that the ranks have nothing to say.
    let mut first = Some(patience);
    loop {
        let reply = match first.take() {
            Some(patience) => client.receive_within(patience),
            None => client.receive(),
        };
        match reply {
            Ok(Reply::Output { node, rank, stream, more, bytes }) => sink.put(node, rank, stream, more, bytes),
            Ok(Reply::InputCredit { bytes }) => input.grant(bytes),
            Ok(Reply::InputClosed) => input.close(),
            Ok(Reply::Ended(ended)) => {
                let code = stopped.code().or(sink.broken()).unwrap_or(ended.code);
                if let Some(text) = stopped.text().or(sink.why_broken()).or(ended.text) {
                    eprintln!("pulc: {text}");
                }
                return ExitCode::from(code);
            }
            Ok(Reply::Refused { why }) => return fail(&why, 1),
            // Not a word about the ranks yet.
            Ok(Reply::Staging) => first = Some(patience),
            Ok(Reply::Note { text }) => eprintln!("pulc: {text}"),
            Ok(_) => {}
            Err(FrameError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let seconds = patience.as_secs_f64();
                return fail(
                    &format!("the daemon does not answer for {seconds} s; the job ends when it comes back"),
                    1,
                );
            }
            Err(error) if is_gone(&error) => return fail("psid is gone; the job has been ended", 1),
            Err(error) => return fail(&format!("{error}; the job has been ended"), 1),
        }
    }
}

/// The line was closed; one of which the daemon had not read everything is reset.
fn is_gone(error: &FrameError) -> bool {
    match error {
        FrameError::Closed => true,
        FrameError::Io(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        _ => false,
    }
}

fn fail(why: &str, code: u8) -> ExitCode {
    eprintln!("pulc: {why}");
    ExitCode::from(code)
}

fn connect(alone: bool, nodes: u32) -> Result<Client, String> {
    if !alone && let Some(client) = daemon::connect().map_err(|error| format!("the daemon does not answer: {error}"))? {
        return Ok(client);
    }
    if nodes > LOCAL_NODES_MAX {
        return Err(format!(
            "a local cluster has at most {LOCAL_NODES_MAX} nodes; start daemons with `pulc up` for more"
        ));
    }
    pulc_psid::embedded::start(nodes, c"/proc/self/exe".to_owned()).map_err(|error| error.to_string())
}

/// What travels of a job that is put into the queue: as of one that is started now, but nothing about this terminal.
///
/// # Errors
/// One line for the user.
pub fn launch_of(wanted: Wanted, is_script: bool) -> Result<LaunchSpec, String> {
    let mut launch = spec(Args::of_mpiexec(wanted), is_script)?.launch;
    launch.env.retain(|(name, _)| name != ENV_TERMINAL.as_bytes());
    Ok(launch)
}

/// The job as asked for, with what travels from here: directory, environment, umask, limits.
fn spec(args: Args, is_script: bool) -> Result<RunSpec, String> {
    let here = std::env::current_dir().map_err(|error| format!("there is no working directory: {error}"))?;
    let cwd = args.directory.as_ref().map_or_else(|| here.clone(), |directory| here.join(directory));
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    let environment = environment(&args)?;
    let (allocation, hosts) = inside(&args)?;
    let command = match args.mpi == mpi_choice::NATIVE.1 {
        true => crate::native::command(args.command)?,
        false => args.command,
    };
    let variable =
        |name: &str| environment.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let program = command.first().map(OsString::as_os_str).filter(|_| !is_script);
    let stage = staging::of(&args.staging, program, &cwd, variable)?;
    let mut launch = LaunchSpec {
        env: environment.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        argv: command.into_iter().map(OsStringExt::into_vec).collect(),
        cwd: cwd.into_os_string().into_vec(),
        umask: umask.bits(),
        limits: limits(),
        pin: !args.no_pin,
        kill_delay_ms: args.kill_delay,
    };
    if let Some(stage) = stage {
        stage.put(&mut launch);
    }
    let nodes = if hosts.is_empty() { args.nodes } else { None };
    Ok(RunSpec { ranks: args.ranks, nodes, hosts, timeout_ms: args.timeout, allocation, launch })
}

/// Our environment but what is about this process alone, with the size of the terminal if that is where the ranks' output
/// appears as they wrote it, and with what the flags say about links.
fn environment(args: &Args) -> Result<Vec<(OsString, OsString)>, String> {
    let mut variables: Vec<_> =
        std::env::vars_os().filter(|(name, _)| NOT_FOR_JOBS.iter().all(|other| name != *other)).collect();
    let mut set = |name: &str, value: OsString| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), value));
    };
    if !args.label
        && let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout())
    {
        set(ENV_TERMINAL, format!("{}x{}", size.ws_col, size.ws_row).into());
    }
    if let Some(rail) = &args.rail {
        set(ENV_RAILS, rail.into());
    }
    if let Some(network) = &args.network {
        set(network::ENV_NETWORK, network.into());
    }
    if args.encrypt {
        set(&pulc_link::ENCRYPT.variable(), "1".into());
    }
    if args.stats {
        set("PULC_STATS", "1".into());
    }
    if let Some(file) = &args.trace {
        let file = std::path::absolute(file).map_err(|error| format!("--trace {}: {error}", file.display()))?;
        set("PULC_TRACE", file.into_os_string());
    }
    if args.mpi == mpi_choice::NATIVE.1 {
        set(mpi_choice::NATIVE.0, mpi_choice::NATIVE.1.into());
    } else if let (Some(lib), Some(program)) = (mpi_choice::libraries(), args.command.first()) {
        for (name, value) in mpi_choice::variables(program, &lib, |name| std::env::var_os(name)) {
            set(&name, value);
        }
    }
    for (name, value) in &args.env {
        set(&name.to_string_lossy(), value.clone());
    }
    let mut preloaded = Vec::new();
    if args.alloc {
        preloaded.push(preload::of_jobs(preload::ALLOCATOR, "--alloc")?);
    }
    if args.bypass {
        preloaded.push(preload::of_jobs(preload::SOCKETS, "--bypass")?);
        // On this node; where no broker runs, connections stay on the kernel.
        if let Err(why) = sockets_broker::ensure() {
            eprintln!("pulc: {why}; connections stay on the kernel");
        }
    }
    for library in preloaded {
        let known = variables.iter().position(|(name, _)| name == preload::VARIABLE);
        let others = known.map(|at| variables.swap_remove(at).1).unwrap_or_default();
        variables.push((preload::VARIABLE.into(), preload::in_front(library, &others)));
    }
    Ok(variables)
}

/// The queued job in whose slots this one runs, if it is started inside of one, and its nodes.
fn inside(args: &Args) -> Result<(Option<JobId>, Vec<Host>), String> {
    let variable = |name| std::env::var_os(name).filter(|text| !text.is_empty() && !args.alone);
    let Some(text) = variable("PULC_ALLOCATION") else { return Ok((None, args.hosts.clone())) };
    let number = text.to_str().and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(|| {
        format!("PULC_ALLOCATION={} is no allocation; unset it, or start this inside of a queued job", text.display())
    })?;
    let mut hosts = args.hosts.clone();
    if hosts.is_empty()
        && let Some(list) = variable("PULC_NODE_LIST")
    {
        hosts = list.to_string_lossy().split(',').map(words::host).collect::<Result<_, _>>()?;
        if let Some(count) = args.nodes {
            // Of so many nodes each gets an even share.
            hosts.truncate(count as usize);
            hosts.iter_mut().for_each(|host| host.ranks = None);
        } else if hosts.iter().filter_map(|host| host.ranks).sum::<u32>() < args.ranks {
            // More than there are slots: evenly.
            hosts.iter_mut().for_each(|host| host.ranks = None);
        }
    }
    Ok((Some(JobId(number)), hosts))
}

fn rail(text: &str) -> Result<String, String> {
    parse_rails(text).map(|_| text.to_owned())
}

fn limits() -> Vec<Limit> {
    let limit = |number: u32| {
        let value = rustix::process::getrlimit(pulc_psid::keeper::launch::resource(number)?);
        Some(Limit { resource: number, soft: value.current, hard: value.maximum })
    };
    (0..16).filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_nonsense_is_refused() {
        assert_eq!(parse_time_ms("90"), Ok(90_000));
        assert_eq!(parse_time_ms("1.5s"), Ok(1500));
        assert_eq!(parse_time_ms("15m"), Ok(900_000));
        assert_eq!(parse_time_ms("2h"), Ok(7_200_000));
        for nonsense in ["", "s", "-1", "1d", "nan", "1e99"] {
            assert!(parse_time_ms(nonsense).is_err(), "{nonsense}");
        }
    }
}
