//! The faults, each by name. A fault is made and, where that is part of it, undone; what it leaves broken `Workload::finish` mends.

use crate::Chance;
use crate::ledger::Workload;
use pulc_testkit::cluster::ENV_TAG;
use pulc_testkit::{Cluster, Host, leftovers, wait_until};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;

pub struct Fault {
    pub name: &'static str,
    pub make: fn(&Cluster, &mut Workload<'_>, &mut Chance),
}

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "a worker's daemon is killed and comes back",
        make: |cluster, _, chance| restart(worker(cluster, chance)),
    },
    Fault { name: "the controller's daemon is killed while jobs are submitted", make: controller_during_submit },
    Fault { name: "all daemons are killed at once", make: all_daemons },
    Fault { name: "a keeper is killed", make: |cluster, _, _| kill_one(cluster, "keeper") },
    Fault { name: "a link is cut for a second", make: |cluster, _, chance| cut(cluster, chance, 1000) },
    Fault { name: "a node vanishes and comes back", make: |cluster, _, chance| cut(cluster, chance, 9000) },
    Fault { name: "a node vanishes with its daemon, for long", make: vanish },
    Fault { name: "a daemon is stopped for some seconds", make: stopped },
    Fault { name: "the controller is cut off from all", make: controller_cut_off },
    Fault { name: "jobs are suspended, resumed and cancelled in mid-run", make: suspend_and_cancel },
    Fault { name: "a node is lost while a job on it stands still", make: lost_while_suspended },
    Fault { name: "clients that wait are killed", make: clients_killed },
];

fn worker<'a>(cluster: &'a Cluster, chance: &mut Chance) -> &'a Host {
    cluster.host(1 + chance.below(cluster.hosts().len() as u64 - 1) as usize)
}

fn signal(host: &Host, signal: Signal) {
    if host.daemon_pid().is_some_and(|pid| leftovers::is_tagged(pid, ENV_TAG, host.tag())) {
        host.signal_daemon(signal);
    }
}

fn up(host: &Host) {
    let up = wait_until(|| Some(()).filter(|()| matches!(host.pulc(&["up"]).code(), Some(0 | 10))));
    assert!(up.is_some(), "the daemon of host {} does not come back", host.number);
}

fn restart(host: &Host) {
    signal(host, Signal::KILL);
    up(host);
}

fn controller_during_submit(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    work.submit(chance, 1);
    signal(cluster.host(0), Signal::KILL);
    work.submit(chance, 1);
    up(cluster.host(0));
    wait_until(|| Some(()).filter(|()| cluster.host(0).pulc(&["queue"]).code() == Some(0)));
}

fn all_daemons(cluster: &Cluster, _: &mut Workload<'_>, _: &mut Chance) {
    cluster.hosts().iter().for_each(|host| signal(host, Signal::KILL));
    cluster.hosts().iter().for_each(up);
}

/// One process of this cluster with that word in its command line.
fn kill_one(cluster: &Cluster, word: &str) {
    let tag = cluster.host(0).tag();
    let found = wait_until(|| {
        let all = leftovers::processes(ENV_TAG, tag);
        let line = all.into_iter().find(|line| line.contains(word))?;
        line.split_whitespace().nth(1)?.trim_end_matches(':').parse::<i32>().ok()
    });
    let Some(pid) = found.and_then(Pid::from_raw) else { return };
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if leftovers::is_tagged(pid.as_raw_nonzero().get(), ENV_TAG, tag) {
        let _ = pidfd_send_signal(fd, Signal::KILL);
    }
}

fn cut(cluster: &Cluster, chance: &mut Chance, ms: u64) {
    let host = worker(cluster, chance).number;
    cluster.cut(host).expect("the link can be cut");
    std::thread::sleep(Duration::from_millis(ms));
    cluster.heal(host).expect("the link can be healed");
}

fn vanish(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = worker(cluster, chance);
    cluster.cut(host.number).expect("the link can be cut");
    signal(host, Signal::KILL);
    std::thread::sleep(Duration::from_millis(7000));
    work.submit(chance, 1);
}

fn stopped(cluster: &Cluster, _: &mut Workload<'_>, chance: &mut Chance) {
    let host = worker(cluster, chance);
    signal(host, Signal::STOP);
    std::thread::sleep(Duration::from_millis(4000 + chance.below(4000)));
    signal(host, Signal::CONT);
}

fn controller_cut_off(cluster: &Cluster, _: &mut Workload<'_>, _: &mut Chance) {
    cluster.cut(0).expect("the link can be cut");
    std::thread::sleep(Duration::from_millis(8000));
    cluster.heal(0).expect("the link can be healed");
}

fn suspend_and_cancel(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = cluster.host(0);
    let newest: Vec<String> = work.accepted.keys().rev().take(3).map(u64::to_string).collect();
    for (number, verbs) in newest.iter().zip([&["suspend", "resume"][..], &["suspend", "cancel"], &["cancel"]]) {
        for verb in verbs {
            // Whatever it answers: the job may have ended in between.
            host.pulc(&[verb, number]);
            std::thread::sleep(Duration::from_millis(chance.below(300)));
        }
    }
    newest.iter().for_each(|number| drop(host.pulc(&["resume", number])));
}

fn lost_while_suspended(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = cluster.host(0);
    let newest: Vec<String> = work.accepted.keys().rev().take(3).map(u64::to_string).collect();
    newest.iter().for_each(|number| drop(host.pulc(&["suspend", number])));
    cut(cluster, chance, 8000);
    newest.iter().for_each(|number| drop(host.pulc(&["resume", number])));
}

fn clients_killed(cluster: &Cluster, _: &mut Workload<'_>, chance: &mut Chance) {
    for _ in 0..3 {
        let host = cluster.host(chance.below(cluster.hosts().len() as u64) as usize);
        let mut command = host.command();
        let directory = cluster.directory().to_string_lossy().into_owned();
        command.args(["submit", "-W", "-D", &directory, "-o", "/dev/null", "sleep", "1"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().expect("pulc can be started");
        std::thread::sleep(Duration::from_millis(chance.below(500)));
        let _ = child.kill();
        let _ = child.wait();
    }
}
