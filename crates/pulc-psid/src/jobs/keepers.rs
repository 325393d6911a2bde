//! Keepers as processes: starting them, and clearing away what is left when one has died a violent death together with its
//! guardian; and the one other kind of child that psid has, the health check. psid is a subreaper, so their orphans become its children. Keepers of all daemons in this process are known here.

use crate::error::shortage;
use crate::keeper::remains::Remains;
use pulc_base::{JobId, NodeId, boot, log};
use pulc_hal::os::process::{Child, Group, Start, Starter};
use pulc_hal::os::signals;
use pulc_helper::{Helped, Line, Part};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Keepers that run under this process, whichever daemon in it started them. A child that is not among them is an orphan.
static ALIVE: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);

/// How long to go on killing what a dead keeper has left, and to let its guardian do so before.
const PATIENCE: Duration = Duration::from_secs(20);

fn alive() -> MutexGuard<'static, Option<HashSet<Pid>>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct KeeperProcess {
    who: Who,
}

enum Who {
    /// Its guardian is our child.
    Ours(Child),
    /// It was started by an earlier psid, and found us.
    Found(OwnedFd),
    /// It is another user's, and its guardian the helper's child; or it was, and found us.
    Helped(OwnedFd, u32, Arc<Line>),
}

/// Starts a keeper, which outlives psid if it `stays`; returns it with psid's end of the line.
pub fn start(program: &CString, stays: bool) -> Result<(KeeperProcess, UnixStream), String> {
    let short = |error: io::Error| shortage(&error);
    let (ours, theirs) = UnixStream::pair().map_err(short)?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").map_err(short)?;
    let mut argv = vec![c"pulc".to_owned(), c"keeper".to_owned()];
    if stays {
        argv.push(c"stays".to_owned());
    }
    let env = environment();
    let start = Start {
        program,
        argv: &argv,
        env: &[&env],
        cwd: None,
        umask: None,
        limits: &[],
        cores: &[],
        lowly: false,
        group: Group::NewSession,
        // To the guardian: the keeper sees its line close.
        parent_death_signal: Some(signals::SIGTERM),
        stdio: [Some(null.as_fd()), Some(null.as_fd()), None],
        extra_fds: &[theirs.as_fd()],
        cgroup: None,
        user: None,
    };
    let mut alive = alive();
    let child = Starter::default().start(&start);
    let child = child.map_err(|error| format!("{}: {}", error.step.what(), shortage(&error.source)))?;
    alive.get_or_insert_default().insert(child.pid);
    Ok((KeeperProcess { who: Who::Ours(child) }, ours))
}

/// Starts the health check of this node, which prints to `output`. It is spared when orphans are cleared away until it is forgotten, and ends
/// with this process.
pub fn start_check(program: &CString, output: BorrowedFd<'_>) -> Result<Child, String> {
    let null = std::fs::File::open("/dev/null").map_err(|error| shortage(&error))?;
    let (argv, env) = ([program.clone()], environment());
    let start = Start {
        program,
        argv: &argv,
        env: &[&env],
        cwd: Some(c"/"),
        umask: None,
        limits: &[],
        cores: &[],
        lowly: false,
        group: Group::NewSession,
        parent_death_signal: Some(Signal::KILL.as_raw()),
        stdio: [Some(null.as_fd()), Some(output), Some(output)],
        extra_fds: &[],
        cgroup: None,
        user: None,
    };
    let mut alive = alive();
    let child = Starter::default().start(&start);
    let child = child.map_err(|error| format!("{}: {}", error.step.what(), shortage(&error.source)))?;
    alive.get_or_insert_default().insert(child.pid);
    Ok(child)
}

/// It has been reaped.
pub fn forget(pid: Pid) {
    if let Some(alive) = alive().as_mut() {
        alive.remove(&pid);
    }
}

/// What this process hands on.
fn environment() -> Vec<CString> {
    std::env::vars_os()
        .filter(|(name, _)| name != boot::ENV_JOBID)
        .filter_map(|(name, value)| CString::new([name.into_vec(), value.into_vec()].join(&b'=')).ok())
        .collect()
}

/// The keeper at the other end of a line that it has opened.
///
/// # Errors
/// When it has ended already.
pub fn found(pid: i32) -> io::Result<KeeperProcess> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(KeeperProcess { who: Who::Found(pidfd_open(pid, PidfdFlags::empty())?) })
}

/// The same where keepers are other users'.
///
/// # Errors
/// When it has ended already.
pub fn found_of_user(pid: i32, helper: &Arc<Line>) -> io::Result<KeeperProcess> {
    let KeeperProcess { who: Who::Found(pidfd) } = found(pid)? else { return Err(io::ErrorKind::NotFound.into()) };
    Ok(KeeperProcess { who: Who::Helped(pidfd, pid.unsigned_abs(), helper.clone()) })
}

/// Lets the helper start a keeper as this user; returns it with psid's end of the line.
///
/// # Errors
/// Why not, in one line.
pub async fn start_as_user(
    helper: Arc<Line>,
    uid: u32,
    name: String,
    stays: bool,
) -> Result<(KeeperProcess, UnixStream), String> {
    let asking = tokio::task::spawn_blocking(move || {
        let (ours, theirs) = UnixStream::pair().map_err(|error| shortage(&error))?;
        let part = if stays { Part::StayingKeeper } else { Part::Keeper };
        let Helped { pid, pidfd } = helper.start_as(uid, &name, part, theirs.as_fd())?;
        Ok((KeeperProcess { who: Who::Helped(pidfd, pid, helper.clone()) }, ours))
    });
    asking.await.unwrap_or_else(|error| Err(error.to_string()))
}

impl KeeperProcess {
    /// Reaps the keeper (that is, its guardian) when it has ended. After an orderly end it is about to; after a violent one
    /// it has to clear up first; one that does not answer is killed. Returns whether it has left nothing, by its own word.
    pub async fn end(self, how: End) -> bool {
        let patience = match how {
            End::Orderly => Duration::from_secs(2),
            End::Violent => PATIENCE,
            End::Silent => Duration::ZERO,
        };
        let child = match self.who {
            Who::Ours(child) => child,
            Who::Found(pidfd) => {
                return end_found(&pidfd, patience, || _ = pidfd_send_signal(&pidfd, Signal::KILL)).await;
            }
            Who::Helped(pidfd, pid, helper) => {
                // The helper answers at once: it looks nobody up for this.
                let kill = || match helper.end(pid) {
                    Ok(()) => {}
                    Err(why) => log!(Warn, "psid", "a keeper that does not answer cannot be killed: {why}"),
                };
                return end_found(&pidfd, patience, kill).await;
            }
        };
        let mut waited = Duration::ZERO;
        let status = loop {
            match waitpid(Some(child.pid), WaitOptions::NOHANG) {
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Ok(Some((_, status))) => break Some(status),
                Err(_) => break None,
            }
            if waited >= patience {
                let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
            }
            let pause = Duration::from_micros(if waited < Duration::from_millis(10) { 200 } else { 2000 });
            tokio::time::sleep(pause).await;
            waited += pause;
        };
        forget(child.pid);
        status.is_some_and(|status| status.exit_status() == Some(0))
    }
}

/// Waits until a keeper that is not our child has ended; its guardian clears up after it. Its word can't be had.
async fn end_found(pidfd: &OwnedFd, patience: Duration, kill: impl Fn()) -> bool {
    let begin = tokio::time::Instant::now();
    let mut killed_at = None;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    while !matches!(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)), Ok(1)) {
        if begin.elapsed() >= patience && killed_at.is_none_or(|at: tokio::time::Instant| at.elapsed() >= PATIENCE) {
            killed_at = Some(tokio::time::Instant::now());
            kill();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    false
}

/// How a keeper's life has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has said that nothing is left.
    Orderly,
    /// Its line was closed without a word.
    Violent,
    /// It does not do what it is told.
    Silent,
}

/// The same where its processes are another user's, whom only the helper can signal.
async fn clear_of_user(helper: Arc<Line>, job: JobId, index: u32) {
    let begin = tokio::time::Instant::now();
    loop {
        let asked = helper.clone();
        let left = tokio::task::spawn_blocking(move || asked.clear(job, index)).await;
        match left.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(0) => return,
            Ok(left) if begin.elapsed() > PATIENCE => {
                log!(Error, "psid", "{left} processes of job {job} do not end even by SIGKILL");
                return;
            }
            Ok(_) => {}
            Err(why) => {
                log!(Error, "psid", "what is left of job {job} cannot be cleared away: {why}");
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills everything of a job on a node whose keeper and guardian have died, until nothing is left.
pub async fn clear(job: JobId, node: NodeId, index: u32, helper: Option<Arc<Line>>) {
    if let Some(helper) = helper {
        return clear_of_user(helper, job, index).await;
    }
    let remains = Remains::of(job, node, Some(index));
    let begin = tokio::time::Instant::now();
    loop {
        let left = {
            // Held all the time, so that no keeper is started and not yet known.
            let alive = alive();
            remains.kill(|pid| alive.as_ref().is_some_and(|alive| alive.contains(&pid)))
        };
        let Some(left) = left else { return };
        if begin.elapsed() > PATIENCE {
            log!(Error, "psid", "{left} of job {job} do not end even by SIGKILL");
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
