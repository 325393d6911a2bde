//! A cluster under work while everything that can break does, one kind of fault after the other and then mixed by chance: daemons,
//! keepers and ranks are killed or stopped, links are cut, clients go away. Afterwards the promises are checked against a ledger that
//! the jobs themselves have written. Run by `cargo xtask chaos`; `PULC_CHAOS_ROUNDS` says how often, `PULC_TEST_SEED` makes it come again.

mod faults;
mod ledger;

use faults::{FAULTS, Fault};
use ledger::Workload;
use pulc_testkit::{Cluster, skipped};
use std::time::Duration;

const PULC: &str = env!("CARGO_BIN_EXE_pulc");
const HOSTS: usize = 3;

/// Numbers that look random and come again with the seed (xorshift64*).
pub struct Chance(u64);

impl Chance {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit.max(1)
    }
}

fn rounds() -> u64 {
    std::env::var("PULC_CHAOS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn seed() -> u64 {
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = std::env::var("PULC_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh);
    println!("PULC_TEST_SEED={seed}");
    seed | 1
}

/// Runs a workload while faults happen, and checks it.
fn play(what: &str, seed: u64, faults: &[&Fault]) {
    let cluster = match Cluster::new(HOSTS, PULC) {
        Ok(cluster) => cluster.with_environment(&[("PULC_MESH_REDIAL_MAX_MS", "500")]),
        Err(why) => return skipped(what, &format!("network namespaces cannot be made: {why}")),
    };
    cluster.start();
    let mut chance = Chance(seed);
    let mut work = Workload::new(&cluster, seed);
    for fault in faults {
        work.submit(&mut chance, 3);
        std::thread::sleep(Duration::from_millis(chance.below(400)));
        println!("{what} (PULC_TEST_SEED={seed}): {}", fault.name);
        (fault.make)(&cluster, &mut work, &mut chance);
        work.submit(&mut chance, 2);
    }
    work.finish();
    let wrong = work.check();
    assert!(wrong.is_empty(), "{what}, PULC_TEST_SEED={seed}:\n{}\n{}", wrong.join("\n"), work.story());
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn every_fault_by_itself_leaves_every_promise_kept() {
    let seed = seed();
    for round in 0..rounds() {
        for fault in FAULTS {
            play(fault.name, seed.wrapping_add(round * 7919), &[fault]);
        }
    }
}

#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn faults_mixed_by_chance_leave_every_promise_kept() {
    let seed = seed();
    for round in 0..rounds() {
        let mut chance = Chance(seed.wrapping_add(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let faults: Vec<&Fault> = (0..6).map(|_| &FAULTS[chance.below(FAULTS.len() as u64) as usize]).collect();
        play("mixed", seed.wrapping_add(round), &faults);
    }
}
