//! Whole runs as a user without any privilege: not root, no cgroup that may be written, no home but a directory of the test.

use crate::harness::{TempDir, find, tag};
use pulc_testkit::{run_within, skipped, token_in, wait_until};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Another user and a copy of `pulc` that it can reach.
pub struct Other {
    number: u32,
    directory: TempDir,
}

impl Other {
    /// None if this process may not become another user.
    pub fn user(number: u32) -> Option<Other> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let become_it = ["--reuid", &number.to_string(), "--clear-groups", "true"].map(str::to_owned);
        let able = Command::new("setpriv").args(become_it).stderr(Stdio::null()).status();
        if !able.is_ok_and(|status| status.success()) {
            return None;
        }
        let directory = TempDir::new();
        std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_pulc"), directory.path("pulc")).unwrap();
        let home = directory.path("home");
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(number), Some(number)).unwrap();
        Some(Other { number, directory })
    }

    pub fn pulc(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(&self.directory.path("pulc"));
        command.args(arguments);
        command
    }

    /// A file in a directory that this user can read.
    pub fn path(&self, name: &str) -> String {
        self.directory.path(name)
    }

    /// Any program as this user.
    pub fn program(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        let number = self.number.to_string();
        command.args(["--reuid", &number, "--regid", &number, "--clear-groups"]).arg(program);
        command.current_dir("/").env("HOME", self.directory.path("home"));
        command.env_remove("XDG_STATE_HOME").env_remove("PULC_STATE_DIR");
        command.env("PULC_ENDS_WITH", std::process::id().to_string());
        command
    }
}

const LIMIT: Duration = Duration::from_secs(240);

/// The commands of a day, each node a daemon with a state directory of its own.
#[test]
fn a_user_without_privileges_can_do_everything() {
    let Some(user) = Other::user(65_534) else {
        return skipped(
            "a_user_without_privileges_can_do_everything",
            "needs root and setpriv, to become another user; everything else ran as this one",
        );
    };
    let tag = tag();
    let (name, value) = tag.split_once('=').unwrap();
    let at = |node: &str, arguments: &[&str]| {
        let mut command = user.pulc(arguments);
        // Another run of these tests may be under way, as the same user.
        command.env("PULC_INSTANCE", format!("{node}{}", std::process::id())).env(name, value);
        command
    };
    let pulc = |node: &str, arguments: &[&str]| run_within(at(node, arguments), LIMIT);
    let ranks = pulc("a", &["run", "-n", "4", "sh", "-c", "id -u"]).expect_success().stdout;
    assert_eq!(ranks, "65534\n".repeat(4));
    let hidden = "(setsid sh -c 'env -i sleep 1000' >/dev/null 2>&1 &); exit 3";
    assert_eq!(pulc("a", &["run", "-n", "2", "--nodes", "2", "sh", "-c", hidden]).code(), Some(3));
    let up = pulc("a", &["up", "--listen", "127.0.0.1:0"]).expect_success();
    pulc("b", &["join", "--listen", "127.0.0.1:0", &token_in(&up.stdout)]).expect_success();
    assert_eq!(pulc("b", &["nodes"]).expect_success().stdout.matches(" up ").count(), 2);
    let mut long = at("a", &["run", "-n", "4", "--nodes", "2", "sleep", "1000"]);
    let long = long.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let seen = || Some(pulc("b", &["ps"]).expect_success().stdout).filter(|table| table.matches(" pid ").count() == 4);
    let table = wait_until(seen).expect("the job is seen on the other node");
    pulc("b", &["kill", table.split_whitespace().nth(1).unwrap()]).expect_success();
    assert!(said_at_the_end_of(long).contains("was stopped by `pulc kill`"));
    pulc("b", &["down", "--all"]).expect_success();
    assert!(wait_until(|| find(&tag).is_empty().then_some(())).is_some(), "processes are left");
}

fn said_at_the_end_of(child: Child) -> String {
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned()
}
