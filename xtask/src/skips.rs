//! Tests that cannot run here (no root, no second core, a tool missing) say so by appending a line `test: why` to the file
//! that the environment variable [`VARIABLE`] names (`pulc_testkit::skip` does it). Read after the tests, so that a skipped
//! test is counted and never silent.

use std::path::{Path, PathBuf};

pub const VARIABLE: &str = "PULC_TEST_SKIPS";

/// The file of one run.
pub struct Skips {
    path: PathBuf,
}

impl Skips {
    pub fn new(scratch: &Path) -> Skips {
        Skips { path: scratch.join("skipped-tests") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written, sorted, each line once.
    pub fn read(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_string).collect();
        lines.sort();
        lines.dedup();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Scratch;

    #[test]
    fn lines_are_sorted_and_counted_once_and_no_file_means_no_skips() {
        let scratch = Scratch::new("skips").unwrap();
        let skips = Skips::new(scratch.path());
        assert!(skips.read().is_empty());
        std::fs::write(skips.path(), "b: no root\na: one core\nb: no root\n").unwrap();
        assert_eq!(skips.read(), ["a: one core", "b: no root"]);
    }
}
