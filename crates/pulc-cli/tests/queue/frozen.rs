//! A job whose processes talk with each other all the time, between two nodes, is made to stand still in the middle of it: as a whole by
//! `pulc suspend`, and on one node only, behind everybody's back. It goes on, nobody was taken for dead, and the result has the same bits.
//! For longer than it takes to give up a node that is silent; `PULC_TEST_FROZEN_S` says how long (`test --full` and records: 600).

use crate::{PULC, cluster, end, job, nodes, output, submit, text, wait_for};
use pulc_testkit::{Cluster, wait_until};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::{Duration, Instant};

/// Long enough to be caught in the middle; a quick machine takes more steps for that.
const LONG_ENOUGH: Duration = Duration::from_secs(2);
const STEPS: u32 = 4_000;
const STEPS_MAX: u32 = 4_000_000;

fn frozen_for() -> Duration {
    let wanted = std::env::var("PULC_TEST_FROZEN_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(wanted.unwrap_or(7))
}

fn heat(cluster: &Cluster, name: &str, steps: u32) -> String {
    let steps = steps.to_string();
    let words =
        ["-n", "4", "--nodes", "2", "--no-requeue", "-o", name, PULC, "heat", "--size", "61x47", "--steps", &steps];
    submit(cluster, 0, &[&words[..], &["--gather-every", "500", "--verify"]].concat())
}

/// What tells the bits of the result.
fn field(cluster: &Cluster, name: &str) -> String {
    let text = output(cluster, name);
    let line = text.lines().find(|line| line.contains("field"));
    line.unwrap_or_else(|| panic!("no field in {text:?}")).to_owned()
}

/// It runs, and after a moment still does.
fn wait_until_in_the_middle(cluster: &Cluster, number: &str) {
    wait_for(cluster.host(0), number, "RUNNING");
    std::thread::sleep(Duration::from_millis(400));
    let state = job(cluster.host(0), number);
    assert_eq!(text(&state, "state"), "RUNNING", "it ended too soon for this test: {state}");
}

/// Processes of the job on the second host.
fn processes(cluster: &Cluster) -> Vec<std::os::fd::OwnedFd> {
    let is_rank = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"heat")
    };
    let ranks = cluster.host(1).processes().into_iter().filter(is_rank).filter_map(Pid::from_raw);
    ranks.filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect()
}

#[test]
fn a_job_that_was_frozen_in_mid_traffic_has_the_same_bits() {
    let Some(cluster) = cluster("a_job_that_was_frozen_in_mid_traffic_has_the_same_bits", 2) else { return };
    let host = cluster.host(0);
    let mut steps = STEPS;
    loop {
        let begin = Instant::now();
        let undisturbed = heat(&cluster, "undisturbed.out", steps);
        wait_for(host, &undisturbed, "COMPLETED");
        if begin.elapsed() >= LONG_ENOUGH || steps >= STEPS_MAX {
            break;
        }
        steps *= 3;
    }
    let as_a_whole = heat(&cluster, "whole.out", steps);
    wait_until_in_the_middle(&cluster, &as_a_whole);
    host.pulc(&["suspend", &as_a_whole]).expect_success();
    wait_for(host, &as_a_whole, "SUSPENDED");
    let before = output(&cluster, "whole.out");
    std::thread::sleep(frozen_for());
    assert_eq!(output(&cluster, "whole.out"), before, "a job that stands still has printed something");
    assert_eq!(text(&job(host, &as_a_whole), "state"), "SUSPENDED");
    host.pulc(&["resume", &as_a_whole]).expect_success();
    let whole = wait_for(host, &as_a_whole, "COMPLETED");
    let in_part = heat(&cluster, "part.out", steps);
    wait_until_in_the_middle(&cluster, &in_part);
    let found = wait_until(|| Some(processes(&cluster)).filter(|ranks| !ranks.is_empty()));
    let ranks = found.expect("two of its processes are there");
    let signal =
        |signal| ranks.iter().for_each(|rank| pidfd_send_signal(rank, signal).expect("a process of the job lives"));
    signal(Signal::STOP);
    std::thread::sleep(frozen_for());
    assert_eq!(text(&job(host, &in_part), "state"), "RUNNING");
    signal(Signal::CONT);
    let part = wait_for(host, &in_part, "COMPLETED");
    for (job, name) in [(&whole, "whole.out"), (&part, "part.out")] {
        assert_eq!(job["attempt"].as_u64(), Some(0), "{job}");
        assert_eq!(field(&cluster, name), field(&cluster, "undisturbed.out"));
        assert!(output(&cluster, name).contains("verification passed"), "{}", output(&cluster, name));
    }
    assert!(nodes(host).iter().all(|node| node["state"] == "up"), "{:?}", nodes(host));
    let told = host.pulc(&["events", "-n", "100"]).stdout;
    assert!(!told.contains("lost") && !told.contains("down"), "{told}");
    end(&cluster);
}
