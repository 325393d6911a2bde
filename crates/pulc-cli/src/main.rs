//! The command `pulc`: picks the subcommand, nothing else. Each subcommand is one file with `Args` and `run`.
#![forbid(unsafe_code)]

mod bench;
mod bypass;
mod daemon;
mod demo;
mod down;
mod generate;
mod info;
mod join;
mod keeper;
mod kill;
mod mpi_choice;
mod mpiexec;
mod node_start;
mod nodes;
mod preload;
mod program;
mod ps;
mod psid;
mod run;
mod terminal;
mod token;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "First steps:
  pulc demo                           see it work
  pulc run -n 4 ./program             four processes here; nothing has to be set up
  pulc run -n 4 --nodes 2 ./program   the same on two nodes, on this machine if there are no others
  pulc up; pulc join TOKEN            more machines: `up` prints the token, `join` is for the others";

/// PULC turns ordinary machines into one parallel computer
#[derive(Parser)]
#[command(name = "pulc", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a parallel program
    Run(run::Args),
    /// Run an unmodified program whose TCP connections may go past the kernel's stack
    Bypass(bypass::Args),
    /// Show the jobs and their processes on all nodes
    Ps(ps::Args),
    /// Stop a job
    Kill(kill::Args),
    /// Make this machine a node, founding a cluster the first time
    Up(up::Args),
    /// Make this machine a node of an existing cluster
    Join(join::Args),
    /// Stop this node, or all of them
    Down(down::Args),
    /// Show the nodes of the cluster
    Nodes(nodes::Args),
    /// Make, list and revoke the tokens with which machines join
    Token(token::Args),
    /// Show this build, this machine, and every limit with its value
    Info(info::Args),
    /// Measure this machine and PULC on it
    Bench(bench::Args),
    /// See it work: a heat diffusion alone, on all cores and on two nodes, drawn while it runs
    Demo(demo::Args),
    #[command(hide = true)]
    Heat(demo::HeatArgs),
    #[command(hide = true)]
    Daemon(psid::Args),
    #[command(hide = true)]
    Generate(generate::Args),
}

fn main() -> ExitCode {
    // Before anything else: a keeper is started for every job and must be quick, and so must a rank.
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    if mpiexec::is_called(&name) {
        return mpiexec::run(words);
    }
    match std::env::args_os().nth(1) {
        Some(command) if command == "keeper" => return keeper::run(),
        Some(command) if command == program::NAME => return program::run(words.skip(1)),
        _ => {}
    }
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Bypass(args) => bypass::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Join(args) => join::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Nodes(args) => nodes::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Kill(args) => kill::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Heat(args) => demo::heat(args),
        Command::Daemon(args) => psid::run(&args),
        Command::Generate(args) => generate::run(&args),
    }
}
