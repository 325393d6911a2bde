//! The command `pulc`: picks the subcommand, nothing else. Each subcommand is one file with `Args` and `run`.
#![forbid(unsafe_code)]

mod bench;
mod generate;
mod ps;
mod run;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// PULC turns ordinary machines into one parallel computer
#[derive(Parser)]
#[command(name = "pulc", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a parallel program
    Run(run::Args),
    /// Show the jobs and their processes on all nodes
    Ps(ps::Args),
    /// Measure this machine and PULC on it
    Bench(bench::Args),
    #[command(hide = true)]
    Generate(generate::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Ps(args) => ps::run(args),
        Command::Bench(args) => bench::run(&args),
        Command::Generate(args) => generate::run(&args),
    }
}
