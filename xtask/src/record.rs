//! Dated records under bench/records: what was found out, headed by what it was found out on. Called by `test --full` and by
//! `bench`. Never changes a record that exists: a second one of the same day gets a number.

use crate::steps::{self, Outcome};
use std::path::{Path, PathBuf};

/// Writes bench/records/DATE-NAME.txt.
pub fn write(root: &Path, name: &str, text: &str) -> Outcome {
    let date = word(root, "date", &["-u", "+%Y-%m-%d"]);
    let dir = root.join("bench/records");
    let failed = |error| format!("cannot write a record to {}: {error}", dir.display());
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let path = free_path(&dir, &format!("{date}-{name}"));
    std::fs::write(&path, head(root, name, &date) + text).map_err(failed)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn head(root: &Path, name: &str, date: &str) -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "# {name}, {date}, commit {}, {}\n# load when written: {}\n",
        word(root, "git", &["describe", "--always", "--dirty"]),
        machine(root),
        load.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}

/// On which day and on what something was found out, for a page that is part of the commit that it speaks of.
pub fn day_and_machine(root: &Path) -> String {
    format!("{}, {}", word(root, "date", &["-u", "+%Y-%m-%d"]), machine(root))
}

fn machine(root: &Path) -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("unknown").trim();
    format!(
        "{cores} cores of {}, memory {memory}, Linux {}",
        model.trim_start_matches(['\t', ' ', ':']),
        word(root, "uname", &["-r"]),
    )
}

fn word(root: &Path, program: &str, arguments: &[&str]) -> String {
    let output = steps::output(std::process::Command::new(program).args(arguments).current_dir(root));
    output.map(|text| text.trim().to_string()).unwrap_or_else(|_| "unknown".into())
}

fn free_path(dir: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|number| dir.join(format!("{name}-{number}.txt")));
    let mut paths = std::iter::once(dir.join(format!("{name}.txt"))).chain(numbered);
    paths.find(|path| !path.exists()).expect("numbers do not run out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_exists_is_kept() {
        let scratch = steps::Scratch::new("records").unwrap();
        assert_eq!(free_path(scratch.path(), "day-name"), scratch.path().join("day-name.txt"));
        std::fs::write(scratch.path().join("day-name.txt"), "first").unwrap();
        assert_eq!(free_path(scratch.path(), "day-name"), scratch.path().join("day-name-2.txt"));
    }

    #[test]
    fn the_head_names_the_machine() {
        let head = head(Path::new("."), "some", "2026-01-01");
        assert!(head.starts_with("# some, 2026-01-01, commit "), "{head}");
        assert!(head.contains(" cores of ") && head.contains("Linux "), "{head}");
    }
}
