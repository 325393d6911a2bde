//! `pulc bypass`: becomes the program, with the sockets bypass in front of its C library.

use crate::preload;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

const NOTES: &str = "The program is not changed and needs no privileges. Static programs and those that call the kernel themselves \
(Go) are not affected. PULC_SOCKETS=off in a program's environment switches the bypass off there.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The shell's code for a program that cannot be started.
const CANNOT_START: u8 = 127;

pub fn run(args: &Args) -> ExitCode {
    let library = match preload::here(preload::SOCKETS) {
        Ok(library) => library,
        Err(why) => {
            eprintln!("pulc: {why}");
            return ExitCode::FAILURE;
        }
    };
    let others = std::env::var_os(preload::VARIABLE).unwrap_or_default();
    let (program, rest) = args.command.split_first().expect("at least one word is required");
    let mut command = Command::new(program);
    command.args(rest).env(preload::VARIABLE, preload::in_front(library, &others));
    let error = command.exec();
    eprintln!("pulc: cannot start {}: {error}", program.display());
    ExitCode::from(CANNOT_START)
}
