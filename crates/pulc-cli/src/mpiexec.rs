//! `mpiexec` and `mpirun`: names of this binary that speak the dialects found in people's scripts, and start the same job that
//! `pulc run` starts. Flags that mean nothing here are taken with a line about it; what would change the result and is not there is
//! refused. Source: MPI-5.0, 11.5 (`mpiexec -n`, `:`); flags as in the manuals of MPICH's Hydra and Open MPI.

use crate::{mpi_choice, run};
use pulc_control::Host;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "Start a parallel program, as `pulc run` does, with the flags that MPI programs are started with

Usage: mpiexec [FLAGS] PROGRAM [ARGUMENTS] [: [FLAGS] PROGRAM [ARGUMENTS]]...

  -n, -np, -c N            number of processes
  -ppn, -perhost, -N N     processes on each node
  -hosts, -host, -H LIST   nodes, with commas between them, each perhaps with :N processes
  -f, -hostfile, -machinefile FILE   the same from a file, one a line (node, node:N, node slots=N)
  -env NAME VALUE, -x NAME=VALUE     set a variable for this program
  -genv NAME VALUE         set a variable for all programs
  -wdir, -wd DIR           working directory
  -l, -prepend-rank, -tag-output     put the rank before each line of output
  -timeout SECONDS         stop the job after so long
  --mpi pulc|native        the MPI that programs get: ours, or the one they were built for
  :                        another program of the same job follows";

/// Flags that mean nothing here, with the number of words that belong to each.
const IGNORED: &[(&str, usize)] = &[
    ("oversubscribe", 0),
    ("nooversubscribe", 0),
    ("use-hwthread-cpus", 0),
    ("allow-run-as-root", 0),
    ("report-bindings", 0),
    ("disable-hostname-propagation", 0),
    ("disable-auto-cleanup", 0),
    ("genvall", 0),
    ("envall", 0),
    ("verbose", 0),
    ("v", 0),
    ("q", 0),
    ("quiet", 0),
    ("bind-to", 1),
    ("map-by", 1),
    ("rank-by", 1),
    ("bind-to-core", 0),
    ("bind-to-socket", 0),
    ("genvlist", 1),
    ("envlist", 1),
    ("launcher", 1),
    ("bootstrap", 1),
    ("rmk", 1),
    ("iface", 1),
    ("pmi-port", 0),
    ("mca", 2),
    ("gmca", 2),
    ("prtemca", 2),
    ("pmixmca", 2),
    ("display-map", 0),
    ("display-allocation", 0),
    ("print-rank-map", 0),
    ("print-all-exitcodes", 0),
    ("ordered-output", 0),
    ("hetero", 0),
    ("bynode", 0),
    ("byslot", 0),
    ("cpus-per-proc", 1),
    ("cpus-per-rank", 1),
    ("cpu-set", 1),
    ("cpu-list", 1),
    ("usize", 1),
    ("demux", 1),
    ("prefix", 1),
];

/// One of the programs of a job.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
struct Program {
    ranks: Option<u32>,
    variables: Vec<(OsString, OsString)>,
    directory: Option<OsString>,
    words: Vec<OsString>,
}

/// A command line, understood.
#[derive(Default, PartialEq, Eq, Debug)]
struct Request {
    programs: Vec<Program>,
    variables: Vec<(OsString, OsString)>,
    hosts: Vec<Host>,
    per_node: Option<u32>,
    label: bool,
    timeout_ms: Option<u64>,
    native: bool,
    ignored: Vec<String>,
}

/// Whether the binary was called by one of these names.
pub fn is_called(name: &OsStr) -> bool {
    Path::new(name).file_name().is_some_and(|name| name == "mpiexec" || name == "mpirun" || name == "mpiexec.pulc")
}

pub fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.collect();
    let asks = |names: &[&str]| words.first().is_some_and(|word| names.iter().any(|name| word == name));
    if words.is_empty() || asks(&["-h", "-help", "--help"]) {
        println!("{HELP}");
        return if words.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    if asks(&["-V", "-version", "--version", "-info"]) {
        println!("mpiexec (PULC) {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let request = match parse(words) {
        Ok(request) => request,
        Err(why) => {
            eprintln!("mpiexec: {why}");
            return ExitCode::FAILURE;
        }
    };
    if !request.ignored.is_empty() {
        eprintln!("mpiexec: {} has no meaning here and is ignored", request.ignored.join(", "));
    }
    match job(request) {
        Ok(args) => run::run(args),
        Err(why) => {
            eprintln!("mpiexec: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What `pulc run` is asked for.
fn job(request: Request) -> Result<run::Args, String> {
    let ranks: u32 = request.programs.iter().map(|program| program.ranks.unwrap_or(1)).sum();
    let directory = match &request.programs[..] {
        [one] => one.directory.clone(),
        _ => None,
    };
    let mut variables = request.variables;
    let command = match &request.programs[..] {
        [one] => {
            variables.extend(one.variables.iter().cloned());
            one.words.clone()
        }
        several => crate::program::command(several.iter().map(|program| crate::program::Part {
            ranks: program.ranks.unwrap_or(1),
            variables: variables_of(program, request.native),
            directory: program.directory.clone(),
            words: program.words.clone(),
        }))?,
    };
    let nodes = match (request.per_node, request.hosts.is_empty()) {
        (Some(per_node), true) => Some(ranks.div_ceil(per_node)).filter(|nodes| *nodes > 1),
        _ => None,
    };
    let hosts = request.hosts.into_iter().map(|host| Host { ranks: host.ranks.or(request.per_node), ..host }).collect();
    Ok(run::Args::of_mpiexec(run::Wanted {
        ranks,
        nodes,
        hosts,
        label: request.label,
        timeout_ms: request.timeout_ms,
        directory,
        variables,
        native: request.native,
        network: None,
        staging: crate::staging::Options::default(),
        command,
    }))
}

/// What one of several programs finds in its environment beside what all do: what makes it get our MPI, and what was asked for.
fn variables_of(program: &Program, native: bool) -> Vec<(OsString, OsString)> {
    let mut variables = Vec::new();
    if let (false, Some(lib), Some(word)) = (native, mpi_choice::libraries(), program.words.first()) {
        let ours = mpi_choice::variables(word, &lib, |name| std::env::var_os(name));
        variables.extend(ours.into_iter().map(|(name, value)| (name.into(), value)));
    }
    variables.extend(program.variables.iter().cloned());
    variables
}

fn parse(words: Vec<OsString>) -> Result<Request, String> {
    let mut request = Request::default();
    let mut program = Program::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == ":" {
            finish(&mut request, &mut program)?;
        } else if let (true, Some(flag)) = (program.words.is_empty(), flag(&word)) {
            take(flag, &mut words, &mut request, &mut program)?;
        } else {
            program.words.push(word);
        }
    }
    finish(&mut request, &mut program)?;
    Ok(request)
}

fn finish(request: &mut Request, program: &mut Program) -> Result<(), String> {
    if program.words.is_empty() {
        return Err("no program is named; `mpiexec -help` shows how".to_owned());
    }
    request.programs.push(std::mem::take(program));
    Ok(())
}

/// The name of a flag, with one dash or two.
fn flag(word: &OsStr) -> Option<String> {
    let name = word.to_str()?.strip_prefix('-')?;
    Some(name.strip_prefix('-').unwrap_or(name).to_owned()).filter(|name| !name.is_empty())
}

fn take(
    flag: String,
    words: &mut impl Iterator<Item = OsString>,
    request: &mut Request,
    program: &mut Program,
) -> Result<(), String> {
    let (flag, mut given) = match flag.split_once('=') {
        Some((flag, value)) => (flag.to_owned(), Some(OsString::from(value))),
        None => (flag, None),
    };
    let mut next = || given.take().or_else(|| words.next()).ok_or_else(|| format!("-{flag} needs a value"));
    match flag.as_str() {
        "n" | "np" | "c" => program.ranks = Some(number(&flag, &next()?)?),
        "ppn" | "perhost" | "N" | "npernode" => request.per_node = Some(number(&flag, &next()?)?),
        "host" | "hosts" | "H" => request.hosts.extend(hosts(&text(next()?)?)?),
        "f" | "hostfile" | "machinefile" | "machine" => request.hosts.extend(host_file(&next()?)?),
        "env" => program.variables.push((next()?, next()?)),
        "genv" => request.variables.push((next()?, next()?)),
        "x" => {
            // Without a value: the variable as it is here, which travels anyway.
            if let Some((name, value)) = text(next()?)?.split_once('=') {
                program.variables.push((name.into(), value.into()));
            }
        }
        "wdir" | "wd" | "cwd" => program.directory = Some(next()?),
        "l" | "prepend-rank" | "tag-output" => request.label = true,
        "timeout" => request.timeout_ms = Some(u64::from(number(&flag, &next()?)?) * 1000),
        "mpi" => match text(next()?)?.as_str() {
            "pulc" => request.native = false,
            "native" => request.native = true,
            other => return Err(format!("--mpi is {other:?}; pulc and native are possible")),
        },
        _ => {
            let Some((_, count)) = IGNORED.iter().find(|(name, _)| *name == flag) else {
                return Err(format!("-{flag} is unknown; `mpiexec -help` lists the flags"));
            };
            for _ in 0..*count {
                next()?;
            }
            request.ignored.push(format!("-{flag}"));
        }
    }
    Ok(())
}

fn text(word: OsString) -> Result<String, String> {
    word.into_string().map_err(|word| format!("{word:?} is not text"))
}

fn number(flag: &str, word: &OsStr) -> Result<u32, String> {
    let parsed = word.to_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
    parsed.ok_or_else(|| format!("-{flag} is {word:?}; a number of 1 or more is needed"))
}

/// `a,b:4`
fn hosts(list: &str) -> Result<Vec<Host>, String> {
    list.split(',').filter(|name| !name.is_empty()).map(host).collect()
}

fn host(word: &str) -> Result<Host, String> {
    let (name, ranks) = match word.split_once(':') {
        Some((name, ranks)) => (name, Some(number("hosts", OsStr::new(ranks))?)),
        None => (word, None),
    };
    Ok(Host { name: name.to_owned(), ranks })
}

/// Lines `a`, `a:4` or `a slots=4`; what follows `#` is a comment.
fn host_file(path: &OsStr) -> Result<Vec<Host>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read the host file {path:?}: {error}"))?;
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { continue };
        let mut one = host(first)?;
        if let Some(slots) = words.find_map(|word| word.strip_prefix("slots=")) {
            one.ranks = Some(number("hostfile", OsStr::new(slots))?);
        }
        found.push(one);
    }
    if found.is_empty() { Err(format!("the host file {path:?} names no node")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn the_dialects_of_hydra_and_of_open_mpi_say_the_same() {
        let hydra = parsed("-n 4 -ppn 2 -hosts a,b -env A 1 -wdir /tmp ./x -n 3").unwrap();
        let open = parsed("--np 4 --npernode 2 --host a,b -x A=1 --wdir /tmp ./x -n 3").unwrap();
        assert_eq!(hydra, open);
        assert_eq!(hydra.programs[0].ranks, Some(4));
        assert_eq!(hydra.programs[0].words, ["./x", "-n", "3"].map(OsString::from));
        assert_eq!(hydra.hosts.len(), 2);
    }

    #[test]
    fn a_colon_starts_another_program_and_genv_is_for_all() {
        let request = parsed("-genv G 1 -n 1 ./a x : -n 2 -env B 2 ./b").unwrap();
        assert_eq!(request.programs.len(), 2);
        assert_eq!(request.programs[1].variables, [("B".into(), "2".into())]);
        assert_eq!(request.variables, [("G".into(), "1".into())]);
        assert!(parsed("-n 1 ./a :").unwrap_err().contains("no program"));
    }

    #[test]
    fn flags_without_meaning_are_named_and_unknown_ones_refused() {
        let request = parsed("--oversubscribe --bind-to core --mca btl self -n 2 ./x").unwrap();
        assert_eq!(request.ignored, ["-oversubscribe", "-bind-to", "-mca"]);
        assert_eq!(request.programs[0].ranks, Some(2));
        assert!(parsed("-nonsense ./x").unwrap_err().contains("unknown"));
        assert!(parsed("-n 0 ./x").unwrap_err().contains("1 or more"));
        assert!(parsed("-n").unwrap_err().contains("needs a value"));
    }

    #[test]
    fn hosts_may_say_how_many_processes_they_take() {
        assert_eq!(hosts("a,b:4").unwrap()[1], Host { name: "b".into(), ranks: Some(4) });
        assert!(hosts("a:x").is_err());
    }
}
