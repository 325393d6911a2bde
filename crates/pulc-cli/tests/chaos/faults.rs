//! The faults, each by name. A fault is made and, where that is part of it, undone; what it leaves broken `Workload::finish` mends.

use crate::Chance;
use crate::ledger::Workload;
use pulc_testkit::cluster::ENV_TAG;
use pulc_testkit::{Cluster, Host, leftovers, wait_until};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;

pub struct Fault {
    pub name: &'static str,
    /// Numbers in the list of faults that `cargo xtask chaos` writes its results to.
    pub cases: &'static [u32],
    pub make: fn(&Cluster, &mut Workload<'_>, &mut Chance),
}

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "a worker's daemon is killed and comes back",
        cases: &[1],
        make: |cluster, _, chance| restart(worker(cluster, chance)),
    },
    Fault {
        name: "the controller's daemon is killed while jobs are submitted",
        cases: &[2],
        make: controller_during_submit,
    },
    Fault { name: "all daemons are killed at once", cases: &[1, 2, 24], make: all_daemons },
    Fault { name: "all nodes lose their power at once", cases: &[16, 24], make: power_cut },
    Fault { name: "a keeper is killed", cases: &[3], make: |cluster, _, _| kill_one(cluster, "keeper") },
    Fault { name: "a process of a job is killed", cases: &[4, 18], make: a_process },
    Fault { name: "a link is cut for a second", cases: &[6], make: |cluster, _, chance| cut(cluster, chance, 1000) },
    Fault {
        name: "a node vanishes and comes back",
        cases: &[6, 9],
        make: |cluster, _, chance| cut(cluster, chance, 9000),
    },
    Fault { name: "a node vanishes with its daemon, for long", cases: &[5, 6], make: vanish },
    Fault {
        name: "a node hears nothing but is heard",
        cases: &[7],
        make: |cluster, _, chance| deaf(cluster, chance, 9000),
    },
    Fault { name: "a link loses a tenth of all packets", cases: &[8], make: lossy },
    Fault { name: "a daemon is stopped for some seconds", cases: &[11], make: stopped },
    Fault { name: "the processors are busy", cases: &[12], make: busy },
    Fault { name: "the controller is cut off from all", cases: &[9, 10], make: controller_cut_off },
    Fault { name: "the controller's disk takes nothing for a while", cases: &[14], make: disk_full },
    Fault { name: "the controller's log ends in half a record", cases: &[16], make: torn_log },
    Fault { name: "a bit of the controller's log is flipped", cases: &[16], make: flipped_log },
    Fault { name: "jobs are suspended, resumed and cancelled in mid-run", cases: &[22, 23], make: suspend_and_cancel },
    Fault { name: "a node is lost while a job on it stands still", cases: &[22], make: lost_while_suspended },
    Fault { name: "clients that wait are killed", cases: &[20], make: clients_killed },
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

fn a_process(cluster: &Cluster, work: &mut Workload<'_>, _: &mut Chance) {
    work.kills_processes = true;
    kill_one(cluster, "sh -c echo begin");
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

/// Everything of the cluster ends in the same instant, jobs, keepers and daemons; then the machines are switched on again.
fn power_cut(cluster: &Cluster, _: &mut Workload<'_>, _: &mut Chance) {
    leftovers::kill(ENV_TAG, cluster.host(0).tag());
    cluster.hosts().iter().for_each(up);
}

/// Packets to a host are dropped as a filter says; returns false where there is no such filter.
fn filter(host: &Host, rule: &[&str]) -> bool {
    let nft = |words: &[&str]| {
        let mut command = host.program_command("nft");
        command.args(words).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let made = nft(&["add", "table", "inet", "chaos"])
        && nft(&["add", "chain", "inet", "chaos", "in", "{ type filter hook input priority 0; }"])
        && nft(&[&["add", "rule", "inet", "chaos", "in", "iifname", "eth0"], rule].concat());
    if !made {
        println!("host {}: packets cannot be filtered here (nft); this fault was not made", host.number);
    }
    made
}

fn unfilter(host: &Host) {
    let mut command = host.program_command("nft");
    command
        .args(["delete", "table", "inet", "chaos"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let _ = command.status();
}

fn deaf(cluster: &Cluster, chance: &mut Chance, ms: u64) {
    let host = worker(cluster, chance);
    filter(host, &["drop"]);
    std::thread::sleep(Duration::from_millis(ms));
    unfilter(host);
}

fn lossy(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = worker(cluster, chance);
    filter(host, &["numgen", "random", "mod", "100", "<", "10", "drop"]);
    for _ in 0..3 {
        work.submit(chance, 1);
        std::thread::sleep(Duration::from_secs(3));
    }
    unfilter(host);
}

/// Ten times as many busy processes as there are cores.
fn busy(_: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let count = 10 * std::thread::available_parallelism().map_or(2, usize::from);
    let mut hogs: Vec<std::process::Child> = (0..count)
        .filter_map(|_| {
            std::process::Command::new("timeout").args(["60", "sh", "-c", "while :; do :; done"]).spawn().ok()
        })
        .collect();
    for _ in 0..3 {
        work.submit(chance, 1);
        std::thread::sleep(Duration::from_secs(3));
    }
    for hog in &mut hogs {
        // To `timeout`, which passes it on.
        if let Some(pid) = i32::try_from(hog.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let _ = hog.wait();
    }
}

fn log_of(cluster: &Cluster) -> std::path::PathBuf {
    cluster.host(0).state_dir.join("queue.log")
}

/// No file of the controller's daemon may grow; what is asked meanwhile is refused or waits, and nothing of it is told as accepted.
fn disk_full(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = cluster.host(0);
    let pid = host.daemon_pid().filter(|pid| leftovers::is_tagged(*pid, ENV_TAG, host.tag())).and_then(Pid::from_raw);
    let Some(pid) = pid else { return };
    let limit = |bytes: Option<u64>| {
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limit).is_ok()
    };
    let size = std::fs::metadata(log_of(cluster)).map_or(0, |meta| meta.len());
    assert!(limit(Some(size + 100)), "the daemon's limit can be set");
    let begin = std::time::Instant::now();
    let clients: Vec<_> = (0..3).map(|_| work.begin_to_submit(chance)).collect();
    // Long enough that the daemon meets it, however slow the machine is today.
    while begin.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(limit(None), "the daemon's limit can be lifted");
    clients.into_iter().for_each(|client| work.end_to_submit(client));
}

/// A write that the power cut short was never acknowledged.
fn torn_log(cluster: &Cluster, _: &mut Workload<'_>, chance: &mut Chance) {
    use std::io::Write as _;
    let host = cluster.host(0);
    signal(host, Signal::KILL);
    gone(host);
    let torn: Vec<u8> = (0..1 + chance.below(60)).map(|_| chance.below(256) as u8).collect();
    let file = std::fs::OpenOptions::new().append(true).open(log_of(cluster));
    file.and_then(|mut file| file.write_all(&torn)).expect("the log can be written to");
    up(host);
}

/// The daemon refuses it and says so; when the file is restored all is there.
fn flipped_log(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    work.submit(chance, 2);
    let host = cluster.host(0);
    signal(host, Signal::KILL);
    gone(host);
    let whole = std::fs::read(log_of(cluster)).expect("the log can be read");
    let mut bent = whole.clone();
    // In the first half, so that whole records follow.
    let at = 8 + chance.below(whole.len() as u64 / 2) as usize;
    bent[at] ^= 1 << chance.below(8);
    std::fs::write(log_of(cluster), &bent).expect("the log can be written");
    let said = host.pulc(&["up"]);
    assert!(said.code() != Some(0) && said.stderr.contains("damaged"), "bit of byte {at}: {said:?}");
    assert_eq!(std::fs::read(log_of(cluster)).ok(), Some(bent), "a damaged log was changed");
    std::fs::write(log_of(cluster), &whole).expect("the log can be written");
    up(host);
}

/// Waits until the daemon that was killed is gone: its files are ours then.
fn gone(host: &Host) {
    let pid = host.daemon_pid();
    let is_gone = || pid.is_none_or(|pid| !leftovers::is_tagged(pid, ENV_TAG, host.tag()));
    assert!(wait_until(|| Some(()).filter(|()| is_gone())).is_some(), "the daemon of host {} stays", host.number);
}
