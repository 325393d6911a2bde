//! `pulc join TOKEN`: makes this machine a node of the cluster that the token names. A token lets any machine in for a day, and a command
//! line is shown to every user of the machine: it may come by standard input, a file or the environment instead.

use crate::node_start::{StartArgs, SystemArgs, failed, place, print_started};
use pulc_psid::daemon::{self, Admission};
use pulc_psid::identity::Token;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// What `pulc up` or `pulc token` printed on the machine that founded the cluster; - reads it from standard input, where no other user
    /// of this machine sees it [default: PULC_JOIN_TOKEN of the environment]
    token: Option<String>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Forget the cluster that this node belongs to now
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    system: SystemArgs,
}

/// Where a token may stand that is not for the eyes of others.
pub const ENV_TOKEN: &str = "PULC_JOIN_TOKEN";

pub fn run(args: &Args) -> ExitCode {
    let text = match token(args) {
        Ok(text) => text,
        Err(why) => {
            eprintln!("pulc: {why}");
            return ExitCode::FAILURE;
        }
    };
    let joined = Token::parse(&text).and_then(|token| {
        if args.system.system {
            let mut words = args.start.words();
            words.extend(args.replace.then(|| "--replace".into()));
            return args.system.start(words, Some(text.clone()));
        }
        let admission = Admission { token, replace: args.replace };
        daemon::join(&place()?, &args.start.options(), &admission)
    });
    match joined {
        Ok(started) => {
            pulc_hal::calibration::measure_once();
            print_started(&started)
        }
        Err(error) => failed(&error),
    }
}

fn token(args: &Args) -> Result<String, String> {
    let text = match (&args.token_file, args.token.as_deref()) {
        (Some(path), _) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the token from {}: {error}", path.display()))?,
        (None, Some("-")) => std::io::read_to_string(std::io::stdin())
            .map_err(|error| format!("cannot read the token from standard input: {error}"))?,
        (None, Some(token)) => token.to_owned(),
        (None, None) => std::env::var(ENV_TOKEN)
            .map_err(|_| format!("no token given; name one, or -, or --token-file FILE, or set {ENV_TOKEN}"))?,
    };
    Ok(token_of(&text).to_owned())
}

/// The token in a text that may be the whole line which `pulc token` prints.
fn token_of(text: &str) -> &str {
    let mut words = text.split_whitespace();
    words.clone().find(|word| word.starts_with("pulc1-")).or_else(|| words.next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_in_the_line_that_pulc_token_prints() {
        assert_eq!(token_of("pulc join pulc1-abc\n"), "pulc1-abc");
        assert_eq!(token_of(" pulc1-abc\n"), "pulc1-abc");
        assert_eq!((token_of("nonsense"), token_of("")), ("nonsense", ""));
    }
}
