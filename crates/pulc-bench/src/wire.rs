//! Two network namespaces joined by a veth pair: two nodes' networks on one machine, for the place `net`, and in each a
//! daemon, for the floors that need one. All of it vanishes when dropped; the namespaces vanish even when this process is killed.

use crate::Error;
use crate::job::{output, this_program};
use pulc_base::clock::Nanos;
use pulc_testkit::netns::Netns;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;

pub struct Wire {
    ends: [End; 2],
    /// Holds the state of the daemons.
    directory: PathBuf,
    has_daemons: bool,
}

struct End {
    netns: Netns,
    ip: Ipv4Addr,
    state: PathBuf,
}

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 213, 7, 1), Ipv4Addr::new(10, 213, 7, 2)];
const STATE_VARIABLE: &str = "PULC_STATE_DIR";
const INTERFACE: &str = "wire";
/// For one command to a daemon.
const LIMIT: Nanos = Nanos::from_ms(30_000);

impl Wire {
    pub fn lay() -> Result<Wire, Error> {
        let a = Netns::new().map_err(Error::system("make a network namespace"))?;
        let b = a.sibling().map_err(Error::system("make a network namespace"))?;
        let directory = std::env::temp_dir().join(format!("pulc-bench-{}", std::process::id()));
        let peer = b.pid().to_string();
        let cable = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &peer];
        a.ip(&cable).map_err(Error::system("lay a cable"))?;
        let [ip_a, ip_b] = ADDRESSES;
        let end = |netns, ip, name| End { netns, ip, state: directory.join(name) };
        let wire =
            Wire { ends: [end(a, ip_a, "a"), end(b, ip_b, "b")], directory: directory.clone(), has_daemons: false };
        for end in &wire.ends {
            let address = format!("{}/24", end.ip);
            for words in [
                ["address", "add", &address, "dev", INTERFACE].as_slice(),
                &["link", "set", INTERFACE, "up"],
                &["link", "set", "lo", "up"],
            ] {
                end.netns.ip(words).map_err(Error::system("set an address"))?;
            }
        }
        Ok(wire)
    }

    /// Address of each end, and the words that start a program there.
    pub fn ends(&self) -> [(IpAddr, Vec<OsString>); 2] {
        [0, 1].map(|index: usize| (self.ends[index].ip.into(), self.ends[index].enter()))
    }

    /// Starts a daemon at each end and joins them, once.
    pub fn start_daemons(&mut self) -> Result<(), Error> {
        if self.has_daemons {
            return Ok(());
        }
        self.has_daemons = true;
        let up = self.ends[0].pulc(&["up"])?;
        let token = up.split_whitespace().find(|word| word.starts_with(TOKEN)).map(str::to_owned);
        let token = token.ok_or(Error::Nonsense(up))?;
        self.ends[1].pulc(&["join", &token]).map(drop)
    }
}

/// What every token begins with.
const TOKEN: &str = "pulc1-";

impl End {
    fn enter(&self) -> Vec<OsString> {
        let command = self.command();
        std::iter::once(command.get_program()).chain(command.get_args()).map(OsString::from).collect()
    }

    /// A command that will run here, with this end's daemon as its own; its program and arguments are still to be added.
    fn command(&self) -> Command {
        let mut command = self.netns.command();
        let mut state = OsString::from(format!("{STATE_VARIABLE}="));
        state.push(&self.state);
        command.args([OsString::from("env"), "-u".into(), "PULC_INSTANCE".into(), state]);
        command
    }

    fn pulc(&self, words: &[&str]) -> Result<String, Error> {
        let mut all = self.enter();
        all.push(this_program()?);
        all.extend(words.iter().map(OsString::from));
        output(&all, LIMIT)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.has_daemons {
            for end in &self.ends {
                // A daemon that never came up cannot go down.
                let _ = end.pulc(&["down"]);
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
