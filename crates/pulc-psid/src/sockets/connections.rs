//! The connections of a user of which one end or both have asked for a channel. Decides who gets one; the kernel is asked through a
//! function, so nothing here is waited for.

use super::diag::Found;
use super::policy::Policy;
use super::refusals::key;
use pulc_sockets::Side;
use pulc_sockets::message::{Join, Place, Reason};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// More are left on the kernel.
const CONNECTIONS_MAX: usize = 1 << 15;

/// The memory of a connection, seen from the broker.
pub struct Memory<M> {
    pub map: M,
    /// Kept until both ends have mapped it.
    pub fd: Option<OwnedFd>,
}

/// Whose connections are met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    /// One user's own.
    User(u32),
    /// Those between different users that a policy allows.
    Between(Policy),
}

impl Whose {
    /// Whether `asker` may have a channel for its end, whose socket is `mine`'s, with one of `other`.
    fn allows(&self, asker: u32, mine: u32, other: u32) -> bool {
        match self {
            Whose::User(uid) => mine == *uid && other == *uid,
            Whose::Between(policy) => asker == mine && mine != other && policy.allows(mine, other),
        }
    }
}

pub struct Connection<M> {
    pub active: Place,
    pub passive: Place,
    /// Of ends that have asked.
    pub pids: [u32; 2],
    /// Whose they are, and what they show of their sleepers; of a user's own connections neither is kept.
    pub users: [u32; 2],
    pub windows: [Option<u32>; 2],
    cookies: [Option<u64>; 2],
    pub memory: Memory<M>,
}

impl<M> Connection<M> {
    /// Whether both ends have asked.
    pub fn is_met(&self) -> bool {
        self.cookies.iter().all(Option::is_some)
    }
}

pub struct Connections<M> {
    all: HashMap<(Place, Place), Connection<M>>,
    /// Whose ends have both asked, and whose memory may still be needed by one of them.
    unsettled: Vec<(Place, Place)>,
    /// Of connections that are over, until somebody has looked what they came to.
    pub over: Vec<Memory<M>>,
    whose: Whose,
}

impl<M> Connections<M> {
    pub fn new(whose: Whose) -> Connections<M> {
        Connections { all: HashMap::new(), unsettled: Vec::new(), over: Vec::new(), whose }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection<M>> {
        self.all.values()
    }

    pub fn contains(&self, key: &(Place, Place)) -> bool {
        self.all.contains_key(key)
    }

    /// Forgets what the kernel does not know any more.
    pub fn clear_up(&mut self, mut find: impl FnMut(&Place, &Place) -> io::Result<Option<Found>>) {
        let gone = self.all.iter().filter(|((active, passive), connection)| {
            [(0, find(active, passive)), (1, find(passive, active))].into_iter().all(|(side, found)| {
                let known = connection.cookies[side];
                match found {
                    Ok(found) => known.is_none() || found.map(|found| found.cookie) != known,
                    // Not known to be gone.
                    Err(_) => false,
                }
            })
        });
        for key in gone.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.over.extend(self.all.remove(&key).map(|connection| connection.memory));
        }
    }

    /// One end asks, of this process and user. `make` makes a channel, `has_joined` looks into one. What is sent with the answer lies in the connection's memory.
    pub fn join(
        &mut self,
        join: &Join,
        (pid, uid): (u32, u32),
        mut find: impl FnMut(&Place, &Place) -> io::Result<Option<Found>>,
        has_joined: impl Fn(&M, Side) -> bool,
        make: impl FnOnce() -> Option<Memory<M>>,
    ) -> Result<&mut Connection<M>, Reason> {
        self.settle(&has_joined);
        if join.local == join.remote {
            return Err(Reason::NotTheSocket);
        }
        let silent = |_| Reason::KernelSilent;
        let mine = find(&join.local, &join.remote).map_err(silent)?.ok_or(Reason::NotTheSocket)?;
        if mine.cookie != join.cookie {
            return Err(Reason::NotTheSocket);
        }
        let other = find(&join.remote, &join.local).map_err(silent)?.ok_or(Reason::PeerElsewhere)?;
        if !self.whose.allows(uid, mine.uid, other.uid) {
            return Err(Reason::PeerOfAnotherUser);
        }
        let key = key(join.side, join.local, join.remote);
        let (me, them) = (join.side as usize, join.side.other() as usize);
        let is_known = self.all.get(&key).is_some_and(|known| {
            known.cookies[me].is_none_or(|cookie| cookie == mine.cookie)
                && known.cookies[them].is_none_or(|cookie| cookie == other.cookie)
        });
        if !is_known {
            if self.all.len() >= CONNECTIONS_MAX {
                return Err(Reason::Full);
            }
            let memory = make().ok_or(Reason::NoMemory)?;
            let (active, passive) = key;
            let fresh = Connection {
                active,
                passive,
                pids: [0; 2],
                users: [0; 2],
                windows: [None; 2],
                cookies: [None; 2],
                memory,
            };
            self.over.extend(self.all.insert(key, fresh).map(|earlier| earlier.memory));
        }
        let connection = self.all.get_mut(&key).ok_or(Reason::NoMemory)?;
        // A connection has two ends. Who asks again did not get the first answer in time, or is a fork.
        let has_asked = connection.cookies[me].is_some();
        if has_asked && (connection.pids[me] != pid || has_joined(&connection.memory.map, join.side)) {
            return Err(Reason::Forked);
        }
        connection.cookies[me] = Some(mine.cookie);
        connection.pids[me] = pid;
        connection.users[me] = uid;
        if connection.is_met() {
            self.unsettled.push(key);
        }
        Ok(connection)
    }

    /// Whether this end has asked before.
    pub fn has_asked(&self, join: &Join) -> bool {
        let known = self.all.get(&key(join.side, join.local, join.remote));
        known.is_some_and(|known| known.cookies[join.side as usize] == Some(join.cookie))
    }

    /// The end that has just joined was not told so: it is gone, or did not wait for us.
    pub fn withdraw(&mut self, join: &Join) {
        let key = key(join.side, join.local, join.remote);
        if let Some(connection) = self.all.get_mut(&key) {
            connection.cookies[join.side as usize] = None;
            connection.pids[join.side as usize] = 0;
            if connection.cookies == [None; 2] {
                self.all.remove(&key);
            }
        }
    }

    /// Closes the memory that both ends have.
    fn settle(&mut self, has_joined: impl Fn(&M, Side) -> bool) {
        let all = &mut self.all;
        self.unsettled.retain(|key| {
            let Some(connection) = all.get_mut(key) else { return false };
            let is_settled = [Side::Active, Side::Passive].iter().all(|side| has_joined(&connection.memory.map, *side));
            if is_settled {
                connection.memory.fd = None;
            }
            !is_settled && connection.is_met()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_sockets::message::{NO_BOARD, NO_SLOT};

    const CLIENT: Place = Place { address: [1; 16], port: 1000 };
    const SERVER: Place = Place { address: [1; 16], port: 80 };

    fn kernel(
        client: Option<(u64, u32)>,
        server: Option<(u64, u32)>,
    ) -> impl FnMut(&Place, &Place) -> io::Result<Option<Found>> {
        move |local, _| {
            let found = if *local == CLIENT { client } else { server };
            Ok(found.map(|(cookie, uid)| Found { cookie, uid }))
        }
    }

    fn join(side: Side, cookie: u64) -> Join {
        let (local, remote) = if side == Side::Active { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        Join { side, is_datagram: false, cookie, local, remote, slot: NO_SLOT, board: NO_BOARD }
    }

    fn memory() -> Option<Memory<u32>> {
        Some(Memory { map: 0, fd: Some(std::fs::File::open("/dev/null").unwrap().into()) })
    }

    /// Nobody has mapped anything.
    fn nobody(_: &u32, _: Side) -> bool {
        false
    }

    fn reason(result: Result<&mut Connection<u32>, Reason>) -> Reason {
        result.map_or_else(|reason| reason, |_| Reason::None)
    }

    #[test]
    fn two_ends_that_the_kernel_knows_get_one_channel() {
        let mut all = Connections::new(Whose::User(7));
        let find = || kernel(Some((5, 7)), Some((6, 7)));
        all.join(&join(Side::Active, 5), (100, 7), find(), nobody, memory).unwrap();
        let connection = all.join(&join(Side::Passive, 6), (200, 7), find(), nobody, || panic!("made twice")).unwrap();
        assert_eq!(connection.pids, [100, 200]);
        assert!(connection.is_met() && connection.memory.fd.is_some());
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn whoever_missed_the_answer_asks_again_and_a_fork_does_not() {
        let mut all = Connections::new(Whose::User(7));
        let find = || kernel(Some((5, 7)), Some((6, 7)));
        for _ in 0..3 {
            let again = all.join(&join(Side::Active, 5), (100, 7), find(), nobody, memory).unwrap();
            assert_eq!(again.pids, [100, 0]);
        }
        assert_eq!(reason(all.join(&join(Side::Active, 5), (101, 7), find(), nobody, memory)), Reason::Forked);
        all.join(&join(Side::Passive, 6), (200, 7), find(), nobody, memory).unwrap();
        assert!(all.has_asked(&join(Side::Passive, 6)) && !all.has_asked(&join(Side::Passive, 7)));
        all.withdraw(&join(Side::Passive, 6));
        assert!(!all.has_asked(&join(Side::Passive, 6)));
        assert_eq!(all.iter().next().unwrap().pids, [100, 0]);
        all.join(&join(Side::Passive, 6), (200, 7), find(), nobody, memory).unwrap();
        let active_only = |_: &u32, side| side == Side::Active;
        let again = all.join(&join(Side::Passive, 6), (200, 7), find(), active_only, memory).unwrap();
        assert!(again.memory.fd.is_some(), "one end still needs it");
        assert_eq!(reason(all.join(&join(Side::Active, 5), (100, 7), find(), |_, _| true, memory)), Reason::Forked);
        assert!(all.iter().all(|connection| connection.memory.fd.is_none()), "both have it");
        all.withdraw(&join(Side::Passive, 6));
        all.withdraw(&join(Side::Active, 5));
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn whoever_has_not_the_socket_or_talks_to_somebody_elses_gets_nothing() {
        let mut all = Connections::new(Whose::User(7));
        let mut ask =
            |join: Join, client, server| reason(all.join(&join, (1, 7), kernel(client, server), nobody, memory));
        assert_eq!(ask(join(Side::Active, 9), Some((5, 7)), Some((6, 7))), Reason::NotTheSocket);
        assert_eq!(ask(join(Side::Active, 5), None, Some((6, 7))), Reason::NotTheSocket);
        assert_eq!(ask(join(Side::Active, 5), Some((5, 7)), None), Reason::PeerElsewhere);
        assert_eq!(ask(join(Side::Active, 5), Some((5, 7)), Some((6, 8))), Reason::PeerOfAnotherUser);
        let itself = Join { remote: CLIENT, ..join(Side::Active, 5) };
        assert_eq!(ask(itself, Some((5, 7)), Some((6, 7))), Reason::NotTheSocket);
        let silence = |_: &Place, _: &Place| Err(io::ErrorKind::WouldBlock.into());
        assert_eq!(reason(all.join(&join(Side::Active, 5), (1, 7), silence, nobody, memory)), Reason::KernelSilent);
    }

    #[test]
    fn the_end_of_an_earlier_connection_with_the_same_addresses_is_not_met() {
        let mut all = Connections::new(Whose::User(7));
        all.join(&join(Side::Passive, 6), (200, 7), kernel(Some((5, 7)), Some((6, 7))), nobody, memory).unwrap();
        // Both sockets are new ones.
        let mut made = false;
        let again = all.join(&join(Side::Active, 15), (100, 7), kernel(Some((15, 7)), Some((16, 7))), nobody, || {
            made = true;
            memory()
        });
        assert_eq!(again.unwrap().pids, [100, 0]);
        assert!(made, "a channel of an earlier connection was given out");
        all.clear_up(kernel(Some((15, 7)), None));
        assert_eq!(all.len(), 1, "one end is enough");
        all.clear_up(|_, _| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(all.len(), 1, "not known to be gone");
        all.clear_up(kernel(None, None));
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn ends_of_different_users_meet_where_a_policy_says_so() {
        let mut all = Connections::new(Whose::Between(Policy::parse("7:8").unwrap()));
        let find = |server| kernel(Some((5, 7)), Some((6, server)));
        let mut ask = |join: Join, who, server| reason(all.join(&join, (1, who), find(server), nobody, memory));
        assert_eq!(ask(join(Side::Active, 5), 7, 9), Reason::PeerOfAnotherUser, "not in the policy");
        assert_eq!(ask(join(Side::Active, 5), 7, 7), Reason::PeerOfAnotherUser, "a user's own broker does that");
        assert_eq!(ask(join(Side::Active, 5), 8, 8), Reason::PeerOfAnotherUser, "somebody else's socket");
        assert_eq!(ask(join(Side::Active, 5), 7, 8), Reason::None);
        assert_eq!(ask(join(Side::Passive, 6), 8, 8), Reason::None);
        assert_eq!(all.iter().next().unwrap().users, [7, 8]);
    }
}
