//! Where processes can be spoken to: their open sockets, found by inode in the kernel's tables. Of the given processes only.

use std::collections::HashSet;

#[derive(Debug, Default)]
pub struct Ports {
    /// Bound on this machine.
    pub udp: Vec<u16>,
    /// Listening.
    pub tcp: Vec<u16>,
    /// Abstract names of listeners.
    pub seqpacket: Vec<String>,
    pub stream: Vec<String>,
}

impl Ports {
    pub fn of(pids: &[i32]) -> Ports {
        let inodes: HashSet<String> = pids.iter().flat_map(|pid| inodes(*pid)).collect();
        let own = |columns: &[&str], at: usize| columns.get(at).is_some_and(|inode| inodes.contains(*inode));
        let mut ports = Ports::default();
        for line in rows("udp") {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            if own(&columns, 9) {
                ports.udp.extend(port(columns[1]));
            }
        }
        for line in rows("tcp") {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            if own(&columns, 9) && columns[3] == "0A" {
                ports.tcp.extend(port(columns[1]));
            }
        }
        for line in rows("unix") {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let listens = columns.get(3).is_some_and(|flags| *flags == "00010000");
            let Some(name) = columns.get(7).and_then(|name| name.strip_prefix('@')) else { continue };
            if own(&columns, 6) && listens {
                let kind = if columns[4] == "0005" { &mut ports.seqpacket } else { &mut ports.stream };
                kind.push(name.to_owned());
            }
        }
        ports
    }
}

fn rows(table: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    text.lines().skip(1).map(str::to_owned).collect()
}

/// Of `0100007F:1F90`.
fn port(address: &str) -> Option<u16> {
    u16::from_str_radix(address.split_once(':')?.1, 16).ok()
}

fn inodes(pid: i32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    entries.filter_map(of).collect()
}
