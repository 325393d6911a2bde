//! Faults of networks, and of nodes that are not fit: links are cut on all networks or on one, packets are lost, and health checks fail.

use crate::Chance;
use crate::faults::worker;
use crate::ledger::Workload;
use pulc_testkit::{Cluster, Host};
use std::time::Duration;

pub fn cut(cluster: &Cluster, chance: &mut Chance, ms: u64) {
    let host = worker(cluster, chance).number;
    cut_off(cluster, host);
    std::thread::sleep(Duration::from_millis(ms));
    join_again(cluster, host);
}

/// On all networks.
pub fn cut_off(cluster: &Cluster, host: usize) {
    cluster.cut(host).and_then(|()| cluster.cut_second(host)).expect("the links can be cut");
}

fn join_again(cluster: &Cluster, host: usize) {
    cluster.heal(host).and_then(|()| cluster.heal_second(host)).expect("the links can be healed");
}

pub fn network_cut(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance, is_short: bool) {
    let host = worker(cluster, chance).number;
    cluster.cut_second(host).expect("the link can be cut");
    work.submit(chance, 2);
    std::thread::sleep(Duration::from_millis(if is_short { 4000 + chance.below(2000) } else { 8000 }));
    work.submit(chance, 1);
    cluster.heal_second(host).expect("the link can be healed");
}

pub fn first_network_cut(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = worker(cluster, chance).number;
    cluster.cut(host).expect("the link can be cut");
    std::thread::sleep(Duration::from_millis(9000));
    work.submit(chance, 2);
    cluster.heal(host).expect("the link can be healed");
}

/// A health check that fails on a host as long as a file for that one is there.
pub fn write_check(cluster: &Cluster) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let check = cluster.directory().join("check");
    let marks = cluster.directory().display();
    let script = format!("#!/bin/sh\nfor a in $(hostname -I); do [ ! -e {marks}/sick-$a ] || exit 1; done\n");
    std::fs::write(&check, script).expect("a file of the test can be written");
    std::fs::set_permissions(&check, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    check
}

pub fn unfit(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let mark = cluster.directory().join(format!("sick-{}", worker(cluster, chance).address));
    std::fs::write(&mark, "").expect("a file of the test can be written");
    work.submit(chance, 2);
    std::thread::sleep(Duration::from_millis(3000 + chance.below(4000)));
    work.submit(chance, 1);
    std::fs::remove_file(&mark).expect("it was just there");
}

pub fn controller_cut_off(cluster: &Cluster, _: &mut Workload<'_>, _: &mut Chance) {
    cut_off(cluster, 0);
    std::thread::sleep(Duration::from_millis(8000));
    join_again(cluster, 0);
}

/// Packets to a host (`input`) or from it (`output`) are dropped as a rule says.
fn filter(host: &Host, work: &mut Workload<'_>, hook: &str, rule: &[&str]) {
    let way = if hook == "input" { "iifname" } else { "oifname" };
    let nft = |words: &[&str]| {
        let mut command = host.program_command("nft");
        command.args(words).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let made = nft(&["add", "table", "inet", "chaos"])
        && nft(&["add", "chain", "inet", "chaos", "spoil", &format!("{{ type filter hook {hook} priority 0; }}")])
        && nft(&[&["add", "rule", "inet", "chaos", "spoil", "meta", way, "{ eth0, eth1 }"], rule].concat());
    if !made {
        work.not_made = Some("not made: packets can't be filtered here (nft)".to_owned());
    }
}

fn unfilter(host: &Host) {
    let mut command = host.program_command("nft");
    command
        .args(["delete", "table", "inet", "chaos"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let _ = command.status();
}

/// What goes one way is lost, what goes the other way is not.
pub fn one_way(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance, hook: &str) {
    let host = worker(cluster, chance);
    filter(host, work, hook, &["drop"]);
    std::thread::sleep(Duration::from_millis(9000));
    unfilter(host);
}

pub fn lossy(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = worker(cluster, chance);
    filter(host, work, "input", &["numgen", "random", "mod", "100", "<", "10", "drop"]);
    for _ in 0..3 {
        work.submit(chance, 1);
        std::thread::sleep(Duration::from_secs(3));
    }
    unfilter(host);
}
