//! The health check of a node: a program that the cluster's configuration names, run again and again, and before a job out of the queue is
//! started here. What it says goes to the controller, which decides what follows. Called by the queue room (what is set) and the job room
//! (before a job); neither ever waits for it. One that does not end is killed; it is run alone, never twice at a time.

use crate::error::shortage;
use crate::jobs::keepers;
use crate::queue::Event;
use crate::stage::Ticker;
use pulc_base::log;
use pulc_control::queue::{HealthAction, HealthCheck};
use pulc_hal::os::process::Child;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitOptions, WaitStatus, kill_process_group, waitpid};
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, mpsc, watch};

/// A check that has succeeded so shortly before is not repeated for a job.
const FRESH: Duration = Duration::from_secs(5);
/// What is read of what it prints.
const WORD_BYTES: usize = 512;
/// How long one that was killed may take to end. It may be waiting for a disk that does not answer.
const DYING: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(500);

/// Handle on the check; clones share it.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

struct Inner {
    check: watch::Sender<HealthCheck>,
    queue: mpsc::UnboundedSender<Event>,
    /// Held while it runs.
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// What has succeeded, and when.
    succeeded: Option<(HealthCheck, Instant)>,
    /// One that did not end even by SIGKILL.
    stuck: Option<Child>,
}

impl Health {
    /// Checks nothing until it is told what. Must be called inside a tokio runtime.
    pub fn start(queue: mpsc::UnboundedSender<Event>) -> Health {
        let (check, changes) = watch::channel(HealthCheck::default());
        let health = Health { inner: Arc::new(Inner { check, queue, last: Mutex::default() }) };
        tokio::spawn(health.clone().again_and_again(changes));
        health
    }

    /// What is set from now on. A change is tried at once.
    pub fn set(&self, check: HealthCheck) {
        self.inner.check.send_if_modified(|known| {
            let changed = *known != check;
            *known = check;
            changed
        });
    }

    async fn again_and_again(self, mut changes: watch::Receiver<HealthCheck>) {
        loop {
            let check = changes.borrow_and_update().clone();
            if check.wanted().is_some() {
                let mut last = self.inner.last.lock().await;
                self.run(&check, &mut last).await;
            }
            let pause = if check.wanted().is_some() { check.interval_ms } else { u64::MAX };
            let pause = Duration::from_millis(pause.min(u64::from(u32::MAX)));
            if let Ok(Err(_)) = tokio::time::timeout(pause, changes.changed()).await {
                return;
            }
        }
    }

    /// Whether a job of the queue may be started here now: not while a check that drains fails.
    ///
    /// # Errors
    /// One line of what the check says.
    pub async fn before_a_job(&self, ticker: &Ticker) -> Result<(), String> {
        let check = self.inner.check.borrow().clone();
        if check.wanted().is_none() || check.action != HealthAction::Drain {
            return Ok(());
        }
        let work = async {
            let mut last = self.inner.last.lock().await;
            let fresh = |(of, at): &(HealthCheck, Instant)| *of == check && at.elapsed() < FRESH;
            if last.succeeded.as_ref().is_some_and(fresh) { None } else { self.run(&check, &mut last).await }
        };
        tokio::pin!(work);
        // Who waits for this node hears that something goes on.
        let failure = loop {
            match tokio::time::timeout(TICK, &mut work).await {
                Ok(failure) => break failure,
                Err(_) => ticker.tick(),
            }
        };
        failure.map_or(Ok(()), |why| Err(format!("its health check fails: {why}")))
    }

    /// Runs it once and tells what came of it.
    async fn run(&self, check: &HealthCheck, last: &mut Last) -> Option<String> {
        let (program, timeout) = (check.program.clone()?, Duration::from_millis(check.timeout_ms));
        let stuck = last.stuck.take();
        let work = move || once(&program, timeout, stuck);
        let (failure, stuck) =
            tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| (Some(error.to_string()), None));
        last.stuck = stuck;
        last.succeeded = failure.is_none().then(|| (check.clone(), Instant::now()));
        if let Some(why) = &failure {
            log!(Debug, "health", "{why}");
        }
        let _ = self.inner.queue.send(Event::Checked { failure: failure.clone() });
        failure
    }
}

/// Why it failed, if it did, and what is left of it.
fn once(program: &str, timeout: Duration, stuck: Option<Child>) -> (Option<String>, Option<Child>) {
    if let Some(child) = stuck.and_then(|child| reap(child, Duration::ZERO).err()) {
        return (Some(format!("{program} does not end even by SIGKILL")), Some(child));
    }
    let started = CString::new(program).map_err(|_| "its path has a NUL in it".to_owned()).and_then(|program| {
        let (word, end) = pipe_with(PipeFlags::CLOEXEC).map_err(short)?;
        // Only our end: programs give up where their output does not wait.
        rustix::io::ioctl_fionbio(&word, true).map_err(short)?;
        Ok((keepers::start_check(&program, end.as_fd())?, word))
    });
    let (child, word) = match started {
        Ok(started) => started,
        Err(why) => return (Some(format!("{program}: {why}")), None),
    };
    let (text, ended) = listen(&child, &word, timeout);
    // The child is unreaped: its group is still its own.
    let _ = kill_process_group(child.pid, Signal::KILL);
    let said = |what: String| if text.is_empty() { what } else { format!("{text} ({what})") };
    match reap(child, if ended { Duration::ZERO } else { DYING }) {
        Err(child) => (Some(format!("{program} does not end even by SIGKILL")), Some(child)),
        Ok(_) if !ended => (Some(said(format!("{program} did not end within {} s", timeout.as_secs_f64()))), None),
        Ok(status) => (failure_of(status).map(|how| said(format!("{program} {how}"))), None),
    }
}

fn short(error: rustix::io::Errno) -> String {
    shortage(&error.into())
}

fn failure_of(status: Option<WaitStatus>) -> Option<String> {
    let status = status?;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exited with status {code}")),
        (None, Some(signal)) => {
            Some(format!("was killed by signal {signal} ({})", pulc_hal::os::signals::describe(signal)))
        }
        (None, None) => Some("ended in an unknown way".to_owned()),
    }
}

/// Takes the first line that it prints, until it ends or its time is over. Returns whether it has ended.
fn listen(child: &Child, word: &OwnedFd, timeout: Duration) -> (String, bool) {
    let begin = Instant::now();
    let (mut bytes, mut open, mut ended) = (Vec::new(), true, false);
    while !ended {
        let Some(left) = timeout.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) else { break };
        let wait = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = vec![PollFd::new(&child.pidfd, PollFlags::IN)];
        if open {
            fds.push(PollFd::new(word, PollFlags::IN));
        }
        if !matches!(poll(&mut fds, Some(&wait)), Ok(_) | Err(rustix::io::Errno::INTR)) {
            break;
        }
        ended = !fds[0].revents().is_empty();
        open = open && read(word, &mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    (text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned(), ended)
}

/// Reads some of what is there. Returns whether more may come. What is too much is thrown away, so that it never waits for us.
fn read(word: &OwnedFd, bytes: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    // Not as long as it prints: its time is looked at in between.
    for _ in 0..16 {
        match rustix::io::read(word, &mut buffer) {
            Ok(0) => return false,
            Ok(count) => {
                let room = WORD_BYTES.saturating_sub(bytes.len());
                bytes.extend_from_slice(&buffer[..count.min(room)]);
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
            Err(_) => return false,
        }
    }
    true
}

/// Waits so long for one that has ended or was killed, and gives it back if it is still there.
fn reap(child: Child, patience: Duration) -> Result<Option<WaitStatus>, Child> {
    let wait = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    let _ = poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], Some(&wait));
    match waitpid(Some(child.pid), WaitOptions::NOHANG) {
        Ok(None) | Err(rustix::io::Errno::INTR) => Err(child),
        ended => {
            keepers::forget(child.pid);
            Ok(ended.ok().flatten().map(|(_, status)| status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::tests::directory;
    use std::os::unix::fs::PermissionsExt as _;

    fn script(place: &std::path::Path, text: &str) -> String {
        let path = place.join("check");
        // Not written to by anybody when it is started.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn what_a_check_says_and_how_it_ends_is_told() {
        let place = directory("health");
        let run = |text: &str, timeout_ms: u64| {
            let (failure, stuck) = once(&script(&place, text), Duration::from_millis(timeout_ms), None);
            assert!(stuck.is_none());
            failure
        };
        assert_eq!(run("echo all is well", 20_000), None);
        let failed = run("echo; echo the disk is full; echo more; exit 3", 20_000).unwrap();
        assert!(
            failed.starts_with("the disk is full (") && failed.ends_with("check exited with status 3)"),
            "{failed}"
        );
        assert!(run("kill -9 $$", 20_000).unwrap().contains("was killed by signal 9"));
        // One that prints without end is neither waited for nor kept.
        let endless = run("yes", 300).unwrap();
        assert!(endless.starts_with("y (") && endless.ends_with("did not end within 0.3 s)"), "{endless}");
        // What it leaves in the background goes with it.
        let left = run("sleep 1000 & echo $!; exit 1", 20_000).unwrap();
        let pid = left.split(' ').next().unwrap();
        let gone = || std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
        for _ in 0..2000 {
            if gone() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(gone(), "{left}");
        let (failure, _) = once("/no/such/check", Duration::from_secs(1), None);
        assert!(failure.unwrap().contains("No such file"));
        std::fs::remove_dir_all(place).unwrap();
    }

    #[tokio::test]
    async fn a_job_waits_for_a_check_that_drains_and_not_for_one_that_has_just_succeeded() {
        let place = directory("health-job");
        let (queue, mut words) = mpsc::unbounded_channel();
        let health = Health::start(queue);
        let ticker = Ticker::new(|| ());
        assert_eq!(health.before_a_job(&ticker).await, Ok(()));
        let counted = place.join("count");
        let program = script(&place, &format!("echo >> {}", counted.display()));
        let check = HealthCheck { program: Some(program), interval_ms: 1 << 30, ..HealthCheck::default() };
        health.set(check.clone());
        assert!(matches!(words.recv().await, Some(Event::Checked { failure: None })));
        assert_eq!(health.before_a_job(&ticker).await, Ok(()));
        assert_eq!(std::fs::read(&counted).unwrap(), b"\n", "it was run once");
        script(&place, "echo too hot; exit 1");
        health.set(HealthCheck { timeout_ms: 5000, ..check.clone() });
        let why = health.before_a_job(&ticker).await.unwrap_err();
        assert!(why.starts_with("its health check fails: too hot"), "{why}");
        health.set(HealthCheck { action: HealthAction::Events, ..check });
        assert_eq!(health.before_a_job(&ticker).await, Ok(()));
        std::fs::remove_dir_all(place).unwrap();
    }
}
