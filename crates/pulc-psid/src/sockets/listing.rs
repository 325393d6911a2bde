//! What `pulc sockets` is told: every connection of which an end has asked for a channel, or has said why it does not. Called by the broker.

use super::Broker;
use super::connections::Connection;
use super::inboxes::Inbox;
use super::service::Service as _;
use pulc_hal::os::fdpass::Seqpacket;
use pulc_hal::os::memfd::WriteMap;
use pulc_sockets::message::{Place, Reason};
use pulc_sockets::{Summary, datagrams, summary};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;

/// A list is sent in pieces of about so many bytes, lines apart by newlines; the last line of all is [`END`].
const LIST_BYTES: usize = 8192;
const END: &str = ".";
/// Before what is said of all connections.
const REMARK: char = '#';

impl Broker {
    pub(super) fn list(&mut self, client: &Seqpacket) -> bool {
        self.clear_up();
        let mut lines = Vec::new();
        if let Some((_, why)) = self.proof.failed(&self.diag) {
            lines.push(format!("{REMARK}nothing is promoted just now: {}", why.replace('\n', " ")));
        }
        lines.push(self.so_far());
        for connection in self.connections.iter() {
            let refusal = self.refusals.of(&(connection.active, connection.passive));
            lines.push(joined(connection, refusal.map_or(Reason::None, |refusal| refusal.reason())));
        }
        lines.extend(self.inboxes.iter().map(inbox));
        for (places, refusal) in self.refusals.iter().filter(|(places, _)| !self.connections.contains(places)) {
            lines.push(row(refusal.pids, places, &Summary::default(), refusal.reason()));
        }
        send(client, lines)
    }
}

/// Sends the lines of a list, and its end.
pub(super) fn send(client: &Seqpacket, lines: Vec<String>) -> bool {
    let mut text = String::new();
    for line in lines.into_iter().chain([END.to_owned()]) {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &line;
        if text.len() > LIST_BYTES && !push(client, &std::mem::take(&mut text)) {
            return false;
        }
    }
    text.is_empty() || push(client, &text)
}

impl Broker {
    /// How much the rings have carried since the broker is there.
    fn so_far(&self) -> String {
        let mut all = self.past;
        self.connections.iter().for_each(|connection| all.add(&connection.memory.map));
        self.inboxes.iter().for_each(|inbox| all.count(datagrams::summary(&inbox.memory.map).ring_bytes));
        format!("{REMARK}so far {} bytes of {} connections went through rings", all.bytes, all.connections)
    }
}

/// A connection that has a channel. `refused`: why an end has not got it.
pub(super) fn joined(connection: &Connection<WriteMap>, refused: Reason) -> String {
    let summary = summary(&connection.memory.map);
    let said = summary.reasons.map(Reason::of).into_iter().find(|reason| *reason != Reason::None);
    let is_there = summary.joined.iter().all(|joined| *joined);
    let reason = match said {
        Some(reason) => reason,
        None if is_there => Reason::None,
        None if refused != Reason::None => refused,
        None if connection.is_met() => Reason::Slow,
        None => Reason::Waiting,
    };
    row(connection.pids, &(connection.active, connection.passive), &summary, reason)
}

/// A UDP socket that has an inbox: who sent to it last, of how many.
fn inbox(inbox: &Inbox<WriteMap>) -> String {
    let summary = datagrams::summary(&inbox.memory.map);
    let (sender, from) = match inbox.sender {
        Some((pid, from)) => (pid, address(&from)),
        None => (0, "nobody yet".to_owned()),
    };
    let others = match inbox.senders {
        0 | 1 => String::new(),
        senders => format!(" and {} more", senders - 1),
    };
    let path = if summary.is_open && inbox.senders > 0 { "ring" } else { "kernel" };
    let why = match Reason::of(summary.reason) {
        Reason::None if !summary.has_joined => Reason::Slow,
        Reason::None if !summary.is_open => Reason::Told,
        reason => reason,
    };
    let to = address(&inbox.local);
    let (bytes, bells) = (summary.ring_bytes, summary.bells);
    format!("{sender}\t{}\tudp {from}{others}\t{to}\t{path}\t{bytes}\t{bells}\t0\t{}", inbox.pid, why.text())
}

/// A connection as `pulc sockets` reads it: fields with tabs between them, those of the two directions with a comma.
fn row(pids: [u32; 2], (active, passive): &(Place, Place), summary: &Summary, reason: Reason) -> String {
    let path = |on_ring| if on_ring { "ring" } else { "kernel" };
    let [pid, peer] = pids;
    let [active, passive] = [active, passive].map(address);
    let [to, from] = summary.on_ring.map(path);
    let ([sent, received], [bells, rung]) = (summary.ring_bytes, summary.bells);
    let [left, returned] = summary.returns;
    format!(
        "{pid}\t{peer}\t{active}\t{passive}\t{to},{from}\t{sent},{received}\t{bells},{rung}\t{left},{returned}\t{}",
        reason.text()
    )
}

fn address(place: &Place) -> String {
    match place.as_v4() {
        Some(v4) => format!("{}:{}", std::net::Ipv4Addr::from(v4), place.port),
        None => format!("[{}]:{}", std::net::Ipv6Addr::from(place.address), place.port),
    }
}

/// Sends although the client may have to read first; it is not waited for without end.
fn push(client: &Seqpacket, text: &str) -> bool {
    loop {
        match client.send(text.as_bytes(), &[]) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
                if !poll(&mut [PollFd::new(client, PollFlags::OUT)], Some(&limit)).is_ok_and(|ready| ready > 0) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}
