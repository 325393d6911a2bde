//! One cluster of several users (`pulc up --system`): two hosts in network namespaces, their daemons as an account of their own, two users with
//! numbers and groups of their own in databases that only these daemons see. Whose processes are whose, who may do what, and what is left
//! when the parts die. Needs root, as does what it tests.

mod endings;
mod files;
mod rights;

use pulc_testkit::cluster::{ENV_TAG, HANG};
use pulc_testkit::{Cluster, Finished, run_within, skipped, token_in, wait_until};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Numbers that no system gives out by itself.
pub const DAEMON: u32 = 61_000;
pub const ALICE: User = User { uid: 61_001, groups: "61001,61010" };
pub const BOB: User = User { uid: 61_002, groups: "61002" };
/// Somebody else on the second host.
pub const DAVE: User = User { uid: 61_003, groups: "61003" };
/// Not on the list.
pub const MALLORY: User = User { uid: 61_004, groups: "61004" };
/// An operator.
pub const OLGA: User = User { uid: 61_005, groups: "61005,61011" };

#[derive(Clone, Copy)]
pub struct User {
    pub uid: u32,
    groups: &'static str,
}

pub struct Several {
    pub cluster: Cluster,
    /// Where every user can execute it.
    pulc: PathBuf,
}

impl Several {
    /// Two hosts whose daemons serve several users; none where that can't be had, which is counted.
    pub fn start(test: &str) -> Option<Several> {
        if !rustix::process::geteuid().is_root() {
            skipped(test, "needs root, to become other users");
            return None;
        }
        let cluster = Cluster::new(2, env!("CARGO_BIN_EXE_pulc"))
            .map_err(|why| skipped(test, &format!("network namespaces cannot be made: {why}")))
            .ok()?;
        let directory = cluster.directory();
        let pulc = directory.join("pulc");
        fs::copy(env!("CARGO_BIN_EXE_pulc"), &pulc).unwrap();
        for open in ["open", "apart"].map(|name| directory.join(name)) {
            fs::create_dir(&open).unwrap();
            fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        }
        let passwd = |host: &str, third: &str| {
            let user = |name: &str, uid: u32| format!("{name}:x:{uid}:{uid}::/tmp:/bin/sh\n");
            let users = ["root:x:0:0::/root:/bin/sh\n".to_owned(), user("pulc-test", DAEMON), user("alice", ALICE.uid)];
            let more =
                [user("bob", BOB.uid), user(third, DAVE.uid), user("mallory", MALLORY.uid), user("olga", OLGA.uid)];
            fs::write(directory.join(host), users.concat() + &more.concat()).unwrap();
        };
        passwd("passwd-0", "dave");
        passwd("passwd-1", "erin");
        fs::write(directory.join("group"), "root:x:0:\nphysics:x:61010:alice\nstaff:x:61011:olga\n").unwrap();
        let list = "alice\nbob\ndave\nerin\nolga\noperators @staff\n";
        fs::write(directory.join("users"), list).unwrap();
        let several = Several { pulc, cluster };
        let Some(up) = several.up(0, &["up", "--listen", "10.77.0.1"]) else {
            skipped(test, "mount namespaces cannot be made");
            return None;
        };
        let token = token_in(&up.expect_success().stdout);
        let joined = several.up(1, &["join", "--listen", "10.77.0.2", &token]).expect("there was one before");
        joined.expect_success();
        several.wait_for_two();
        Some(several)
    }

    /// Says `pulc up --system` or its like where the test's users are known; none where there are no mount namespaces.
    pub fn up(&self, host: usize, words: &[&str]) -> Option<Finished> {
        let file = |name: &str| self.path(name).to_str().expect("a temporary path is text").to_owned();
        let script = "mount --bind \"$0\" /etc/passwd && mount --bind \"$1\" /etc/group || exit 99; \
                      test -z \"$2\" || mount -t tmpfs -o mode=1777 none \"$2\" || exit 99; shift 2; exec \"$@\"";
        let mut command = self.cluster.host(host).program_command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        // Of the second host: a place that everybody may write to, and that is empty there.
        let apart = if host == 1 { file("apart") } else { String::new() };
        command.args([file(&format!("passwd-{host}")), file("group"), apart]).arg(&self.pulc);
        let (first, rest) = words.split_first().expect("a command");
        command.arg(first).args(["--system", "--as", "pulc-test", "--users", &file("users")]).args(rest);
        self.with_run_dir(&mut command, host);
        let finished = run_within(command, HANG);
        (finished.code() != Some(99)).then_some(finished)
    }

    pub fn wait_for_two(&self) {
        let seen = || {
            let nodes = self.as_user(0, ALICE, &["nodes", "--queue", "--json"]).stdout;
            Some(()).filter(|()| {
                nodes.matches("\"state\":\"up\"").count() == 2 || nodes.matches("\"state\": \"up\"").count() == 2
            })
        };
        assert!(wait_until(seen).is_some(), "{}", self.as_user(0, ALICE, &["nodes", "--queue", "--json"]).stdout);
    }

    fn with_run_dir(&self, command: &mut Command, host: usize) {
        command.env("PULC_RUN_DIR", self.path(&format!("run-{host}"))).env("HOME", self.path("open"));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.cluster.directory().join(name)
    }

    /// `pulc` as this user, its arguments still to be added.
    pub fn command_as(&self, host: usize, user: User) -> Command {
        let mut command = self.cluster.host(host).program_command("setpriv");
        let uid = user.uid.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--groups", user.groups]).arg(&self.pulc);
        command.current_dir(self.path("open"));
        self.with_run_dir(&mut command, host);
        command
    }

    pub fn as_user(&self, host: usize, user: User, arguments: &[&str]) -> Finished {
        let mut command = self.command_as(host, user);
        command.args(arguments);
        run_within(command, HANG)
    }

    pub fn as_root(&self, host: usize, arguments: &[&str]) -> Finished {
        let mut command =
            self.cluster.host(host).program_command(self.pulc.to_str().expect("a temporary path is text"));
        command.args(arguments);
        self.with_run_dir(&mut command, host);
        run_within(command, HANG)
    }

    /// What the daemon of a host and its helper have logged.
    pub fn log(&self, host: usize) -> String {
        fs::read_to_string(self.path(&format!("host-{host}.log"))).unwrap_or_default()
    }

    /// Submits a job that writes into the open directory; returns its number.
    pub fn submit(&self, host: usize, user: User, arguments: &[&str]) -> String {
        let all = [&["submit", "--parsable", "--kill-delay", "1"], arguments].concat();
        self.as_user(host, user, &all).expect_success().stdout.trim().to_owned()
    }

    pub fn wait_for(&self, user: User, number: &str, state: &str) {
        let job = || self.as_user(0, user, &["job", number, "--json"]).stdout;
        let there = || Some(()).filter(|()| job().contains(&format!("\"{state}\"")));
        assert!(wait_until(there).is_some(), "job {number} is not {state}: {}\n{}", job(), self.log(0));
    }

    /// Processes of this cluster with this name in the kernel.
    pub fn named(&self, name: &str) -> Vec<i32> {
        let tag = format!("{ENV_TAG}={}", self.cluster.host(0).tag());
        let comm = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let found = pulc_hal::os::proctree::tagged(&[&tag]).unwrap_or_default();
        found.iter().map(|found| found.pid.as_raw_nonzero().get()).filter(|pid| comm(*pid).trim() == name).collect()
    }

    /// Takes all down and looks that nothing is left.
    pub fn end(&self) {
        self.as_root(0, &["down", "--all"]).expect_success();
        self.cluster.expect_nothing_left();
        for host in 0..2 {
            let left: Vec<_> = fs::read_dir(self.path(&format!("run-{host}")))
                .unwrap()
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            assert_eq!(left, ["lock"], "host {host}");
        }
    }
}

pub fn owner(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).map_or(u32::MAX, |data| data.uid())
}
