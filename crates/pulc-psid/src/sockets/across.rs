//! The system's broker: meets ends of different users where a policy allows it. A thread of root's psid, for its network namespace. Gives each
//! such connection a memory of its own and each end a window on the other process's sleepers; no other memory is shared between users. It believes
//! no end, as every broker, and no user keeps the others from being served.

use super::connections::{Connection, Connections, Whose};
use super::diag::Diag;
use super::policy::Policy;
use super::proof::Proof;
use super::service::{self, Service};
use super::windows::Windows;
use super::{answer, board_number, listing, make_channel};
use crate::error::Error;
use pulc_base::log;
use pulc_hal::os::fdpass::{Listener, PeerIdentity, Seqpacket};
use pulc_hal::os::memfd::WriteMap;
use pulc_sockets::message::{Answer, Join, Place, REQUEST_BYTES, Reason, Request, SYSTEM_NAME};
use pulc_sockets::{Side, bar, summary};
use rustix::process::geteuid;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Pairs of users whose ends may meet, see [`Policy::parse`].
pub const BETWEEN: &str = "PULC_SOCKETS_BETWEEN";
/// Of one user.
const LINES: usize = 32;
/// Connections that one user may have here, and those whose memory is still to be given to an end, which keep a descriptor; of all users, those.
const OF_A_USER: usize = 4096;
const UNSETTLED_OF_A_USER: usize = 64;
const UNSETTLED: usize = 128;

struct Across {
    diag: Diag,
    proof: Proof,
    connections: Connections<WriteMap>,
    windows: Windows,
}

/// Starts it in the background if the environment of this psid has a policy.
///
/// # Errors
/// A policy that is none, and one that is not root's to say.
pub fn start_if_wanted() -> Result<(), Error> {
    let Ok(text) = std::env::var(BETWEEN) else { return Ok(()) };
    let refused = |why: String| Error::io(format!("{BETWEEN}={text}"))(std::io::Error::other(why));
    let policy = Policy::parse(&text).map_err(&refused)?;
    if !geteuid().is_root() {
        return Err(refused("only root's psid is believed by programs of several users".to_owned()));
    }
    let listener = Listener::bind(&SYSTEM_NAME).map_err(Error::io("cannot listen as the system's sockets' broker"))?;
    let mut broker = Across::new(policy)?;
    let name = "sockets".to_owned();
    let serve = move || {
        if let Err(error) = service::run(&listener, &mut broker) {
            log!(Error, "sockets", "ends of different users stay on the kernel from now on: {error}");
        }
    };
    std::thread::Builder::new().name(name).spawn(serve).map_err(Error::io("cannot start a thread"))?;
    Ok(())
}

impl Service for Across {
    fn serve(&mut self, client: &Seqpacket) -> bool {
        let Ok(who) = client.peer() else { return false };
        let mut bytes = [0; REQUEST_BYTES + 1];
        let received = match client.recv(&mut bytes) {
            Ok(Some(received)) => received,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
            Ok(None) | Err(_) => return false,
        };
        match Request::decode(&bytes[..received.bytes]) {
            Ok(Request::Join(join)) if !join.is_datagram => {
                self.give(client, &join, &who, received.fds).map_or_else(|reason| answer(client, reason), |()| true)
            }
            Ok(Request::Join(_)) => answer(client, Reason::PeerOfAnotherUser),
            // An end that stays on the kernel is on the list of its own user's broker.
            Ok(Request::Report(_)) => true,
            Ok(Request::List) => {
                self.clear_up();
                let his = self.connections.iter().filter(|connection| is_his(who.uid, connection.users));
                listing::send(client, his.map(|connection| listing::joined(connection, Reason::None)).collect())
            }
            Ok(Request::Demote(pid)) => {
                let his = self.connections.iter().filter(|connection| is_his(who.uid, connection.users));
                let mut count = 0;
                for connection in his.filter(|connection| pid == 0 || connection.pids.contains(&pid)) {
                    bar(&connection.memory.map);
                    count += 1;
                }
                client.send(format!("{count}").as_bytes(), &[]).is_ok()
            }
            Err(error) => {
                log!(Info, "sockets", "{error}");
                false
            }
        }
    }

    fn clear_up(&mut self) {
        let diag = &self.diag;
        self.connections.clear_up(|local, remote| diag.find(local, remote));
        self.connections.over.clear();
        self.windows.clear_up();
    }

    fn may_end(&mut self, _: Duration) -> bool {
        false
    }

    fn lines_of_a_user(&self) -> usize {
        LINES
    }
}

/// Root may see and send back all.
fn is_his(uid: u32, users: [u32; 2]) -> bool {
    uid == 0 || users.contains(&uid)
}

impl Across {
    fn new(policy: Policy) -> Result<Across, Error> {
        let diag = Diag::open().map_err(Error::io("cannot ask the kernel about sockets"))?;
        let proof = Proof::new(&diag);
        let windows = Windows::new(board_number().map_err(Error::io("cannot name the system's sockets' broker"))?);
        Ok(Across { diag, proof, connections: Connections::new(Whose::Between(policy)), windows })
    }

    /// Whether there is no room for one more connection of a user.
    fn is_full(&self, uid: u32) -> bool {
        let his = || self.connections.iter().filter(move |connection| connection.users.contains(&uid));
        let is_unsettled = |connection: &&Connection<WriteMap>| connection.memory.fd.is_some();
        his().count() >= OF_A_USER
            || his().filter(is_unsettled).count() >= UNSETTLED_OF_A_USER
            || self.connections.iter().filter(is_unsettled).count() >= UNSETTLED
    }

    /// Gives the end that asks its channel and a window on the other one, if that has asked too. Who asks first learns only that what it shows is
    /// known.
    fn give(&mut self, client: &Seqpacket, join: &Join, who: &PeerIdentity, sent: Vec<OwnedFd>) -> Result<(), Reason> {
        if let Some((reason, _)) = self.proof.failed(&self.diag) {
            return Err(*reason);
        }
        let has_asked = self.connections.has_asked(join);
        if !has_asked && self.is_full(who.uid) {
            self.clear_up();
            if self.is_full(who.uid) {
                return Err(Reason::Full);
            }
        }
        let diag = &self.diag;
        let find = |local: &Place, remote: &Place| diag.find(local, remote);
        let has_joined = |map: &WriteMap, side: Side| summary(map).joined[side as usize];
        let pid = who.pid as u32;
        let connection = self.connections.join(join, (pid, who.uid), find, has_joined, make_channel)?;
        let window = match self.windows.of(join, who, sent) {
            Ok(window) => window,
            Err(reason) => {
                self.connections.withdraw(join);
                return Err(reason);
            }
        };
        connection.windows[join.side as usize] = Some(window);
        let met = connection.memory.fd.as_ref().zip(connection.windows[join.side.other() as usize]);
        let met = met.and_then(|(channel, theirs)| Some([channel.as_fd(), self.windows.get(theirs)?]));
        let reason = if met.is_some() { Reason::None } else { Reason::NotMet };
        let words = Answer { reason, slot: window, board: self.windows.number }.encode();
        let fds: &[BorrowedFd<'_>] = met.as_ref().map_or(&[], |fds| fds);
        if client.send(&words, fds).is_err() {
            if !has_asked {
                self.connections.withdraw(join);
            }
            return Err(Reason::Slow);
        }
        Ok(())
    }
}
