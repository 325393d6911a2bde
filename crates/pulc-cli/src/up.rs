//! `pulc up`: makes this machine a node, founding a cluster the first time, and tells how others join it.

use crate::node_start::{StartArgs, SystemArgs, failed, place, print_started};
use pulc_psid::daemon;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    system: SystemArgs,
}

pub fn run(args: &Args) -> ExitCode {
    let started = if args.system.system {
        args.system.start(args.start.words(), None)
    } else {
        place().and_then(|place| daemon::start(&place, &args.start.options()))
    };
    match started {
        Ok(started) => {
            pulc_hal::calibration::measure_once();
            print_started(&started)
        }
        Err(error) => failed(&error),
    }
}
