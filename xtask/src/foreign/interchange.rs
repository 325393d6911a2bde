//! Programs go back and forth between PULC and the reference implementation without being compiled again: what its compilers made runs
//! here, what ours made runs there, on either binary interface, with an old-style search path, under its launcher, and below an
//! existing profiling tool; and our headers say what its headers say. Called by `foreign`.

use super::{Place, all_well, debian};
use crate::mpi_door;
use crate::steps::{self, Outcome, Scratch};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const RUN: Duration = Duration::from_secs(120);
const SOURCES: [&str; 2] = ["ring", "callbacks"];
const VERSION: &str = "examples/mpi/version.c";

pub fn run(root: &Path, place: &mut Place) -> Outcome {
    let mpich = place.mpich()?;
    let mut failures = Vec::new();
    for source in SOURCES {
        let source = root.join("examples/mpi").join(format!("{source}.c"));
        for compiler in ["mpicc", "mpicc_abi"] {
            let theirs = compiled(place, &mpich.join("bin").join(compiler), &source, "theirs", &[])?;
            failures.extend(ran("built by MPICH, on PULC", place.mpiexec().args(["-n", "3"]).arg(&theirs)));
            let ours = compiled(place, &place.tree.join("bin").join(compiler), &source, "ours", &[])?;
            let mut there = Command::new(mpich.join("bin/mpiexec"));
            there.env("LD_LIBRARY_PATH", mpich.join("lib")).args(["-n", "3"]).arg(&ours);
            failures.extend(ran("built by PULC, on MPICH", &mut there));
            let mut hydra = Command::new(mpich.join("bin/mpiexec"));
            hydra.env("LD_LIBRARY_PATH", place.tree.join("lib")).args(["-n", "3"]).arg(&theirs);
            failures.extend(ran("on PULC, under MPICH's launcher", &mut hydra));
        }
    }
    failures.extend(which_library(root, place, &mpich)?);
    failures.extend(below_a_tool(root, place)?);
    let scratch = Scratch::new("mpi-headers")?;
    match mpi_door::headers_of(root, scratch.path(), &mpich.join("include"))? {
        2 => place.tell("values, layouts and prototypes of both headers are those of MPICH's"),
        found => failures.push(format!("{found} of MPICH's two headers are there to compare ours with")),
    }
    place.tell(&format!("programs between PULC and MPICH: {} failed", failures.len()));
    all_well(failures)
}

fn compiled(place: &Place, compiler: &Path, source: &Path, whose: &str, more: &[&str]) -> Result<PathBuf, String> {
    let names = [source.file_stem(), compiler.file_name()].map(|name| name.unwrap_or_default().to_string_lossy());
    let program = place.at.join(format!("{}-{}-{whose}", names[0], names[1]));
    steps::run(Command::new(compiler).args(["-O1", "-w"]).arg(source).args(more).arg("-o").arg(&program), RUN)?;
    Ok(program)
}

fn ran(what: &str, command: &mut Command) -> Option<String> {
    steps::run(command, RUN).err().map(|why| format!("{what}: {why}"))
}

/// A program whose own old-style search path names MPICH gets ours all the same, and its own where `--mpi=native` says so.
fn which_library(root: &Path, place: &Place, mpich: &Path) -> Result<Vec<String>, String> {
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", mpich.join("lib").display());
    let compiler = mpich.join("bin/mpicc");
    let program = compiled(place, &compiler, &root.join(VERSION), "rpath", &[&rpath])?;
    let mut failures = Vec::new();
    for (flag, wanted) in [("--mpi=pulc", "rank 1 of 2: PULC"), ("--mpi=native", "rank 1 of 2: MPICH")] {
        let output = steps::output(place.mpiexec().args([flag, "-n", "2"]).arg(&program))?;
        if !output.contains(wanted) {
            failures.push(format!("{flag} with a search path of the program's own: {output:?} lacks {wanted:?}"));
        }
    }
    // Under the other launcher, without any daemon of ours.
    let mut hydra = Command::new(mpich.join("bin/mpiexec"));
    hydra.env("LD_PRELOAD", place.tree.join("lib/libmpi.so.12")).args(["-n", "2"]).arg(&program);
    let output = steps::output(&mut hydra)?;
    if !output.contains("rank 1 of 2: PULC") {
        failures.push(format!("under MPICH's launcher: {output:?} does not tell of two ranks on PULC"));
    }
    Ok(failures)
}

/// EZTrace's library stands between a program and ours: the trace tells the program's calls.
fn below_a_tool(root: &Path, place: &mut Place) -> Result<Vec<String>, String> {
    let there =
        debian("/usr/bin/eztrace", &["eztrace", "libeztrace0"]) && debian("/usr/bin/otf2-print", &["otf2-tools"]);
    if !there {
        place.tell("skipped: a tool between program and library, install eztrace libeztrace0 otf2-tools");
        return Ok(Vec::new());
    }
    let program = compiled(place, &place.tree.join("bin/mpicc"), &root.join("examples/mpi/ring.c"), "traced", &[])?;
    let traces = place.at.join("traces");
    let _ = std::fs::remove_dir_all(&traces);
    steps::run(place.mpiexec().args(["-n", "2", "eztrace", "-t", "mpich", "-o"]).arg(&traces).arg(&program), RUN)?;
    let trace = traces.join("ring-mpicc-traced_trace/eztrace_log.otf2");
    let told = steps::output(Command::new("otf2-print").arg(trace))?;
    let missing = ["MPI_Isend", "MPI_Sendrecv", "MPI_Waitall", "MPI_Allreduce", "MPI_Comm_split", "MPI_ISEND "];
    let missing = missing.iter().filter(|name| !told.contains(**name));
    Ok(missing.map(|name| format!("EZTrace's trace of ring.c lacks {name}")).collect())
}
