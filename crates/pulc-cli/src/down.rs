//! `pulc down`: ends the jobs of this node and stops its daemon; with `--all`, of every node of the cluster. `pulc restart`: stops the
//! daemon and starts it again, perhaps of another version; queued jobs go on meanwhile.

use crate::node_start::{SystemArgs, client_place, failed, place};
use pulc_control::place::Place;
use pulc_psid::Error;
use pulc_psid::daemon;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Take every node of the cluster down
    #[arg(long)]
    all: bool,
}

pub fn run(args: &Args) -> ExitCode {
    match client_place().and_then(|place| daemon::down(&place, args.all)) {
        Ok(untold) => {
            for node in &untold {
                eprintln!(
                    "pulc: node {} ({}) is {} and was not told; if its daemon runs, say `pulc down` there",
                    node.name, node.id, node.state
                );
            }
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

#[derive(clap::Args)]
pub struct RestartArgs {
    #[command(flatten)]
    system: SystemArgs,
}

pub fn restart(args: &RestartArgs) -> ExitCode {
    let restarted = if args.system.system {
        let place = Place::system().map_err(Error::from);
        place.and_then(|place| daemon::stop_to_restart(&place)).and_then(|()| args.system.start(Vec::new(), None))
    } else {
        place().and_then(|place| daemon::restart(&place))
    };
    match restarted {
        Ok(started) => {
            println!("node {} is up again", started.name);
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}
