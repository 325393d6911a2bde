//! `cargo xtask …`: everything a developer or the continuous integration does with this repository, one file a command.
//! Runs other programs (cargo, cc, ip) and reads the tree; of the house it names only the table of MPI functions, which names
//! nothing, so that it builds in seconds and still works when the house does not compile.
#![forbid(unsafe_code)]

mod bench;
mod c_door;
mod cargo_tests;
mod chaos;
mod cluster;
mod dist;
mod foreign;
mod fuzz;
mod mpi;
mod mpi_door;
mod mpi_mistakes;
mod mpi_random;
mod mpi_seeing;
mod python;
mod record;
mod sanitize;
mod sim;
mod skips;
mod steps;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "All automation of the project", disable_help_subcommand = false)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the demo (heat diffusion on a local two-node cluster) from the release build
    Demo {
        /// Passed on to `pulc demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check format, lints, house rules, all tests, the documentation's examples and the C example
    Test {
        /// Also the long suites: more seeds, more rounds; dated results are written under bench/records/
        #[arg(long)]
        full: bool,
        /// Only this part of the long suites; may be given more than once
        #[arg(long, value_enum, requires = "full")]
        part: Vec<test::Part>,
    },
    /// What the continuous integration runs: test, dist, the quick demo, and dist used from another directory
    Ci,
    /// Check the house rules only
    Tidy,
    /// Build the relocatable tree dist/
    Dist,
    /// Test the MPI doors only: C programs, a profiling tool, headers of a reference (PULC_MPI_REFERENCES)
    MpiDoors,
    /// Run random MPI programs only; with --full many seeds, 16 processes and a lossy network
    MpiRandom {
        #[arg(long)]
        full: bool,
    },
    /// Run other people's MPI programs on dist/: mpi4py's suite, ScaLAPACK's testers, Intel's benchmarks (fetches them)
    Foreign(foreign::Arguments),
    /// Write what is made from the tables of MPI functions and constants: headers, symbol lists, coverage page
    Mpi,
    /// Look for inputs that break a parser, with cargo-fuzz and a nightly compiler
    Fuzz(fuzz::Arguments),
    /// Break what can be broken on a cluster under work, and check what is promised
    Chaos(chaos::Arguments),
    /// What controller and membership cost with a thousand and ten thousand nodes, in simulation; kept under bench/records/
    Sim,
    /// Run the tests of hostile ranks with the address sanitizer (nightly compiler)
    Sanitize,
    /// Try the lock-free parts in every order that the memory model allows
    Loom,
    /// Build and run `pulc bench …`; what it prints is kept under bench/records/
    Bench {
        /// Passed on to `pulc bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Start a local cluster of network namespaces with a daemon each, and a command (or a shell) on its first node
    Cluster(cluster::Arguments),
}

fn main() -> ExitCode {
    let root = root();
    let outcome = match Arguments::parse().command {
        Command::Demo { arguments } => bench::demo(&root, &arguments),
        Command::Test { full, part } => test::test(&root, full, &part),
        Command::Ci => test::ci(&root),
        Command::Tidy => tidy::run(&root),
        Command::Dist => dist::run(&root),
        Command::Foreign(arguments) => foreign::run(&root, &arguments),
        Command::Mpi => mpi::write(&root),
        Command::Fuzz(arguments) => fuzz::run(&root, &arguments),
        Command::MpiDoors => mpi_door::test(&root),
        Command::MpiRandom { full } => mpi_random::test(&root, full),
        Command::Chaos(arguments) => chaos::run(&root, &arguments),
        Command::Sim => sim::run(&root),
        Command::Sanitize => sanitize::run(&root).map(|table| print!("\n{table}")),
        Command::Loom => test::loom(&root),
        Command::Bench { arguments } => bench::bench(&root, &arguments),
        Command::Cluster(arguments) => cluster::run(&root, &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Root of the repository: where this crate was built from.
fn root() -> PathBuf {
    // Asked while it runs: a build tree that was copied from another clone must not work on that clone.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().expect("xtask lies directly under the root").to_path_buf()
}
