//! `pulc daemon`: what `pulc up` starts in the background. Hidden; a service manager may call it too.

use crate::node_start::{failed, place};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> ExitCode {
    match place() {
        Ok(place) => pulc_psid::daemon::main(&place),
        Err(error) => failed(&error),
    }
}
