//! The C door seen from outside: builds `libpulc.so`, compiles the C examples against the public header and runs each of
//! them under `pulc run`. Called by `test` and `ci`.

use crate::steps::{self, Outcome, Scratch};
use crate::tidy::symbols;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const HEADER_DIR: &str = "abi/include";
const EXAMPLES_DIR: &str = "examples/c";
const BUILD: Duration = Duration::from_secs(600);
const RUN: Duration = Duration::from_secs(60);

/// Builds with the quick profile, compares the exported names, compiles and runs every example with two ranks of one node and of two.
pub fn test(root: &Path) -> Outcome {
    steps::run(&mut steps::cargo(root, &["build", "-q", "-p", "pulc-c-abi", "-p", "pulc-cli"]), BUILD)?;
    let built = root.join("target/debug");
    let findings = symbols::NATIVE.check(root, &built.join("libpulc_c.so"))?;
    if !findings.is_empty() {
        return Err(findings.iter().map(|finding| format!("\n  {finding}")).collect());
    }
    let scratch = Scratch::new("c")?;
    link_library(&built.join("libpulc_c.so"), scratch.path())?;
    for program in compile(root, &root.join(HEADER_DIR), scratch.path(), scratch.path())? {
        for nodes in ["1", "2"] {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            println!("{name} with 2 ranks, nodes: {nodes}");
            let mut pulc = Command::new(built.join("pulc"));
            pulc.args(["run", "-n", "2", "--nodes", nodes]).arg(&program).env("LD_LIBRARY_PATH", scratch.path());
            steps::run(&mut pulc, RUN)?;
        }
    }
    Ok(())
}

/// Compiles every example against `include` and `lib`; returns the programs.
pub fn compile(root: &Path, include: &Path, lib: &Path, into: &Path) -> Result<Vec<PathBuf>, String> {
    let examples = root.join(EXAMPLES_DIR);
    let entries = std::fs::read_dir(&examples).map_err(|error| format!("cannot read {EXAMPLES_DIR}: {error}"))?;
    let mut sources: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.sort();
    if sources.is_empty() {
        return Err(format!("there is no C example in {EXAMPLES_DIR}"));
    }
    let mut programs = Vec::new();
    for source in sources {
        let program = into.join(source.file_stem().unwrap_or_default());
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(include);
        cc.arg(&source).arg("-o").arg(&program).arg("-L").arg(lib).arg("-lpulc");
        steps::run(&mut cc, RUN)?;
        programs.push(program);
    }
    Ok(programs)
}

/// Lays `library` into `dir` under the names that the linker and the loader look for.
fn link_library(library: &Path, dir: &Path) -> Outcome {
    for name in ["libpulc.so", "libpulc.so.0"] {
        std::os::unix::fs::symlink(library, dir.join(name)).map_err(|error| format!("cannot link {name}: {error}"))?;
    }
    Ok(())
}
