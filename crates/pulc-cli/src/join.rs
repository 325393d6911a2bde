//! `pulc join TOKEN`: makes this machine a node of the cluster that the token names.

use crate::node_start::{StartArgs, failed, place, print_started};
use pulc_psid::daemon::{self, Admission};
use pulc_psid::identity::Token;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// What `pulc up` or `pulc token` printed on the machine that founded the cluster
    token: String,
    /// Forget the cluster that this node belongs to now
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    start: StartArgs,
}

pub fn run(args: &Args) -> ExitCode {
    let joined = Token::parse(&args.token).and_then(|token| {
        let admission = Admission { token, replace: args.replace };
        daemon::join(&place()?, &args.start.options(), &admission)
    });
    match joined {
        Ok(started) => print_started(&started),
        Err(error) => failed(&error),
    }
}
