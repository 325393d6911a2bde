//! `cargo xtask demo` and `cargo xtask bench`: build `pulc` and run one of its commands on this terminal. The demo is built as a
//! newcomer would, quickly; what is measured is built as it is shipped, and its result is kept as a dated record.

use crate::record;
use crate::steps::{self, Outcome};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Demos and benchmarks are started by hand; the limit only ends what hangs.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

pub fn demo(root: &Path, arguments: &[String]) -> Outcome {
    steps::run(pulc(root, "release", "demo").args(arguments), LIMIT)
}

/// Runs `pulc bench …`, shows what it prints, and keeps it.
pub fn bench(root: &Path, arguments: &[String]) -> Outcome {
    // A question about the command is no measurement.
    let asks = |word: &String| ["-h", "--help", "help"].contains(&word.as_str());
    let name = arguments.iter().find(|word| !word.starts_with('-'));
    let (Some(name), false) = (name, arguments.iter().any(asks)) else {
        return steps::run(pulc(root, "dist", "bench").args(arguments), LIMIT);
    };
    let text = shown(pulc(root, "dist", "bench").args(arguments))?;
    record::write(root, name, &format!("# pulc bench {}\n{text}", arguments.join(" ")))
}

fn pulc(root: &Path, profile: &str, command: &str) -> std::process::Command {
    steps::cargo(root, &["run", "--quiet", "--profile", profile, "-p", "pulc-cli", "--bin", "pulc", "--", command])
}

/// Standard output of a command, which is also shown as it comes.
fn shown(command: &mut std::process::Command) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot run the benchmark: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut text = String::new();
    for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines()) {
        let line = line.map_err(failed)?;
        println!("{line}");
        text += &line;
        text.push('\n');
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(text) } else { Err(format!("the benchmark ended with {status}; no record was written")) }
}
