//! Connections that have not said hello yet: how they are taken, and which of them go when they are too many. Called by the keeper's
//! loop when somebody connects; must never let those that connect without end keep a rank from attaching.

use super::{Broker, Conn, Event};
use pulc_base::boot::{self, ToRank};
use pulc_hal::os::fdpass::Seqpacket;
use std::io;
use std::rc::Rc;

/// Connections that have not said hello yet, at most: of all processes, and of each. Beyond them the one that has been silent longest
/// is closed, not the newcomer: a process of this job that connects without end keeps no rank from attaching.
const STRANGERS_MAX: usize = 1024;
pub(super) const STRANGERS_OF_A_PROCESS_MAX: usize = 16;

impl Broker {
    /// Takes the next waiting connection; its number is to be polled. What came of those that made room for it goes to `events`.
    pub fn accept(&mut self, events: &mut Vec<Event>) -> io::Result<usize> {
        let socket = self.listener.accept()?;
        let own = rustix::process::geteuid().as_raw();
        let peer = socket.peer()?;
        if peer.uid != own {
            return self.turn_away(&socket, &format!("this job belongs to user {own}, not {}", peer.uid));
        }
        let is_its = |conn: &Conn| conn.pid == peer.pid;
        while self.strangers(is_its).count() >= STRANGERS_OF_A_PROCESS_MAX && self.close_oldest(is_its, events) {}
        while self.strangers(|_| true).count() >= STRANGERS_MAX && self.close_oldest(|_| true, events) {}
        self.accepted += 1;
        let conn = Conn { socket: Rc::new(socket), seat: None, pid: peer.pid, number: self.accepted };
        let index = self.conns.iter().position(Option::is_none).unwrap_or(self.conns.len());
        if index == self.conns.len() {
            self.conns.push(None);
        }
        self.conns[index] = Some(conn);
        Ok(index)
    }

    /// Connections that have not said hello: when they came, and where they are.
    pub(super) fn strangers(&self, which: impl Fn(&Conn) -> bool) -> impl Iterator<Item = (u64, usize)> {
        let conns = self.conns.iter().enumerate().filter_map(|(index, conn)| Some((index, conn.as_ref()?)));
        conns.filter(move |(_, conn)| conn.seat.is_none() && which(conn)).map(|(index, conn)| (conn.number, index))
    }

    /// Closes the connection that has been silent longest, unless its hello has come meanwhile. False when there is no stranger.
    /// It is told nothing: an honest process takes that for being asked to come again.
    fn close_oldest(&mut self, which: impl Fn(&Conn) -> bool, events: &mut Vec<Event>) -> bool {
        let Some((_, index)) = self.strangers(which).min() else { return false };
        events.extend(self.read(index));
        if self.conns[index].as_ref().is_some_and(|conn| conn.seat.is_none()) {
            self.note_refusal("a connection", "others wait, and it has not said hello");
            self.close(index);
            events.push(Event::Closed);
        }
        true
    }

    /// Frees the descriptor of a connection that has not said hello, if there is one.
    pub fn free_a_descriptor(&mut self, events: &mut Vec<Event>) -> bool {
        self.close_oldest(|_| true, events)
    }

    fn turn_away(&mut self, socket: &Seqpacket, why: &str) -> io::Result<usize> {
        self.note_refusal("a connection", why);
        let _ = socket.send(&boot::encode(&ToRank::Refused { why: why.to_owned() }), &[]);
        Err(io::ErrorKind::Interrupted.into())
    }
}
