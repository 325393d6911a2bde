//! What processes show of their sleepers to ends of other users: a descriptor each, numbered, kept as long as the process lives. A number is
//! believed to whoever is of the same user: one of his processes may harm another, not anybody else's. Used by the system's broker.

use pulc_hal::os::fdpass::PeerIdentity;
use pulc_sockets::message::{Join, NO_SLOT, Reason};
use rustix::process::{Pid, test_kill_process};
use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Descriptors that are kept; of one user, a part of them.
const WINDOWS_MAX: usize = 256;
const OF_A_USER: usize = WINDOWS_MAX / 2;

struct Window {
    pid: i32,
    uid: u32,
    fd: OwnedFd,
}

pub struct Windows {
    /// What this broker calls itself.
    pub number: u32,
    all: HashMap<u32, Window>,
    next: u32,
}

impl Windows {
    pub fn new(number: u32) -> Windows {
        Windows { number, all: HashMap::new(), next: 0 }
    }

    /// The number of what the process shows that asks, with what it has sent along.
    pub fn of(&mut self, join: &Join, who: &PeerIdentity, sent: Vec<OwnedFd>) -> Result<u32, Reason> {
        if join.slot != NO_SLOT {
            let is_known = join.board == self.number && self.all.get(&join.slot).is_some_and(|own| own.uid == who.uid);
            return if is_known { Ok(join.slot) } else { Err(Reason::OtherBroker) };
        }
        let fd = sent.into_iter().next().ok_or(Reason::NoMemory)?;
        if self.all.len() >= WINDOWS_MAX || self.all.values().filter(|other| other.uid == who.uid).count() >= OF_A_USER
        {
            self.clear_up();
        }
        if self.all.len() >= WINDOWS_MAX || self.all.values().filter(|other| other.uid == who.uid).count() >= OF_A_USER
        {
            return Err(Reason::Full);
        }
        while self.next == NO_SLOT || self.all.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.all.insert(number, Window { pid: who.pid, uid: who.uid, fd });
        Ok(number)
    }

    /// What a process shows. It is passed on as it came: whoever maps it looks what it is.
    pub fn get(&self, number: u32) -> Option<BorrowedFd<'_>> {
        self.all.get(&number).map(|window| window.fd.as_fd())
    }

    /// Forgets those of processes that are gone. Forks of them stay on the kernel with what they open later.
    pub fn clear_up(&mut self) {
        self.all.retain(|_, window| {
            let pid = Pid::from_raw(window.pid);
            pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_sockets::Side;
    use pulc_sockets::message::{NO_BOARD, Place};

    fn join(slot: u32, board: u32) -> Join {
        let local = Place { address: [1; 16], port: 1 };
        let remote = Place { port: 2, ..local };
        Join { side: Side::Active, is_datagram: false, cookie: 5, local, remote, slot, board }
    }

    fn descriptor() -> Vec<OwnedFd> {
        vec![std::fs::File::open("/dev/null").unwrap().into()]
    }

    #[test]
    fn a_number_is_its_users_own_and_ends_with_the_process() {
        let mut windows = Windows::new(9);
        let me = PeerIdentity { pid: std::process::id() as i32, uid: 7, gid: 7 };
        let number = windows.of(&join(NO_SLOT, NO_BOARD), &me, descriptor()).unwrap();
        assert_eq!(windows.of(&join(number, 9), &me, Vec::new()), Ok(number));
        assert_eq!(windows.of(&join(number, 8), &me, Vec::new()), Err(Reason::OtherBroker));
        let stranger = PeerIdentity { uid: 8, ..me };
        assert_eq!(windows.of(&join(number, 9), &stranger, Vec::new()), Err(Reason::OtherBroker));
        assert_eq!(windows.of(&join(NO_SLOT, NO_BOARD), &me, Vec::new()), Err(Reason::NoMemory));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let his = PeerIdentity { pid: child.id() as i32, ..me };
        let gone = windows.of(&join(NO_SLOT, NO_BOARD), &his, descriptor()).unwrap();
        child.wait().unwrap();
        windows.clear_up();
        assert!(windows.get(gone).is_none() && windows.get(number).is_some());
    }

    #[test]
    fn no_user_takes_all_the_room() {
        let mut windows = Windows::new(9);
        let me = |uid| PeerIdentity { pid: std::process::id() as i32, uid, gid: 7 };
        for _ in 0..OF_A_USER {
            windows.of(&join(NO_SLOT, NO_BOARD), &me(7), descriptor()).unwrap();
        }
        assert_eq!(windows.of(&join(NO_SLOT, NO_BOARD), &me(7), descriptor()), Err(Reason::Full));
        assert!(windows.of(&join(NO_SLOT, NO_BOARD), &me(8), descriptor()).is_ok());
    }
}
