//! The connections that stay on the kernel because an end was told so, or says so itself: kept for `pulc sockets`, nothing is decided by
//! them. Called by the broker.

use super::diag::Found;
use pulc_sockets::Side;
use pulc_sockets::message::{Place, Reason};
use std::collections::HashMap;
use std::io;

/// More are not listed.
const REFUSALS_MAX: usize = 4096;

/// What is known of the two ends, the one that called connect first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub pids: [u32; 2],
    pub reasons: [Reason; 2],
    cookies: [Option<u64>; 2],
}

impl Refusal {
    /// The first end's reason, or the second's.
    pub fn reason(&self) -> Reason {
        self.reasons.into_iter().find(|reason| *reason != Reason::None).unwrap_or(Reason::None)
    }
}

#[derive(Default)]
pub struct Refusals {
    all: HashMap<(Place, Place), Refusal>,
}

/// The two places of a connection, the one that called connect first.
pub fn key(side: Side, local: Place, remote: Place) -> (Place, Place) {
    match side {
        Side::Active => (local, remote),
        Side::Passive => (remote, local),
    }
}

impl Refusals {
    pub fn iter(&self) -> impl Iterator<Item = (&(Place, Place), &Refusal)> {
        self.all.iter()
    }

    pub fn of(&self, key: &(Place, Place)) -> Option<&Refusal> {
        self.all.get(key)
    }

    /// An end stays on the kernel. `cookie` is its socket's.
    pub fn record(&mut self, key: (Place, Place), side: Side, pid: u32, cookie: u64, reason: Reason) {
        if self.all.len() >= REFUSALS_MAX && !self.all.contains_key(&key) {
            return;
        }
        let fresh = Refusal { pids: [0; 2], reasons: [Reason::None; 2], cookies: [None; 2] };
        let refusal = self.all.entry(key).or_insert(fresh);
        let me = side as usize;
        if refusal.cookies[me].is_some_and(|known| known != cookie) {
            // An earlier connection with these addresses.
            *refusal = fresh;
        }
        refusal.pids[me] = pid;
        refusal.reasons[me] = reason;
        refusal.cookies[me] = Some(cookie);
    }

    /// An end was given a channel after all.
    pub fn lift(&mut self, key: &(Place, Place), side: Side) {
        if let Some(refusal) = self.all.get_mut(key) {
            refusal.reasons[side as usize] = Reason::None;
            if refusal.reason() == Reason::None {
                self.all.remove(key);
            }
        }
    }

    /// Forgets what the kernel does not know any more.
    pub fn clear_up(&mut self, mut find: impl FnMut(&Place, &Place) -> io::Result<Option<Found>>) {
        self.all.retain(|(active, passive), refusal| {
            [(0, find(active, passive)), (1, find(passive, active))].into_iter().any(|(side, found)| match found {
                Ok(found) => {
                    refusal.cookies[side].is_some() && found.map(|found| found.cookie) == refusal.cookies[side]
                }
                // Not known to be gone.
                Err(_) => true,
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Place = Place { address: [1; 16], port: 1000 };
    const SERVER: Place = Place { address: [1; 16], port: 80 };

    #[test]
    fn both_ends_of_a_connection_are_one_refusal_until_each_is_lifted_or_gone() {
        let mut all = Refusals::default();
        let key = key(Side::Passive, SERVER, CLIENT);
        assert_eq!(key, (CLIENT, SERVER));
        all.record(key, Side::Passive, 20, 6, Reason::Excluded);
        all.record(key, Side::Active, 10, 5, Reason::Slow);
        let known = all.of(&key).unwrap();
        assert_eq!((known.pids, known.reason()), ([10, 20], Reason::Slow));
        all.lift(&key, Side::Active);
        assert_eq!(all.of(&key).unwrap().reason(), Reason::Excluded);
        all.clear_up(|local, _| Ok((*local == SERVER).then_some(Found { cookie: 6, uid: 0 })));
        all.clear_up(|_, _| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(all.iter().count(), 1, "still there, as far as is known");
        all.clear_up(|_, _| Ok(Some(Found { cookie: 99, uid: 0 })));
        assert_eq!(all.iter().count(), 0, "other sockets have these addresses now");
    }

    #[test]
    fn a_new_connection_with_old_addresses_is_told_apart_and_the_table_has_an_end() {
        let mut all = Refusals::default();
        all.record((CLIENT, SERVER), Side::Active, 1, 5, Reason::Forked);
        all.record((CLIENT, SERVER), Side::Passive, 2, 6, Reason::Forked);
        all.record((CLIENT, SERVER), Side::Active, 3, 15, Reason::Excluded);
        assert_eq!(all.of(&(CLIENT, SERVER)).unwrap().pids, [3, 0]);
        for port in 0..=u16::MAX {
            all.record((Place { port, ..CLIENT }, SERVER), Side::Active, 1, 5, Reason::Forked);
        }
        assert_eq!(all.iter().count(), REFUSALS_MAX);
    }
}
