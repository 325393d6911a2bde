//! The sockets' broker: meets the two ends of a user's TCP connections and gives them one memory. Started by `pulc bypass` where none
//! runs; serves one user and one network namespace, reads no payload, and ends by itself when nobody needs it any more. The ends go on
//! without it: it is needed to meet, not to talk. One thread, one loop, no runtime.
//!
//! It believes no end: what a connection is, whose it is and who its other end is, it asks the kernel.

mod connections;
mod diag;
mod proof;

use crate::error::Error;
use connections::{Connection, Connections, Memory};
use diag::{Diag, Found};
use pulc_base::log;
use pulc_hal::os::fdpass::{Listener, Seqpacket};
use pulc_hal::os::memfd::WriteMap;
use pulc_sockets::message::{Answer, Join, NO_SLOT, Place, REQUEST_BYTES, Reason, Request, broker_name};
use pulc_sockets::{Board, bar, create, summary};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Requests that are being read at a time; more wait to be accepted.
const CLIENTS_MAX: usize = 256;
/// Between two looks for connections that are over, while there are any.
const TICK: Duration = Duration::from_secs(10);
/// Without connections and requests for so long, the broker ends.
const IDLE: Duration = Duration::from_secs(60);
/// A list is sent in pieces of about so many bytes, lines apart by newlines; the last line of all is [`END`].
const LIST_BYTES: usize = 8192;
const END: &str = ".";
/// Joins between two looks for connections that are over.
const JOINS: u32 = 256;

struct Broker {
    uid: u32,
    diag: Diag,
    board: OwnedFd,
    /// Why nobody is given a channel on this kernel.
    refused: Option<Reason>,
    connections: Connections<WriteMap>,
    joins: u32,
}

/// Serves until nobody needs it. `ready` is called once requests are accepted.
///
/// # Errors
/// When it cannot listen; `AddrInUse` when another one does already.
pub fn serve(ready: impl FnOnce()) -> Result<(), Error> {
    let uid = rustix::process::geteuid().as_raw();
    let listener = Listener::bind(&broker_name(uid)).map_err(Error::io("cannot listen as the sockets' broker"))?;
    let mut broker = Broker::new(uid)?;
    ready();
    let mut clients: Vec<Seqpacket> = Vec::new();
    let mut busy = Instant::now();
    loop {
        let tick = Timespec { tv_sec: TICK.as_secs() as i64, tv_nsec: 0 };
        let readable = wait(&listener, &clients, &tick).map_err(Error::io("the sockets' broker cannot wait"))?;
        if readable.is_empty() {
            broker.clear_up();
            if broker.connections.len() == 0 && clients.is_empty() && busy.elapsed() > IDLE {
                return Ok(());
            }
            continue;
        }
        busy = Instant::now();
        // From the end, so that numbers before stay what they are.
        for index in readable.into_iter().rev() {
            match index.checked_sub(1) {
                None => accept(&listener, &mut clients),
                Some(client) if broker.serve(&clients[client]) => {}
                Some(client) => drop(clients.swap_remove(client)),
            }
        }
    }
}

/// Which descriptors can be read: 0 the listener, then the clients.
fn wait(listener: &Listener, clients: &[Seqpacket], limit: &Timespec) -> io::Result<Vec<usize>> {
    let all = std::iter::once(listener.as_fd()).chain(clients.iter().map(AsFd::as_fd));
    let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut fds, Some(limit)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    Ok(fds.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty()).map(|(index, _)| index).collect())
}

fn accept(listener: &Listener, clients: &mut Vec<Seqpacket>) {
    while clients.len() < CLIENTS_MAX {
        match listener.accept() {
            Ok(client) => clients.push(client),
            Err(_) => return,
        }
    }
}

impl Broker {
    fn new(uid: u32) -> Result<Broker, Error> {
        let diag = Diag::open().map_err(Error::io("cannot ask the kernel about sockets"))?;
        let failed = |error: pulc_sockets::Error| Error::io("cannot make the sockets' board")(io::Error::other(error));
        let (_, board) = Board::create().map_err(failed)?;
        let refused = match proof::holds() {
            Ok(()) => None,
            Err(why) => {
                log!(Warn, "sockets", "{why}: connections stay on the kernel");
                Some(Reason::KernelUnknown)
            }
        };
        Ok(Broker { uid, diag, board, refused, connections: Connections::new(uid), joins: 0 })
    }

    /// Whether the client may ask more.
    fn serve(&mut self, client: &Seqpacket) -> bool {
        let Ok(identity) = client.peer() else { return false };
        let mut bytes = [0; REQUEST_BYTES + 1];
        let received = match client.recv(&mut bytes) {
            Ok(Some(received)) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Ok(None) | Err(_) => return false,
        };
        if identity.uid != self.uid {
            let answer = Answer { reason: Reason::PeerOfAnotherUser, slot: NO_SLOT };
            let _ = client.send(&answer.encode(), &[]);
            return false;
        }
        match Request::decode(&bytes[..received.bytes]) {
            Ok(Request::Join(join)) => self.join(client, &join, identity.pid as u32),
            Ok(Request::List) => self.list(client),
            Ok(Request::Demote(pid)) => self.demote(client, pid),
            Err(error) => {
                log!(Info, "sockets", "{error}");
                false
            }
        }
    }

    fn join(&mut self, client: &Seqpacket, join: &Join, pid: u32) -> bool {
        self.joins += 1;
        if self.joins.is_multiple_of(JOINS) {
            self.clear_up();
        }
        let (diag, refused) = (&self.diag, self.refused);
        let find = |local: &Place, remote: &Place| -> Option<Found> { diag.find(local, remote).ok().flatten() };
        let joined = match refused {
            Some(reason) => Err(reason),
            None => self.connections.join(join, pid, find, || {
                let (map, fd) = create().ok()?;
                Some(Memory { map, fd: Some(fd) })
            }),
        };
        match joined {
            Ok((answer, connection)) => {
                let Some(channel) = &connection.memory.fd else { return false };
                let both = [channel.as_fd(), self.board.as_fd()];
                let fds: &[BorrowedFd<'_>] = if join.slot == NO_SLOT { &both } else { &both[..1] };
                let is_sent = client.send(&answer.encode(), fds).is_ok();
                if connection.pids.iter().all(|pid| *pid != 0) {
                    connection.memory.fd = None;
                }
                is_sent
            }
            Err(reason) => client.send(&Answer { reason, slot: NO_SLOT }.encode(), &[]).is_ok(),
        }
    }

    fn clear_up(&mut self) {
        let diag = &self.diag;
        self.connections.clear_up(|local, remote| diag.find(local, remote).ok().flatten());
    }

    fn list(&mut self, client: &Seqpacket) -> bool {
        self.clear_up();
        let mut text = String::new();
        for connection in self.connections.iter() {
            text += &row(connection);
            text.push('\n');
            if text.len() > LIST_BYTES && !push(client, &std::mem::take(&mut text)) {
                return false;
            }
        }
        text += END;
        push(client, &text)
    }

    fn demote(&mut self, client: &Seqpacket, pid: u32) -> bool {
        let mut count = 0;
        for connection in self.connections.iter().filter(|connection| pid == 0 || connection.pids.contains(&pid)) {
            bar(&connection.memory.map);
            count += 1;
        }
        client.send(format!("{count}").as_bytes(), &[]).is_ok()
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

/// A connection as `pulc sockets` reads it: fields with tabs between them, those of the two directions with a comma.
fn row(connection: &Connection<WriteMap>) -> String {
    let summary = summary(&connection.memory.map);
    let [active, passive] = [connection.active, connection.passive].map(|place| address(&place));
    let path = |on_ring| if on_ring { "ring" } else { "kernel" };
    let reasons = summary.reasons.map(Reason::of);
    let is_met = summary.joined.iter().all(|joined| *joined);
    let reason = reasons.into_iter().find(|reason| *reason != Reason::None).unwrap_or(match is_met {
        true => Reason::None,
        false => Reason::Waiting,
    });
    let [pid, peer] = connection.pids;
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
