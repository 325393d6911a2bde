//! A command run to its end: status, output, and a guard against hanging. Called by whole-system tests.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Finished {
    /// None if it had to be killed.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// # Panics
    /// With all it said, if it did not end with 0.
    pub fn expect_success(self) -> Finished {
        assert_eq!(self.code(), Some(0), "{self:?}");
        self
    }

    /// # Panics
    /// With all it said, if it did not end with `code` or does not say `word`.
    pub fn expect_refusal(self, code: i32, word: &str) -> Finished {
        assert_eq!(self.code(), Some(code), "{self:?}");
        assert!(self.stderr.contains(word), "{word:?} is missing: {self:?}");
        self
    }
}

/// Runs a command with nothing to read; kills it after `limit`.
///
/// # Panics
/// If it can't be started.
pub fn run_within(command: Command, limit: Duration) -> Finished {
    finish_within(start(command), limit)
}

/// Starts a command with nothing to read.
///
/// # Panics
/// If it can't be started.
pub fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Waits for the end of what [`start`] started; kills it after `limit`.
///
/// # Panics
/// If the system refuses to wait for it.
pub fn finish_within(mut child: Child, limit: Duration) -> Finished {
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let ended = ends_within(&child, limit);
    if !ended {
        child.kill().expect("a child can be killed");
    }
    let status = Some(child.wait().expect("a child can be waited for")).filter(|_| ended);
    let text = |bytes: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&bytes.join().expect("reading does not panic")).into_owned()
    };
    Finished { status, stdout: text(stdout), stderr: text(stderr) }
}

/// Whether the child ends before the limit; it is told at once, since benchmarks time commands by this.
fn ends_within(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("pids are positive");
    let fd = pidfd_open(pid, PidfdFlags::empty()).expect("a child that was not waited for can be named");
    let deadline = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).expect("a limit in reason");
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            found => return found.expect("a child can be waited for") > 0,
        }
    }
}

fn collect(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What came before an error is all there is to show.
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}
