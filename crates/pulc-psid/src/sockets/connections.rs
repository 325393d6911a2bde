//! The connections of a user of which one end or both have asked for a channel. Decides who gets one; the kernel is asked through a
//! function, so nothing here is waited for.

use super::diag::Found;
use pulc_sockets::message::{Answer, Join, NO_SLOT, Place, Reason};
use pulc_sockets::{Side, board};
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// More are left on the kernel.
const CONNECTIONS_MAX: usize = 1 << 15;

/// The memory of a connection, seen from the broker.
pub struct Memory<M> {
    pub map: M,
    /// Kept until both ends have it.
    pub fd: Option<OwnedFd>,
}

pub struct Connection<M> {
    pub active: Place,
    pub passive: Place,
    pub pids: [u32; 2],
    cookies: [Option<u64>; 2],
    pub memory: Memory<M>,
}

pub struct Connections<M> {
    all: HashMap<(Place, Place), Connection<M>>,
    uid: u32,
    slots: u32,
}

impl<M> Connections<M> {
    pub fn new(uid: u32) -> Connections<M> {
        Connections { all: HashMap::new(), uid, slots: 0 }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection<M>> {
        self.all.values()
    }

    /// Forgets what the kernel does not know any more.
    pub fn clear_up(&mut self, mut find: impl FnMut(&Place, &Place) -> Option<Found>) {
        self.all.retain(|(active, passive), connection| {
            let found = [find(active, passive), find(passive, active)].map(|found| found.map(|found| found.cookie));
            found.iter().zip(connection.cookies).any(|(found, known)| known.is_some() && *found == known)
        });
    }

    /// One end asks. `make` makes a channel. What the answer's descriptor is lies in the connection's memory.
    pub fn join(
        &mut self,
        join: &Join,
        pid: u32,
        mut find: impl FnMut(&Place, &Place) -> Option<Found>,
        make: impl FnOnce() -> Option<Memory<M>>,
    ) -> Result<(Answer, &mut Connection<M>), Reason> {
        if join.local == join.remote {
            return Err(Reason::NotTheSocket);
        }
        let mine = find(&join.local, &join.remote).ok_or(Reason::NotTheSocket)?;
        if mine.cookie != join.cookie {
            return Err(Reason::NotTheSocket);
        }
        let other = find(&join.remote, &join.local).ok_or(Reason::PeerElsewhere)?;
        if other.uid != self.uid || mine.uid != self.uid {
            return Err(Reason::PeerOfAnotherUser);
        }
        let key = match join.side {
            Side::Active => (join.local, join.remote),
            Side::Passive => (join.remote, join.local),
        };
        let (me, them) = (join.side as usize, join.side.other() as usize);
        let is_waiting = self
            .all
            .get(&key)
            .is_some_and(|known| known.cookies[me].is_none() && known.cookies[them] == Some(other.cookie));
        if !is_waiting {
            if self.all.get(&key).is_some_and(|known| known.cookies[me] == Some(mine.cookie)) {
                // A connection has two ends, and this one has asked already.
                return Err(Reason::Forked);
            }
            if self.all.len() >= CONNECTIONS_MAX {
                return Err(Reason::Full);
            }
            let memory = make().ok_or(Reason::NoMemory)?;
            let (active, passive) = key;
            let fresh = Connection { active, passive, pids: [0; 2], cookies: [None; 2], memory };
            self.all.insert(key, fresh);
        }
        let slot = if join.slot == NO_SLOT { self.next_slot() } else { join.slot };
        let connection = self.all.get_mut(&key).ok_or(Reason::NoMemory)?;
        connection.cookies[me] = Some(mine.cookie);
        connection.pids[me] = pid;
        Ok((Answer { reason: Reason::None, slot }, connection))
    }

    /// Every process gets a slot; when all were given out the oldest is given again, which costs bells.
    fn next_slot(&mut self) -> u32 {
        let slot = self.slots % board::SLOTS;
        self.slots = self.slots.wrapping_add(1);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Place = Place { address: [1; 16], port: 1000 };
    const SERVER: Place = Place { address: [1; 16], port: 80 };

    fn kernel(client: Option<(u64, u32)>, server: Option<(u64, u32)>) -> impl FnMut(&Place, &Place) -> Option<Found> {
        move |local, _| {
            let found = if *local == CLIENT { client } else { server };
            found.map(|(cookie, uid)| Found { cookie, uid })
        }
    }

    fn join(side: Side, cookie: u64) -> Join {
        let (local, remote) = if side == Side::Active { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        Join { side, cookie, local, remote, slot: NO_SLOT }
    }

    fn memory() -> Option<Memory<u32>> {
        Some(Memory { map: 0, fd: None })
    }

    fn reason(result: Result<(Answer, &mut Connection<u32>), Reason>) -> Reason {
        result.map_or_else(|reason| reason, |_| Reason::None)
    }

    #[test]
    fn two_ends_that_the_kernel_knows_get_one_channel_and_slots_of_their_own() {
        let mut all = Connections::new(7);
        let find = || kernel(Some((5, 7)), Some((6, 7)));
        let first = all.join(&join(Side::Active, 5), 100, find(), memory).unwrap().0;
        let (second, connection) = all.join(&join(Side::Passive, 6), 200, find(), || panic!("made twice")).unwrap();
        assert_eq!(connection.pids, [100, 200]);
        assert_ne!(first.slot, second.slot);
        assert_eq!(reason(all.join(&join(Side::Active, 5), 100, find(), memory)), Reason::Forked);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn whoever_has_not_the_socket_or_talks_to_somebody_elses_gets_nothing() {
        let mut all = Connections::new(7);
        let mut ask = |join: Join, client, server| reason(all.join(&join, 1, kernel(client, server), memory));
        assert_eq!(ask(join(Side::Active, 9), Some((5, 7)), Some((6, 7))), Reason::NotTheSocket);
        assert_eq!(ask(join(Side::Active, 5), None, Some((6, 7))), Reason::NotTheSocket);
        assert_eq!(ask(join(Side::Active, 5), Some((5, 7)), None), Reason::PeerElsewhere);
        assert_eq!(ask(join(Side::Active, 5), Some((5, 7)), Some((6, 8))), Reason::PeerOfAnotherUser);
        let itself = Join { remote: CLIENT, ..join(Side::Active, 5) };
        assert_eq!(ask(itself, Some((5, 7)), Some((6, 7))), Reason::NotTheSocket);
    }

    #[test]
    fn the_end_of_an_earlier_connection_with_the_same_addresses_is_not_met() {
        let mut all = Connections::new(7);
        all.join(&join(Side::Passive, 6), 200, kernel(Some((5, 7)), Some((6, 7))), memory).unwrap();
        // Both sockets are new ones.
        let mut made = false;
        let again = all.join(&join(Side::Active, 15), 100, kernel(Some((15, 7)), Some((16, 7))), || {
            made = true;
            memory()
        });
        assert_eq!(again.unwrap().1.pids, [100, 0]);
        assert!(made, "a channel of an earlier connection was given out");
        all.clear_up(kernel(Some((15, 7)), None));
        assert_eq!(all.len(), 1, "one end is enough");
        all.clear_up(kernel(None, None));
        assert_eq!(all.len(), 0);
    }
}
