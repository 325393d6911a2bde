//! Keys of network frames, one for each pair of ranks, made from the job's secret. The secret goes from daemon to daemon and to
//! the keepers; a rank is given its own row of keys only, so it can speak for nobody but itself. Called by the broker when a
//! rank attaches; asks nobody, sends nothing.
//!
//! Source: RFC 5869 (HKDF).

use pulc_base::boot::{Boot, JobSecret, PAIR_KEY_BYTES};
use pulc_base::{JobId, Rank};
use ring::hkdf;

pub struct PairKeys {
    secret: hkdf::Prk,
    job: JobId,
    /// By rank.
    node_of: Vec<u32>,
}

impl PairKeys {
    /// `None`: no two ranks of the job are on different nodes.
    pub fn new(secret: &JobSecret, boot: &Boot) -> Option<PairKeys> {
        if boot.nodes.len() < 2 {
            return None;
        }
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"pulc pairs of ranks").extract(&secret.0);
        Some(PairKeys { secret, job: boot.job, node_of: boot.tasks.iter().map(|task| task.node).collect() })
    }

    /// The keys of one rank with every other, by rank; zeros for those of its own node, with which it shares memory.
    pub fn row(&self, rank: Rank) -> Vec<u8> {
        let mut row = vec![0; self.node_of.len() * PAIR_KEY_BYTES];
        let here = self.node_of.get(rank.0 as usize);
        for (peer, place) in row.chunks_exact_mut(PAIR_KEY_BYTES).enumerate() {
            if self.node_of.get(peer) != here {
                self.derive(rank, Rank(peer as u32), place);
            }
        }
        row
    }

    fn derive(&self, one: Rank, other: Rank, key: &mut [u8]) {
        let (low, high) = (one.0.min(other.0), one.0.max(other.0));
        let about: [&[u8]; 4] = [b"version 1", &self.job.0.to_le_bytes(), &low.to_le_bytes(), &high.to_le_bytes()];
        self.secret
            .expand(&about, KeyLength)
            .and_then(|material| material.fill(key))
            .expect("one key is shorter than HKDF's limit");
    }
}

/// Tells `ring` how long a key is.
struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        PAIR_KEY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_base::boot::{BootNode, BootTask};
    use pulc_base::{NodeId, PROTOCOL_VERSION};
    use std::collections::HashSet;

    fn boot(nodes: &[u32]) -> Boot {
        let count = nodes.iter().max().map_or(0, |last| last + 1) as u8;
        Boot {
            version: PROTOCOL_VERSION,
            job: JobId(7),
            nodes: (0..count).map(|node| BootNode { id: NodeId([node; 16]), name: node.to_string() }).collect(),
            tasks: nodes.iter().map(|node| BootTask { node: *node, rails: Vec::new() }).collect(),
        }
    }

    fn entry(row: &[u8], peer: usize) -> &[u8] {
        &row[peer * PAIR_KEY_BYTES..][..PAIR_KEY_BYTES]
    }

    #[test]
    fn two_ranks_share_the_key_of_their_pair_and_know_none_of_another_pair() {
        let keys = PairKeys::new(&JobSecret([3; 32]), &boot(&[0, 0, 1, 1, 2])).expect("three nodes");
        let rows: Vec<Vec<u8>> = (0..5).map(|rank| keys.row(Rank(rank))).collect();
        let mut seen = HashSet::new();
        for (one, other) in (0..5).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let key = entry(&rows[one], other);
            assert_eq!(key, entry(&rows[other], one));
            let is_local = one / 2 == other / 2;
            assert_eq!(key == [0; PAIR_KEY_BYTES], is_local);
            assert!(is_local || seen.insert(key), "{one} and {other} have somebody else's key");
            for (third, row) in rows.iter().enumerate().filter(|(third, _)| *third != one && *third != other) {
                let knows = row.chunks_exact(PAIR_KEY_BYTES).any(|known| known == key);
                assert!(is_local || !knows, "{third} knows the key of {one} and {other}");
            }
        }
    }

    #[test]
    fn other_secrets_and_other_jobs_have_other_keys_and_one_node_has_none() {
        let boot_of_two = boot(&[0, 1]);
        let row = |secret, boot: &Boot| PairKeys::new(&JobSecret([secret; 32]), boot).expect("two nodes").row(Rank(0));
        let other_job = Boot { job: JobId(8), ..boot_of_two.clone() };
        assert_ne!(row(3, &boot_of_two), row(4, &boot_of_two));
        assert_ne!(row(3, &boot_of_two), row(3, &other_job));
        assert!(PairKeys::new(&JobSecret([3; 32]), &boot(&[0, 0])).is_none());
    }
}
