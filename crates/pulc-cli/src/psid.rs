//! `pulc daemon`: what `pulc up` starts in the background. Hidden; a service manager may call it too. And `pulc system-state`, which keeps the
//! state of a daemon for several users as that daemon's account.

use crate::join::ENV_TOKEN;
use crate::node_start::{StartArgs, failed, place};
use pulc_psid::Error;
use pulc_psid::daemon::{self, Admission};
use pulc_psid::identity::Token;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Serves several users: said by the helper, with root's file of who they are
    #[arg(long, value_name = "USERS")]
    system: Option<PathBuf>,
}

pub fn run(args: &Args) -> ExitCode {
    match place() {
        Ok(place) => daemon::main(&place, args.system.as_deref()),
        Err(error) => failed(&error),
    }
}

#[derive(clap::Args)]
pub struct StateArgs {
    #[command(flatten)]
    start: StartArgs,
    #[arg(long)]
    replace: bool,
    #[arg(long)]
    forget: bool,
}

pub fn keep_state(args: &StateArgs) -> ExitCode {
    match state(args) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

fn state(args: &StateArgs) -> Result<&'static str, Error> {
    let place = place()?;
    if args.forget {
        return daemon::forget_state(&place).map(|()| "");
    }
    let token = std::env::var(ENV_TOKEN).ok().map(|text| Token::parse(&text)).transpose()?;
    let admission = token.map(|token| Admission { token, replace: args.replace });
    daemon::keep_state(&place, &args.start.options(), admission.as_ref())
}
