//! kill -9 of any one and of any two of rank, keeper, guardian, psid and `pulc run` (and of some threes) in the same instant, at
//! random moments of a job's life, while its ranks try to get away: nothing may be left. Each round runs in a network
//! namespace and, where one may be made, a cgroup of its own, so that whatever is left can be seen, whoever it says it is.

use crate::harness::{Found, GUARD, Kind, TempDir, find};
use pulc_testkit::cluster::ENV_TAG;
use pulc_testkit::{Chance, Cluster, Host, rounds, skipped, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PULC: &str = env!("CARGO_BIN_EXE_pulc");

/// Everybody that may die together. Guardian, keeper and psid all at once is the one thing that is not survived.
const VICTIMS: [&[Kind]; 19] = [
    &[Kind::Rank],
    &[Kind::Keeper],
    &[Kind::Guardian],
    &[Kind::Psid],
    &[Kind::Run],
    &[Kind::Rank, Kind::Keeper],
    &[Kind::Rank, Kind::Guardian],
    &[Kind::Rank, Kind::Psid],
    &[Kind::Rank, Kind::Run],
    &[Kind::Keeper, Kind::Guardian],
    &[Kind::Keeper, Kind::Psid],
    &[Kind::Keeper, Kind::Run],
    &[Kind::Guardian, Kind::Psid],
    &[Kind::Guardian, Kind::Run],
    &[Kind::Psid, Kind::Run],
    &[Kind::Rank, Kind::Keeper, Kind::Psid],
    &[Kind::Keeper, Kind::Psid, Kind::Run],
    &[Kind::Guardian, Kind::Psid, Kind::Run],
    &[Kind::Keeper, Kind::Guardian, Kind::Run],
];

/// Where `pulc run` finds its psid.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Daemon,
    Embedded,
    EmbeddedTwoNodes,
}

#[test]
fn whoever_is_killed_in_whatever_moment_nothing_is_left() {
    let test = "whoever_is_killed_in_whatever_moment_nothing_is_left";
    let cluster = match Cluster::new(1, PULC) {
        Ok(cluster) => cluster,
        Err(why) => return skipped(test, &format!("network namespaces cannot be made: {why}")),
    };
    let seed = std::env::var("PULC_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh_seed);
    println!("PULC_TEST_SEED={seed}");
    let mut random = Chance(seed);
    for round in 0..rounds(38, 228) {
        let victims = VICTIMS[round as usize % VICTIMS.len()];
        let mut place = [Place::Daemon, Place::Embedded, Place::EmbeddedTwoNodes][random.below(3) as usize];
        if [Kind::Keeper, Kind::Guardian, Kind::Run].iter().all(|kind| victims.contains(kind)) {
            // An embedded psid would die with them.
            place = Place::Daemon;
        }
        // Start, run and end of the job all lie in this time.
        let moment = Duration::from_micros(random.below(700_000));
        let without_cgroup = random.below(2) == 0;
        let what = format!(
            "PULC_TEST_SEED={seed}: round {round}, {victims:?} killed after {moment:?}, {place:?}, without cgroup: {without_cgroup}"
        );
        let number = random.below(u64::from(u32::MAX));
        Round { host: cluster.host(0), what, number, place, without_cgroup }.play(victims, moment, &mut random);
    }
    let left = wait_until(|| Some(cluster.leftovers()).filter(Vec::is_empty));
    assert!(left.is_some(), "PULC_TEST_SEED={seed}: {:?}", cluster.leftovers());
}

struct Round<'a> {
    host: &'a Host,
    what: String,
    number: u64,
    place: Place,
    without_cgroup: bool,
}

impl Round<'_> {
    fn play(&self, victims: &[Kind], moment: Duration, random: &mut Chance) {
        let temporary = TempDir::new();
        let cgroup = TestCgroup::make(self.number);
        if self.place == Place::Daemon {
            // The one that was killed in an earlier round may hold its lock for a moment more.
            let mut said = String::new();
            let up = wait_until(|| {
                let mut up = self.inside(&cgroup, &temporary);
                let ended = up.args([PULC, "up", "--listen", "127.0.0.1"]).stderr(Stdio::piped()).output().unwrap();
                said = String::from_utf8_lossy(&ended.stderr).into_owned();
                ended.status.success().then_some(())
            });
            assert!(up.is_some(), "{}: {said}", self.what);
        }
        let mut run = self.inside(&cgroup, &temporary);
        run.args([PULC, "run", "--kill-delay", "0.3", "-n", "4"]);
        match self.place {
            Place::Daemon => {}
            Place::Embedded => {
                run.arg("--alone");
            }
            Place::EmbeddedTwoNodes => {
                run.args(["--alone", "--nodes", "2"]);
            }
        }
        let mut job = run.args(["sh", "-c", &self.program()]).spawn().unwrap();
        std::thread::sleep(moment);
        for victim in self.choose(victims, random) {
            victim.kill();
        }
        let begin = Instant::now();
        while job.try_wait().unwrap().is_none() {
            if begin.elapsed() > GUARD {
                let left = self.left(&cgroup, &temporary);
                let _ = job.kill();
                let _ = job.wait();
                panic!("{}: pulc run did not end; {left:?}", self.what);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.place == Place::Daemon {
            // It may have been the victim.
            let _ = self.host.pulc(&["down"]);
        }
        let clean = wait_until(|| Some(()).filter(|()| self.left(&cgroup, &temporary).is_empty()));
        assert!(clean.is_some(), "{}: left behind: {:?}", self.what, self.left(&cgroup, &temporary));
    }

    /// A rank of a fraction of a second that leaves behind what gets away as well as it can: own session, forked twice,
    /// deaf, without descriptors and environment. Only the strange time that it sleeps tells that it is ours.
    fn program(&self) -> String {
        let sleep = format!("1000.{:010}", self.number);
        format!(
            "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; exec <&- >&- 2>&-; env -i sleep {sleep} & exec env -i sleep {sleep}' &); sleep 0.{}",
            1 + self.number % 4
        )
    }

    /// A command that runs in the host's network, in the round's cgroup, with the round's directory for temporary files.
    fn inside(&self, cgroup: &TestCgroup, temporary: &TempDir) -> Command {
        let mut command = self.host.program_command("sh");
        let enter = cgroup.0.as_ref().map(|path| format!("echo $$ >{}/cgroup.procs; ", path.display()));
        command.args(["-c", &format!("{}exec \"$@\"", enter.unwrap_or_default()), "sh"]);
        command.env("TMPDIR", &temporary.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if self.without_cgroup {
            command.env("PULC_NO_CGROUP", "1");
        }
        command
    }

    /// One of each kind, as far as there is one in this moment.
    fn choose(&self, victims: &[Kind], random: &mut Chance) -> Vec<Found> {
        let mut all = find(&format!("{ENV_TAG}={}", self.host.tag()));
        let mut chosen = Vec::new();
        for kind in victims {
            // psid lives inside of `pulc run`.
            let kind = if *kind == Kind::Psid && self.place != Place::Daemon { Kind::Run } else { *kind };
            let these: Vec<usize> = (0..all.len()).filter(|index| all[*index].kind() == kind).collect();
            if !these.is_empty() {
                chosen.push(all.swap_remove(these[random.below(these.len() as u64) as usize]));
            }
        }
        chosen
    }

    fn left(&self, cgroup: &TestCgroup, temporary: &TempDir) -> Vec<String> {
        let mut left = cgroup.content();
        left.extend(sleepers(&format!("1000.{:010}", self.number)));
        let files = std::fs::read_dir(&temporary.0).unwrap();
        left.extend(files.flatten().map(|entry| format!("temporary file {}", entry.path().display())));
        left
    }
}

/// Processes with this word on their command line.
fn sleepers(word: &str) -> Vec<String> {
    let of = |entry: std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let ours = command.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes());
        ours.then(|| format!("{}: sleep {word}", entry.path().display()))
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

/// A cgroup around the round, if one may be made.
struct TestCgroup(Option<PathBuf>);

impl TestCgroup {
    fn make(number: u64) -> TestCgroup {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let root = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
        let path = root.map(|root| Path::new(root).join(format!("pulc-violence-{}-{number}", std::process::id())));
        TestCgroup(path.filter(|path| std::fs::create_dir(path).is_ok()))
    }

    /// Processes (zombies do not count) and groups inside.
    fn content(&self) -> Vec<String> {
        let Some(path) = &self.0 else { return Vec::new() };
        let text = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        let living = |pid: &&str| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        let mut content: Vec<String> = text.lines().filter(living).map(|pid| format!("process {pid}")).collect();
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        content.extend(groups.map(|group| format!("cgroup {}", group.path().display())));
        content
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        // Only after a failure is anything left to be killed; it is ours, for the group is.
        let _ = std::fs::write(path.join("cgroup.kill"), "1");
        for _ in 0..200 {
            let inner = std::fs::read_dir(path).into_iter().flatten().flatten();
            inner.for_each(|entry| drop(std::fs::remove_dir(entry.path())));
            if std::fs::remove_dir(path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn fresh_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1
}
