//! `cargo xtask sanitize`: the tests of ranks that break every rule once more, with the address sanitizer watching every load and store of the
//! ranks that they attack. Called by `main` and by `test --full`. Needs a nightly compiler, for this user; where there is none it says so.

use crate::cargo_tests::Results;
use crate::steps::{self, Outcome};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Everything is built once for it, in a tree of its own.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// What is run: arguments of `cargo test`, and the tests' common part of the name.
const RUNS: [(&[&str], &str); 2] = [
    (&["-p", "pulc-hal", "-p", "pulc-handler", "-p", "pulc", "--lib"], "hostile"),
    (&["-p", "pulc-cli", "--test", "jobs"], "safety"),
];

/// Returns the counts of what ran.
pub fn run(root: &Path) -> Result<String, String> {
    if !is_there(root) {
        return Err("needs a nightly compiler: `rustup toolchain install nightly --profile minimal`".to_owned());
    }
    let mut results = Results::default();
    for (arguments, name) in RUNS {
        let mut tests = cargo(root);
        tests.args(["test", "--target", TARGET, "--target-dir", "target/sanitize", "--color", "never"]);
        tests.args(arguments).args(["--", name]);
        // The tests look for what ranks do to each other's memory. What a process keeps until its end is no leak.
        tests.env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", "detect_leaks=0").env("RUST_BACKTRACE", "1");
        steps::run_lines(&mut tests, LIMIT, |line| {
            results.line(line);
            println!("{line}");
        })?;
    }
    if results.passed() == 0 {
        return Err("no test ran".to_owned());
    }
    Ok(results.table())
}

/// As a step of `test`.
pub fn step(root: &Path, counts: &mut String) -> Outcome {
    counts.push_str(&format!("with the address sanitizer\n{}\n", run(root)?));
    Ok(())
}

/// Whether there is such a compiler.
pub fn is_there(root: &Path) -> bool {
    let asked = cargo(root).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// The nightly cargo, whichever called us.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).arg("+nightly").env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}
