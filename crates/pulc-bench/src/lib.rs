#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod am;
mod device;
mod error;
mod hardware;
mod idle;
mod job;
mod kernel;
mod layers;
mod measure;
mod memory;
mod net;
mod pair;
mod rank;
mod row;
mod start;
mod wire;
mod worker;

pub use error::Error;
pub use row::{Layer, Place, Row};

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Every floor of PULC beside pipe, unix socket, TCP and UDP: latency, bandwidth, rate
    Layers(layers::Args),
    /// Start and end of a job of many processes
    Start(start::Args),
    /// Processor time of a process that is blocked in a receive
    Idle(idle::Args),
    /// Memory that a process of a job takes, idle and after everybody has talked with everybody
    Memory(memory::Args),
    #[command(hide = true)]
    Rank(rank::Args),
    #[command(hide = true)]
    Worker { core: u32 },
}

/// Runs one benchmark.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    pulc_hal::calibration::load();
    match &args.what {
        What::Layers(args) => layers::run(args),
        What::Start(args) => start::run(args),
        What::Idle(args) => idle::run(args),
        What::Memory(args) => memory::run(args),
        What::Rank(args) => rank::run(args).map(|()| ExitCode::SUCCESS),
        What::Worker { core } => worker::run(*core).map(|()| ExitCode::SUCCESS),
    }
}
