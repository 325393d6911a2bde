//! Programs that talk TCP, unmodified, on the sockets bypass: CPython's own tests of everything that has to do with sockets, then servers
//! with their clients (`services`). All of them run on the kernel, with the library that only follows, and with rings, each time in a
//! network of its own with a broker of its own; the results must be the same. How much really went through rings stands beside, because a
//! suite that stayed on the kernel proves nothing. Called by `foreign`.

use super::{Place, all_well, debian, services};
use crate::steps::{self, Outcome};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The modules of CPython's suite that open sockets, wait for them, or serve by them.
const MODULES: [&str; 10] = [
    "test_socket",
    "test_selectors",
    "test_epoll",
    "test_poll",
    "test_socketserver",
    "test_ftplib",
    "test_httplib",
    "test_asyncore",
    "test_ssl",
    "test_asyncio",
];
const LIMIT: Duration = Duration::from_secs(900);
/// A module whose results differ runs so many times in all: a test that differs each time is a failure.
const TIMES: usize = 3;

/// How a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Kernel,
    /// With the library, which follows every connection and moves no byte.
    Tracking,
    /// Connections of both ends go through rings from their first calls on.
    Rings,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Kernel => "kernel",
            Mode::Tracking => "tracking",
            Mode::Rings => "rings",
        }
    }
}

pub fn run(place: &mut Place) -> Outcome {
    let mut failures = python(place)?;
    failures.extend(services::run(place));
    all_well(failures)
}

/// A shell line in a network of its own; in it `$ON` stands before a program, `$PULC` is ours.
pub fn isolated(place: &Place, mode: Mode, line: &str) -> Command {
    let pulc = place.tree.join("bin/pulc");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c", line]);
    let before = if mode == Mode::Kernel { String::new() } else { format!("{} bypass", pulc.display()) };
    command.env("PULC", &pulc).env("ON", before).env_remove("LD_PRELOAD").current_dir(place.at.join("log"));
    match mode {
        Mode::Kernel => {}
        Mode::Tracking => {
            command.env("PULC_SOCKETS", "track");
        }
        Mode::Rings => {
            command.env("PULC_SOCKETS_AFTER", "1");
        }
    }
    command
}

/// What the broker of a line said of rings at its end, and the rest.
pub fn without_rings(text: &str) -> (String, String) {
    let (rings, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("so far "));
    (rings.last().map_or_else(String::new, |line| (*line).to_owned()), rest.join("\n"))
}

fn python(place: &mut Place) -> Result<Vec<String>, String> {
    let Some(python) = interpreter() else {
        place.tell("skipped: CPython's tests, install libpython3-testsuite, or a Python that has its own tests");
        return Ok(Vec::new());
    };
    let version = steps::output(Command::new(&python).arg("--version"))?;
    place.tell(&format!("CPython's own tests, {}", version.trim()));
    let mut failures = Vec::new();
    for module in MODULES {
        failures.extend(module_is_the_same(place, &python, module)?);
    }
    Ok(failures)
}

/// A Python that has its own tests.
fn interpreter() -> Option<PathBuf> {
    let has_tests = |python: &Path| {
        let asked = Command::new(python).args(["-c", "import sys, test.test_socket; print(sys.executable)"]).output();
        let said = String::from_utf8(asked.ok().filter(|output| output.status.success())?.stdout).ok()?;
        Some(PathBuf::from(said.trim()))
    };
    let debians = Path::new("/usr/bin/python3");
    has_tests(Path::new("python3")).or_else(|| has_tests(debians)).or_else(|| {
        let marker = "/usr/share/doc/libpython3-testsuite";
        debian(marker, &["python3", "libpython3-testsuite"]).then(|| has_tests(debians)).flatten()
    })
}

/// Runs a module in every way; the tests that come out differently each time.
fn module_is_the_same(place: &mut Place, python: &Path, module: &str) -> Result<Vec<String>, String> {
    let mut failures = Vec::new();
    let kernel = once(place, python, module, Mode::Kernel)?;
    for mode in [Mode::Tracking, Mode::Rings] {
        let seen = once(place, python, module, mode)?;
        let mut different = differences(&kernel.results, &seen.results);
        for _ in 1..TIMES {
            if different.is_empty() {
                break;
            }
            let (kernel, again) = (once(place, python, module, Mode::Kernel)?, once(place, python, module, mode)?);
            let still = differences(&kernel.results, &again.results);
            different.retain(|test, _| still.contains_key(test));
        }
        let count = |what: &str| seen.results.values().filter(|result| **result == what).count();
        place.tell(&format!(
            "  {module}, {}: {} ok, {} skipped, {} not ok, {} different from the kernel's; {}",
            mode.name(),
            count("ok"),
            count("skipped"),
            seen.results.len() - count("ok") - count("skipped"),
            different.len(),
            seen.rings
        ));
        failures.extend(different.iter().map(|(test, how)| format!("{module}, {}: {test}: {how}", mode.name())));
        if seen.results.is_empty() {
            failures.push(format!("{module}, {}: no test has run", mode.name()));
        }
    }
    Ok(failures)
}

struct Run {
    results: BTreeMap<String, &'static str>,
    /// What went through rings.
    rings: String,
}

fn once(place: &Place, python: &Path, module: &str, mode: Mode) -> Result<Run, String> {
    let name = format!("python-{module}-{}", mode.name());
    let xml = place.at.join("log").join(format!("{name}.xml"));
    // Of an earlier run; there may be none.
    let _ = std::fs::remove_file(&xml);
    // Sockets of virtual machines hang where there is no other end.
    let line = format!(
        "ip link set lo up || exit 1; $ON {} -m test -v -u network --timeout 300 -i '*VSOCK*' --junit-xml {} {module}; $PULC sockets | grep '^so far'",
        python.display(),
        xml.display()
    );
    // Whether tests fail is told by their results, which are compared.
    let (_, text, _) = place.kept(&name, &mut isolated(place, mode, &line), LIMIT);
    let results = std::fs::read_to_string(&xml).map(|xml| results(&xml)).unwrap_or_default();
    Ok(Run { results, rings: without_rings(&text).0 })
}

/// Tests and how they ended, from what `--junit-xml` has written.
fn results(xml: &str) -> BTreeMap<String, &'static str> {
    let mut results = BTreeMap::new();
    for case in xml.split("<testcase ").skip(1) {
        let Some(name) = case.split_once("name=\"").and_then(|(_, rest)| rest.split('"').next()) else { continue };
        let ends = [("<failure", "failed"), ("<error", "failed"), ("<skipped", "skipped")];
        let ended = ends.iter().find(|(mark, _)| case.contains(mark)).map_or("ok", |(_, ended)| *ended);
        // Of a test with parts one that failed counts.
        let known = results.entry(name.to_owned()).or_insert(ended);
        if ended == "failed" {
            *known = ended;
        }
    }
    results
}

fn differences(kernel: &BTreeMap<String, &str>, other: &BTreeMap<String, &str>) -> BTreeMap<String, String> {
    let missing = "did not run";
    let names = kernel.keys().chain(other.keys());
    let both = names.map(|name| {
        let [one, two] = [kernel, other].map(|results| results.get(name).copied().unwrap_or(missing));
        (name, one, two)
    });
    both.filter(|(_, one, two)| one != two)
        .map(|(name, one, two)| (name.clone(), format!("{one} on the kernel, {two} here")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<testsuites tests="3"><testsuite start="x">
        <testcase name="test.a.T.test_one" status="run" result="completed" time="0.1"><system-out /></testcase>
        <testcase name="test.a.T.test_two" status="run" result="completed" time="0.1"><failure message="no" /></testcase>
        <testcase name="test.a.T.test_three" status="skipped" result="skipped"><skipped>why</skipped></testcase>
        </testsuite></testsuites>"#;

    #[test]
    fn results_are_read_and_what_differs_is_named() {
        let kernel = results(XML);
        let ends: Vec<_> = kernel.values().copied().collect();
        assert_eq!(ends, ["ok", "skipped", "failed"]);
        assert!(differences(&kernel, &kernel).is_empty());
        let mut other = kernel.clone();
        other.insert("test.a.T.test_one".to_owned(), "failed");
        other.remove("test.a.T.test_two");
        let different = differences(&kernel, &other);
        assert_eq!(different["test.a.T.test_one"], "ok on the kernel, failed here");
        assert_eq!(different["test.a.T.test_two"], "failed on the kernel, did not run here");
        assert_eq!(different.len(), 2);
    }

    #[test]
    fn what_went_through_rings_is_told_apart() {
        let text = "one\nso far 12 bytes of 1 connections went through rings\ntwo";
        let (rings, rest) = without_rings(text);
        assert!(rings.starts_with("so far 12"));
        assert_eq!(rest, "one\ntwo");
    }
}
