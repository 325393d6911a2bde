//! The faults, each by name. A fault is made and, where that is part of it, undone; what it leaves broken `Workload::finish` mends.

use crate::Chance;
use crate::clocks;
use crate::ledger::Workload;
use crate::networks::{controller_cut_off, cut, cut_off, first_network_cut, lossy, network_cut, one_way, unfit};
use pulc_testkit::cluster::ENV_TAG;
use pulc_testkit::{Cluster, Host, leftovers, wait_until};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::{Duration, Instant};

pub struct Fault {
    pub name: &'static str,
    /// Numbers in the list of faults that `cargo xtask chaos` writes its results to.
    pub cases: &'static [u32],
    /// No node may be given up and no job started again: the controller lives all the time and every node answers in time.
    pub spares_nodes: bool,
    pub make: fn(&Cluster, &mut Workload<'_>, &mut Chance),
}

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "a worker's daemon is killed and comes back",
        cases: &[1],
        spares_nodes: false,
        make: |cluster, _, chance| restart(worker(cluster, chance)),
    },
    Fault {
        name: "the controller's daemon is killed while jobs are submitted",
        cases: &[2],
        spares_nodes: false,
        make: controller_during_submit,
    },
    Fault { name: "all daemons are killed at once", cases: &[1, 2, 24], spares_nodes: false, make: all_daemons },
    Fault { name: "all nodes lose their power at once", cases: &[16, 24], spares_nodes: false, make: power_cut },
    Fault { name: "a keeper is killed", cases: &[3], spares_nodes: true, make: a_keeper },
    Fault { name: "a keeper's guardian is killed", cases: &[3], spares_nodes: true, make: a_guardian },
    Fault { name: "a process of a job is killed", cases: &[4, 18], spares_nodes: true, make: a_process },
    Fault {
        name: "a link is cut for a second",
        cases: &[6],
        spares_nodes: true,
        make: |cluster, _, chance| cut(cluster, chance, 1000),
    },
    Fault {
        name: "a node vanishes and comes back",
        cases: &[6, 9],
        spares_nodes: false,
        make: |cluster, _, chance| cut(cluster, chance, 9000),
    },
    Fault {
        name: "all processes of a node are killed and its daemon comes back",
        cases: &[5, 24],
        spares_nodes: false,
        make: |cluster, _, chance| {
            let host = worker(cluster, chance);
            host.kill_everything();
            up(host);
        },
    },
    Fault { name: "a node vanishes with its daemon, for long", cases: &[5, 6], spares_nodes: false, make: vanish },
    Fault {
        name: "a node hears nothing but is heard",
        cases: &[7],
        spares_nodes: false,
        make: |cluster, work, chance| one_way(cluster, work, chance, "input"),
    },
    Fault {
        name: "a node hears but is not heard",
        cases: &[7],
        spares_nodes: false,
        make: |cluster, work, chance| one_way(cluster, work, chance, "output"),
    },
    Fault { name: "a link loses a tenth of all packets", cases: &[8], spares_nodes: true, make: lossy },
    Fault { name: "a daemon is stopped for some seconds", cases: &[11], spares_nodes: true, make: stopped },
    Fault { name: "the processors are busy", cases: &[12], spares_nodes: true, make: busy },
    Fault {
        name: "the controller is cut off from all",
        cases: &[9, 10],
        spares_nodes: false,
        make: controller_cut_off,
    },
    Fault {
        name: "the controller's disk takes nothing for a while",
        cases: &[14],
        spares_nodes: true,
        make: disk_full,
    },
    Fault { name: "the controller's log ends in half a record", cases: &[16], spares_nodes: false, make: torn_log },
    Fault { name: "a bit of the controller's log is flipped", cases: &[16], spares_nodes: false, make: flipped_log },
    Fault {
        name: "jobs are suspended, resumed and cancelled in mid-run",
        cases: &[22, 23],
        spares_nodes: true,
        make: suspend_and_cancel,
    },
    Fault {
        name: "a node is lost while a job on it stands still",
        cases: &[22],
        spares_nodes: false,
        make: lost_while_suspended,
    },
    Fault {
        name: "the network of jobs is cut in mid-run",
        cases: &[30],
        spares_nodes: false,
        make: |cluster, work, chance| network_cut(cluster, work, chance, false),
    },
    Fault {
        name: "the network of jobs is cut, and back before they are started again",
        cases: &[30],
        spares_nodes: false,
        make: |cluster, work, chance| network_cut(cluster, work, chance, true),
    },
    Fault {
        name: "the network over which daemons talk is cut, the other one is not",
        cases: &[6, 30],
        spares_nodes: false,
        make: first_network_cut,
    },
    Fault { name: "a node is unfit for a while", cases: &[], spares_nodes: false, make: unfit },
    Fault {
        name: "a node's wall clock jumps",
        cases: &[13],
        spares_nodes: true,
        make: |cluster, work, chance| clocks::jump(cluster, work, chance, |_| {}),
    },
    Fault {
        name: "a node's wall clock jumps while its daemon is away",
        cases: &[1, 13],
        spares_nodes: false,
        make: |cluster, work, chance| clocks::jump(cluster, work, chance, restart),
    },
    Fault { name: "clients that wait are killed", cases: &[20], spares_nodes: true, make: clients_killed },
];

pub fn worker<'a>(cluster: &'a Cluster, chance: &mut Chance) -> &'a Host {
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

/// Kills one process of this cluster that is as wanted, of jobs that are submitted until there is one.
fn kill_one(
    cluster: &Cluster,
    work: &mut Workload<'_>,
    chance: &mut Chance,
    what: &str,
    is_wanted: impl Fn(i32, &str) -> bool,
) {
    let tag = cluster.host(0).tag();
    for _ in 0..20 {
        work.submit(chance, 1);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(5) {
            let found = leftovers::processes(ENV_TAG, tag).into_iter().find_map(|line| {
                let pid = line.split_whitespace().nth(1)?.trim_end_matches(':').parse::<i32>().ok()?;
                is_wanted(pid, &line).then_some(pid)
            });
            if let Some(pid) = found.and_then(Pid::from_raw)
                && let Ok(fd) = pidfd_open(pid, PidfdFlags::empty())
                && leftovers::is_tagged(pid.as_raw_nonzero().get(), ENV_TAG, tag)
                && pidfd_send_signal(fd, Signal::KILL).is_ok()
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    work.not_made = Some(format!("not made: no {what} was met alive"));
}

/// Keeper and guardian are one program and have names of their own.
fn is_called(pid: i32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

fn a_keeper(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    work.excuses.push("the keeper of the job died");
    kill_one(cluster, work, chance, "keeper", |pid, _| is_called(pid, "pulc-keeper"));
}

fn a_guardian(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    work.excuses.push("guardian");
    kill_one(cluster, work, chance, "guardian", |pid, _| is_called(pid, "pulc-guardian"));
}

fn a_process(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    work.excuses.push("SIGKILL");
    kill_one(cluster, work, chance, "process of a job", |_, line| line.contains("sh -c tell()"));
}

fn vanish(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = worker(cluster, chance);
    cut_off(cluster, host.number);
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

/// Jobs that are made to stand still.
fn newest(work: &mut Workload<'_>) -> Vec<String> {
    let newest: Vec<u64> = work.accepted.keys().rev().take(3).copied().collect();
    work.stood_still.extend(&newest);
    newest.iter().map(u64::to_string).collect()
}

fn suspend_and_cancel(cluster: &Cluster, work: &mut Workload<'_>, chance: &mut Chance) {
    let host = cluster.host(0);
    let newest = newest(work);
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
    let newest = newest(work);
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
    let begin = Instant::now();
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
