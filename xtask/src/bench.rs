//! `cargo xtask demo` and `cargo xtask bench`: build `pulc` and run one of its commands on this terminal. The demo is built as a
//! newcomer would, quickly; what is measured is built as it is shipped.

use crate::steps::{self, Outcome};
use std::path::Path;
use std::time::Duration;

/// Demos and benchmarks are started by hand; the limit only ends what hangs.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

pub fn pulc(root: &Path, command: &str, arguments: &[String]) -> Outcome {
    let profile = if command == "bench" { "dist" } else { "release" };
    let mut cargo =
        steps::cargo(root, &["run", "--quiet", "--profile", profile, "-p", "pulc-cli", "--bin", "pulc", "--", command]);
    cargo.args(arguments);
    steps::run(&mut cargo, LIMIT)
}
