//! Several programs in one job: every rank starts this binary, which becomes the program that the rank's number asks for. Called as
//! `pulc program-of-rank …` by keepers only; the process stays the same, so that nobody notices.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The hidden subcommand.
pub const NAME: &str = "program-of-rank";

/// One program of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub ranks: u32,
    pub variables: Vec<(OsString, OsString)>,
    pub directory: Option<OsString>,
    pub words: Vec<OsString>,
}

/// The command line that becomes one of `parts`. For each: ranks, number of variables, names and values, directory or nothing,
/// number of words, words.
pub fn command(parts: impl Iterator<Item = Part>) -> Result<Vec<OsString>, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find this binary: {error}"))?;
    let mut line = vec![own.into_os_string(), NAME.into()];
    for part in parts {
        line.push(part.ranks.to_string().into());
        line.push(part.variables.len().to_string().into());
        line.extend(part.variables.into_iter().flat_map(|(name, value)| [name, value]));
        line.push(part.directory.unwrap_or_default());
        line.push(part.words.len().to_string().into());
        line.extend(part.words);
    }
    Ok(line)
}

/// Becomes the program of this rank.
pub fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let rank = std::env::var(pulc_base::boot::ENV_RANK).ok().and_then(|text| text.parse().ok());
    let Some(part) = rank.and_then(|rank| part_of(words, rank)) else {
        eprintln!("pulc: {NAME} is started by `mpiexec` for ranks of a job only");
        return ExitCode::FAILURE;
    };
    let Some((program, arguments)) = part.words.split_first() else { return ExitCode::FAILURE };
    let mut command = Command::new(program);
    command.args(arguments).envs(part.variables);
    if let Some(directory) = part.directory {
        command.current_dir(directory);
    }
    let error = command.exec();
    eprintln!("pulc: cannot start {}: {error}", program.display());
    ExitCode::from(127)
}

fn part_of(mut words: impl Iterator<Item = OsString>, rank: u32) -> Option<Part> {
    let mut first = 0;
    loop {
        let part = read(&mut words)?;
        if rank < first + part.ranks {
            return Some(part);
        }
        first += part.ranks;
    }
}

fn read(words: &mut impl Iterator<Item = OsString>) -> Option<Part> {
    let number = |word: Option<OsString>| word.as_deref().and_then(OsStr::to_str)?.parse::<u32>().ok();
    let ranks = number(words.next())?;
    let mut variables = Vec::new();
    for _ in 0..number(words.next())? {
        variables.push((words.next()?, words.next()?));
    }
    let directory = Some(words.next()?).filter(|directory| !directory.is_empty());
    let count = number(words.next())?;
    let program: Vec<OsString> = words.take(count as usize).collect();
    (program.len() == count as usize).then_some(Part { ranks, variables, directory, words: program })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_finds_its_program_in_the_line() {
        let part = |ranks, word: &str| Part {
            ranks,
            variables: vec![("A".into(), word.into())],
            directory: (ranks == 2).then(|| "/tmp".into()),
            words: vec![word.into(), "-n".into(), ":".into()],
        };
        let parts = [part(1, "a"), part(2, "b")];
        let line = command(parts.iter().cloned()).unwrap();
        let of = |rank| part_of(line[2..].iter().cloned(), rank);
        assert_eq!(of(0).as_ref(), Some(&parts[0]));
        assert_eq!(of(1).as_ref(), Some(&parts[1]));
        assert_eq!(of(2).as_ref(), Some(&parts[1]));
        assert_eq!(of(3), None);
    }
}
