//! Health checks: a program on each node that keeps its node from work while it fails, and gives back only what it has taken.

use crate::{array, cluster, end, job, nodes, submit, text, wait_for};
use pulc_testkit::{Host, wait_until};
use std::os::unix::fs::PermissionsExt as _;

/// A check that has succeeded so shortly before counts for a job (5 s).
const JUST_SUCCEEDED: std::time::Duration = std::time::Duration::from_millis(5_500);

/// Waits until a node is in this state, and tells why it is drained.
fn wait_for_node(host: &Host, name: &str, state: &str) -> String {
    let is_it = || nodes(host).into_iter().find(|node| node["name"] == name && node["state"] == state);
    let node = wait_until(is_it).unwrap_or_else(|| panic!("node {name} is not {state}: {:?}", nodes(host)));
    text(&node, "drained").to_owned()
}

#[test]
fn a_node_whose_health_check_fails_gets_no_work_until_it_succeeds() {
    let Some(cluster) = cluster("a_node_whose_health_check_fails_gets_no_work_until_it_succeeds", 2) else { return };
    let host = cluster.host(0);
    let names: Vec<String> = nodes(host).iter().map(|node| text(node, "name").to_owned()).collect();
    let sick = &names[1];
    // It fails on a node as long as a file for it is there.
    let check = cluster.directory().join("check");
    let own = "ip -o -4 addr show scope global | md5sum | cut -c1-8";
    let marks = cluster.directory().display();
    let script = format!("#!/bin/sh\n[ -e {marks}/sick-$({own}) ] || exit 0\necho disk is full\nexit 1\n");
    std::fs::write(&check, script).unwrap();
    std::fs::set_permissions(&check, std::fs::Permissions::from_mode(0o755)).unwrap();
    let sum = cluster.host(1).program_command("sh").args(["-c", own]).output().unwrap();
    let mark = cluster.directory().join(format!("sick-{}", String::from_utf8(sum.stdout).unwrap().trim()));
    let program = format!("health.program={}", check.display());
    let refused = host.pulc(&["config", &program, "health.interval=0.1s"]);
    assert!(refused.code() != Some(0) && refused.stderr.contains("from 1 s to"), "{refused:?}");
    let refused = host.pulc(&["config", "health.program=check"]);
    assert!(refused.stderr.contains("absolute path"), "{refused:?}");
    assert!(host.pulc(&["config"]).expect_success().stdout.starts_with("# version 0\n"));
    // Said on one node, known on all.
    cluster.host(1).pulc(&["config", &program, "health.interval=1s"]).expect_success();
    let shown = host.pulc(&["config"]).expect_success().stdout;
    assert!(shown.starts_with("# version 1\n") && shown.contains(&program), "{shown}");
    std::fs::write(&mark, "").unwrap();
    assert!(wait_for_node(host, sick, "drained").starts_with("its health check fails: disk is full"));
    let told = host.pulc(&["events", "-n", "20"]).stdout;
    assert!(told.contains(&format!("node {sick} gets nothing new: its health check fails: disk is full")), "{told}");
    // Work goes to the other one; what needs this one says why it waits.
    let elsewhere = submit(&cluster, 0, &["true"]);
    wait_for(host, &elsewhere, "COMPLETED");
    let waits = submit(&cluster, 0, &["-w", sick, "true"]);
    let why = wait_until(|| Some(job(host, &waits)).filter(|job| text(job, "text").contains("disk is full")));
    assert!(why.is_some(), "{}", job(host, &waits));
    // What an operator says counts, too, and longer.
    host.pulc(&["drain", sick, "-r", "maintenance"]).expect_success();
    std::fs::remove_file(&mark).unwrap();
    let told = || host.pulc(&["events", "-n", "20"]).stdout;
    let well =
        wait_until(|| Some(()).filter(|()| told().contains(&format!("health check of node {sick} succeeds again"))));
    assert!(well.is_some(), "{}", told());
    assert_eq!(wait_for_node(host, sick, "drained"), "maintenance");
    host.pulc(&["undrain", sick]).expect_success();
    wait_for(host, &waits, "COMPLETED");
    // Between two rounds a job is what finds out: it waits again, though it may not be started twice, since it has not begun.
    host.pulc(&["config", "health.interval=1h"]).expect_success();
    wait_for_node(host, sick, "up");
    std::thread::sleep(JUST_SUCCEEDED);
    std::fs::write(&mark, "").unwrap();
    let once = submit(&cluster, 0, &["--no-requeue", "-w", sick, "true"]);
    wait_for_node(host, sick, "drained");
    let waiting = wait_until(|| Some(job(host, &once)).filter(|job| job["state"] == "PENDING" && job["attempt"] == 1));
    assert!(waiting.is_some(), "{}", job(host, &once));
    // One that is started at once is told so.
    let refused = host.pulc(&["run", "--hosts", sick, "true"]);
    assert!(refused.code() != Some(0), "{refused:?}");
    let held = host.pulc(&["hold", "--json", &once]).expect_success().stdout;
    assert_eq!(array(&held).first().map(|job| job["held"] == true), Some(true), "{held}");
    host.pulc(&["undrain", sick]).expect_success();
    let at_once =
        wait_until(|| Some(host.pulc(&["run", "--hosts", sick, "true"])).filter(|run| !run.stderr.contains("no node")));
    let said = at_once.expect("it is up again").stderr;
    assert!(said.contains("its health check fails: disk is full"), "{said}");
    host.pulc(&["release", &once]).expect_success();
    // A check that is not made any more keeps nobody from work.
    host.pulc(&["config", "health.action=none"]).expect_success();
    wait_for(host, &once, "COMPLETED");
    end(&cluster);
}
