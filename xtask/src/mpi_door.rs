//! The MPI doors seen from outside: C programs compiled by `mpicc` and `mpicc_abi` and run under `mpiexec`, a profiling tool between a
//! program and the library, and the headers compared with those of a reference implementation where one is installed. Called by `test`;
//! builds with the quick profile.

use crate::steps::{self, Outcome, Scratch};
use crate::tidy::symbols;
use crate::{mpi_mistakes, mpi_seeing};
use pulc_mpi_table::Door;
use pulc_mpi_table::constants::{Constants, Value};
use pulc_mpi_table::functions::Functions;
use pulc_mpi_table::headers::prototype;
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const EXAMPLES: &str = "examples/mpi";
const BUILD: Duration = Duration::from_secs(900);
const RUN: Duration = Duration::from_secs(60);
/// Directories with `mpi.h` or `mpi_abi.h` of MPICH 5, separated by colons.
const REFERENCES: &str = "PULC_MPI_REFERENCES";

pub fn test(root: &Path) -> Outcome {
    let packages = ["build", "-q", "-p", "pulc-cli", "-p", "pulc-mpich-abi", "-p", "pulc-mpi-abi", "-p", "pulc-c-abi"];
    steps::run(&mut steps::cargo(root, &packages), BUILD)?;
    let built = root.join("target/debug");
    for promise in [symbols::MPICH, symbols::MPI_ABI] {
        let findings = promise.check(root, &built.join(promise.built))?;
        if !findings.is_empty() {
            return Err(findings.iter().map(|finding| format!("\n  {finding}")).collect());
        }
    }
    let scratch = Scratch::new("mpi")?;
    let tree = Tree::lay(root, &built, scratch.path())?;
    for compiler in ["mpicc", "mpicc_abi"] {
        for source in ["ring", "callbacks"] {
            let program = tree.compile(compiler, &root.join(EXAMPLES).join(format!("{source}.c")), &[], source)?;
            for ranks in ["1", "2", "3"] {
                println!("{source} by {compiler} with {ranks} ranks");
                steps::run(tree.mpiexec().args(["-n", ranks]).arg(&program), RUN)?;
            }
        }
        profile(root, &tree, compiler)?;
    }
    in_cpp(root, &tree)?;
    several_programs(root, &tree)?;
    short_lives(root, &tree)?;
    old_search_path(root, &tree)?;
    let mistakes = tree.compile("mpicc", &root.join(EXAMPLES).join("mistakes.c"), &[], "mistakes")?;
    mpi_mistakes::test(&mistakes, || tree.mpiexec())?;
    beside_ports(root, &tree)?;
    let deadlock = tree.compile("mpicc", &root.join(EXAMPLES).join("deadlock.c"), &[], "deadlock")?;
    let (pulc, ring) = (tree.at.join("bin/pulc"), tree.at.join("ring.mpicc"));
    mpi_seeing::deadlock(&pulc, &deadlock)?;
    mpi_seeing::timeline(&pulc, &ring, &tree.at)?;
    mpi_seeing::statistics(&pulc, &ring)?;
    heat(root, &tree)?;
    guests(root, &tree)?;
    references(root, scratch.path())
}

/// A program in C++, by either wrapper, on one node and on two.
fn in_cpp(root: &Path, tree: &Tree) -> Outcome {
    for compiler in ["mpicxx", "mpicxx_abi"] {
        let program = tree.at.join(format!("sort.{compiler}"));
        let mut cxx = Command::new(tree.at.join("bin").join(compiler));
        cxx.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1"]).arg(root.join(EXAMPLES).join("sort.cpp"));
        steps::run(cxx.arg("-o").arg(&program), RUN)?;
        for (ranks, on_node) in [("1", "1"), ("3", "3"), ("4", "2")] {
            println!("sort by {compiler} with {ranks} ranks, {on_node} on a node");
            steps::run(tree.mpiexec().args(["-n", ranks, "-ppn", on_node]).arg(&program), RUN)?;
        }
    }
    Ok(())
}

/// Jobs of many ranks that begin and end at once: each rank goes while its keeper still has words for it, and what it said last must
/// reach the others before the news that it is gone.
fn short_lives(root: &Path, tree: &Tree) -> Outcome {
    let version = tree.compile("mpicc", &root.join(EXAMPLES).join("version.c"), &[], "version")?;
    for _ in 0..10 {
        steps::output(tree.mpiexec().args(["-n", "32"]).arg(&version))?;
    }
    println!("ten jobs of 32 ranks that begin and end");
    Ok(())
}

/// Under a launcher that speaks PMI-1 alone, ranks find each other as well: ours, which then plays the other one, on one node and on two.
fn guests(root: &Path, tree: &Tree) -> Outcome {
    let ring = tree.compile("mpicc", &root.join(EXAMPLES).join("ring.c"), &[], "ring")?;
    let version = tree.compile("mpicc", &root.join(EXAMPLES).join("version.c"), &[], "version")?;
    for ranks_on_node in ["3", "2"] {
        let guest = || {
            let mut job = tree.mpiexec();
            job.args(["--mpi=native", "-n", "3", "-ppn", ranks_on_node]);
            job
        };
        let output = steps::output(guest().arg(&version))?;
        if !output.contains("rank 2 of 3: PULC") {
            return Err(format!("guests of a PMI-1 launcher do not know each other: {output:?}"));
        }
        steps::run(guest().arg(&ring), RUN)?;
    }
    println!("three guests of a PMI-1 launcher, on one node and on two");
    Ok(())
}

/// A program that uses MPI and `libpulc.so` has one engine and one wait for both, whichever it uses first, on either binary interface.
fn beside_ports(root: &Path, tree: &Tree) -> Outcome {
    let include = format!("-I{}", root.join(crate::c_door::HEADER_DIR).display());
    for compiler in ["mpicc", "mpicc_abi"] {
        let program = tree.compile(compiler, &root.join(EXAMPLES).join("both.c"), &[&include, "-lpulc"], "both")?;
        for (ranks, on_node, first) in [("2", "2", "mpi-first"), ("3", "2", "ports-first"), ("3", "3", "ports-first")] {
            let output = steps::output(
                tree.mpiexec().args(["-timeout", "120", "-n", ranks, "-ppn", on_node]).arg(&program).arg(first),
            )?;
            let wanted = format!("in one process and one wait: {ranks} ranks");
            if !output.contains(&wanted) {
                return Err(format!("MPI beside ports by {compiler}: {output:?} lacks {wanted:?}"));
            }
        }
    }
    println!("MPI and ports in one process, under one wait");
    Ok(())
}

/// Heat over MPI, in C, gives the same field as over ports, to the last bit.
fn heat(root: &Path, tree: &Tree) -> Outcome {
    let program = tree.compile("mpicc", &root.join(EXAMPLES).join("heat.c"), &["-ffp-contract=off", "-lm"], "heat")?;
    let plate = ["--size", "90x40", "--steps", "101", "-r", "0.1", "--boundary", "insulated"];
    let field = |output: String| output.lines().find(|line| line.starts_with("field ")).map(str::to_owned);
    let mut ports = Command::new(tree.at.join("bin/pulc"));
    ports.args(["run", "-n", "2"]).arg(tree.at.join("bin/pulc")).arg("heat").args(plate).args(["--terminal", "off"]);
    let expected = field(steps::output(&mut ports)?).ok_or("`pulc heat` told no field")?;
    for ranks in ["1", "2", "3"] {
        let found = field(steps::output(tree.mpiexec().args(["-n", ranks]).arg(&program).args(plate))?);
        if found.as_ref() != Some(&expected) {
            return Err(format!("heat over MPI with {ranks} ranks: {found:?}, over ports: {expected}"));
        }
    }
    println!("heat over MPI and over ports: {expected}");
    Ok(())
}

/// A tree like dist/, made of links to what was just built.
pub struct Tree {
    at: PathBuf,
}

impl Tree {
    pub fn lay(root: &Path, built: &Path, scratch: &Path) -> Result<Tree, String> {
        let at = scratch.join("tree");
        for dir in ["bin", "lib", "include"] {
            std::fs::create_dir_all(at.join(dir)).map_err(|error| format!("cannot make the tree: {error}"))?;
        }
        let link =
            |from: PathBuf, to: &str| symlink(&from, at.join(to)).map_err(|error| format!("cannot link {to}: {error}"));
        // Copies where the place of the file counts.
        let copy = |from: PathBuf, to: &str| {
            std::fs::copy(&from, at.join(to)).map(|_| ()).map_err(|error| format!("cannot copy {to}: {error}"))
        };
        copy(built.join("pulc"), "bin/pulc")?;
        copy(root.join("abi/mpi/mpicc"), "bin/mpicc")?;
        for wrapper in ["mpicc_abi", "mpicxx", "mpicxx_abi"] {
            link("mpicc".into(), &format!("bin/{wrapper}"))?;
        }
        link("pulc".into(), "bin/mpiexec")?;
        for (library, names) in [
            ("libpulc_mpich.so", &["libmpi.so.12", "libmpi.so", "libmpich.so.12"][..]),
            ("libpulc_mpi_abi.so", &["libmpi_abi.so.1", "libmpi_abi.so"]),
            ("libpulc_c.so", &["libpulc.so.0", "libpulc.so"]),
        ] {
            for name in names {
                link(built.join(library), &format!("lib/{name}"))?;
            }
        }
        for include in ["mpich", "mpi_abi"] {
            link(root.join("abi/mpi/include").join(include), &format!("include/{include}"))?;
        }
        Ok(Tree { at })
    }

    pub fn compile(&self, compiler: &str, source: &Path, more: &[&str], name: &str) -> Result<PathBuf, String> {
        let program = self.at.join(format!("{name}.{compiler}"));
        let mut cc = Command::new(self.at.join("bin").join(compiler));
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1"]).arg(source).args(more).arg("-o").arg(&program);
        steps::run(&mut cc, RUN)?;
        Ok(program)
    }

    /// The start of a command that runs so many processes on so many nodes of this machine.
    pub fn job(&self, ranks: u32, nodes: u32) -> Command {
        let mut command = Command::new(self.at.join("bin/pulc"));
        command.env_remove("LD_LIBRARY_PATH").args(["run", "-n", &ranks.to_string()]);
        if nodes > 1 {
            command.args(["--nodes", &nodes.to_string()]);
        }
        command
    }

    fn mpiexec(&self) -> Command {
        let mut command = Command::new(self.at.join("bin/mpiexec"));
        command.env_remove("LD_LIBRARY_PATH");
        command
    }
}

/// A tool that is loaded before the program sees each of the program's calls once, and none of the library's own.
fn profile(root: &Path, tree: &Tree, compiler: &str) -> Outcome {
    let sources = root.join(EXAMPLES).join("tool");
    let tool = tree.compile(compiler, &sources.join("count.c"), &["-shared", "-fPIC"], "tool.so")?;
    let program = tree.compile(compiler, &sources.join("watched.c"), &[], "watched")?;
    let preload = format!("LD_PRELOAD={}", tool.display());
    let output = steps::output(tree.mpiexec().args(["-n", "2", "-x", &preload]).arg(&program))?;
    for line in ["tool of rank 0: 1 sends, 2 barriers", "tool of rank 1: 0 sends, 2 barriers"] {
        if !output.contains(line) {
            return Err(format!("the tool's count is not {line:?}: {output:?}"));
        }
    }
    println!("a tool counts the calls of a program by {compiler}");
    Ok(())
}

/// Two programs with variables of their own are one job.
fn several_programs(root: &Path, tree: &Tree) -> Outcome {
    let ring = tree.compile("mpicc", &root.join(EXAMPLES).join("ring.c"), &[], "ring")?;
    let mut job = tree.mpiexec();
    job.args(["-genv", "ALL", "1", "-n", "1", "-env", "MINE", "2"]).arg(&ring).arg(":").args(["-n", "2"]).arg(&ring);
    steps::run(&mut job, RUN)?;
    let shell = "echo rank $PULC_RANK has $ALL$MINE";
    let mut job = tree.mpiexec();
    job.args([
        "-genv", "ALL", "a", "-n", "1", "-env", "MINE", "b", "sh", "-c", shell, ":", "-n", "1", "sh", "-c", shell,
    ]);
    let output = steps::output(&mut job)?;
    for line in ["rank 0 has ab", "rank 1 has a\n"] {
        if !output.contains(line) {
            return Err(format!("a job of two programs did not write {line:?}: {output:?}"));
        }
    }
    println!("two programs in one job");
    Ok(())
}

/// A program that would find another MPI by an old-style search path of its own (`DT_RPATH`) gets ours, alone and as one of several, and
/// that other one where it is asked for.
fn old_search_path(root: &Path, tree: &Tree) -> Outcome {
    let sources = root.join(EXAMPLES);
    let folder = tree.at.join("elsewhere");
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libmpi.so.12", "-I"]);
    cc.arg(tree.at.join("include/mpich"))
        .arg(sources.join("tool/another.c"))
        .arg("-o")
        .arg(folder.join("libmpi.so.12"));
    steps::run(&mut cc, RUN)?;
    let path = format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display());
    let program = tree.at.join("insists");
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(tree.at.join("include/mpich"));
    cc.arg(sources.join("version.c")).arg(folder.join("libmpi.so.12")).arg(&path).arg("-o").arg(&program);
    steps::run(&mut cc, RUN)?;
    for (flags, again, wanted) in [
        (&["-n", "2"][..], false, "rank 1 of 2: PULC"),
        (&["-n", "1"], true, "rank 1 of 2: PULC"),
        (&["--mpi=native", "-n", "2"], false, "rank 0 of 1: another MPI"),
    ] {
        let mut job = tree.mpiexec();
        job.args(flags).arg(&program);
        if again {
            job.args([":", "-n", "1"]).arg(&program);
        }
        let output = steps::output(&mut job)?;
        if !output.contains(wanted) {
            return Err(format!("{flags:?} with a search path of the program's own: {output:?} lacks {wanted:?}"));
        }
    }
    println!("programs with an old-style search path get the MPI that was asked for");
    Ok(())
}

/// Compares values, layouts and prototypes with the headers of a reference implementation.
fn references(root: &Path, scratch: &Path) -> Outcome {
    let listed = std::env::var(REFERENCES).unwrap_or_default();
    let mut compared = 0;
    for dir in listed.split(':').filter(|dir| !dir.is_empty()).map(Path::new) {
        compared += headers_of(root, scratch, dir)?;
    }
    if compared == 0 {
        println!("headers are not compared: {REFERENCES} names no directory with mpi.h or mpi_abi.h of MPICH 5");
    }
    Ok(())
}

/// Compares ours with the headers of a reference implementation in one directory; how many were there.
pub fn headers_of(root: &Path, scratch: &Path, dir: &Path) -> Result<u32, String> {
    let mut compared = 0;
    for (door, name) in [(Door::Mpich, "mpi.h"), (Door::Standard, "mpi_abi.h")] {
        let header = dir.join(name);
        if header.exists() {
            compare(root, scratch, door, &header)?;
            println!("{} says the same as {}", header.display(), crate::mpi::include_dir(door));
            compared += 1;
        }
    }
    Ok(compared)
}

fn compare(root: &Path, scratch: &Path, door: Door, reference: &Path) -> Outcome {
    let ours = root.join(crate::mpi::include_dir(door)).join("mpi.h");
    let told = |header: &Path, prototypes: bool| -> Result<String, String> {
        let (source, program) = (scratch.join("layout.c"), scratch.join("layout"));
        std::fs::write(&source, layout_program(door, header, prototypes)).map_err(|error| error.to_string())?;
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.args(["-std=c11", "-w", "-I"]).arg(header.parent().unwrap_or(Path::new("."))).arg(&source).arg("-o");
        // Only the values of constants are looked at; no function is called.
        cc.arg(&program).arg("-Wl,--unresolved-symbols=ignore-all");
        steps::run(&mut cc, RUN)?;
        steps::output(&mut Command::new(&program))
    };
    let (theirs, own) = (told(reference, true)?, told(&ours, false)?);
    let differences: Vec<String> = theirs
        .lines()
        .zip(own.lines())
        .filter(|(theirs, own)| theirs != own)
        .map(|(theirs, own)| format!("\n  {}: {theirs}, ours: {own}", reference.display()))
        .collect();
    if differences.is_empty() { Ok(()) } else { Err(differences.concat()) }
}

/// Prints every constant and the layout of statuses; with `prototypes`, it also declares every function as we do.
fn layout_program(door: Door, header: &Path, prototypes: bool) -> String {
    let mut text = format!("#include {:?}\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n", header);
    if prototypes {
        for function in Functions::load().all().filter(|function| door.has(function)) {
            // Two functions that MPICH's own wheel leaves out, and names of MPICH that it has under other types.
            if function.name.starts_with("MPIX_") {
                continue;
            }
            for (name, large) in function.forms() {
                for name in [name.clone(), format!("P{name}")] {
                    let _ = writeln!(text, "#undef {name}\n{};", prototype(function, &name, large));
                }
            }
        }
    }
    text.push_str("#define TELL(name) printf(#name \" %lld %d\\n\", (long long)(intptr_t)(name), (int)sizeof(name))\n");
    text.push_str("int main(void) {\n");
    for group in &Constants::load().groups {
        for constant in group.constants.iter().filter(|one| matches!(one.value(door), Value::Number { .. })) {
            let _ = writeln!(text, "    TELL({});", constant.name);
        }
    }
    for field in ["MPI_SOURCE", "MPI_TAG", "MPI_ERROR"] {
        let _ = writeln!(text, "    printf(\"{field} %d\\n\", (int)offsetof(MPI_Status, {field}));");
    }
    for kind in ["MPI_Status", "MPI_Aint", "MPI_Count", "MPI_Offset", "MPI_Comm", "MPI_File"] {
        let _ = writeln!(text, "    printf(\"{kind} %d\\n\", (int)sizeof({kind}));");
    }
    text.push_str("    return 0;\n}\n");
    text
}
