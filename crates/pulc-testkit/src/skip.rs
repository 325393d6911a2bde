//! Tests that cannot run here, and tests that may run longer. Called by tests of any crate; `cargo xtask test` counts the
//! skipped ones and shows why.

use std::io::Write;

/// Names the file to which skipped tests are written; set by `cargo xtask test`.
const SKIPS: &str = "PULC_TEST_SKIPS";
/// Asks for more seeds and rounds; set by `cargo xtask test --full`.
const FULL: &str = "PULC_TEST_FULL";

/// Says that `test` does not run here, and why. The test returns after it.
pub fn skipped(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    eprint!("skipped {line}");
    if let Some(path) = std::env::var_os(SKIPS) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        // One write, so that lines of tests that run at the same time do not mix.
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of skipped tests can be written");
    }
}

/// `quick` in an ordinary run, `full` under `cargo xtask test --full`.
pub fn rounds(quick: u32, full: u32) -> u32 {
    if std::env::var_os(FULL).is_some() { full } else { quick }
}
