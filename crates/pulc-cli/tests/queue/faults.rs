//! Daemons that are killed and come back, hosts that vanish: what the queue promises all the same.

use crate::{cluster, end, job, nodes, output, submit, text, wait_for};
use pulc_testkit::{leftovers, wait_until};
use rustix::process::Signal;

/// Prints numbered lines on every rank, slowly enough that something can happen meanwhile.
const COUNT: &str = "i=0; while [ $i -lt 60 ]; do echo $PULC_RANK $i; i=$((i+1)); sleep 0.05; done";

fn expect_all_lines(text: &str, ranks: u32) {
    for rank in 0..ranks {
        let own: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&format!("{rank} "))).collect();
        let all: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        assert_eq!(own, all, "output of rank {rank}");
    }
}

#[test]
fn jobs_outlive_the_daemons_of_their_nodes_and_of_the_controller() {
    let Some(cluster) = cluster("jobs_outlive_the_daemons_of_their_nodes_and_of_the_controller", 3) else { return };
    let host = cluster.host(0);
    let names: Vec<String> = nodes(host).iter().map(|node| text(node, "name").to_owned()).collect();
    assert_eq!(names.len(), 3);
    let wide = submit(&cluster, 1, &["-n", "6", "-o", "wide.out", "sh", "-c", COUNT]);
    wait_for(host, &wide, "RUNNING");
    let waiting = submit(&cluster, 2, &["-n", "6", "-o", "later.out", "echo", "later"]);
    let held = submit(&cluster, 2, &["-H", "true"]);
    // Every daemon in turn, the controller's among them: each comes back and knows everything.
    for number in [1, 0, 2] {
        let host = cluster.host(number);
        host.signal_daemon(Signal::KILL);
        let up = wait_until(|| Some(()).filter(|()| host.pulc(&["up"]).code() == Some(0)));
        assert!(up.is_some(), "the daemon of host {number} does not come back");
        host.wait_for_states("up", 3);
    }
    let done = wait_for(host, &wide, "COMPLETED");
    assert_eq!(done["attempt"], 0, "it was started again: {done}");
    expect_all_lines(&output(&cluster, "wide.out"), 6);
    wait_for(host, &waiting, "COMPLETED");
    assert_eq!(output(&cluster, "later.out"), "later\n".repeat(6));
    assert_eq!(job(host, &held)["state"], "PENDING");
    end(&cluster);
}

#[test]
fn the_queue_and_its_history_are_there_after_the_controller_was_killed() {
    let Some(cluster) = cluster("the_queue_and_its_history_are_there_after_the_controller_was_killed", 1) else {
        return;
    };
    let host = cluster.host(0);
    let done = submit(&cluster, 0, &["true"]);
    wait_for(host, &done, "COMPLETED");
    let mut numbers = Vec::new();
    for _ in 0..5 {
        numbers.push(submit(&cluster, 0, &["-H", "true"]));
    }
    host.pulc(&["reserve", "mine", "--for", "1h", "--from", "now+1h"]).expect_success();
    host.signal_daemon(Signal::KILL);
    wait_until(|| Some(()).filter(|()| host.pulc(&["up"]).code() == Some(0))).expect("the daemon comes back");
    wait_until(|| Some(()).filter(|()| host.pulc(&["queue"]).code() == Some(0))).expect("the queue comes back");
    for number in &numbers {
        assert_eq!(job(host, number)["state"], "PENDING");
    }
    assert_eq!(job(host, &done)["state"], "COMPLETED");
    assert!(host.pulc(&["reserve"]).expect_success().stdout.contains("mine"));
    let next = submit(&cluster, 0, &["-H", "true"]);
    assert_eq!(
        next.parse::<u64>().unwrap(),
        numbers[4].parse::<u64>().unwrap() + 1,
        "a number was given twice, or lost"
    );
    end(&cluster);
}

#[test]
fn a_job_whose_node_vanishes_starts_again_elsewhere_or_fails_if_it_may_not() {
    let Some(cluster) = cluster("a_job_whose_node_vanishes_starts_again_elsewhere_or_fails_if_it_may_not", 3) else {
        return;
    };
    let host = cluster.host(0);
    let mark = format!("vanish-{}", std::process::id());
    let variable = format!("PULC_TEST_MARK={mark}");
    // On the two nodes that are not the controller's.
    let local = host.states()[0].0.clone();
    let wide = ["-n", "4", "-x", &local, "--env", &variable, "sh", "-c", "sleep 1000 & wait"];
    let again = submit(&cluster, 0, &wide);
    wait_for(host, &again, "RUNNING");
    cluster.cut(2).expect("the link can be cut");
    // Two nodes are left, of which it may use one: it waits.
    let waiting = wait_until(|| Some(job(host, &again)).filter(|job| job["state"] == "PENDING" && job["attempt"] == 1));
    assert!(waiting.is_some(), "{}", job(host, &again));
    // Nothing of it is left on either side of the cut.
    let gone = || Some(()).filter(|()| leftovers::processes("PULC_TEST_MARK", &mark).is_empty());
    assert!(wait_until(gone).is_some(), "{:?}", leftovers::processes("PULC_TEST_MARK", &mark));
    cluster.heal(2).expect("the link can be healed");
    let running = wait_for(host, &again, "RUNNING");
    assert_eq!(running["attempt"], 1, "{running}");
    host.pulc(&["cancel", &again]).expect_success();
    wait_for(host, &again, "CANCELLED");
    let once: Vec<&str> = std::iter::once("--no-requeue").chain(wide).collect();
    let once = submit(&cluster, 0, &once);
    wait_for(host, &once, "RUNNING");
    cluster.cut(2).expect("the link can be cut");
    let failed = wait_for(host, &once, "NODE_FAIL");
    assert!(text(&failed, "text").contains("was lost"), "{failed}");
    assert!(wait_until(gone).is_some(), "{:?}", leftovers::processes("PULC_TEST_MARK", &mark));
}
