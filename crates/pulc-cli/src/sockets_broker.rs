//! `pulc sockets-broker`: the broker of a user's bypassed connections, started in the background by whoever needs it first. Hidden.

use pulc_hal::os::fdpass::Seqpacket;
use pulc_sockets::message::{SYSTEM_NAME, broker_name};
use rustix::process::geteuid;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};

pub const NAME: &str = "sockets-broker";
/// What it says when it can be asked.
const READY: &str = "ready";

/// See [`ensure`].
const BEHIND: &str = "--behind";

#[derive(clap::Args)]
pub struct Args {
    /// Start another one and end, so that it is nobody's child
    #[arg(long)]
    behind: bool,
}

pub fn run(args: &Args) -> ExitCode {
    if args.behind {
        // Its output stays ours: whoever has started us hears from there when it is ready.
        return match myself().stdout(Stdio::inherit()).spawn() {
            Ok(_) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
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

/// A line to the broker that meets ends of different users, if root runs one.
pub fn connect_system() -> io::Result<Seqpacket> {
    let broker = Seqpacket::connect(&SYSTEM_NAME)?;
    // Whoever else listens there may be anybody.
    if broker.peer()?.uid == 0 { Ok(broker) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn myself() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(NAME).stdin(Stdio::null()).stderr(Stdio::null()).env_remove("LD_PRELOAD");
    command
}

/// Starts the broker if there is none; returns when it can be asked. It is started by a process that ends at once: this one becomes a
/// program, which may wait until it has no children any more.
pub fn ensure() -> Result<(), String> {
    if connect().is_ok() {
        return Ok(());
    }
    let failed = |error: io::Error| format!("cannot start the sockets' broker: {error}");
    let mut starter = myself().arg(BEHIND).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = starter.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    starter.wait().map_err(failed)?;
    // Another one may have been faster.
    if line.trim() == READY || connect().is_ok() { Ok(()) } else { Err("the sockets' broker did not start".to_owned()) }
}
