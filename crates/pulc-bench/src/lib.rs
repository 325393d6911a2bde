#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod device;
mod error;
mod hardware;
mod kernel;
mod layers;
mod measure;
mod net;
mod pair;
mod row;
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
    #[command(hide = true)]
    Worker { core: u32 },
}

/// Runs one benchmark.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    match &args.what {
        What::Layers(args) => layers::run(args),
        What::Worker { core } => worker::run(*core).map(|()| ExitCode::SUCCESS),
    }
}
