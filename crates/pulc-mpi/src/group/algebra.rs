//! Groups made of groups. Pure; the calls of MPI are in `group::calls`. Whole ranges of processes stay ranges.
//! Source: MPI-5.0, 7.3.

use super::{Group, Members};
use crate::consts::{IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL};
use crate::error::{Class, Error, Result};

impl Group {
    /// The members of this group, then those of the other one that are not in this.
    pub fn union(&self, other: &Group) -> Group {
        let more = other.iter().filter(|world| self.rank_of(*world).is_none());
        Group::from_ranks(self.iter().chain(more).collect())
    }

    /// The members of this group that are in the other one, too.
    pub fn intersection(&self, other: &Group) -> Group {
        match (&self.members, &other.members) {
            (Members::Range { first: a, len: m }, Members::Range { first: b, len: n }) => {
                let (first, end) = ((*a).max(*b), (a + m).min(b + n));
                if first < end { Group::range(first, end - first) } else { Group::EMPTY }
            }
            _ => Group::from_ranks(self.iter().filter(|world| other.rank_of(*world).is_some()).collect()),
        }
    }

    /// The members of this group that are not in the other one.
    pub fn difference(&self, other: &Group) -> Group {
        Group::from_ranks(self.iter().filter(|world| other.rank_of(*world).is_none()).collect())
    }

    /// The members with these ranks, in the order of the ranks.
    pub fn incl(&self, ranks: &[i32]) -> Result<Group> {
        self.distinct(ranks)?;
        Ok(Group::from_ranks(ranks.iter().filter_map(|rank| self.world(*rank)).collect()))
    }

    /// The members without those of these ranks, in their old order.
    pub fn excl(&self, ranks: &[i32]) -> Result<Group> {
        let out = self.distinct(ranks)?;
        Ok(Group::from_ranks(self.iter().zip(out).filter(|(_, is_out)| !is_out).map(|(world, _)| world).collect()))
    }

    /// As [`Group::incl`] with ranges of (first, last, stride).
    pub fn range_incl(&self, ranges: &[[i32; 3]]) -> Result<Group> {
        self.incl(&self.expanded(ranges)?)
    }

    /// As [`Group::excl`] with ranges of (first, last, stride).
    pub fn range_excl(&self, ranges: &[[i32; 3]]) -> Result<Group> {
        self.excl(&self.expanded(ranges)?)
    }

    /// The ranks in another group of members with these ranks here.
    pub fn translate(&self, ranks: &[i32], other: &Group) -> Result<Vec<i32>> {
        let translated = |&rank: &i32| match (rank, self.world(rank)) {
            (PROC_NULL, _) => Ok(PROC_NULL),
            (_, Some(world)) => Ok(other.rank_of(world).unwrap_or(UNDEFINED)),
            (_, None) => Err(self.no_rank(rank)),
        };
        ranks.iter().map(translated).collect()
    }

    /// `IDENT`, `SIMILAR` (other order) or `UNEQUAL`.
    pub fn compare(&self, other: &Group) -> i32 {
        if self == other {
            return IDENT;
        }
        let same = self.size() == other.size() && self.iter().all(|world| other.rank_of(world).is_some());
        if same { SIMILAR } else { UNEQUAL }
    }

    /// Which members the ranks name, each at most once.
    fn distinct(&self, ranks: &[i32]) -> Result<Vec<bool>> {
        let mut named = vec![false; self.size()];
        for &rank in ranks {
            let place = usize::try_from(rank).ok().and_then(|rank| named.get_mut(rank));
            let place = place.ok_or_else(|| self.no_rank(rank))?;
            if std::mem::replace(place, true) {
                return Err(Error::new(Class::RANK, format!("rank {rank} is named twice: each may be named once")));
            }
        }
        Ok(named)
    }

    fn expanded(&self, ranges: &[[i32; 3]]) -> Result<Vec<i32>> {
        let mut ranks = Vec::new();
        for &[first, last, stride] in ranges {
            if stride == 0 {
                let text = format!("range ({first}, {last}, 0): the stride is positive or negative, not zero");
                return Err(Error::new(Class::ARG, text));
            }
            // Wider numbers: the one after the last may not be an int. Ends of the range are checked first, so it is short.
            let (first, last, stride) = (i64::from(first), i64::from(last), i64::from(stride));
            let steps = (last - first) / stride;
            if (last - first) % stride != 0 && (last - first).signum() != stride.signum() || steps < 0 {
                continue;
            }
            for rank in [first, first + steps * stride] {
                self.world(rank as i32).ok_or_else(|| self.no_rank(rank as i32))?;
            }
            ranks.extend((0..=steps).map(|step| (first + step * stride) as i32));
        }
        Ok(ranks)
    }

    #[cold]
    fn no_rank(&self, rank: i32) -> Error {
        Error::new(Class::RANK, format!("rank {rank} of a group of {} processes: 0 to size - 1", self.size()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn groups() -> impl Strategy<Value = Vec<u32>> {
        let list = Just((0u32..24).collect::<Vec<_>>())
            .prop_shuffle()
            .prop_flat_map(|all| (0..all.len()).prop_map(move |len| all[..len].to_vec()));
        prop_oneof![list, (0u32..20, 0u32..8).prop_map(|(first, len)| (first..first + len).collect())]
    }

    proptest! {
        #[test]
        fn sets_are_those_of_the_standard_in_its_order(a in groups(), b in groups()) {
            let (one, other) = (Group::from_ranks(a.clone()), Group::from_ranks(b.clone()));
            let (in_a, in_b): (HashSet<_>, HashSet<_>) = (a.iter().collect(), b.iter().collect());
            let union: Vec<u32> = a.iter().chain(b.iter().filter(|world| !in_a.contains(world))).copied().collect();
            prop_assert_eq!(one.union(&other).to_vec(), union);
            let common: Vec<u32> = a.iter().filter(|world| in_b.contains(world)).copied().collect();
            prop_assert_eq!(one.intersection(&other).to_vec(), common);
            let rest: Vec<u32> = a.iter().filter(|world| !in_b.contains(world)).copied().collect();
            prop_assert_eq!(one.difference(&other).to_vec(), rest);
            let expected = if a == b { IDENT } else if in_a == in_b { SIMILAR } else { UNEQUAL };
            prop_assert_eq!(one.compare(&other), expected);
            let ranks: Vec<i32> = (0..a.len() as i32).chain([PROC_NULL]).collect();
            let there = one.translate(&ranks, &other).unwrap();
            for (rank, there) in ranks.into_iter().zip(there) {
                let expected = match rank {
                    PROC_NULL => PROC_NULL,
                    rank => b.iter().position(|world| *world == a[rank as usize]).map_or(UNDEFINED, |at| at as i32),
                };
                prop_assert_eq!(there, expected);
            }
        }

        #[test]
        fn ranges_are_what_a_loop_makes_of_them(
            size in 1i32..20,
            ranges in prop::collection::vec((-2i32..22, -2i32..22, -4i32..5), 0..3),
        ) {
            let group = Group::from_ranks((0..size as u32).rev().collect());
            let ranges: Vec<[i32; 3]> = ranges.into_iter().map(|(first, last, stride)| [first, last, stride]).collect();
            let mut ranks = Vec::new();
            for &[first, last, stride] in ranges.iter().filter(|range| range[2] != 0) {
                let mut rank = first;
                while if stride > 0 { rank <= last } else { rank >= last } {
                    ranks.push(rank);
                    rank += stride;
                }
            }
            let valid = ranges.iter().all(|range| range[2] != 0);
            prop_assert_eq!(group.range_incl(&ranges).ok(), group.incl(&ranks).ok().filter(|_| valid));
            prop_assert_eq!(group.range_excl(&ranges).ok(), group.excl(&ranks).ok().filter(|_| valid));
        }
    }

    #[test]
    fn members_are_named_once_and_exist() {
        let group = Group::range(10, 4);
        assert_eq!(group.incl(&[3, 1]).unwrap().to_vec(), [13, 11]);
        assert_eq!(group.excl(&[3, 1]).unwrap().to_vec(), [10, 12]);
        assert_eq!(group.incl(&[1, 1]).unwrap_err().class, Class::RANK);
        assert_eq!(group.excl(&[4]).unwrap_err().class, Class::RANK);
        assert_eq!(group.incl(&[-1]).unwrap_err().class, Class::RANK);
        assert_eq!(group.translate(&[4], &group).unwrap_err().class, Class::RANK);
        assert_eq!(group.range_incl(&[[0, i32::MAX, 1]]).unwrap_err().class, Class::RANK);
        assert_eq!(group.range_incl(&[[0, 3, 0]]).unwrap_err().class, Class::ARG);
    }
}
