//! Which cores each rank of this keeper may use. Homes are claimed in the first phase (so that all keepers of this machine
//! have theirs before anybody spreads), room beside them in the second. Never fails a launch: without claims the ranks
//! stay where the kernel puts them.

use pulc_hal::os::core_claims::CoreClaims;
use pulc_hal::os::cpu;

/// Cores for every local rank; an empty list leaves a rank unpinned. Keeps the claims.
pub struct Pinning {
    claims: CoreClaims,
    allowed: Vec<u32>,
    /// Ranks per allowed core.
    dealt: Vec<u32>,
}

impl Pinning {
    /// Claims a home for each of `ranks` ranks among the cores that this process may use.
    pub fn claim(ranks: u32) -> Option<Pinning> {
        let attempt = || {
            let allowed = cpu::allowed_cores()?;
            let claims = CoreClaims::open()?;
            let dealt = claims.claim_homes(&allowed, ranks)?;
            Ok::<_, Box<dyn std::error::Error>>(Pinning { claims, allowed, dealt })
        };
        attempt().inspect_err(|error| pulc_base::log!(Warn, "keeper", "ranks are not pinned: {error}")).ok()
    }

    /// Spreads the ranks over their homes and over what is still free, neighbours next to each other.
    pub fn spread(&self) -> Vec<Vec<u32>> {
        let unused: Vec<u32> =
            self.allowed.iter().zip(&self.dealt).filter(|(_, count)| **count == 0).map(|(core, _)| *core).collect();
        let free = if unused.is_empty() { Vec::new() } else { self.claims.claim_free(&unused).unwrap_or_default() };
        share(&self.allowed, &self.dealt, &free)
    }
}

/// Homes hold `dealt[i]` ranks each. With a core or more for each rank, homes and free cores are cut into equal blocks.
fn share(allowed: &[u32], dealt: &[u32], free: &[u32]) -> Vec<Vec<u32>> {
    if dealt.iter().any(|count| *count > 1) {
        let blocks = allowed.iter().zip(dealt).filter(|(_, count)| **count > 0);
        return blocks.flat_map(|(core, count)| vec![vec![*core]; *count as usize]).collect();
    }
    let ranks = dealt.iter().filter(|count| **count > 0).count();
    if ranks == 0 {
        return Vec::new();
    }
    let usable: Vec<u32> = allowed
        .iter()
        .zip(dealt)
        .filter(|(core, count)| **count > 0 || free.contains(core))
        .map(|(core, _)| *core)
        .collect();
    let each = usable.len() / ranks;
    usable.chunks(each).take(ranks).map(<[u32]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_core_when_there_are_more_ranks_than_cores() {
        assert_eq!(share(&[0, 1], &[2, 2], &[]), [[0], [0], [1], [1]]);
        assert_eq!(share(&[0, 1], &[2, 1], &[]), [[0], [0], [1]]);
    }

    #[test]
    fn every_rank_gets_an_equal_share_of_the_free_cores() {
        assert_eq!(share(&[0, 1, 2, 3], &[1, 1, 0, 0], &[2, 3]), [[0, 1], [2, 3]]);
        assert_eq!(share(&[0, 1, 2, 3, 4], &[0, 1, 1, 0, 0], &[4]), [[1], [2]]);
        assert_eq!(share(&[0, 1], &[1, 0], &[1]), [[0, 1]]);
        assert_eq!(share(&[0, 1], &[0, 0], &[]), Vec::<Vec<u32>>::new());
    }
}
