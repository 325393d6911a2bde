//! The shm device under the conformance suite, and what is special to it: offers, exhaustion, hostile peers, memory.

use super::*;
use crate::device::conformance::{self, Rig};

/// Two devices in one process, joined without a keeper.
fn joined(config: ShmConfig) -> (Shm, Shm, Peer, Peer) {
    let (board, _fd) = Board::create(2).unwrap();
    let board = Arc::new(board);
    let mut a = Shm::new(config.clone(), board.clone(), 0).unwrap();
    let mut b = Shm::new(config, board, 1).unwrap();
    let (b_at_a, offer) = a.open(1).unwrap();
    let (a_at_b, answer) = b.accept(0, &offer.what, offer.fds).unwrap();
    let answer = answer.unwrap();
    let (same, none) = a.accept(1, &answer.what, answer.fds).unwrap();
    assert_eq!((same, none.is_none()), (b_at_a, true));
    (a, b, b_at_a, a_at_b)
}

#[test]
fn shm_conforms() {
    let make = || {
        let (a, b, b_at_a, a_at_b) = joined(ShmConfig::default());
        Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(|| {}) }
    };
    let report = conformance::run(make, &[]);
    assert!(report.excluded.is_empty());
}

#[test]
fn shm_conforms_with_the_smallest_pool() {
    let make = || {
        let config = ShmConfig { pool_bytes: 8192, slot_bytes: 4096, bell: None };
        let (a, b, b_at_a, a_at_b) = joined(config);
        Rig { a, b, b_at_a, a_at_b, pass_time: Box::new(|| {}) }
    };
    conformance::run(make, &[]);
}
