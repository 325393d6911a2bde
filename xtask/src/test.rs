//! `cargo xtask test` and `cargo xtask ci`: every check in order, each with a time limit, then one table. A failed step
//! does not stop the next ones. `test --full` asks the suites for more (the environment says `PULC_TEST_FULL=1`) and writes
//! a dated record.

use crate::cargo_tests::Results;
use crate::skips::{self, Skips};
use crate::steps::{self, Outcome, Report, Scratch, cargo};
use crate::{c_door, dist, tidy};
use std::path::Path;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Asks test suites for more seeds and rounds; read by `pulc_testkit::full`.
const FULL_VARIABLE: &str = "PULC_TEST_FULL";

pub fn test(root: &Path, full: bool) -> Outcome {
    let mut report = Report::new();
    steps_of_test(root, full, &mut report);
    if full {
        report.step("bench", || record_figures(root));
        write_record(root, "test-full", &report.table())?;
    }
    report.finish()
}

pub fn ci(root: &Path) -> Outcome {
    let mut report = Report::new();
    steps_of_test(root, false, &mut report);
    report.step("dist", || dist::run(root));
    report.step("dist from another directory", || dist::smoke(root));
    report.step("demo", || {
        let mut demo = std::process::Command::new(root.join("dist/bin/pulc"));
        let scratch = Scratch::new("demo")?;
        steps::run(demo.args(["demo", "--quick"]).current_dir(scratch.path()), 5 * MINUTE)
    });
    report.finish()
}

fn steps_of_test(root: &Path, full: bool, report: &mut Report) {
    report.step("format", || steps::run(&mut cargo(root, &["fmt", "--all", "--", "--check"]), MINUTE));
    report.step("tidy", || tidy::run(root));
    report.step("clippy", || {
        let arguments = ["clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"];
        steps::run(&mut cargo(root, &arguments), 10 * MINUTE)
    });
    report.step("tests", || suites(root, full));
    report.step("loom", || loom(root));
    report.step("C example", || c_door::test(root));
}

/// loom replaces atomics and threads, so it has a build tree of its own.
pub fn loom(root: &Path) -> Outcome {
    let arguments = ["test", "-q", "--release", "-p", "pulc-hal", "--lib", "--target-dir", "target/loom", "models"];
    let mut models = cargo(root, &arguments);
    models.env("RUSTFLAGS", "--cfg loom");
    steps::run(&mut models, 10 * MINUTE)
}

/// All suites and the documentation's examples. Programs that the suites start and the library that they load are built
/// first.
fn suites(root: &Path, full: bool) -> Outcome {
    steps::run(&mut cargo(root, &["build", "-q", "--workspace"]), 15 * MINUTE)?;
    let scratch = Scratch::new("tests")?;
    let skips = Skips::new(scratch.path());
    let mut results = Results::default();
    let mut tests = cargo(root, &["test", "--workspace", "--no-fail-fast", "--color", "never"]);
    tests.env(skips::VARIABLE, skips.path()).env("RUST_BACKTRACE", "1");
    if full {
        tests.env(FULL_VARIABLE, "1");
    }
    let limit = if full { 240 * MINUTE } else { 15 * MINUTE };
    let outcome = steps::run_lines(&mut tests, limit, |line| {
        results.line(line);
        if !line.starts_with("test ") || !line.ends_with(" ... ok") {
            println!("{line}");
        }
    });
    println!("\n{}", results.table());
    let skipped = [skips.read(), results.ignored].concat();
    println!("{} skipped{}", skipped.len(), if skipped.is_empty() { "" } else { ":" });
    skipped.iter().for_each(|line| println!("  {line}"));
    results.failed.iter().for_each(|line| println!("FAILED  {line}"));
    outcome
}

fn record_figures(root: &Path) -> Outcome {
    let mut figures = String::new();
    let arguments =
        ["run", "-q", "--profile", "dist", "-p", "pulc-cli", "--bin", "pulc", "--", "bench", "layers", "--json"];
    figures += &steps::output(&mut cargo(root, &arguments))?;
    write_record(root, "layers", &figures)
}

/// bench/records/DATE-NAME.txt, headed by what it was measured on.
fn write_record(root: &Path, name: &str, text: &str) -> Outcome {
    let word = |program: &str, arguments: &[&str]| {
        let output = steps::output(std::process::Command::new(program).args(arguments).current_dir(root));
        output.map(|text| text.trim().to_string()).unwrap_or_else(|_| "unknown".into())
    };
    let date = word("date", &["-u", "+%Y-%m-%d"]);
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let head = format!(
        "# {name}, {date}, commit {}, {} cores of {}, Linux {}\n",
        word("git", &["describe", "--always", "--dirty"]),
        cores,
        model.trim_start_matches(['\t', ' ', ':']),
        word("uname", &["-r"]),
    );
    let dir = root.join("bench/records");
    let path = dir.join(format!("{date}-{name}.txt"));
    let written = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, head + text));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
