//! The commands of another queue that fingers know, as links to this binary: `sbatch`, `squeue`, `scancel`, `sinfo`, `srun`, `sacct`, `salloc`.
//! Each becomes one of our own commands; options that differ are put into ours. Decides nothing else.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The words of our own command, if this binary was called by one of those names.
pub fn own_words(called: &OsStr, words: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let name = Path::new(called).file_name()?.to_str()?;
    let ours: &[&str] = match name {
        "sbatch" => &["submit", "--script"],
        "squeue" => &["queue"],
        "scancel" => &["cancel"],
        "sinfo" => &["nodes", "--queue"],
        "sacct" => &["history"],
        "salloc" => &["alloc"],
        "srun" => &["run"],
        _ => return None,
    };
    let words: Vec<OsString> = if name == "srun" { of_srun(words) } else { words.collect() };
    Some([OsString::from("pulc")].into_iter().chain(ours.iter().map(OsString::from)).chain(words).collect())
}

/// `--ntasks` and `--nodelist` have other names here, and a time without a unit is minutes there.
fn of_srun(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().filter(|text| text.starts_with('-')) else {
            // The program and what is meant for it.
            out.push(word);
            out.extend(words);
            break;
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let ours = match name {
            "--ntasks" => "--ranks",
            "-w" | "--nodelist" => "--hosts",
            "-D" => "--wdir",
            "-t" | "--time" => "--timeout",
            "-l" => "--label",
            "--mpi" => {
                // Which protocol it speaks to programs, not which library.
                if value.is_none() {
                    words.next();
                }
                continue;
            }
            other => other,
        };
        let takes = ["-n", "-N", "--ranks", "--nodes", "--hosts", "--wdir", "--chdir", "--timeout"].contains(&ours);
        let value = value.or_else(|| takes.then(|| words.next()).flatten().and_then(|value| value.into_string().ok()));
        let value = match (ours, value) {
            ("--timeout", Some(time)) => {
                Some(super::words::duration_ms(&time, 60).map_or(time, |ms| format!("{}s", ms as f64 / 1000.0)))
            }
            (_, value) => value,
        };
        out.push(ours.into());
        out.extend(value.map(OsString::from));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, words: &[&str]) -> Vec<String> {
        let own = own_words(OsStr::new(name), words.iter().map(OsString::from)).unwrap();
        own.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn other_names_become_our_own_commands() {
        assert_eq!(words("/opt/bin/sbatch", &["-n", "4", "a.sh"]), ["pulc", "submit", "--script", "-n", "4", "a.sh"]);
        assert_eq!(
            words("srun", &["--ntasks=4", "-t", "2", "--mpi=pmix", "-l", "./prog", "-t", "9"]),
            ["pulc", "run", "--ranks", "4", "--timeout", "120s", "--label", "./prog", "-t", "9"]
        );
        assert!(own_words(OsStr::new("pulc"), std::iter::empty()).is_none());
    }
}
