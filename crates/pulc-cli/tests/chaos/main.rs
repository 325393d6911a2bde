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

/// Where results are told to `cargo xtask chaos`.
const ENV_REPORT: &str = "PULC_CHAOS_REPORT";

/// One line: cases, what was done, seed, jobs, and what was not as promised.
fn tell(cases: &[u32], what: &str, seed: u64, jobs: usize, wrong: usize) {
    use std::io::Write as _;
    let Some(path) = std::env::var_os(ENV_REPORT) else { return };
    let cases = cases.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let line = format!("{cases}\t{what}\t{seed}\t{jobs}\t{wrong}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the report can be written");
}

/// Runs a workload while faults happen, and checks it. Returns what is not as promised, with the whole story.
fn play(what: &str, seed: u64, faults: &[&Fault]) -> Option<String> {
    let cluster = match Cluster::new(HOSTS, PULC) {
        Ok(cluster) => cluster.with_environment(&[("PULC_MESH_REDIAL_MAX_MS", "500")]),
        Err(why) => {
            skipped(what, &format!("network namespaces cannot be made: {why}"));
            return None;
        }
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
    let cases: Vec<u32> = if let [fault] = faults { fault.cases.to_vec() } else { Vec::new() };
    tell(&cases, what, seed, work.accepted.len(), wrong.len());
    if !wrong.is_empty() {
        return Some(format!("{what}, PULC_TEST_SEED={seed}:\n{}\n{}", wrong.join("\n"), work.story()));
    }
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
    None
}

/// Only faults with this in their names.
fn chosen() -> Vec<&'static Fault> {
    let part = std::env::var("PULC_CHAOS_FAULT").unwrap_or_default();
    FAULTS.iter().filter(|fault| fault.name.contains(&part)).collect()
}

fn expect_none(broken: &[String]) {
    assert!(broken.is_empty(), "{} runs broke a promise:\n{}", broken.len(), broken.join("\n\n"));
}

#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn every_fault_by_itself_leaves_every_promise_kept() {
    let seed = seed();
    let mut broken = Vec::new();
    for round in 0..rounds() {
        for fault in chosen() {
            broken.extend(play(fault.name, seed.wrapping_add(round * 7919) | 1, &[fault]));
        }
    }
    expect_none(&broken);
}

#[test]
#[ignore = "long: run by cargo xtask chaos"]
fn faults_mixed_by_chance_leave_every_promise_kept() {
    let seed = seed();
    let mut broken = Vec::new();
    for round in 0..rounds() {
        let seed = seed.wrapping_add(round * 7919) | 1;
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let all = chosen();
        let faults: Vec<&Fault> = (0..6).map(|_| all[chance.below(all.len() as u64) as usize]).collect();
        broken.extend(play("six faults by chance", seed, &faults));
    }
    expect_none(&broken);
}
