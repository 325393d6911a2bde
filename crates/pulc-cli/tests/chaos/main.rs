//! A cluster under work while everything that can break does, one kind of fault after the other and then mixed by chance: daemons,
//! keepers and ranks are killed or stopped, links are cut, clients go away. Afterwards the promises are checked against a ledger that
//! the jobs themselves have written. Run by `cargo xtask chaos`; `PULC_CHAOS_ROUNDS` says how often, `PULC_TEST_SEED` makes it come again.

mod clocks;
mod faults;
mod ledger;
mod networks;

use faults::{FAULTS, Fault};
use ledger::Workload;
use pulc_testkit::{Chance, Cluster, skipped, wait_until};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const PULC: &str = env!("CARGO_BIN_EXE_pulc");
const HOSTS: usize = 3;
/// Processes that the queue may start on each of them at once, so that jobs wait for each other.
const SLOTS: usize = 2;

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

/// What came of one workload.
struct Came {
    accepted: usize,
    wrong: Vec<String>,
    /// Why the fault could not be made here.
    not_made: Option<String>,
    story: String,
}

/// One line: cases, what was done, seed, jobs, and what was not as promised, or why it was not made.
fn tell(cases: &[u32], what: &str, seed: u64, came: &Came) {
    use std::io::Write as _;
    let Some(path) = std::env::var_os(ENV_REPORT) else { return };
    let cases = cases.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let verdict = match &came.not_made {
        Some(why) => why.clone(),
        None => came.wrong.len().to_string(),
    };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let line = format!("{cases}\t{what}\t{seed}\t{}\t{verdict}\n", came.accepted);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the report can be written");
}

/// A cluster whose controller has seen all of its hosts; none and the reason counted where there can't be one.
fn cluster(what: &str) -> Option<Cluster> {
    let cluster = Cluster::new(HOSTS, PULC)
        .and_then(Cluster::with_second_network)
        .map_err(|why| skipped(what, &format!("network namespaces cannot be made: {why}")))
        .ok()?
        .with_environment(&[("PULC_MESH_REDIAL_MAX_MS", "500")]);
    let cluster = clocks::settable(cluster);
    cluster.start();
    let host = cluster.host(0);
    let names = wait_until(|| {
        let nodes = ledger::array(&host.pulc(&["nodes", "--queue", "--json"]).stdout);
        let up = nodes.iter().filter(|node| node["state"] == "up");
        let names: Vec<String> = up.filter_map(|node| node["name"].as_str().map(str::to_owned)).collect();
        (names.len() == HOSTS).then_some(names)
    });
    for name in names.expect("the controller sees all hosts") {
        host.pulc(&["node", &name, "--slots", &SLOTS.to_string()]).expect_success();
    }
    // Jobs use another network than daemons do, and each node is looked at.
    let check = networks::write_check(&cluster);
    let health = format!("health.program={}", check.display());
    host.pulc(&["config", "networks=10.79.0.0/24,10.77.0.0/24", &health, "health.interval=1s"]).expect_success();
    Some(cluster)
}

/// Runs a workload while faults happen, and checks it. Returns what is not as promised, with the whole story.
fn play(what: &str, seed: u64, faults: &[&Fault]) -> Option<String> {
    let begin = Instant::now();
    let cluster = cluster(what)?;
    let mut work = Workload::new(&cluster, seed);
    // What panics is one broken run, not the end of all others.
    let outcome = catch_unwind(AssertUnwindSafe(|| work_under(&cluster, &mut work, what, seed, faults)));
    let mut wrong = match outcome {
        Ok(wrong) => wrong,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            vec![text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()]
        }
    };
    let story = if wrong.is_empty() { String::new() } else { work.story() };
    if wrong.is_empty() {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            cluster.host(0).pulc(&["down", "--all"]).expect_success();
            cluster.expect_nothing_left();
        }));
        if ended.is_err() {
            wrong.push(format!("left after `pulc down --all`: {:?}", cluster.leftovers()));
        }
    }
    let came = Came { accepted: work.accepted.len(), wrong, not_made: work.not_made.take(), story };
    match faults {
        [fault] if fault.spares_nodes => tell(fault.cases, &format!("{what} (*)"), seed, &came),
        [fault] => tell(fault.cases, what, seed, &came),
        _ => tell(&[], what, seed, &came),
    }
    let word = match (&came.not_made, came.wrong.len()) {
        (Some(why), _) => why.clone(),
        (None, 0) => "kept".to_owned(),
        (None, count) => format!("{count} BROKEN"),
    };
    println!("{what} (PULC_TEST_SEED={seed}): {} jobs, {word}, {:.0} s", came.accepted, begin.elapsed().as_secs_f64());
    let broken = !came.wrong.is_empty();
    broken.then(|| format!("{what}, PULC_TEST_SEED={seed}:\n{}\n{}", came.wrong.join("\n"), came.story))
}

/// Returns what is not as promised.
fn work_under(cluster: &Cluster, work: &mut Workload<'_>, what: &str, seed: u64, faults: &[&Fault]) -> Vec<String> {
    let mut chance = Chance(seed);
    for fault in faults {
        work.submit(&mut chance, 3);
        std::thread::sleep(Duration::from_millis(chance.below(400)));
        if faults.len() > 1 {
            println!("{what} (PULC_TEST_SEED={seed}): {}", fault.name);
        }
        (fault.make)(cluster, work, &mut chance);
        work.submit(&mut chance, 2);
    }
    work.finish();
    let mut wrong = work.check();
    if faults.iter().all(|fault| fault.spares_nodes) {
        wrong.extend(work.nodes_given_up());
    }
    wrong
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
