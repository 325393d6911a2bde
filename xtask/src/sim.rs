//! `cargo xtask sim`: the parts without I/O on clusters that no machine here could hold: what the controller costs and what membership says and
//! believes with a thousand and with ten thousand nodes. Called by `main`; what it prints is kept under bench/records/.

use crate::record;
use crate::steps::{self, Outcome, cargo};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(40 * 60);

/// What is run. Only what measures time needs the release profile.
const PARTS: [&[&str]; 2] = [
    &["test", "-q", "--release", "-p", "pulc-sched", "--test", "simulation", "scale", "--", "--ignored", "--nocapture"],
    &["test", "-q", "-p", "pulc-psid", "--lib", "membership::scale", "--", "--ignored", "--nocapture"],
];

pub fn run(root: &Path) -> Outcome {
    let mut text = String::new();
    for words in PARTS {
        steps::run_lines(&mut cargo(root, words), LIMIT, |line| {
            println!("{line}");
            // Not what the test harness says of itself.
            if !line.is_empty() && !line.starts_with("running ") && !line.starts_with("test result") && line != "." {
                text += line;
                text.push('\n');
            }
        })?;
    }
    record::write(root, "sim", &format!("\n{text}"))
}
