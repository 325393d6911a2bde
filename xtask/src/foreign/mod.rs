//! `cargo xtask foreign`: other people's programs, unmodified, on PULC. MPI: mpi4py's test suite, ScaLAPACK's testers, the Intel MPI
//! Benchmarks, a tracing tool, and programs that go back and forth between PULC and the reference implementation. TCP: CPython's tests,
//! redis, nginx and rsync over ssh on the sockets bypass. Part of `test --full`. Everything foreign is fetched into `target/foreign`; nothing of it is committed. What cannot be had here is
//! skipped with a reason, never silently.

mod benchmarks;
mod interchange;
mod mpi4py;
mod scalapack;
mod services;
mod sockets;

use crate::steps::{self, Outcome, Report};
use crate::{dist, python, record};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FETCH: Duration = Duration::from_secs(900);

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these: mpi4py, scalapack, imb, interchange, sockets
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Numbers of ranks instead of each suite's own
    #[arg(long, value_delimiter = ',')]
    ranks: Vec<u32>,
    /// A tree like dist/ instead of dist/, which is built otherwise
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Run mpi4py's suite also on MPICH and Open MPI from their wheels, and ScaLAPACK's testers on MPICH, Open MPI and Intel MPI, for the times
    #[arg(long)]
    peers: bool,
}

impl Arguments {
    /// What `test --full` asks for.
    pub fn all() -> Arguments {
        Arguments { only: Vec::new(), ranks: Vec::new(), tree: None, peers: true }
    }

    /// The name of the record: what was run only is in it, so that it does not pass for a run of all.
    fn record(&self) -> String {
        ["foreign"].into_iter().chain(self.only.iter().map(String::as_str)).collect::<Vec<_>>().join("-")
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

pub fn run(root: &Path, arguments: &Arguments) -> Outcome {
    let tree = match &arguments.tree {
        Some(tree) => std::path::absolute(tree).map_err(|error| format!("{}: {error}", tree.display()))?,
        None => {
            dist::run(root)?;
            root.join("dist")
        }
    };
    let mut place = Place::new(root, tree, arguments.ranks.clone())?;
    let mut report = Report::new();
    if arguments.wants("interchange") {
        report.step("programs go between PULC and MPICH", || interchange::run(root, &mut place));
    }
    if arguments.wants("scalapack") {
        report.step("ScaLAPACK's testers", || scalapack::run(&mut place, arguments.peers));
    }
    if arguments.wants("imb") {
        report.step("Intel MPI Benchmarks", || benchmarks::run(&mut place));
    }
    if arguments.wants("mpi4py") {
        report.step("mpi4py's suite", || mpi4py::run(root, &mut place, arguments.peers));
    }
    if arguments.wants("sockets") {
        report.step("programs over TCP on the bypass", || sockets::run(&mut place));
    }
    println!("\n{}", place.told);
    record::write(root, &arguments.record(), &format!("\n{}\n{}", report.table(), place.told))?;
    report.finish()
}

/// Where foreign things lie, and what is told about them.
struct Place {
    /// A tree like dist/.
    tree: PathBuf,
    /// `target/foreign`
    at: PathBuf,
    ranks: Vec<u32>,
    told: String,
}

impl Place {
    fn new(root: &Path, tree: PathBuf, ranks: Vec<u32>) -> Result<Place, String> {
        let at = root.join("target/foreign");
        std::fs::create_dir_all(at.join("log")).map_err(|error| format!("cannot make {}: {error}", at.display()))?;
        Ok(Place { tree, at, ranks, told: String::new() })
    }

    fn ranks_or<'a>(&'a self, own: &'a [u32]) -> &'a [u32] {
        if self.ranks.is_empty() { own } else { &self.ranks }
    }

    fn tell(&mut self, line: &str) {
        println!("{line}");
        self.told += line;
        self.told.push('\n');
    }

    /// `mpiexec` of the tree, in a directory that programs may litter.
    fn mpiexec(&self) -> Command {
        let mut command = Command::new(self.tree.join("bin/mpiexec"));
        command.current_dir(self.at.join("log")).env_remove("LD_LIBRARY_PATH");
        command
    }

    /// A virtual environment with these packages; made at the first call.
    fn environment(&self, name: &str, packages: &[&str]) -> Result<PathBuf, String> {
        let venv = self.at.join(name);
        python::environment(&venv, packages)?;
        Ok(venv)
    }

    /// The reference implementation, from its wheel.
    fn mpich(&self) -> Result<PathBuf, String> {
        self.environment("mpich", &["mpich==5.0.2"])
    }

    /// Intel's runtime with its benchmarks: the newest whose wheel needs no other package that cannot be had.
    fn intel(&self) -> Result<PathBuf, String> {
        let (environment, package) = ("impi-2021.18.1", "impi-rt==2021.18.1");
        self.environment(environment, &[package])
            .map_err(|why| format!("{package}, or a package that it needs, cannot be installed from PyPI: {why}"))
    }

    /// Runs a command, keeps what it writes under `name`, and returns that with the time it took, even if it failed.
    fn kept(&self, name: &str, command: &mut Command, limit: Duration) -> (Outcome, String, Duration) {
        let (mut text, begin) = (String::new(), Instant::now());
        let outcome = steps::run_lines(command, limit, |line| {
            text += line;
            text.push('\n');
        });
        let log = self.at.join("log").join(format!("{name}.txt"));
        let outcome = outcome.map_err(|why| format!("{why}; see {}", log.display()));
        if let Err(error) = std::fs::write(&log, &text) {
            println!("cannot write {}: {error}", log.display());
        }
        (outcome, text, begin.elapsed())
    }
}

/// Whether a Debian package's file is there; installs the packages where this user may.
fn debian(file: &str, packages: &[&str]) -> bool {
    if Path::new(file).exists() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "-q", "-y", "--no-install-recommends"]).args(packages);
    // In this runlevel Debian's packages start no service.
    install.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    let installed = steps::run_lines(&mut install, FETCH, |_| {});
    installed.is_ok() && Path::new(file).exists()
}

/// All of them, one a line; none is well.
fn all_well(failures: Vec<String>) -> Outcome {
    if failures.is_empty() { Ok(()) } else { Err(failures.iter().map(|failure| format!("\n  {failure}")).collect()) }
}
