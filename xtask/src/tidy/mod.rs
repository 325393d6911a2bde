//! `cargo xtask tidy`: the house rules that a machine can check, each in its own room. Reads the working tree, changes
//! nothing. Every finding names the file, the line where there is one, and what to do.

mod documents;
mod source;
mod staircase;
pub mod symbols;

use std::fmt;
use std::path::{Path, PathBuf};

/// One breach of a house rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: PathBuf,
    /// 0 when the whole file is meant.
    pub line: usize,
    pub text: String,
}

impl Finding {
    pub fn new(path: impl Into<PathBuf>, line: usize, text: impl Into<String>) -> Finding {
        Finding { path: path.into(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.text),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.text),
        }
    }
}

/// A file of the tree: path from the root, and its text (empty where it is not UTF-8).
pub struct File {
    pub path: PathBuf,
    pub text: String,
}

impl File {
    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }
}

pub fn run(root: &Path) -> Result<(), String> {
    let mut findings = check(root)?;
    findings.extend(crate::mpi::check(root));
    for promise in &symbols::PROMISES {
        if let Some(library) = promise.newest(root) {
            findings.extend(promise.check(root, &library)?);
        }
    }
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} breaches of the house rules")),
    }
}

/// Everything that needs no build.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut files = Vec::new();
    read(root, Path::new(""), &mut files).map_err(|error| format!("cannot read the tree: {error}"))?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut findings = staircase::check(&files);
    findings.extend(source::check(&files));
    findings.extend(documents::check(root, &files));
    findings.sort();
    Ok(findings)
}

/// Directories that hold what was built or belongs to tools.
const PASSED_OVER: &[&str] = &["target", "dist", "out", ".git", "__pycache__"];

fn read(root: &Path, at: &Path, files: &mut Vec<File>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(at))? {
        let entry = entry?;
        let (path, name) = (at.join(entry.file_name()), entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() && !PASSED_OVER.iter().any(|passed| name == *passed) {
            read(root, &path, files)?;
        } else if kind.is_file() {
            let text = String::from_utf8(std::fs::read(root.join(&path))?).unwrap_or_default();
            files.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Scratch;

    #[test]
    fn faults_planted_in_a_tree_are_found_and_what_was_built_is_passed_over() {
        let scratch = Scratch::new("tidy").unwrap();
        let plant = |path: &str, text: &str| {
            let path = scratch.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        plant("target/debug/build/out.rs", "fn built() {}");
        plant(
            "crates/pulc-base/Cargo.toml",
            "[package]\nname = \"pulc-base\"\n[dependencies]\npulc-hal.path = \"..\"\n",
        );
        plant("crates/pulc-base/src/lib.rs", "//! Room.\n#![forbid(unsafe_code)]\nfn f() { unsafe {} }\n");
        let found: Vec<String> = check(scratch.path()).unwrap().iter().map(|finding| finding.to_string()).collect();
        let has = |text: &str| found.iter().any(|finding| finding.contains(text));
        assert!(has("crates/pulc-base/Cargo.toml:4: pulc-base may not name pulc-hal"), "{found:?}");
        assert!(has("crates/pulc-base/src/lib.rs:3: `unsafe` may stand only in"), "{found:?}");
        assert!(has("crates/pulc-base/README.md: is missing"), "{found:?}");
        assert!(has("LICENSE-MIT: is missing"), "{found:?}");
        assert!(!has("target/"), "{found:?}");
    }
}
