//! `cargo xtask dist`: the relocatable tree `dist/` with everything a machine needs, built with the `dist` profile (one
//! staircase, inlined from top to bottom). Nothing in it knows where it was built.

use crate::steps::{self, Outcome, Scratch};
use crate::tidy::symbols;
use crate::{c_door, mpi};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BUILD: Duration = Duration::from_secs(1200);
const RUN: Duration = Duration::from_secs(120);
pub const LIBRARY: &str = "libpulc.so.0";

pub fn run(root: &Path) -> Outcome {
    let packages = ["-p", "pulc-cli", "-p", "pulc-c-abi", "-p", "pulc-heat"];
    let arguments = [["build", "--quiet", "--profile", "dist"].as_slice(), &packages].concat();
    steps::run(&mut steps::cargo(root, &arguments), BUILD)?;
    let (built, dist) = (root.join("target/dist"), root.join("dist"));
    if dist.exists() {
        std::fs::remove_dir_all(&dist).map_err(|error| format!("cannot remove the old dist/: {error}"))?;
    }
    copy(&built.join("pulc"), &dist.join("bin/pulc"))?;
    copy(&built.join("heat"), &dist.join("bin/heat"))?;
    copy(&built.join("libpulc_c.so"), &dist.join("lib").join(LIBRARY))?;
    std::os::unix::fs::symlink(LIBRARY, dist.join("lib/libpulc.so"))
        .map_err(|error| format!("cannot link lib/libpulc.so: {error}"))?;
    copy_dir(&root.join(c_door::HEADER_DIR), &dist.join("include"))?;
    copy_dir(&root.join("share"), &dist.join("share"))?;
    for paper in ["LICENSE-MIT", "LICENSE-APACHE", "CAVEATS.md"] {
        copy(&root.join(paper), &dist.join("share/doc/pulc").join(paper))?;
    }
    generate(&dist)?;
    mpi::man_pages(&dist.join("share/man/man3"))?;
    soname(&dist)?;
    let findings = symbols::NATIVE.check(root, &dist.join("lib").join(LIBRARY))?;
    if !findings.is_empty() {
        return Err(findings.iter().map(|finding| format!("\n  {finding}")).collect());
    }
    println!("built {}", dist.display());
    Ok(())
}

/// Man pages and completions come from the command line's own definition.
fn generate(dist: &Path) -> Outcome {
    for (what, dir) in [("man", "share/man/man1"), ("completions", "share/completions")] {
        let dir = dist.join(dir);
        std::fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        steps::run(Command::new(dist.join("bin/pulc")).args(["generate", what]).arg(&dir), RUN)?;
    }
    Ok(())
}

/// Programs that were linked against `libpulc.so` must ask for its versioned name.
fn soname(dist: &Path) -> Outcome {
    let dynamic = steps::output(Command::new("readelf").arg("--dynamic").arg(dist.join("lib").join(LIBRARY)))?;
    let wanted = format!("Library soname: [{LIBRARY}]");
    if dynamic.contains(&wanted) { Ok(()) } else { Err(format!("lib/{LIBRARY} does not call itself {LIBRARY}")) }
}

/// Moves dist/ to a place that nothing knows of, and uses what it holds from a third directory.
pub fn smoke(root: &Path) -> Outcome {
    let scratch = Scratch::new("dist")?;
    let (elsewhere, work) = (scratch.path().join("some where/pulc"), scratch.path().join("work"));
    copy_dir(&root.join("dist"), &elsewhere)?;
    std::fs::create_dir_all(&work).map_err(|error| format!("cannot make {}: {error}", work.display()))?;
    let pulc = || {
        let mut command = Command::new(elsewhere.join("bin/pulc"));
        command.current_dir(&work).env_remove("LD_LIBRARY_PATH");
        command
    };
    steps::run(pulc().arg("--version"), RUN)?;
    let output = steps::output(pulc().args(["run", "-n", "4", "--label", "sh", "-c", "echo rank $PULC_RANK"]))?;
    for rank in 0..4 {
        if !output.contains(&format!("rank {rank}")) {
            return Err(format!("rank {rank} of `pulc run -n 4` did not write its line: {output:?}"));
        }
    }
    // `pulc run` finds lib/ beside itself: the program is started without any search path.
    for program in c_door::compile(root, &elsewhere.join("include"), &elsewhere.join("lib"), &work)? {
        steps::run(pulc().args(["run", "-n", "2"]).arg(&program), RUN)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Outcome {
    let dir = to.parent().expect("every target lies in a directory");
    std::fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let copied = std::fs::copy(from, to);
    copied.map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display())).map(|_| ())
}

fn copy_dir(from: &Path, to: &Path) -> Outcome {
    let entries = std::fs::read_dir(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
    std::fs::create_dir_all(to).map_err(|error| format!("cannot make {}: {error}", to.display()))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot read {}: {error}", from.display()))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|error| format!("cannot look at {}: {error}", source.display()))?;
        if kind.is_dir() {
            copy_dir(&source, &target)?;
        } else if kind.is_symlink() {
            let aim =
                std::fs::read_link(&source).map_err(|error| format!("cannot read {}: {error}", source.display()))?;
            let linked = std::os::unix::fs::symlink(aim, &target);
            linked.map_err(|error| format!("cannot link {}: {error}", target.display()))?;
        } else {
            copy(&source, &target)?;
        }
    }
    Ok(())
}
