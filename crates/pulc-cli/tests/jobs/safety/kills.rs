//! kill -9 of any one process of a job, or a cut of a node's cable, while all its ranks exchange verified messages over ports,
//! rawdata and active messages between three nodes in network namespaces: the job ends everywhere with the right reason, nothing
//! stays, and the next job runs.

use super::{Chance, ENV_HONEST, ENV_PART, copy, seed};
use crate::harness::{Found, GUARD, Kind, find};
use pulc_testkit::cluster::ENV_TAG;
use pulc_testkit::{Cluster, leftovers, rounds, skipped, wait_until};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const PULC: &str = env!("CARGO_BIN_EXE_pulc");
const HOSTS: usize = 3;

/// What happens to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blow {
    Kill(Kind),
    /// The daemon of the host where the job was started, or of another one.
    KillPsid(usize),
    Cut(usize),
}

const BLOWS: [Blow; 8] = [
    Blow::Kill(Kind::Rank),
    Blow::Kill(Kind::Keeper),
    Blow::Kill(Kind::Guardian),
    Blow::KillPsid(1),
    Blow::Cut(2),
    Blow::Kill(Kind::Run),
    Blow::KillPsid(0),
    Blow::Cut(1),
];

#[test]
fn whatever_is_killed_while_messages_fly_the_job_ends_everywhere_and_the_next_one_runs() {
    let test = "whatever_is_killed_while_messages_fly_the_job_ends_everywhere_and_the_next_one_runs";
    let cluster = match Cluster::new(HOSTS, PULC) {
        Ok(cluster) => cluster,
        Err(why) => return skipped(test, &format!("network namespaces cannot be made: {why}")),
    };
    cluster.start();
    let seed = seed();
    let mut random = Chance(seed);
    for round in 0..rounds(BLOWS.len() as u32, 96) {
        let blow = BLOWS[round as usize % BLOWS.len()];
        let moment = Duration::from_micros(random.below(400_000));
        let what = format!("{}={seed}, round {round}: {blow:?} after {moment:?}", super::ENV_SEED);
        println!("{what}");
        let mut job = Talking::start(&cluster, &what);
        std::thread::sleep(moment);
        strike(&cluster, blow, &mut random, &what);
        let said = job.end(&what);
        let reasons = reasons(blow);
        let is_right = reasons.is_empty() || reasons.iter().any(|reason| said.contains(reason));
        println!("  {}", said.lines().filter(|line| line.starts_with("pulc: ")).collect::<Vec<_>>().join(" | "));
        assert!(is_right, "{what}: none of {reasons:?} in {said}");
        expect_nothing_of(&cluster, &job.number, &what);
        repair(&cluster, blow);
        cluster.host(0).pulc(&["run", "-n", "6", "--nodes", "3", "true"]).expect_success();
    }
    cluster.host(0).pulc(&["down", "--all"]).expect_success();
    cluster.expect_nothing_left();
}

/// One of these words stands in what `pulc run` says; nothing is said by one that was killed itself.
fn reasons(blow: Blow) -> &'static [&'static str] {
    match blow {
        Blow::Kill(Kind::Rank) => &["was killed by signal 9"],
        Blow::Kill(Kind::Keeper | Kind::Guardian) => &["keeper", "guardian"],
        Blow::KillPsid(0) => &["psid is gone"],
        Blow::KillPsid(_) => &["was lost (closed) with ranks"],
        Blow::Cut(_) => &["was lost (silent) with ranks"],
        Blow::Kill(_) => &[],
    }
}

/// A job whose ranks have begun to talk.
struct Talking {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    number: String,
}

impl Talking {
    fn start(cluster: &Cluster, what: &str) -> Talking {
        let mut command = cluster.host(0).command();
        command.args(["run", "--kill-delay", "0.5", "-n", "6", "--nodes", "3", "--"]).args(copy());
        command.env(ENV_PART, "until_somebody_ends").env(ENV_HONEST, "0,1,2,3,4,5");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("pulc can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (mut begun, mut number) = (0, String::new());
        while begun < 6 {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).expect("it is text") > 0, "{what}: the job ended: {:?}", child.wait());
            if let Some((_, job)) = line.split_once("has begun in job ") {
                begun += 1;
                number = job.trim().to_owned();
            }
        }
        Talking { child, lines, number }
    }

    /// What `pulc run` and the ranks said in the end.
    fn end(&mut self, what: &str) -> String {
        let ended = wait_until(|| self.child.try_wait().expect("it is our child"));
        if ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let mut said = String::new();
        self.child.stderr.take().expect("it is a pipe").read_to_string(&mut said).expect("it is text");
        let _ = self.lines.read_to_string(&mut said);
        assert!(ended.is_some(), "{what}: pulc run did not end: {said}");
        assert!(!said.contains("changed"), "{what}: a message came that nobody sent: {said}");
        said
    }
}

fn strike(cluster: &Cluster, blow: Blow, random: &mut Chance, what: &str) {
    match blow {
        Blow::Cut(host) => cluster.cut(host).expect("the cable can be cut"),
        Blow::KillPsid(host) => cluster.host(host).signal_daemon(rustix::process::Signal::KILL),
        Blow::Kill(kind) => {
            let all = find(&format!("{ENV_TAG}={}", cluster.host(0).tag()));
            let these: Vec<&Found> = all.iter().filter(|found| found.kind() == kind && is_of_job(found)).collect();
            assert!(!these.is_empty(), "{what}: there is none");
            these[random.below(these.len() as u64) as usize].kill();
        }
    }
}

/// Not one of the processes that hold the namespaces.
fn is_of_job(found: &Found) -> bool {
    found.kind() != Kind::Rank || found.command.contains("as_a_copy")
}

fn expect_nothing_of(cluster: &Cluster, job: &str, what: &str) {
    let left = || -> Vec<String> {
        let processes = leftovers::processes("PULC_JOBID", job);
        let keepers = find(&format!("{ENV_TAG}={}", cluster.host(0).tag()));
        let keepers = keepers.iter().filter(|found| matches!(found.kind(), Kind::Keeper | Kind::Guardian));
        let keepers = keepers.map(|found| format!("process {}: {}", found.pid, found.command));
        let sockets = cluster.hosts().iter().flat_map(|host| host.sockets());
        let sockets = sockets.filter(|name| name.contains("pulc-keeper"));
        processes.into_iter().chain(keepers).chain(sockets).chain(cgroups(job)).collect()
    };
    let gone = wait_until(|| Some(()).filter(|()| left().is_empty()));
    assert!(gone.is_some(), "{what}: left behind after {GUARD:?}: {:?}", left());
}

/// Groups named after the job, wherever a keeper may have made them.
fn cgroups(job: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new("/sys/fs/cgroup").to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&format!("pulc-{job}-")) {
                    found.push(format!("cgroup {}", entry.path().display()));
                }
                folders.push(entry.path());
            }
        }
    }
    found
}

/// All nodes up again.
fn repair(cluster: &Cluster, blow: Blow) {
    match blow {
        Blow::Cut(host) => cluster.heal(host).expect("the cable can be mended"),
        Blow::KillPsid(host) => {
            let up = wait_until(|| (cluster.host(host).pulc(&["up"]).code() == Some(0)).then_some(()));
            assert!(up.is_some(), "the daemon of host {host} does not come up again");
        }
        Blow::Kill(_) => {}
    }
    cluster.hosts().iter().for_each(|host| host.wait_for_states("up", HOSTS));
}
