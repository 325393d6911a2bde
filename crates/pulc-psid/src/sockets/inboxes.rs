//! The UDP sockets of a user that have an inbox, and who sends to them. Which socket a datagram comes to the kernel is asked, through a
//! function, so nothing here is waited for. Called by the broker.

use super::connections::Memory;
use super::diag::Found;
use pulc_sockets::Side;
use pulc_sockets::message::{Join, Place, Reason};
use std::collections::HashMap;
use std::io;

/// More stay on the kernel. Each keeps a descriptor, for those who are yet to send to it.
const INBOXES_MAX: usize = 4096;

pub struct Inbox<M> {
    /// Its socket's own address, and what that is connected to, or nothing.
    pub local: Place,
    remote: Place,
    pub pid: u32,
    pub memory: Memory<M>,
    /// Sockets that have asked to send to it, and whose and from where the last was.
    pub senders: u32,
    pub sender: Option<(u32, Place)>,
}

pub struct Inboxes<M> {
    /// By the kernel's names of their sockets.
    all: HashMap<u64, Inbox<M>>,
    /// Of those that are over, until somebody has looked what they came to.
    pub over: Vec<Memory<M>>,
    uid: u32,
}

impl<M> Inboxes<M> {
    pub fn new(uid: u32) -> Inboxes<M> {
        Inboxes { all: HashMap::new(), over: Vec::new(), uid }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Inbox<M>> {
        self.all.values()
    }

    /// What is sent with the answer to one who asks. `find` says which socket a datagram comes to, from the first place to the second; `has_joined`
    /// and `is_open` look into an inbox, `make` makes one.
    pub fn join(
        &mut self,
        join: &Join,
        pid: u32,
        mut find: impl FnMut(&Place, &Place) -> io::Result<Option<Found>>,
        has_joined: impl Fn(&M) -> bool,
        is_open: impl Fn(&M) -> bool,
        make: impl FnOnce() -> Option<Memory<M>>,
    ) -> Result<&Inbox<M>, Reason> {
        let silent = |_| Reason::KernelSilent;
        let mine = find(&join.remote, &join.local).map_err(silent)?.ok_or(Reason::NotTheSocket)?;
        if mine.cookie != join.cookie {
            return Err(Reason::NotTheSocket);
        }
        if mine.uid != self.uid {
            return Err(Reason::PeerOfAnotherUser);
        }
        if join.side == Side::Passive {
            return self.open(join, pid, has_joined, make);
        }
        let other = find(&join.local, &join.remote).map_err(silent)?.ok_or(Reason::PeerElsewhere)?;
        if other.uid != self.uid {
            return Err(Reason::PeerOfAnotherUser);
        }
        // Its process does not take part, or not yet.
        let inbox =
            self.all.get_mut(&other.cookie).filter(|inbox| is_open(&inbox.memory.map)).ok_or(Reason::Waiting)?;
        if other.cookie == mine.cookie {
            return Err(Reason::NotTheSocket);
        }
        inbox.senders = inbox.senders.saturating_add(1);
        inbox.sender = Some((pid, join.local));
        Ok(inbox)
    }

    fn open(
        &mut self,
        join: &Join,
        pid: u32,
        has_joined: impl Fn(&M) -> bool,
        make: impl FnOnce() -> Option<Memory<M>>,
    ) -> Result<&Inbox<M>, Reason> {
        // Who asks again did not get the first answer in time, or is a fork.
        if let Some(known) = self.all.get(&join.cookie)
            && (known.pid != pid || has_joined(&known.memory.map))
        {
            return Err(Reason::Forked);
        }
        if !self.all.contains_key(&join.cookie) {
            if self.all.len() >= INBOXES_MAX {
                return Err(Reason::Full);
            }
            let memory = make().ok_or(Reason::NoMemory)?;
            let (local, remote) = (join.local, join.remote);
            self.all.insert(join.cookie, Inbox { local, remote, pid, memory, senders: 0, sender: None });
        }
        self.all.get(&join.cookie).ok_or(Reason::NoMemory)
    }

    /// Forgets those whose sockets the kernel does not know any more.
    pub fn clear_up(&mut self, mut find: impl FnMut(&Place, &Place) -> io::Result<Option<Found>>) {
        let gone = self.all.iter().filter(|(cookie, inbox)| match find(&inbox.remote, &inbox.local) {
            Ok(found) => found.is_none_or(|found| found.cookie != **cookie),
            // Not known to be gone.
            Err(_) => false,
        });
        for cookie in gone.map(|(cookie, _)| *cookie).collect::<Vec<_>>() {
            self.over.extend(self.all.remove(&cookie).map(|inbox| inbox.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_sockets::message::{NO_BOARD, NO_SLOT};

    const SERVER: Place = Place { address: [1; 16], port: 53 };
    const CLIENT: Place = Place { address: [1; 16], port: 1000 };
    const NOTHING: Place = Place { address: [0; 16], port: 0 };

    fn ask(side: Side, cookie: u64, local: Place, remote: Place) -> Join {
        Join { side, is_datagram: true, cookie, local, remote, slot: NO_SLOT, board: NO_BOARD }
    }

    fn memory() -> Option<Memory<u32>> {
        Some(Memory { map: 0, fd: None })
    }

    /// The server's socket is 5, the client's 6; user 7 has both.
    fn kernel(_: &Place, to: &Place) -> io::Result<Option<Found>> {
        let cookie = if *to == SERVER { 5 } else { 6 };
        Ok((*to != NOTHING).then_some(Found { cookie, uid: 7 }))
    }

    fn reason(result: Result<&Inbox<u32>, Reason>) -> Reason {
        result.map_or_else(|reason| reason, |_| Reason::None)
    }

    #[test]
    fn who_sends_gets_the_inbox_of_the_socket_that_the_kernel_names() {
        let mut all = Inboxes::new(7);
        let mut join = |ask: Join, pid| reason(all.join(&ask, pid, kernel, |_| false, |_| true, memory));
        let send = ask(Side::Active, 6, CLIENT, SERVER);
        assert_eq!(join(send, 2), Reason::Waiting, "nobody reads there yet");
        let open = ask(Side::Passive, 5, SERVER, NOTHING);
        assert_eq!(join(open, 1), Reason::None);
        assert_eq!(join(open, 1), Reason::None, "it has missed the answer");
        assert_eq!(join(open, 3), Reason::Forked);
        assert_eq!(join(send, 2), Reason::None);
        assert_eq!(join(ask(Side::Active, 9, CLIENT, SERVER), 2), Reason::NotTheSocket);
        assert_eq!(join(ask(Side::Active, 6, CLIENT, NOTHING), 2), Reason::PeerElsewhere);
        let inbox = all.iter().next().unwrap();
        assert_eq!((inbox.senders, inbox.sender), (1, Some((2, CLIENT))));
        all.clear_up(kernel);
        all.clear_up(|_, _| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(all.len(), 1);
        all.clear_up(|_, _| Ok(None));
        assert_eq!((all.len(), all.over.len()), (0, 1));
    }

    #[test]
    fn nobody_sends_to_a_closed_inbox_or_to_somebody_elses() {
        let mut all = Inboxes::new(7);
        all.join(&ask(Side::Passive, 5, SERVER, NOTHING), 1, kernel, |_| false, |_| true, memory).unwrap();
        let send = ask(Side::Active, 6, CLIENT, SERVER);
        assert_eq!(reason(all.join(&send, 2, kernel, |_| true, |_| false, memory)), Reason::Waiting);
        let strange = |from: &Place, to: &Place| {
            kernel(from, to).map(|found| found.map(|found| Found { uid: if *to == SERVER { 8 } else { 7 }, ..found }))
        };
        assert_eq!(reason(all.join(&send, 2, strange, |_| true, |_| true, memory)), Reason::PeerOfAnotherUser);
    }
}
