//! Helper, daemon, and keeper with its guardian are killed, one after the other in every order: nothing of the job is left, and the cluster works
//! again.

use crate::{ALICE, Several};
use pulc_testkit::{leftovers, wait_until};

const PARTS: [&str; 3] = ["daemon", "helper", "keeper"];

fn kill(several: &Several, part: &str) {
    let pids = match part {
        "daemon" => several.cluster.host(0).daemon_pid().into_iter().collect(),
        "helper" => several.named("pulc-helper"),
        _ => [several.named("pulc-guardian"), several.named("pulc-keeper")].concat(),
    };
    for pid in pids {
        // It carries the tag of this test, or is the daemon by its own word and has not been waited for by anybody but its helper.
        if leftovers::is_tagged(pid, pulc_testkit::cluster::ENV_TAG, several.cluster.host(0).tag())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn whatever_dies_in_whatever_order_nothing_is_left() {
    let Some(several) = Several::start("whatever_dies_in_whatever_order_nothing_is_left") else { return };
    for (number, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate() {
        let mark = format!("users-{}-{number}", std::process::id());
        let variable = format!("PULC_TEST_MARK={mark}");
        // What it starts has left its group and has no parent.
        let script = "(setsid sleep 1000 &); sleep 1000";
        let job = ["-n", "2", "-N", "2", "--no-requeue", "--env", &variable, "-o", "/dev/null", "sh", "-c", script];
        let queued = several.submit(0, ALICE, &job);
        several.wait_for(ALICE, &queued, "RUNNING");
        let there = || leftovers::processes("PULC_TEST_MARK", &mark);
        assert!(wait_until(|| Some(()).filter(|()| there().len() >= 4)).is_some(), "{:?}", there());
        for part in order {
            kill(&several, PARTS[part]);
        }
        // Both helpers are dead and their daemons leave; or a helper was dead before it could start its daemon again.
        for host in 0..2 {
            let up = wait_until(|| {
                let up = several.up(host, &["up"])?;
                (up.code() == Some(0) || up.stderr.contains("already")).then_some(())
            });
            assert!(up.is_some(), "host {host} does not come back: {}", several.log(host));
        }
        several.wait_for_two();
        let gone = wait_until(|| {
            several.as_user(0, ALICE, &["cancel", &queued]);
            Some(()).filter(|()| there().is_empty())
        });
        assert!(gone.is_some(), "{order:?}: {:?}\n{}\n{}", there(), several.log(0), several.log(1));
    }
    several.end();
}

#[test]
fn a_daemon_that_is_killed_is_started_again_by_its_helper_and_finds_its_jobs() {
    let test = "a_daemon_that_is_killed_is_started_again_by_its_helper_and_finds_its_jobs";
    let Some(several) = Several::start(test) else { return };
    let script = "while [ ! -e end ]; do sleep 0.05; done; echo whole";
    let queued = several.submit(0, ALICE, &["-n", "2", "-N", "2", "-o", "kept.out", "sh", "-c", script]);
    several.wait_for(ALICE, &queued, "RUNNING");
    for host in 0..2 {
        let before = several.cluster.host(host).daemon_pid();
        several.cluster.host(host).signal_daemon(rustix::process::Signal::KILL);
        let other = wait_until(|| several.cluster.host(host).daemon_pid().filter(|pid| Some(*pid) != before));
        assert!(other.is_some(), "the daemon of host {host} is not started again: {}", several.log(host));
        several.wait_for_two();
    }
    std::fs::write(several.path("open/end"), "").unwrap();
    several.wait_for(ALICE, &queued, "COMPLETED");
    assert_eq!(std::fs::read_to_string(several.path("open/kept.out")).unwrap(), "whole\n".repeat(2));
    several.end();
}
