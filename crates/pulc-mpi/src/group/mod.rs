//! Groups: ordered sets of processes, known by their ranks in the job. Used by communicators for every message, so ranges, which most
//! groups are, cost an addition. Pure data; never communicates.
//! Source: MPI-5.0, 7.2 and 7.3.

mod algebra;
pub mod calls;

use crate::error::{Class, Error, Result};
use crate::handle::{Group as Handle, Kind};
use crate::table::Table;
use std::sync::Arc;

static GROUPS: Table<Group> = Table::new(Kind::Group);

/// The group with this handle.
pub fn get(group: Handle) -> Result<Arc<Group>> {
    let found = if group == Handle::EMPTY { Some(Arc::new(Group::EMPTY)) } else { GROUPS.get(group.0) };
    found.ok_or_else(|| Error::new(Class::GROUP, format!("{:#010x} is no group", group.0)))
}

/// A handle for a group; the empty one has its own.
pub fn insert_arc(group: Arc<Group>) -> Handle {
    if group.size() == 0 { Handle::EMPTY } else { Handle(GROUPS.insert_arc(group)) }
}

/// Takes a handle's group away; those who still use it keep it.
fn remove(group: Handle) -> Option<Arc<Group>> {
    GROUPS.remove(group.0)
}

/// An ordered set of processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    members: Members,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Members {
    /// Consecutive ranks of the job.
    Range { first: u32, len: u32 },
    /// Any others, with the same sorted by rank of the job for the way back.
    List { ranks: Vec<u32>, sorted: Vec<(u32, u32)> },
}

impl Group {
    pub const EMPTY: Group = Group::range(0, 0);

    pub const fn range(first: u32, len: u32) -> Group {
        Group { members: Members::Range { first, len } }
    }

    /// The processes with these ranks of the job, in this order; each at most once.
    pub fn from_ranks(ranks: Vec<u32>) -> Group {
        let is_range = ranks.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        if is_range {
            return Group::range(ranks.first().copied().unwrap_or(0), ranks.len() as u32);
        }
        let mut sorted: Vec<(u32, u32)> = ranks.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        Group { members: Members::List { ranks, sorted } }
    }

    #[inline]
    pub fn size(&self) -> usize {
        match &self.members {
            Members::Range { len, .. } => *len as usize,
            Members::List { ranks, .. } => ranks.len(),
        }
    }

    /// The rank in the job of a member. `None`: there is no such member.
    #[inline]
    pub fn world(&self, rank: i32) -> Option<u32> {
        match &self.members {
            Members::Range { first, len } => ((rank as u32) < *len).then(|| first + rank as u32),
            Members::List { ranks, .. } => ranks.get(usize::try_from(rank).ok()?).copied(),
        }
    }

    /// The member with this rank in the job.
    #[inline]
    pub fn rank_of(&self, world: u32) -> Option<i32> {
        match &self.members {
            Members::Range { first, len } => {
                let rank = world.wrapping_sub(*first);
                (rank < *len).then_some(rank as i32)
            }
            Members::List { sorted, .. } => {
                let at = sorted.binary_search_by_key(&world, |(world, _)| *world).ok()?;
                Some(sorted[at].1 as i32)
            }
        }
    }

    /// Ranks in the job, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.size() as i32).filter_map(|rank| self.world(rank))
    }

    pub fn to_vec(&self) -> Vec<u32> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists_answer_alike() {
        let range = Group::from_ranks(vec![3, 4, 5]);
        assert_eq!(range, Group::range(3, 3));
        let list = Group::from_ranks(vec![9, 4, 5]);
        assert_eq!((list.world(0), list.world(2), list.world(3), list.world(-1)), (Some(9), Some(5), None, None));
        assert_eq!((list.rank_of(9), list.rank_of(5), list.rank_of(3)), (Some(0), Some(2), None));
        assert_eq!(
            (range.world(2), range.world(3), range.rank_of(5), range.rank_of(2)),
            (Some(5), None, Some(2), None)
        );
        assert_eq!(range.to_vec(), vec![3, 4, 5]);
    }
}
