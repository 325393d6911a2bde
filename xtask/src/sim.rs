//! `cargo xtask sim`: the parts without I/O on clusters that no machine here could hold: what the controller costs, what membership says and
//! believes, and what a start on every node takes, with a thousand and with ten thousand nodes. Called by `main`; what it prints is kept
//! under bench/records/.

use crate::record;
use crate::steps::{self, Outcome, cargo};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(40 * 60);

/// What is run, optimised as it is shipped.
const PARTS: [&[&str]; 2] = [
    &[
        "test",
        "-q",
        "--profile",
        "dist",
        "-p",
        "pulc-sched",
        "--test",
        "simulation",
        "scale",
        "--",
        "--ignored",
        "--nocapture",
    ],
    &[
        "test",
        "-q",
        "--profile",
        "dist",
        "-p",
        "pulc-psid",
        "--lib",
        "scale",
        "--",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ],
];

/// But for what would only make the build longer: each part is one crate's.
const QUICK_BUILD: [(&str, &str); 3] = [
    ("CARGO_PROFILE_DIST_LTO", "off"),
    ("CARGO_PROFILE_DIST_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_DIST_INCREMENTAL", "true"),
];

pub fn run(root: &Path) -> Outcome {
    let mut text = String::new();
    for words in PARTS {
        steps::run_lines(cargo(root, words).envs(QUICK_BUILD), LIMIT, |line| {
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
