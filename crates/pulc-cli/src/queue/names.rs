//! The commands of another queue that fingers know, as links to this binary: `sbatch`, `squeue`, `scancel`, `sinfo`, `srun`, `sacct`, `salloc`.
//! Each becomes one of our own commands; options that differ are put into ours, those that mean nothing here are left out with a word.
//! Decides nothing else.

use clap::CommandFactory as _;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What an option of another system becomes. Options that are in no table are passed on as they are.
#[derive(Clone, Copy)]
enum Becomes {
    /// Ours, with its value if it takes one.
    Ours(&'static str),
    /// Ours, whose value is a time; a plain number is minutes there.
    Time(&'static str),
    /// What it asks for is the case anyway.
    Nothing,
    /// Left out, with a word.
    Unknown,
}

use Becomes::{Nothing, Ours, Time, Unknown};

/// Whether an option takes a value.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    None,
    Always,
    /// Only behind `=`.
    Attached,
}

/// Short name (or a blank), long name, value, and what it becomes.
type Entry = (char, &'static str, Value, Becomes);

/// What commands that start something take and this queue has no word for.
const STARTING: &[Entry] = &[
    ('p', "partition", Value::Always, Unknown),
    ('A', "account", Value::Always, Unknown),
    ('G', "gpus", Value::Always, Unknown),
    ('L', "licenses", Value::Always, Unknown),
    ('m', "distribution", Value::Always, Unknown),
    ('M', "clusters", Value::Always, Unknown),
    ('v', "verbose", Value::None, Nothing),
    ('Q', "quiet", Value::None, Nothing),
    ('k', "no-kill", Value::Attached, Unknown),
    (' ', "comment", Value::Always, Nothing),
    (' ', "cpu-bind", Value::Always, Unknown),
    (' ', "export", Value::Always, Unknown),
    (' ', "get-user-env", Value::Attached, Nothing),
    (' ', "gres", Value::Always, Unknown),
    (' ', "gpus-per-node", Value::Always, Unknown),
    (' ', "gpus-per-task", Value::Always, Unknown),
    (' ', "hint", Value::Always, Unknown),
    (' ', "mail-type", Value::Always, Unknown),
    (' ', "mail-user", Value::Always, Unknown),
    (' ', "mem-bind", Value::Always, Unknown),
    (' ', "mem-per-cpu", Value::Always, Unknown),
    (' ', "signal", Value::Always, Unknown),
    (' ', "switches", Value::Always, Unknown),
];

/// `pulc run` calls some things by other names and has no queue in front of it.
const SRUN: &[Entry] = &[
    ('n', "ntasks", Value::Always, Ours("--ranks")),
    ('N', "nodes", Value::Always, Ours("--nodes")),
    ('w', "nodelist", Value::Always, Ours("--hosts")),
    ('D', "chdir", Value::Always, Ours("--wdir")),
    ('t', "time", Value::Always, Time("--timeout")),
    ('l', "label", Value::None, Ours("--label")),
    // Which protocol it speaks to programs, not which library they get.
    (' ', "mpi", Value::Always, Nothing),
    ('J', "job-name", Value::Always, Nothing),
    ('u', "unbuffered", Value::None, Nothing),
    ('s', "oversubscribe", Value::None, Nothing),
    ('K', "kill-on-bad-exit", Value::Attached, Nothing),
    ('O', "overcommit", Value::None, Nothing),
    (' ', "overlap", Value::None, Nothing),
    (' ', "exact", Value::None, Nothing),
    (' ', "exclusive", Value::Attached, Unknown),
    ('c', "cpus-per-task", Value::Always, Unknown),
    ('q', "qos", Value::Always, Unknown),
    ('o', "output", Value::Always, Unknown),
    ('e', "error", Value::Always, Unknown),
    ('i', "input", Value::Always, Unknown),
    (' ', "mem", Value::Always, Unknown),
    (' ', "pty", Value::Attached, Unknown),
];

const SQUEUE: &[Entry] = &[
    ('j', "jobs", Value::Always, Ours("--job")),
    ('t', "states", Value::Always, Ours("--state")),
    ('h', "noheader", Value::None, Ours("--no-header")),
    ('l', "long", Value::None, Nothing),
    ('r', "array", Value::None, Nothing),
    ('a', "all", Value::None, Nothing),
    (' ', "start", Value::None, Nothing),
    ('o', "format", Value::Always, Unknown),
    ('O', "Format", Value::Always, Unknown),
    ('p', "partition", Value::Always, Unknown),
    ('A', "account", Value::Always, Unknown),
    ('i', "iterate", Value::Always, Unknown),
    ('S', "sort", Value::Always, Unknown),
];

const SCANCEL: &[Entry] = &[
    (' ', "jobname", Value::Always, Ours("--name")),
    ('f', "full", Value::None, Nothing),
    ('b', "batch", Value::None, Nothing),
    ('v', "verbose", Value::None, Nothing),
    ('Q', "quiet", Value::None, Nothing),
    ('p', "partition", Value::Always, Unknown),
    ('A', "account", Value::Always, Unknown),
];

const SINFO: &[Entry] = &[
    ('N', "Node", Value::None, Nothing),
    ('l', "long", Value::None, Nothing),
    ('a', "all", Value::None, Nothing),
    ('e', "exact", Value::None, Nothing),
    ('R', "list-reasons", Value::None, Nothing),
    ('s', "summarize", Value::None, Nothing),
    ('h', "noheader", Value::None, Unknown),
    ('o', "format", Value::Always, Unknown),
    ('O', "Format", Value::Always, Unknown),
    ('n', "nodes", Value::Always, Unknown),
    ('p', "partition", Value::Always, Unknown),
    ('t', "states", Value::Always, Unknown),
];

const SACCT: &[Entry] = &[
    ('j', "jobs", Value::Always, Ours("--job")),
    ('X', "allocations", Value::None, Nothing),
    ('a', "allusers", Value::None, Nothing),
    ('l', "long", Value::None, Nothing),
    ('n', "noheader", Value::None, Unknown),
    ('P', "parsable2", Value::None, Unknown),
    ('p', "parsable", Value::None, Unknown),
    ('o', "format", Value::Always, Unknown),
    ('S', "starttime", Value::Always, Unknown),
    ('E', "endtime", Value::Always, Unknown),
    ('u', "user", Value::Always, Unknown),
    ('s', "state", Value::Always, Unknown),
];

/// A command of the other system: its name, ours, and what becomes of its options.
type Command = (&'static str, &'static [&'static str], &'static [&'static [Entry]]);

const COMMANDS: &[Command] = &[
    ("sbatch", &["submit", "--script", "--like-sbatch"], &[STARTING]),
    ("salloc", &["alloc"], &[STARTING]),
    ("srun", &["run"], &[SRUN, STARTING]),
    ("squeue", &["queue"], &[SQUEUE]),
    ("scancel", &["cancel"], &[SCANCEL]),
    ("sinfo", &["nodes", "--queue"], &[SINFO]),
    ("sacct", &["history"], &[SACCT]),
];

/// The words of our own command, if this binary was called by one of those names, and what was left out.
pub fn own_words(called: &OsStr, words: impl Iterator<Item = OsString>) -> Option<(Vec<OsString>, Vec<String>)> {
    let name = Path::new(called).file_name()?.to_str()?;
    let (_, ours, tables) = COMMANDS.iter().find(|(theirs, ..)| *theirs == name)?;
    let all = crate::Cli::command();
    let own = all.find_subcommand(ours[0])?;
    let mut line: Vec<OsString> = std::iter::once("pulc").chain(ours.iter().copied()).map(OsString::from).collect();
    let mut left_out = Vec::new();
    translate(words, own, tables, &mut line, &mut left_out);
    Some((line, left_out))
}

/// Whether the value of our own option stands in the next word.
fn takes_next(own: &clap::Command, is_it: impl Fn(&clap::Arg) -> bool) -> bool {
    let found = own.get_arguments().find(|arg| is_it(arg));
    found.is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
}

fn translate(
    words: impl Iterator<Item = OsString>,
    own: &clap::Command,
    tables: &[&[Entry]],
    line: &mut Vec<OsString>,
    left_out: &mut Vec<String>,
) {
    let find =
        |matches: &dyn Fn(&Entry) -> bool| tables.iter().flat_map(|table| table.iter()).find(|entry| matches(entry));
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().filter(|text| text.len() > 1 && text.starts_with('-') && *text != "--") else {
            // The program or the jobs, and what is meant for them.
            line.push(word);
            return line.extend(words);
        };
        let (found, value, ours_takes_next) = match text.strip_prefix("--") {
            Some(long) => {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let is_it =
                    |arg: &clap::Arg| arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&name));
                (find(&|entry| entry.1 == name), value.clone(), value.is_none() && takes_next(own, is_it))
            }
            None => {
                let (short, rest) = (text.chars().nth(1).unwrap_or(' '), text.chars().skip(2).collect::<String>());
                let found = find(&|entry| entry.0 == short);
                if found.is_some_and(|entry| entry.2 == Value::None) && !rest.is_empty() {
                    // Several in one word: not worth taking apart.
                    line.push(word);
                    continue;
                }
                let next = rest.is_empty() && takes_next(own, |arg| arg.get_short() == Some(short));
                (found, Some(rest).filter(|rest| !rest.is_empty()), next)
            }
        };
        let Some((_, name, takes, becomes)) = found else {
            line.push(word);
            if ours_takes_next {
                line.extend(words.next());
            }
            continue;
        };
        let mut value = value.map(OsString::from);
        if *takes == Value::Always && value.is_none() {
            value = words.next();
        }
        match becomes {
            Ours(ours) => {
                line.push(ours.into());
                line.extend(value);
            }
            Time(ours) => {
                line.push(ours.into());
                line.extend(value.map(|value| seconds_of(&value)));
            }
            Nothing => {}
            Unknown => left_out.push(format!("--{name}")),
        }
    }
}

/// A time as the other system writes it, with a unit.
fn seconds_of(time: &OsStr) -> OsString {
    let ms = time.to_str().and_then(|text| super::words::duration_ms(text, 60).ok());
    ms.map_or_else(|| time.to_owned(), |ms| format!("{}s", ms as f64 / 1000.0).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(name: &str, words: &[&str]) -> (Vec<String>, Vec<String>) {
        let (own, left_out) = own_words(OsStr::new(name), words.iter().map(OsString::from)).unwrap();
        (own.into_iter().map(|word| word.into_string().unwrap()).collect(), left_out)
    }

    fn words(name: &str, words: &[&str]) -> Vec<String> {
        both(name, words).0
    }

    #[test]
    fn other_names_become_our_own_commands() {
        let script = ["pulc", "submit", "--script", "--like-sbatch", "-n", "4", "a.sh", "-p", "x"];
        assert_eq!(words("/opt/bin/sbatch", &["-n", "4", "a.sh", "-p", "x"]), script);
        assert_eq!(
            words("srun", &["--ntasks=4", "-t", "2", "--mpi=pmix", "-l", "./prog", "-t", "9"]),
            ["pulc", "run", "--ranks", "4", "--timeout", "120s", "--label", "./prog", "-t", "9"]
        );
        assert_eq!(words("squeue", &["-j", "17", "-t", "PD,R"]), ["pulc", "queue", "--job", "17", "--state", "PD,R"]);
        assert_eq!(words("scancel", &["-u", "me", "-v"]), ["pulc", "cancel", "-u", "me"]);
        assert!(own_words(OsStr::new("pulc"), std::iter::empty()).is_none());
    }

    #[test]
    fn values_may_be_glued_to_short_options() {
        assert_eq!(
            words("srun", &["-n4", "-N2", "-t1:30", "hostname"])[2..],
            ["--ranks", "4", "--nodes", "2", "--timeout", "90s", "hostname"]
        );
    }

    #[test]
    fn what_means_nothing_here_is_left_out_and_named() {
        let given = ["-J", "name", "-p", "debug", "--gres=gpu:1", "--mail-type", "ALL", "--ntasks", "3", "-v", "a.sh"];
        let (own, left_out) = both("sbatch", &given);
        assert_eq!(own[4..], ["-J", "name", "--ntasks", "3", "a.sh"]);
        assert_eq!(left_out, ["--partition", "--gres", "--mail-type"]);
        let (own, left_out) = both("srun", &["--pty", "-c", "2", "bash"]);
        assert_eq!(
            (own[2..].to_vec(), left_out),
            (vec!["bash".to_owned()], vec!["--pty".to_owned(), "--cpus-per-task".to_owned()])
        );
    }
}
