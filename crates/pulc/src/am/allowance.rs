//! What each rank may hold of this process's active messages: questions that wait for an endpoint to open, and credits of its
//! mappings, which bound its mappings, its messages under way here, and their memory. Counted for each rank alone, so that
//! one which takes all it can is the only one that is refused. Used by the table, with the engine locked.

use super::places::PLACES_MAX;
use pulc_base::Rank;

/// Questions of one rank for endpoints that are not open yet, at most.
pub(crate) const LOOKUPS_EACH: u32 = 1024;
/// Credits of one rank's mappings, at most.
const CREDITS_EACH: u32 = 1 << 14;

#[derive(Clone, Copy, Default)]
struct Held {
    lookups: u32,
    credits: u32,
}

#[derive(Default)]
pub(crate) struct Allowance {
    /// Ranks of the job.
    ranks: u32,
    by_rank: Vec<Held>,
}

impl Allowance {
    pub fn new(ranks: u32) -> Allowance {
        Allowance { ranks, by_rank: Vec::new() }
    }

    /// A mapping needs a place, and has at least one credit: all ranks together find theirs.
    fn credits_each(&self) -> u32 {
        (PLACES_MAX as u32 / self.ranks.max(1)).clamp(1, CREDITS_EACH)
    }

    fn held(&mut self, rank: Rank) -> &mut Held {
        let index = rank.0 as usize;
        if self.by_rank.len() <= index {
            self.by_rank.resize(index + 1, Held::default());
        }
        &mut self.by_rank[index]
    }

    /// A question may wait.
    pub fn take_lookup(&mut self, rank: Rank) -> bool {
        let held = self.held(rank);
        let has_room = held.lookups < LOOKUPS_EACH;
        held.lookups += u32::from(has_room);
        has_room
    }

    pub fn give_lookup(&mut self, rank: Rank) {
        let held = self.held(rank);
        held.lookups = held.lookups.saturating_sub(1);
    }

    /// Credits for a mapping that asks for so many: never more than half of what is left, so that another one finds some. Zero:
    /// none are left.
    pub fn take_credits(&mut self, rank: Rank, asked: u16) -> u16 {
        let max = self.credits_each();
        let held = self.held(rank);
        let half = (max - held.credits.min(max)).div_ceil(2);
        let granted = half.min(u32::from(asked)) as u16;
        held.credits += u32::from(granted);
        granted
    }

    pub fn give_credits(&mut self, rank: Rank, credits: usize) {
        let held = self.held(rank);
        held.credits = held.credits.saturating_sub(credits as u32);
    }

    /// The rank is gone, with all it held.
    pub fn forget(&mut self, rank: Rank) {
        *self.held(rank) = Held::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_run_out_for_the_rank_that_takes_them_only_and_come_back() {
        for ranks in [1, 2, 128, 100_000] {
            let mut allowance = Allowance::new(ranks);
            let greedy: Vec<u16> =
                std::iter::repeat_with(|| allowance.take_credits(Rank(0), 1024)).take(1 << 15).collect();
            let taken: u32 = greedy.iter().map(|granted| u32::from(*granted)).sum();
            assert_eq!(taken, allowance.credits_each());
            assert_eq!(greedy.last(), Some(&0));
            let mappings = greedy.iter().filter(|granted| **granted > 0).count();
            assert!(mappings * ranks as usize <= PLACES_MAX || mappings == 1, "{mappings} mappings of {ranks} ranks");
            assert!(allowance.take_credits(Rank(ranks - 1), 10) > 0 || ranks == 1);
            allowance.give_credits(Rank(0), usize::from(greedy[0]));
            assert!(allowance.take_credits(Rank(0), 1) == 1);
        }
    }

    #[test]
    fn questions_are_counted_for_each_rank_and_forgotten_with_it() {
        let mut allowance = Allowance::new(3);
        assert!((0..LOOKUPS_EACH).all(|_| allowance.take_lookup(Rank(1))));
        assert!(!allowance.take_lookup(Rank(1)) && allowance.take_lookup(Rank(2)));
        allowance.give_lookup(Rank(1));
        assert!(allowance.take_lookup(Rank(1)) && !allowance.take_lookup(Rank(1)));
        allowance.forget(Rank(1));
        assert!(allowance.take_lookup(Rank(1)));
    }
}
