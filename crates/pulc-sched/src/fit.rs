//! Where a job fits: its ranks dealt onto rooms (nodes with what is free on them). Pure. Called by the pass over the queue for now
//! and for moments to come; knows nothing of other jobs but what the rooms say.

use pulc_base::NodeId;
use pulc_control::network::Network;
use pulc_control::owner::Owner;
use pulc_control::queue::{Exclusive, JobSpec, Placed};
use pulc_control::who::Who;
use std::net::IpAddr;

/// A node, with what may be had there.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    pub node: NodeId,
    pub name: String,
    /// Slots in all.
    pub slots: u32,
    pub free: u32,
    pub cores: u32,
    pub memory_mib: u64,
    pub load_milli: u32,
    pub addresses: Vec<IpAddr>,
    pub features: Vec<String>,
    /// Whose jobs may run there, as [`Who`] has numbers; everybody's if empty.
    pub users: Vec<u32>,
    /// Whose jobs hold slots there now.
    pub held_by: Vec<u32>,
    /// A job there wants nobody else, or no other user.
    pub closed: Option<Closed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    ToAll,
    ToOthersThan(u32),
}

impl Room {
    /// Whether the job could run here if nobody else did.
    pub fn suits(&self, spec: &JobSpec, user: u32) -> bool {
        (spec.on.is_empty() || spec.on.contains(&self.name))
            && !spec.not_on.contains(&self.name)
            && spec.features.iter().all(|feature| self.features.contains(feature))
            && spec.memory_mib.is_none_or(|mib| self.memory_mib >= mib)
            && spec.cores.is_none_or(|cores| self.cores >= cores)
            && Who::any(&self.users, user, || Owner::groups_of(&spec.launch))
    }

    /// Whether it has an address in one of these networks.
    pub fn is_in(&self, networks: &[Network]) -> bool {
        networks.iter().any(|network| self.addresses.iter().any(|address| network.contains(*address)))
    }

    /// Ranks that may be put here now.
    fn takes(&self, spec: &JobSpec, user: u32) -> u32 {
        if !self.suits(spec, user) {
            return 0;
        }
        match self.closed {
            Some(Closed::ToAll) => return 0,
            Some(Closed::ToOthersThan(only)) if only != user => return 0,
            _ => {}
        }
        match spec.exclusive {
            Exclusive::Node if !self.held_by.is_empty() => return 0,
            Exclusive::User if self.held_by.iter().any(|holder| *holder != user) => return 0,
            _ => {}
        }
        if spec.overbook { spec.ranks } else { self.free / spec.threads.max(1) }
    }

    /// Takes what a job has been given here.
    pub fn occupy(&mut self, slots: u32, user: u32, exclusive: Exclusive) {
        self.free = self.free.saturating_sub(slots);
        if !self.held_by.contains(&user) {
            self.held_by.push(user);
        }
        match exclusive {
            Exclusive::Node => self.closed = Some(Closed::ToAll),
            Exclusive::User if self.closed.is_none() => self.closed = Some(Closed::ToOthersThan(user)),
            _ => {}
        }
    }
}

/// Deals the ranks of a job, the fullest nodes last: on the least loaded node that takes them all, else on as few as possible.
pub fn place(spec: &JobSpec, user: u32, rooms: &[Room]) -> Option<Vec<Placed>> {
    let mut able: Vec<(&Room, u32)> = rooms
        .iter()
        .map(|room| (room, room.takes(spec, user).min(spec.ranks)))
        .filter(|(_, takes)| *takes > 0)
        .collect();
    match spec.nodes {
        Some(count) => {
            able.sort_by(|(one, more), (other, less)| {
                (less, busy(one), &one.name).cmp(&(more, busy(other), &other.name))
            });
            able.truncate(count as usize);
            if able.len() < count as usize {
                return None;
            }
            deal(spec, &able)
        }
        None => {
            let whole = able.iter().filter(|(_, takes)| *takes >= spec.ranks);
            // Overbooked nodes take any number: the emptiest of them.
            let best = whole.min_by_key(|(room, _)| {
                let over = (spec.ranks * spec.threads.max(1)).saturating_sub(room.free);
                (over, busy(room), room.free, &room.name)
            });
            if let Some((room, _)) = best {
                return Some(vec![given(spec, room, spec.ranks)]);
            }
            able.sort_by(|(one, more), (other, less)| {
                (less, busy(one), &one.name).cmp(&(more, busy(other), &other.name))
            });
            let mut left = spec.ranks;
            let mut placed = Vec::new();
            for (room, takes) in able {
                let here = takes.min(left);
                placed.push(given(spec, room, here));
                left -= here;
                if left == 0 {
                    return Some(placed);
                }
            }
            None
        }
    }
}

/// As evenly as the nodes allow; every node gets at least one rank.
fn deal(spec: &JobSpec, able: &[(&Room, u32)]) -> Option<Vec<Placed>> {
    let mut left = spec.ranks;
    let mut shares = vec![0; able.len()];
    while left > 0 {
        let open: Vec<usize> = (0..able.len()).filter(|at| shares[*at] < able[*at].1).collect();
        let share = (left / open.len().max(1) as u32).max(1);
        if open.is_empty() {
            return None;
        }
        for at in open {
            let more = share.min(able[at].1 - shares[at]).min(left);
            shares[at] += more;
            left -= more;
        }
    }
    Some(
        able.iter()
            .zip(shares)
            .filter(|(_, share)| *share > 0)
            .map(|((room, _), share)| given(spec, room, share))
            .collect(),
    )
}

fn given(spec: &JobSpec, room: &Room, ranks: u32) -> Placed {
    let wanted = ranks * spec.threads.max(1);
    let slots = if spec.exclusive == Exclusive::Node { room.slots.max(wanted) } else { wanted };
    Placed { node: room.node, name: room.name.clone(), ranks, slots }
}

/// Work per core, in steps coarse enough that the noise of a load average does not decide.
fn busy(room: &Room) -> u32 {
    let taken = (room.slots - room.free.min(room.slots)) * 1000;
    taken.max(room.load_milli) / room.cores.max(1) / 250
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::spec;

    fn room(number: u8, slots: u32, free: u32) -> Room {
        Room {
            node: NodeId([number; 16]),
            name: format!("n{number}"),
            slots,
            free,
            cores: slots,
            memory_mib: 1000,
            load_milli: 0,
            addresses: Vec::new(),
            features: vec![format!("f{number}")],
            users: Vec::new(),
            held_by: if free < slots { vec![1] } else { Vec::new() },
            closed: None,
        }
    }

    fn dealt(spec: &JobSpec, rooms: &[Room]) -> Option<Vec<(String, u32)>> {
        place(spec, 1, rooms).map(|placed| placed.into_iter().map(|part| (part.name, part.ranks)).collect())
    }

    #[test]
    fn a_job_that_fits_one_node_gets_the_least_loaded() {
        let mut rooms = [room(1, 4, 4), room(2, 4, 4)];
        rooms[0].load_milli = 3000;
        assert_eq!(dealt(&spec(2), &rooms), Some(vec![("n2".into(), 2)]));
        assert_eq!(dealt(&spec(6), &rooms), Some(vec![("n2".into(), 4), ("n1".into(), 2)]));
        assert_eq!(dealt(&spec(9), &rooms), None);
    }

    #[test]
    fn asked_for_nodes_share_evenly_as_far_as_they_have_room() {
        let rooms = [room(1, 4, 1), room(2, 4, 4), room(3, 4, 4)];
        let mut job = spec(6);
        job.nodes = Some(2);
        assert_eq!(dealt(&job, &rooms), Some(vec![("n2".into(), 3), ("n3".into(), 3)]));
        job.nodes = Some(3);
        assert_eq!(dealt(&job, &rooms), Some(vec![("n2".into(), 3), ("n3".into(), 2), ("n1".into(), 1)]));
        job.ranks = 10;
        assert_eq!(dealt(&job, &rooms), None);
    }

    #[test]
    fn criteria_exclusive_use_and_rights_are_kept() {
        let rooms = [room(1, 4, 3), room(2, 4, 4)];
        let only = |change: fn(&mut JobSpec)| {
            let mut job = spec(1);
            change(&mut job);
            dealt(&job, &rooms).map(|placed| placed[0].0.clone())
        };
        assert_eq!(only(|job| job.features = vec!["f1".into()]), Some("n1".into()));
        assert_eq!(only(|job| job.not_on = vec!["n2".into()]), Some("n1".into()));
        assert_eq!(only(|job| job.exclusive = Exclusive::Node), Some("n2".into()));
        assert_eq!(only(|job| job.memory_mib = Some(2000)), None);
        let mut rooms = rooms.to_vec();
        rooms[1].users = vec![7];
        assert_eq!(dealt(&spec(4), &rooms), None);
        // By one of the groups that the job says its user is in.
        rooms[1].users = vec![Who::Group(40).number().unwrap()];
        let mut job = spec(4);
        for (groups, fits) in [(vec![], false), (vec![4, 41], false), (vec![4, 40], true)] {
            Owner { uid: 1, name: "a".to_owned(), groups }.put(&mut job.launch);
            assert_eq!(dealt(&job, &rooms).is_some(), fits);
        }
        rooms[1].users = vec![1];
        rooms[1].occupy(1, 1, Exclusive::User);
        assert!(place(&spec(2), 2, &rooms[1..]).is_none());
        assert!(place(&spec(2), 1, &rooms[1..]).is_some());
    }

    #[test]
    fn threads_take_slots_and_overbooking_goes_beyond_them() {
        let rooms = [room(1, 4, 4)];
        let mut job = spec(2);
        job.threads = 2;
        assert_eq!(place(&job, 1, &rooms).unwrap()[0].slots, 4);
        job.ranks = 3;
        assert_eq!(dealt(&job, &rooms), None);
        job.overbook = true;
        assert_eq!(dealt(&job, &rooms), Some(vec![("n1".into(), 3)]));
    }
}
