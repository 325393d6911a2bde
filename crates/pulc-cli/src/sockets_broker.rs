//! `pulc sockets-broker`: the broker of a user's bypassed connections, started in the background by whoever needs it first. Hidden.

use pulc_hal::os::fdpass::Seqpacket;
use pulc_sockets::message::broker_name;
use rustix::process::geteuid;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};

pub const NAME: &str = "sockets-broker";
/// What it says when it can be asked.
const READY: &str = "ready";

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> ExitCode {
    // A session of its own: it outlives the terminal and the program that wanted it first.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let ready = || {
        let _ = writeln!(io::stdout(), "{READY}");
        // Whoever waits for the end of this output must not wait for us.
        if let Ok(nothing) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&nothing);
        }
    };
    match pulc_psid::sockets::serve(ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pulc: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A line to this user's broker.
pub fn connect() -> io::Result<Seqpacket> {
    Seqpacket::connect(&broker_name(geteuid().as_raw()))
}

/// Starts the broker if there is none; returns when it can be asked.
pub fn ensure() -> Result<(), String> {
    if connect().is_ok() {
        return Ok(());
    }
    let failed = |error: io::Error| format!("cannot start the sockets' broker: {error}");
    let mut command = Command::new("/proc/self/exe");
    command.arg(NAME).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).env_remove("LD_PRELOAD");
    let mut broker = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = broker.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    // Another one may have been faster.
    if line.trim() == READY || connect().is_ok() { Ok(()) } else { Err("the sockets' broker did not start".to_owned()) }
}
