//! `pulc token`: makes, lists and revokes the tokens with which machines join. Works on the machine that founded the cluster.

use crate::node_start::{client_place, failed};
use pulc_control::place::Place;
use pulc_control::{Reply, Request};
use pulc_psid::identity::StateDir;
use pulc_psid::{Error, daemon};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// How long the new token is accepted, in hours
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=24 * 365))]
    hours: u64,
    /// Show the tokens that are accepted now; only their ids are kept, not the tokens
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Stop accepting the token with this id, or `all`
    #[arg(long, value_name = "ID")]
    revoke: Option<String>,
}

pub fn run(args: &Args) -> ExitCode {
    match act(args) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

fn act(args: &Args) -> Result<ExitCode, Error> {
    let place = client_place()?;
    if place.is_system() {
        return of_system(args, &place);
    }
    if args.list {
        for token in StateDir::open(&place.state_dir)?.tokens()? {
            println!("{}  accepted for {} more minutes", token.id, token.remaining().as_secs().div_ceil(60));
        }
    } else if let Some(id) = &args.revoke {
        let id = Some(id.as_str()).filter(|id| *id != "all");
        let revoked = StateDir::open(&place.state_dir)?.revoke_tokens(id)?;
        println!("{revoked} revoked");
        if revoked == 0 && id.is_some() {
            return Ok(ExitCode::FAILURE);
        }
    } else {
        let (token, entry) = daemon::token(&place, Duration::from_secs(args.hours * 3600))?;
        println!("pulc join {token}");
        eprintln!("accepted for {} hours; `pulc token --revoke {}` ends it", args.hours, entry.id);
    }
    Ok(ExitCode::SUCCESS)
}

/// Its state is its account's: the daemon makes the token.
fn of_system(args: &Args, place: &Place) -> Result<ExitCode, Error> {
    if args.list || args.revoke.is_some() {
        let why =
            "the tokens of a daemon for several users are listed and revoked by its account (setpriv --reuid) only"
                .to_owned();
        return Err(Error::DaemonRefused { why });
    }
    match daemon::client(place)?.call(&Request::Token) {
        Ok(Reply::Token(token)) => println!("pulc join --system {token}"),
        Ok(Reply::Refused { why }) => return Err(Error::DaemonRefused { why }),
        Ok(_) => return Err(Error::DaemonRefused { why: "it gave an answer that does not fit".to_owned() }),
        Err(error) => return Err(Error::DaemonSilent { why: error.to_string() }),
    }
    eprintln!("accepted for 24 hours");
    Ok(ExitCode::SUCCESS)
}
