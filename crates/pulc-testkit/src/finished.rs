//! A command run to its end: status, output, and a guard against hanging. Called by whole-system tests.

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
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => {
                child.kill().expect("a child can be killed");
                child.wait().expect("a child can be waited for");
                break None;
            }
            None => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let text = |bytes: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&bytes.join().expect("reading does not panic")).into_owned()
    };
    Finished { status, stdout: text(stdout), stderr: text(stderr) }
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
