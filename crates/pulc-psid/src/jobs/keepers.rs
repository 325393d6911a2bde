//! Keepers as processes: starting them, and clearing away what is left when one has died a violent death. psid is a
//! subreaper, so orphans of a killed keeper become its children. Keepers of all daemons in this process are known here.

use crate::keeper::{cgroup, launch::cgroup_name};
use pulc_base::{JobId, NodeId, boot, log};
use pulc_hal::os::process::{Child, Group, Start, Starter};
use pulc_hal::os::proctree;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, pidfd_send_signal, waitpid};
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Keepers that run under this process, whichever daemon in it started them. A child that is not among them is an orphan.
static ALIVE: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);

/// How long to go on killing what a dead keeper has left.
const PATIENCE: Duration = Duration::from_secs(20);

fn alive() -> MutexGuard<'static, Option<HashSet<Pid>>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct KeeperProcess {
    child: Child,
}

/// Starts a keeper; returns it with psid's end of the line.
pub fn start(program: &CString) -> io::Result<(KeeperProcess, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let argv = [c"pulc".to_owned(), c"keeper".to_owned()];
    let env: Vec<CString> = std::env::vars_os()
        .filter(|(name, _)| name != boot::ENV_JOBID)
        .filter_map(|(name, value)| CString::new([name.into_vec(), value.into_vec()].join(&b'=')).ok())
        .collect();
    let start = Start {
        program,
        argv: &argv,
        env: &[&env],
        cwd: None,
        umask: None,
        limits: &[],
        cores: &[],
        group: Group::NewSession,
        parent_death_signal: None,
        stdio: [Some(null.as_fd()), Some(null.as_fd()), None],
        extra_fds: &[theirs.as_fd()],
        cgroup: None,
    };
    let mut alive = alive();
    let child = Starter::default().start(&start).map_err(|error| io::Error::other(error.to_string()))?;
    alive.get_or_insert_default().insert(child.pid);
    Ok((KeeperProcess { child }, ours))
}

impl KeeperProcess {
    /// Ends and reaps the keeper. After an orderly end it is about to exit anyway.
    pub async fn end(self, orderly: bool) {
        if !orderly {
            let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
        }
        let mut waited = Duration::ZERO;
        while let Ok(None) | Err(rustix::io::Errno::INTR) = waitpid(Some(self.child.pid), WaitOptions::NOHANG) {
            if waited > Duration::from_secs(2) {
                let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
            }
            let pause = Duration::from_micros(200);
            tokio::time::sleep(pause).await;
            waited += pause;
        }
        if let Some(alive) = alive().as_mut() {
            alive.remove(&self.child.pid);
        }
    }
}

/// Kills everything of a job on a node whose keeper has died, until nothing is left: by cgroup, by the job's tag in the
/// environment, and by ancestry (children of ours that are no keepers).
pub async fn clear(job: JobId, node: NodeId, index: u32) {
    let tags = [format!("{}={job}", boot::ENV_JOBID), format!("{}={index}", boot::ENV_NODE)];
    let tags = [tags[0].as_str(), tags[1].as_str()];
    let name = cgroup_name(job, node);
    let begin = tokio::time::Instant::now();
    loop {
        let orphans = kill_orphans();
        let tagged = match proctree::tagged(&tags) {
            Ok(tagged) => tagged,
            Err(error) => {
                log!(Error, "psid", "processes of job {job} cannot be looked for: {error}");
                Vec::new()
            }
        };
        tagged.iter().for_each(proctree::Tagged::kill);
        let grouped = !cgroup::clear(&name);
        if !orphans && tagged.is_empty() && !grouped {
            return;
        }
        if begin.elapsed() > PATIENCE {
            let pids: Vec<i32> = tagged.iter().map(|process| process.pid.as_raw_nonzero().get()).collect();
            log!(Error, "psid", "processes of job {job} do not die even of SIGKILL: {pids:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills and reaps children of ours that are no keepers. Returns whether there were any.
fn kill_orphans() -> bool {
    // Held all the time, so that no keeper is started and not yet known.
    let alive = alive();
    let known = |pid: &Pid| alive.as_ref().is_some_and(|alive| alive.contains(pid));
    let children = match proctree::own_children() {
        Ok(children) => children,
        Err(error) => {
            log!(Error, "psid", "own children cannot be listed: {error}");
            return false;
        }
    };
    let orphans: Vec<Pid> = children.into_iter().filter(|pid| !known(pid)).collect();
    for pid in &orphans {
        // Unreaped children of ours: nobody else can have got their numbers.
        let _ = kill_process(*pid, Signal::KILL);
        let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
    }
    !orphans.is_empty()
}
