//! Two network namespaces joined by a veth pair: two nodes' networks on one machine, for the place `net`. Needs root and
//! the program `ip`. Removed when dropped; its names carry our process id, so that two runs never meet.

use crate::Error;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

pub struct Wire {
    names: [String; 2],
}

/// One end: its address, and the words that start a program there.
pub struct End {
    pub ip: IpAddr,
    pub enter: Vec<OsString>,
}

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 213, 7, 1), Ipv4Addr::new(10, 213, 7, 2)];

impl Wire {
    pub fn lay() -> Result<Wire, Error> {
        let names = ["a", "b"].map(|end| format!("pulc-bench-{}-{end}", std::process::id()));
        // From here on dropping it removes what was made.
        let wire = Wire { names };
        let [a, b] = &wire.names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&["-n", a, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b])?;
        for (name, address) in wire.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", "wire"])?;
            ip(&["-n", name, "link", "set", "wire", "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(wire)
    }

    pub fn ends(&self) -> [End; 2] {
        let end = |index: usize| End {
            ip: ADDRESSES[index].into(),
            enter: ["ip", "netns", "exec", &self.names[index]].map(OsString::from).to_vec(),
        };
        [end(0), end(1)]
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.names {
            // One that was never made cannot be removed; nothing else can be done about it here.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), Error> {
    let output = Command::new("ip").args(words).output().map_err(Error::system("start the program ip"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(Error::Program { program: format!("ip {}", words.join(" ")), text })
}
