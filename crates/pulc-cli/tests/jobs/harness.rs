//! Starts `pulc run` with a tag, watches it, and looks for what it left. Kills only what carries the tag.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Guard against hanging; the machine may be very busy.
pub const GUARD: Duration = Duration::from_secs(400);

pub struct Job {
    pub child: Child,
    pub tag: String,
    pub stdout: Option<std::thread::JoinHandle<Vec<u8>>>,
    pub stderr: Option<std::thread::JoinHandle<Vec<u8>>>,
}

pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("pulc run was killed: {:?}, {}", self.status, self.stderr))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

pub fn tag() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("PULC_TEST_TAG=jobs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// `pulc run --alone` with these arguments, not yet started.
pub fn command(tag: &str, arguments: &[&str]) -> Command {
    let (name, value) = tag.split_once('=').unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pulc"));
    command.args(["run", "--alone"]).args(arguments).env(name, value);
    command.env("PULC_ENDS_WITH", std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A shell script run by all ranks.
pub fn script(options: &[&str], script: &str) -> Ended {
    let arguments = [options, &["sh", "-c", script]].concat();
    Job::start(&arguments).finish()
}

impl Job {
    pub fn start(arguments: &[&str]) -> Job {
        let tag = tag();
        let mut command = command(&tag, arguments);
        Job::of(&mut command, tag)
    }

    /// Starts a command made by [`command`]; reads its output if it is a pipe.
    pub fn of(command: &mut Command, tag: String) -> Job {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(|mut pipe: ChildStdout| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).unwrap();
                bytes
            })
        });
        let stderr = child.stderr.take().map(|mut pipe: ChildStderr| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).unwrap();
                bytes
            })
        });
        Job { child, tag, stdout, stderr }
    }

    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        // The child is unreaped, so its number is its own.
        rustix::process::kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Waits for the end and makes sure that nothing is left.
    pub fn finish(mut self) -> Ended {
        let status = self.wait();
        let stdout = self.stdout.take().map(|thread| thread.join().unwrap()).unwrap_or_default();
        let stderr = self.stderr.take().map(|thread| thread.join().unwrap()).unwrap_or_default();
        self.assert_nothing_left();
        Ended { status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    }

    pub fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if begin.elapsed() > GUARD {
                let left = self.describe_left();
                let _ = self.child.kill();
                panic!("pulc run did not end; processes: {left}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Processes with our tag, apart from `pulc run` itself.
    pub fn processes(&self) -> Vec<Found> {
        find(&self.tag).into_iter().filter(|found| found.pid != self.child.id() as i32).collect()
    }

    pub fn keepers(&self) -> Vec<Found> {
        self.processes().into_iter().filter(|found| found.kind() == Kind::Keeper).collect()
    }

    pub fn ranks(&self) -> Vec<Found> {
        self.processes().into_iter().filter(|found| found.kind() == Kind::Rank).collect()
    }

    /// Waits until `count` ranks run.
    pub fn wait_for_ranks(&mut self, count: usize) {
        let begin = Instant::now();
        while self.ranks().len() < count {
            assert!(self.child.try_wait().unwrap().is_none(), "pulc run ended early");
            assert!(begin.elapsed() < GUARD, "ranks did not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn describe_left(&self) -> String {
        find(&self.tag).iter().map(|found| format!("{} {}", found.pid, found.command.replace('\0', " "))).collect()
    }

    /// Processes vanish soon after the end (a killed `pulc run` can't wait for them), cgroups with them.
    pub fn assert_nothing_left(&self) {
        let begin = Instant::now();
        loop {
            let left = self.describe_left();
            if left.is_empty() {
                break;
            }
            if begin.elapsed() > GUARD {
                find(&self.tag).iter().for_each(Found::kill);
                panic!("left behind: {left}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A process that carries a tag, held by its pidfd.
pub struct Found {
    pub pid: i32,
    pub command: String,
    /// As the kernel calls it.
    name: String,
    pidfd: std::os::fd::OwnedFd,
}

/// What a process of a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Or something that a rank has started.
    Rank,
    Keeper,
    Guardian,
    Psid,
    Run,
}

impl Found {
    pub fn kind(&self) -> Kind {
        let has = |word: &str| self.command.split('\0').nth(1) == Some(word);
        match self.name.as_str() {
            "pulc-guardian" => Kind::Guardian,
            _ if has("keeper") => Kind::Keeper,
            _ if has("daemon") => Kind::Psid,
            "pulc" if has("run") => Kind::Run,
            _ => Kind::Rank,
        }
    }

    pub fn stop(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::STOP);
    }

    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

pub fn find(tag: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(pidfd) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) else { continue };
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        if environ.split(|byte| *byte == 0).any(|variable| variable == tag.as_bytes()) {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim_end().to_owned();
            found.push(Found { pid, command: String::from_utf8_lossy(&command).into_owned(), name, pidfd });
        }
    }
    found
}

/// A directory that goes with the test.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        let path = std::env::temp_dir().join(tag().replace('=', "-"));
        std::fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn write_file(path: &str, bytes: &[u8]) {
    std::fs::File::create(path).unwrap().write_all(bytes).unwrap();
}
