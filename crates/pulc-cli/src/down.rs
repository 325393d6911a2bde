//! `pulc down`: ends the jobs of this node and stops its daemon; with `--all`, of every node of the cluster. `pulc restart`: stops the
//! daemon and starts it again, perhaps of another version; queued jobs go on meanwhile.

use crate::node_start::{failed, place};
use pulc_psid::daemon;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Take every node of the cluster down
    #[arg(long)]
    all: bool,
}

pub fn run(args: &Args) -> ExitCode {
    match place().and_then(|place| daemon::down(&place, args.all)) {
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
pub struct RestartArgs {}

pub fn restart(_: &RestartArgs) -> ExitCode {
    match place().and_then(|place| daemon::restart(&place)) {
        Ok(started) => {
            println!("node {} is up again", started.name);
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}
