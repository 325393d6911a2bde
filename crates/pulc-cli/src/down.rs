//! `pulc down`: ends the jobs of this node and stops its daemon; with `--all`, of every node of the cluster.

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
