//! `cargo xtask test` and `cargo xtask ci`: every check in order, each with a time limit, then one table. A failed step
//! does not stop the next ones. A test that fails is run once more, alone: one that passes then is called unsteady and named,
//! and fails nothing but `test --full`. `test --full` asks the suites for more (the environment says `PULC_TEST_FULL=1`) and
//! writes a dated record of what ran, what was counted, what was skipped and why.

use crate::cargo_tests::Results;
use crate::skips::{self, Skips};
use crate::steps::{self, Outcome, Report, Scratch, cargo};
use crate::{bench, c_door, chaos, dist, foreign, fuzz, mpi_door, mpi_random, python, record, sanitize, tidy};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Asks test suites for more seeds and rounds; read by `pulc_testkit::full`.
const FULL_VARIABLE: &str = "PULC_TEST_FULL";

/// Pieces of the long run, in the order in which they are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Part {
    /// All checks of the short run, with more seeds and rounds
    Suites,
    /// What starts the real `pulc`, as a user who may do nothing special
    Unprivileged,
    /// Every fuzz target for a minute
    Fuzz,
    /// The tests of hostile ranks with the address sanitizer
    Sanitizer,
    /// Other people's programs
    Foreign,
    /// A cluster under work while everything breaks that can
    Chaos,
    /// What `pulc bench` measures
    Figures,
}

pub fn test(root: &Path, full: bool, parts: &[Part]) -> Outcome {
    let mut report = Report::new();
    let mut counts = String::new();
    if !full {
        steps_of_test(root, false, &mut report, &mut counts);
        return report.finish();
    }
    let has = |part| parts.is_empty() || parts.contains(&part);
    if has(Part::Suites) {
        steps_of_test(root, true, &mut report, &mut counts);
    }
    if has(Part::Unprivileged) {
        report.step("as a user without privileges", || unprivileged(root, &mut counts));
    }
    if has(Part::Fuzz) {
        match fuzz::is_there(root) {
            true => report.step("fuzz", || fuzz::run(root, &fuzz::Arguments::each(60))),
            false => counts
                .push_str("fuzz: skipped, there is no nightly compiler with cargo-fuzz; the corpora were replayed\n\n"),
        }
    }
    if has(Part::Sanitizer) {
        match sanitize::is_there(root) {
            true => report.step("address sanitizer", || sanitize::step(root, &mut counts)),
            false => counts.push_str("address sanitizer: skipped, there is no nightly compiler\n\n"),
        }
    }
    if has(Part::Foreign) {
        report.step("foreign programs", || foreign::run(root, &foreign::Arguments::all()));
    }
    if has(Part::Chaos) {
        report.step("chaos", || chaos::run(root, &chaos::Arguments::full()));
    }
    if has(Part::Figures) {
        for (name, arguments) in FIGURES {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            report.step(&format!("bench {name}"), || bench::bench(root, &arguments));
        }
    }
    let names = parts.iter().map(|part| format!("-{part:?}").to_lowercase());
    record::write(
        root,
        &format!("test-full{}", names.collect::<String>()),
        &format!("\n{}\n{counts}", report.table()),
    )?;
    report.finish()
}

/// What `test --full` measures; each has a record of its own.
const FIGURES: [(&str, &[&str]); 3] = [("layers", &["layers", "--json"]), ("start", &["start"]), ("idle", &["idle"])];

pub fn ci(root: &Path) -> Outcome {
    let mut report = Report::new();
    steps_of_test(root, false, &mut report, &mut String::new());
    report.step("dist", || dist::run(root));
    report.step("dist from another directory", || dist::smoke(root));
    report.step("demo", || demo(root));
    report.finish()
}

/// With mpi4py at hand, so that the plate in Python is among what has to be the same.
fn demo(root: &Path) -> Outcome {
    let venv = root.join("target/python");
    python::environment(&venv, &[&format!("mpi4py=={}", python::MPI4PY), "numpy"])?;
    let before = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([venv.join("bin")].into_iter().chain(std::env::split_paths(&before)));
    let mut demo = Command::new(root.join("dist/bin/pulc"));
    let scratch = Scratch::new("demo")?;
    demo.env("PATH", path.map_err(|error| format!("PATH cannot be extended: {error}"))?);
    steps::run(demo.args(["demo", "--quick"]).current_dir(scratch.path()), 5 * MINUTE)
}

fn steps_of_test(root: &Path, full: bool, report: &mut Report, counts: &mut String) {
    report.step("format", || steps::run(&mut cargo(root, &["fmt", "--all", "--", "--check"]), MINUTE));
    report.step("tidy", || tidy::run(root));
    report.step("clippy", || {
        let arguments = ["clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"];
        steps::run(&mut cargo(root, &arguments), 10 * MINUTE)
    });
    report.step("tests", || suites(root, full, counts));
    report.step("loom", || loom(root));
    report.step("C example", || c_door::test(root));
    report.step("MPI doors", || mpi_door::test(root));
    report.step("random MPI programs", || mpi_random::test(root, full));
}

/// loom replaces atomics and threads, so it has a build tree of its own.
pub fn loom(root: &Path) -> Outcome {
    let crates = ["-p", "pulc-hal", "-p", "pulc-sockets"];
    let mut models = cargo(root, &["test", "-q", "--release", "--lib", "--target-dir", "target/loom"]);
    models.args(crates).arg("models");
    models.env("RUSTFLAGS", "--cfg loom");
    steps::run(&mut models, 10 * MINUTE)
}

/// All suites and the documentation's examples. Programs that the suites start and the library that they load are built
/// first.
fn suites(root: &Path, full: bool, counts: &mut String) -> Outcome {
    steps::run(&mut cargo(root, &["build", "-q", "--workspace"]), 15 * MINUTE)?;
    let scratch = Scratch::new("tests")?;
    let skips = Skips::new(scratch.path());
    let mut results = Results::default();
    let mut tests = cargo(root, &["test", "--workspace", "--no-fail-fast", "--color", "never"]);
    tests.env(skips::VARIABLE, skips.path()).env("RUST_BACKTRACE", "1");
    if full {
        tests.env(FULL_VARIABLE, "1");
    }
    let limit = if full { 60 * MINUTE } else { 30 * MINUTE };
    let outcome = watch(&mut tests, limit, &mut results);
    tell("the whole workspace", &results, &skips, counts);
    match outcome {
        Err(why) if !full && results.is_complete() && !results.failed.is_empty() => again(root, &results, why),
        outcome => outcome,
    }
}

/// Runs what failed once more, with nothing beside it, so that chance and defect are told apart.
fn again(root: &Path, results: &Results, why: String) -> Outcome {
    println!("once more, each alone: {}", results.failed.join(", "));
    let mut tests = cargo(root, &["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]);
    tests.args(["--color", "never", "--", "--test-threads", "1", "--exact"]).args(results.names_of_failed());
    let mut second = Results::default();
    match watch(&mut tests, 10 * MINUTE, &mut second) {
        // An example of the documentation is not among them.
        Ok(()) if second.passed() as usize >= results.failed.len() => {
            results.failed.iter().for_each(|line| println!("UNSTEADY  {line} (failed, then passed alone)"));
            Ok(())
        }
        _ => Err(why),
    }
}

/// Runs tests and shows what is not simply well.
fn watch(tests: &mut Command, limit: Duration, results: &mut Results) -> Outcome {
    steps::run_lines(tests, limit, |line| {
        results.line(line);
        if !line.starts_with("test ") || !line.ends_with(" ... ok") {
            println!("{line}");
        }
    })
}

/// Prints and keeps what was counted, and what was skipped and why.
fn tell(what: &str, results: &Results, skips: &Skips, counts: &mut String) {
    let skipped = [skips.read(), results.ignored.clone()].concat();
    let mut text = format!("{what}\n{}", results.table());
    text += &format!("{} skipped{}\n", skipped.len(), if skipped.is_empty() { "" } else { ":" });
    skipped.iter().for_each(|line| text += &format!("  {line}\n"));
    results.failed.iter().for_each(|line| text += &format!("FAILED  {line}\n"));
    println!("\n{text}");
    counts.push_str(&text);
    counts.push('\n');
}

/// The suites that start the real `pulc`, once more as a user who may do nothing special: no root, no cgroup, network
/// namespaces only inside of user namespaces. Root becomes that user; anybody else has been it all the time.
fn unprivileged(root: &Path, counts: &mut String) -> Outcome {
    const NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    if !rustix::process::geteuid().is_root() {
        counts.push_str("as a user without privileges: all of the above was\n\n");
        return Ok(());
    }
    let scratch = Scratch::new("unprivileged")?;
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())
    };
    let skips = Skips::new(scratch.path());
    std::fs::write(skips.path(), "").map_err(|error| error.to_string())?;
    open(scratch.path(), 0o777)?;
    open(skips.path(), 0o666)?;
    let reach = Command::new("setpriv").args(NOBODY).args(["test", "-x"]).arg(root.join("target/debug/pulc")).status();
    if !reach.is_ok_and(|status| status.success()) {
        counts.push_str(
            "as a user without privileges: skipped, there is no setpriv or that user cannot read this tree\n\n",
        );
        return Ok(());
    }
    let mut tests = cargo(root, &["test", "-p", "pulc-cli", "--test", "jobs", "--test", "cluster"]);
    tests.args(["--test", "cluster_jobs", "--no-fail-fast", "--color", "never"]);
    let runner = format!("setpriv {}", NOBODY.join(" "));
    tests.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", runner).env(skips::VARIABLE, skips.path());
    let mut results = Results::default();
    let outcome = watch(&mut tests, 8 * MINUTE, &mut results);
    tell("as a user without privileges", &results, &skips, counts);
    outcome
}
