//! `pulc ps`: the jobs that the local psid knows, with their processes on all nodes.

use pulc_control::{Client, Reply, Request, socket_name};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args) -> ExitCode {
    let instance = std::env::var(pulc_control::client::ENV_INSTANCE).ok();
    let name = socket_name(rustix::process::getuid().as_raw(), instance.as_deref());
    match Client::connect(&name).and_then(|client| match client {
        None => Ok(None),
        Some(mut client) => client.call(&Request::Ps).map(Some),
    }) {
        Ok(Some(Reply::Jobs(jobs))) => {
            for job in jobs {
                println!("{} {} ranks on {}: {}", job.job, job.ranks, job.nodes.join(","), job.command);
            }
            ExitCode::SUCCESS
        }
        Ok(None) => {
            println!("no daemon runs here");
            ExitCode::SUCCESS
        }
        Ok(Some(_)) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("pulc: {error}");
            ExitCode::FAILURE
        }
    }
}
