//! What `up`, `join`, `down`, `nodes` and `token` share: the options of a start, where the daemon lives, how success and
//! refusal look.

use pulc_control::place::Place;
use pulc_psid::Error;
use pulc_psid::daemon::{self, Start, Started, SystemStart};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct StartArgs {
    /// Address and port to listen on for other nodes [default: every address, port 7852 or a free one]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// Name of this node, for people [default: the host name]
    #[arg(long, value_parser = parse_name)]
    name: Option<String>,
}

/// Of a daemon that serves several users.
#[derive(clap::Args)]
pub struct SystemArgs {
    /// As root: a daemon for all users of this machine, which runs as an account of its own; every user's processes run as that user
    #[arg(long)]
    pub system: bool,
    /// Account as which that daemon runs
    #[arg(long = "as", value_name = "NAME", default_value = "pulc", requires = "system")]
    account: String,
    /// File of root's that says who may have processes on this machine, and who is an operator
    #[arg(long, value_name = "FILE", default_value = pulc_helper::USERS_FILE, requires = "system")]
    users: PathBuf,
}

impl SystemArgs {
    /// Starts it; with a token it joins a cluster.
    pub fn start(&self, words: Vec<OsString>, token: Option<String>) -> Result<Started, Error> {
        let here = std::env::current_dir().unwrap_or_default();
        let users = here.join(&self.users);
        let start = SystemStart { account: self.account.clone(), users, state_words: words, token };
        daemon::start_system(&Place::system()?, &start)
    }
}

impl StartArgs {
    /// As words of a command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        for (flag, value) in [("--listen", self.listen.map(|listen| listen.to_string())), ("--name", self.name.clone())]
        {
            words.extend(value.map(|value| format!("{flag}={value}").into()));
        }
        words
    }

    pub fn options(&self) -> Start {
        Start { listen: self.listen, name: self.name.clone() }
    }
}

/// An address with a port, or an address alone.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse::<SocketAddr>().ok();
    let alone = || text.parse().ok().map(|ip| SocketAddr::new(ip, pulc_psid::mesh::DEFAULT_PORT));
    with_port.or_else(alone).ok_or_else(|| "not an address like 10.0.0.1:7852, 10.0.0.1 or [fd00::1]:7852".to_owned())
}

fn parse_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| !c.is_control() && !c.is_whitespace() && c != ',';
    if text.is_empty() || text.len() > 64 || !text.chars().all(allowed) {
        return Err("a name has 1 to 64 bytes and no spaces or commas".to_owned());
    }
    Ok(text.to_owned())
}

/// Where the daemon that this environment means lives.
pub fn place() -> Result<Place, Error> {
    Place::of_environment().map_err(Error::from)
}

/// The same for those who talk to one: this user's, or the machine's for several users.
pub fn client_place() -> Result<Place, Error> {
    Place::of_client().map_err(Error::from)
}

pub fn failed(error: &Error) -> ExitCode {
    eprintln!("pulc: {error}");
    ExitCode::from(error.exit_code())
}

pub fn print_started(started: &Started) -> ExitCode {
    let me = started.nodes.iter().find(|node| node.me);
    let address = me.and_then(|me| me.addresses.first()).map_or_else(|| "nowhere".to_owned(), ToString::to_string);
    let known = started.nodes.len();
    println!(
        "node {} ({}) is up, listening on {address}; {known} node{} known",
        started.name,
        started.id,
        if known == 1 { "" } else { "s" }
    );
    if let Some(token) = &started.token {
        println!("on another machine, within 24 hours:\n\n    pulc join {token}\n");
    }
    ExitCode::SUCCESS
}
