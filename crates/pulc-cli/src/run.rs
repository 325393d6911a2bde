//! `pulc run`: starts a job and is its terminal until it ends.

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Number of processes (ranks)
    #[arg(short = 'n', long, default_value_t = 1)]
    pub ranks: u32,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<std::ffi::OsString>,
}

pub fn run(args: Args) -> ExitCode {
    eprintln!("pulc: cannot start {} ranks of {:?} yet", args.ranks, args.command);
    ExitCode::FAILURE
}
