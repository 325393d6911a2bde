//! `pulc bypass`: becomes the program, with the sockets bypass in front of its C library, and starts the user's broker if none runs.

use crate::{preload, sockets_broker};
use pulc_psid::keeper::{TUNABLES, without_sequences};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

const NOTES: &str = "The program is not changed and needs no privileges. A connection is promoted when both of its ends run on this \
machine, as the same user, with the bypass; every other one stays on the kernel, as do static programs and those that call the kernel \
themselves (Go). `pulc sockets` shows which connections went where, and why. PULC_SOCKETS=off in a program's environment switches the \
bypass off there.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Promote connections of these ports only, for example 6379,8000-8099
    #[arg(long, value_name = "PORTS", value_parser = ports)]
    only: Option<String>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The shell's code for a program that cannot be started.
const CANNOT_START: u8 = 127;
const ONLY: &str = "PULC_SOCKETS_ONLY";
/// As many as the library keeps.
const RANGES_MAX: usize = 16;

fn ports(text: &str) -> Result<String, String> {
    let ranges: Vec<&str> = text.split(',').collect();
    if ranges.len() > RANGES_MAX {
        return Err(format!("{} ranges of ports; {RANGES_MAX} are possible", ranges.len()));
    }
    for range in ranges {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) if first <= last => {}
            _ => return Err(format!("{range:?} is no port and no range of ports")),
        }
    }
    Ok(text.to_owned())
}

pub fn run(args: &Args) -> ExitCode {
    let here = match preload::here(preload::SOCKETS) {
        Ok(here) => here,
        Err(why) => {
            eprintln!("pulc: {why}");
            return ExitCode::FAILURE;
        }
    };
    // Without one the program runs all the same, on the kernel.
    if let Err(why) = sockets_broker::ensure() {
        eprintln!("pulc: {why}; connections stay on the kernel");
    }
    let others = std::env::var_os(preload::VARIABLE).unwrap_or_default();
    let (program, rest) = args.command.split_first().expect("at least one word is required");
    let mut command = Command::new(program);
    command.args(rest).env(preload::VARIABLE, preload::in_front(here.library, &others));
    if let Some(folder) = here.search {
        let others = std::env::var_os(preload::SEARCH).unwrap_or_default();
        command.env(preload::SEARCH, preload::in_front(folder, &others));
    }
    // Two ends on one core hand it to each other for each message.
    let tunables = std::env::var_os(OsStr::from_bytes(TUNABLES)).unwrap_or_default();
    command.env(OsStr::from_bytes(TUNABLES), OsString::from_vec(without_sequences(tunables.as_bytes())));
    if let Some(only) = &args.only {
        command.env(ONLY, only);
    }
    let error = command.exec();
    eprintln!("pulc: cannot start {}: {error}", program.display());
    ExitCode::from(CANNOT_START)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_and_ranges() {
        assert!(ports("6379").is_ok() && ports("1-65535,80").is_ok());
        for nonsense in ["", "a", "80-", "90-80", "65536", "80,,81"] {
            assert!(ports(nonsense).is_err(), "{nonsense}");
        }
    }
}
