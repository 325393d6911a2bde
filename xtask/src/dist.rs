//! `cargo xtask dist`: the relocatable tree `dist/` with everything a machine needs, built with the `dist` profile (one
//! staircase, inlined from top to bottom). Nothing in it knows where it was built.

use crate::steps::{self, Outcome, Scratch};
use crate::tidy::symbols;
use crate::{c_door, mpi};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BUILD: Duration = Duration::from_secs(2400);
const RUN: Duration = Duration::from_secs(120);
pub const LIBRARY: &str = "libpulc.so.0";
const MPICH_LIBRARY: &str = "libmpi.so.12";
const MPI_ABI_LIBRARY: &str = "libmpi_abi.so.1";
const ALLOCATOR: &str = "libpulc_alloc.so";
const SOCKETS: &str = "libpulc_sockets.so";

pub fn run(root: &Path) -> Outcome {
    let packages = [
        "pulc-cli",
        "pulc-c-abi",
        "pulc-alloc-preload",
        "pulc-sockets-preload",
        "pulc-heat",
        "pulc-mpich-abi",
        "pulc-mpi-abi",
    ];
    let packages = packages.map(|name| ["-p", name]).concat();
    let arguments = [["build", "--quiet", "--profile", "dist"].as_slice(), &packages].concat();
    steps::run(&mut steps::cargo(root, &arguments), BUILD)?;
    let (built, dist) = (root.join("target/dist"), root.join("dist"));
    if dist.exists() {
        std::fs::remove_dir_all(&dist).map_err(|error| format!("cannot remove the old dist/: {error}"))?;
    }
    copy(&built.join("pulc"), &dist.join("bin/pulc"))?;
    copy(&built.join("heat"), &dist.join("bin/heat"))?;
    copy(&built.join("libpulc_c.so"), &dist.join("lib").join(LIBRARY))?;
    copy(&built.join(ALLOCATOR), &dist.join("lib").join(ALLOCATOR))?;
    copy(&built.join(SOCKETS), &dist.join("lib").join(SOCKETS))?;
    link(LIBRARY, &dist.join("lib/libpulc.so"))?;
    mpi_parts(root, &built, &dist)?;
    copy_dir(&root.join(c_door::HEADER_DIR), &dist.join("include"))?;
    copy_dir(&root.join("share"), &dist.join("share"))?;
    for paper in ["LICENSE-MIT", "LICENSE-APACHE", "CAVEATS.md"] {
        copy(&root.join(paper), &dist.join("share/doc/pulc").join(paper))?;
    }
    generate(&dist)?;
    mpi::man_pages(&dist.join("share/man/man3"))?;
    for (library, promise) in [
        (LIBRARY, symbols::NATIVE),
        (ALLOCATOR, symbols::ALLOC),
        (SOCKETS, symbols::SOCKETS),
        (MPICH_LIBRARY, symbols::MPICH),
        (MPI_ABI_LIBRARY, symbols::MPI_ABI),
    ] {
        soname(&dist, library)?;
        let findings = promise.check(root, &dist.join("lib").join(library))?;
        if !findings.is_empty() {
            return Err(findings.iter().map(|finding| format!("\n  {finding}")).collect());
        }
    }
    println!("built {}", dist.display());
    Ok(())
}

/// Our MPI: libraries under the names that programs ask for, headers of both binary interfaces, compilers' wrappers, and the names
/// that people start programs with.
fn mpi_parts(root: &Path, built: &Path, dist: &Path) -> Outcome {
    let lib = dist.join("lib");
    copy(&built.join("libpulc_mpich.so"), &lib.join(MPICH_LIBRARY))?;
    copy(&built.join("libpulc_mpi_abi.so"), &lib.join(MPI_ABI_LIBRARY))?;
    for (target, name) in [
        (MPICH_LIBRARY, "libmpi.so"),
        // Debian's name for it.
        (MPICH_LIBRARY, "libmpich.so.12"),
        (MPI_ABI_LIBRARY, "libmpi_abi.so"),
    ] {
        link(target, &lib.join(name))?;
    }
    copy_dir(&root.join("abi/mpi/include"), &dist.join("include"))?;
    copy(&root.join("abi/mpi/mpicc"), &dist.join("bin/mpicc"))?;
    for name in ["mpicxx", "mpic++", "mpicc_abi", "mpicxx_abi"] {
        link("mpicc", &dist.join("bin").join(name))?;
    }
    // The last ones are names of another queue, for those whose fingers know it.
    for name in ["mpiexec", "mpirun", "srun", "sbatch", "squeue", "scancel", "sinfo", "sacct", "salloc"] {
        link("pulc", &dist.join("bin").join(name))?;
    }
    heat_over_mpi(root, dist)
}

/// The demo's application over MPI: in C, compiled by our own wrapper, and in Python.
fn heat_over_mpi(root: &Path, dist: &Path) -> Outcome {
    let (examples, program) = (root.join("examples/mpi"), dist.join("bin/heat-mpi"));
    let mut cc = Command::new(dist.join("bin/mpicc"));
    // Relocatable; and every cell by the same operations as elsewhere, none of them fused.
    cc.args(["-std=c11", "-O2", "-ffp-contract=off", "-Wl,-rpath,$ORIGIN/../lib"]).arg(examples.join("heat.c"));
    steps::run(cc.arg("-o").arg(&program).arg("-lm"), RUN)?;
    copy(&examples.join("heat.py"), &dist.join("share/pulc/heat.py"))
}

fn link(target: &str, at: &Path) -> Outcome {
    std::os::unix::fs::symlink(target, at).map_err(|error| format!("cannot link {}: {error}", at.display()))
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

/// Programs that were linked against a library of ours must ask for its versioned name.
fn soname(dist: &Path, library: &str) -> Outcome {
    let dynamic = steps::output(Command::new("readelf").arg("--dynamic").arg(dist.join("lib").join(library)))?;
    let wanted = format!("Library soname: [{library}]");
    if dynamic.contains(&wanted) { Ok(()) } else { Err(format!("lib/{library} does not call itself {library}")) }
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
    let maps = steps::output(pulc().args(["run", "-n", "2", "--alloc", "grep", "-c", ALLOCATOR, "/proc/self/maps"]))?;
    if maps.lines().count() != 2 {
        return Err(format!("`pulc run --alloc` did not put {ALLOCATOR} before its program: {maps:?}"));
    }
    let maps = steps::output(pulc().args(["bypass", "grep", "-c", SOCKETS, "/proc/self/maps"]))?;
    if maps.trim().parse::<u32>().unwrap_or(0) == 0 {
        return Err(format!("`pulc bypass` did not put {SOCKETS} before its program: {maps:?}"));
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
