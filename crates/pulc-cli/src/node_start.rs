//! What `up`, `join`, `down`, `nodes` and `token` share: the options of a start, where the daemon lives, how success and
//! refusal look.

use pulc_control::place::Place;
use pulc_psid::Error;
use pulc_psid::daemon::{Start, Started};
use std::net::SocketAddr;
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

impl StartArgs {
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
