//! The sockets' broker: meets the two ends of a user's TCP connections and gives them one memory, and those who send to a UDP socket that of its
//! inbox. Started by `pulc bypass` where none
//! runs; serves one user and one network namespace, reads no payload, and ends by itself when nobody needs it any more. The ends go on
//! without it: it is needed to meet, not to talk. One thread, one loop, no runtime.
//!
//! It believes no end: what a connection is, whose it is and who its other end is, it asks the kernel.
//!
//! Ends of different users meet in the system's broker only (`across`), which root's psid runs where it has been told of a policy.

mod across;
mod connections;
mod diag;
mod inboxes;
mod listing;
mod policy;
mod proof;
mod refusals;
mod service;
mod slots;
mod windows;

pub(crate) use across::start_if_wanted;
pub(crate) use diag::fuzz_answers;

use crate::error::Error;
use connections::{Connections, Memory, Whose};
use diag::Diag;
use inboxes::Inboxes;
use proof::Proof;
use pulc_base::log;
use pulc_hal::os::fdpass::{Listener, Seqpacket};
use pulc_hal::os::memfd::WriteMap;
use pulc_sockets::message::{Answer, Join, NO_BOARD, NO_SLOT, Place, REQUEST_BYTES, Reason, Request, broker_name};
use pulc_sockets::{Board, Side, bar, create, datagrams, summary};
use refusals::{Refusals, key};
use rustix::process::{Resource, getrlimit, setrlimit};
use service::Service;
use slots::Slots;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Without connections and requests for so long, the broker ends.
const IDLE: Duration = Duration::from_secs(60);
/// Joins between two looks for connections that are over.
const JOINS: u32 = 256;

struct Broker {
    uid: u32,
    diag: Diag,
    board: OwnedFd,
    slots: Slots,
    proof: Proof,
    connections: Connections<WriteMap>,
    inboxes: Inboxes<WriteMap>,
    refusals: Refusals,
    joins: u32,
    past: Past,
}

/// What the connections that are over came to.
#[derive(Clone, Copy, Default)]
struct Past {
    connections: u64,
    bytes: u64,
}

impl Past {
    /// Counts a connection if bytes of it went through a ring.
    fn add(&mut self, map: &WriteMap) {
        self.count(summary(map).ring_bytes.iter().sum());
    }

    fn count(&mut self, bytes: u64) {
        self.connections += u64::from(bytes > 0);
        self.bytes += bytes;
    }
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
    service::run(&listener, &mut broker).map_err(Error::io("the sockets' broker cannot wait"))
}

impl Service for Broker {
    fn serve(&mut self, client: &Seqpacket) -> bool {
        let Ok(identity) = client.peer() else { return false };
        let mut bytes = [0; REQUEST_BYTES + 1];
        let received = match client.recv(&mut bytes) {
            Ok(Some(received)) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Ok(None) | Err(_) => return false,
        };
        let pid = identity.pid as u32;
        if identity.uid != self.uid {
            return answer(client, Reason::PeerOfAnotherUser);
        }
        match Request::decode(&bytes[..received.bytes]) {
            Ok(Request::Join(join)) => self.join(client, &join, pid),
            // It was given a channel by the system's broker.
            Ok(Request::Report(report)) if report.reason == Reason::None => {
                self.refusals.lift(&key(report.side, report.local, report.remote), report.side);
                true
            }
            Ok(Request::Report(report)) => {
                self.refuse(report.side, report.local, report.remote, pid, report.reason);
                true
            }
            Ok(Request::List) => self.list(client),
            Ok(Request::Demote(pid)) => self.demote(client, pid),
            Err(error) => {
                log!(Info, "sockets", "{error}");
                false
            }
        }
    }

    fn clear_up(&mut self) {
        let diag = &self.diag;
        self.connections.clear_up(|local, remote| diag.find(local, remote));
        self.refusals.clear_up(|local, remote| diag.find(local, remote));
        for memory in self.connections.over.drain(..) {
            self.past.add(&memory.map);
        }
        self.inboxes.clear_up(|from, to| diag.find_receiver(from, to));
        for memory in self.inboxes.over.drain(..) {
            self.past.count(datagrams::summary(&memory.map).ring_bytes);
        }
    }

    fn may_end(&mut self, idle: Duration) -> bool {
        self.connections.len() + self.inboxes.len() == 0 && idle > IDLE && !self.slots.are_needed()
    }

    fn lines_of_a_user(&self) -> usize {
        // All are of one, and strangers are told no.
        usize::MAX
    }
}

impl Broker {
    fn new(uid: u32) -> Result<Broker, Error> {
        more_descriptors();
        let diag = Diag::open().map_err(Error::io("cannot ask the kernel about sockets"))?;
        let failed = |error: pulc_sockets::Error| Error::io("cannot make the sockets' board")(io::Error::other(error));
        let (_, board) = Board::create().map_err(failed)?;
        let slots = Slots::new(board_number().map_err(Error::io("cannot name the sockets' board"))?);
        let proof = Proof::new(&diag);
        let (connections, inboxes) = (Connections::new(Whose::User(uid)), Inboxes::new(uid));
        let (refusals, past) = (Refusals::default(), Past::default());
        Ok(Broker { uid, diag, board, slots, proof, connections, inboxes, refusals, joins: 0, past })
    }

    fn join(&mut self, client: &Seqpacket, join: &Join, pid: u32) -> bool {
        self.joins += 1;
        if self.joins.is_multiple_of(JOINS) {
            self.clear_up();
        }
        if join.is_datagram {
            return self.give_inbox(client, join, pid).map_or_else(|reason| answer(client, reason), |()| true);
        }
        match self.give(client, join, pid) {
            Ok(()) => {
                self.refusals.lift(&key(join.side, join.local, join.remote), join.side);
                true
            }
            Err(reason) => {
                self.refuse(join.side, join.local, join.remote, pid, reason);
                answer(client, reason)
            }
        }
    }

    /// Gives the end that asks its channel, and a slot with the board if it has none.
    fn give(&mut self, client: &Seqpacket, join: &Join, pid: u32) -> Result<(), Reason> {
        if let Some((reason, _)) = self.proof.failed(&self.diag) {
            return Err(*reason);
        }
        // An earlier answer to it may still be on its way.
        let has_asked = self.connections.has_asked(join);
        let diag = &self.diag;
        let find = |local: &Place, remote: &Place| diag.find(local, remote);
        let has_joined = |map: &WriteMap, side: Side| summary(map).joined[side as usize];
        let connection = self.connections.join(join, (pid, self.uid), find, has_joined, make_channel)?;
        let slot = match self.slots.of(join, pid) {
            Ok(slot) => slot,
            Err(reason) => {
                self.connections.withdraw(join);
                return Err(reason);
            }
        };
        let channel = connection.memory.fd.as_ref().ok_or(Reason::Forked)?;
        let both = [channel.as_fd(), self.board.as_fd()];
        let fds: &[BorrowedFd<'_>] = if join.slot == NO_SLOT { &both } else { &both[..1] };
        let answer = Answer { reason: Reason::None, slot, board: self.slots.board };
        if client.send(&answer.encode(), fds).is_err() {
            if !has_asked {
                self.connections.withdraw(join);
            }
            return Err(Reason::Slow);
        }
        Ok(())
    }

    /// Gives a socket its inbox, or the inbox that it sends to.
    fn give_inbox(&mut self, client: &Seqpacket, join: &Join, pid: u32) -> Result<(), Reason> {
        let diag = &self.diag;
        let find = |from: &Place, to: &Place| diag.find_receiver(from, to);
        let has_joined = |map: &WriteMap| datagrams::summary(map).has_joined;
        let is_open = |map: &WriteMap| datagrams::summary(map).is_open;
        let inbox = self.inboxes.join(join, pid, find, has_joined, is_open, || {
            let mut secret = [0; datagrams::SECRET_BYTES];
            let got = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty()).ok()?;
            let (map, fd) = (got == secret.len()).then(|| datagrams::create(secret).ok()).flatten()?;
            Some(Memory { map, fd: Some(fd) })
        })?;
        let slot = self.slots.of(join, pid)?;
        let memory = inbox.memory.fd.as_ref().ok_or(Reason::NoMemory)?;
        let both = [memory.as_fd(), self.board.as_fd()];
        let fds: &[BorrowedFd<'_>] = if join.slot == NO_SLOT { &both } else { &both[..1] };
        let answer = Answer { reason: Reason::None, slot, board: self.slots.board };
        client.send(&answer.encode(), fds).map_err(|_| Reason::Slow)
    }

    /// Keeps for the list that an end stays on the kernel, if it is one.
    fn refuse(&mut self, side: Side, local: Place, remote: Place, pid: u32, reason: Reason) {
        if let Ok(Some(found)) = self.diag.find(&local, &remote)
            && found.uid == self.uid
        {
            self.refusals.record(key(side, local, remote), side, pid, found.cookie, reason);
        }
    }

    fn demote(&mut self, client: &Seqpacket, pid: u32) -> bool {
        let mut count = 0;
        for connection in self.connections.iter().filter(|connection| pid == 0 || connection.pids.contains(&pid)) {
            bar(&connection.memory.map);
            count += 1;
        }
        let is_his = |of: u32| pid == 0 || of == pid;
        for inbox in
            self.inboxes.iter().filter(|inbox| is_his(inbox.pid) || inbox.sender.is_some_and(|(of, _)| is_his(of)))
        {
            datagrams::bar(&inbox.memory.map);
            count += 1;
        }
        client.send(format!("{count}").as_bytes(), &[]).is_ok()
    }
}

fn make_channel() -> Option<Memory<WriteMap>> {
    let (map, fd) = create().ok()?;
    Some(Memory { map, fd: Some(fd) })
}

/// Says no; whether the client was still there.
fn answer(client: &Seqpacket, reason: Reason) -> bool {
    client.send(&Answer { reason, slot: NO_SLOT, board: NO_BOARD }.encode(), &[]).is_ok()
}

/// What this broker calls its board, so that slots of an earlier broker's are told from its own.
fn board_number() -> io::Result<u32> {
    let mut bytes = [0; 4];
    loop {
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let number = u32::from_ne_bytes(bytes);
        if got == bytes.len() && number != NO_BOARD {
            return Ok(number);
        }
    }
}

/// As many descriptors as the system lets us have: a connection of which only one end takes part keeps one.
fn more_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is refused some connections stay on the kernel, and are listed.
    let _ = setrlimit(Resource::Nofile, limit);
}
