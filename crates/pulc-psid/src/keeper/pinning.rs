//! Which cores each rank of this keeper may use: one rank for each physical core first, then their second threads, then blocks of
//! neighbours on one core. Homes are claimed in the first phase (so that all keepers of this machine have theirs before
//! anybody spreads), room beside them in the second. Never fails a launch: without claims the ranks stay where the kernel puts
//! them.

use pulc_hal::os::core_claims::CoreClaims;
use pulc_hal::os::cpu;
use pulc_hal::os::topology::{self, Core};
use std::path::Path;

/// Cores for every local rank; an empty list leaves a rank unpinned. Keeps the claims.
pub struct Pinning {
    claims: CoreClaims,
    /// Near ones next to each other.
    allowed: Vec<Core>,
    /// Ranks per allowed core.
    dealt: Vec<u32>,
}

impl Pinning {
    /// Claims a home for each of `ranks` ranks among the cores that this process may use.
    pub fn claim(ranks: u32) -> Option<Pinning> {
        let attempt = || {
            let allowed = topology::read(Path::new(topology::SYSFS), &cpu::allowed_cores()?);
            let claims = CoreClaims::open()?;
            let dealt = claims.claim_homes(&allowed, ranks)?;
            Ok::<_, Box<dyn std::error::Error>>(Pinning { claims, allowed, dealt })
        };
        attempt().inspect_err(|error| pulc_base::log!(Warn, "keeper", "ranks are not pinned: {error}")).ok()
    }

    /// Spreads the ranks over their homes and over what is still free, neighbours next to each other.
    pub fn spread(&self) -> Vec<Vec<u32>> {
        let unused = self.allowed.iter().zip(&self.dealt).filter(|(_, count)| **count == 0);
        let unused: Vec<u32> = unused.map(|(core, _)| core.number).collect();
        let free = if unused.is_empty() { Vec::new() } else { self.claims.claim_free(&unused).unwrap_or_default() };
        share(&self.allowed, &self.dealt, &free)
    }
}

/// Homes hold `dealt[i]` ranks each. With more ranks than cores a home is all they have. Else each rank gets the free threads
/// of its home's physical core, and as many whole physical cores as every other rank, near ones first.
fn share(allowed: &[Core], dealt: &[u32], free: &[u32]) -> Vec<Vec<u32>> {
    let homes: Vec<&Core> =
        allowed.iter().zip(dealt).flat_map(|(core, count)| std::iter::repeat_n(core, *count as usize)).collect();
    let mut shares: Vec<Vec<u32>> = homes.iter().map(|home| vec![home.number]).collect();
    if homes.is_empty() || dealt.iter().any(|count| *count > 1) {
        return shares;
    }
    let lives_on = |physical: u32| homes.iter().filter(|home| home.physical == physical).count();
    for (share, home) in shares.iter_mut().zip(&homes) {
        if lives_on(home.physical) == 1 {
            let threads = allowed.iter().filter(|core| core.physical == home.physical && free.contains(&core.number));
            share.extend(threads.map(|core| core.number));
        }
    }
    // Beside another job's rank a free thread is no room.
    let whole =
        |physical: u32| allowed.iter().filter(|core| core.physical == physical).all(|core| free.contains(&core.number));
    let mut empty: Vec<&Core> = allowed.iter().filter(|core| whole(core.physical)).collect();
    // The first thread of each stands for its physical core.
    let mut groups: Vec<&Core> = empty.clone();
    groups.dedup_by_key(|core| core.physical);
    let each = groups.len() / homes.len();
    for _ in 0..each {
        for (share, home) in shares.iter_mut().zip(&homes) {
            let far = |core: &&Core| (core.node != home.node, core.cache != home.cache);
            let Some(nearest) = (0..groups.len()).min_by_key(|index| far(&groups[*index])) else { break };
            let physical = groups.remove(nearest).physical;
            share.extend(empty.iter().filter(|core| core.physical == physical).map(|core| core.number));
            empty.retain(|core| core.physical != physical);
        }
    }
    shares.iter_mut().for_each(|share| share.sort_unstable());
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cores without second threads, all near to each other.
    fn plain(numbers: &[u32]) -> Vec<Core> {
        numbers.iter().map(|&number| Core { number, physical: number, cache: 0, node: 0 }).collect()
    }

    /// Two nodes of two physical cores, whose second threads are numbered behind all first ones.
    fn two_nodes() -> Vec<Core> {
        [0, 4, 1, 5, 2, 6, 3, 7]
            .map(|number| Core { number, physical: number % 4, cache: number % 4 / 2, node: number % 4 / 2 })
            .into()
    }

    #[test]
    fn neighbours_share_a_core_when_there_are_more_ranks_than_cores() {
        assert_eq!(share(&plain(&[0, 1]), &[2, 2], &[]), [[0], [0], [1], [1]]);
        assert_eq!(share(&plain(&[0, 1]), &[2, 1], &[]), [[0], [0], [1]]);
    }

    #[test]
    fn every_rank_gets_an_equal_share_of_the_free_cores() {
        assert_eq!(share(&plain(&[0, 1, 2, 3]), &[1, 1, 0, 0], &[2, 3]), [[0, 2], [1, 3]]);
        assert_eq!(share(&plain(&[0, 1, 2, 3, 4]), &[0, 1, 1, 0, 0], &[4]), [[1], [2]]);
        assert_eq!(share(&plain(&[0, 1]), &[1, 0], &[1]), [[0, 1]]);
        assert_eq!(share(&plain(&[0, 1]), &[0, 0], &[]), Vec::<Vec<u32>>::new());
    }

    #[test]
    fn a_rank_has_both_threads_of_its_physical_core_unless_another_one_lives_there() {
        assert_eq!(share(&two_nodes(), &[1, 0, 1, 0, 1, 0, 1, 0], &[4, 5, 6, 7]), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(
            share(&two_nodes(), &[1, 1, 1, 0, 1, 0, 1, 0], &[5, 7]),
            [vec![0], vec![4], vec![1, 5], vec![2], vec![3, 7]]
        );
    }

    #[test]
    fn room_beside_a_home_is_whole_physical_cores_of_the_same_memory() {
        let free = [4, 5, 1, 6, 7, 3];
        assert_eq!(share(&two_nodes(), &[1, 0, 0, 0, 1, 0, 0, 0], &free), [[0, 1, 4, 5], [2, 3, 6, 7]]);
        assert_eq!(share(&two_nodes(), &[0, 0, 0, 0, 1, 0, 0, 0], &free), [[1, 2, 3, 5, 6, 7]]);
    }

    #[test]
    fn a_machine_of_four_physical_cores_is_filled_core_by_core() {
        let claims = CoreClaims::open().unwrap();
        // Core numbers that no machine has, so that running jobs don't disturb.
        let far = |core: Core| Core { number: core.number + (1 << 19), ..core };
        let machine: Vec<Core> = two_nodes().into_iter().map(far).collect();
        let dealt = claims.claim_homes(&machine, 4).unwrap();
        assert_eq!(dealt, [1, 0, 1, 0, 1, 0, 1, 0]);
        let other = CoreClaims::open().unwrap();
        assert_eq!(other.claim_homes(&machine, 4).unwrap(), [0, 1, 0, 1, 0, 1, 0, 1], "a second job takes the threads");
    }
}
