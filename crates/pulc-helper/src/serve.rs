//! The helper's loop: parent of the daemon and of all keepers, subreaper of what they leave. One thread, no runtime; it opens nothing while it
//! runs but the file of permitted users and what the system's user database needs, and reads from nobody but the daemon it has started.
//! The daemon speaks to the network and may be anybody's: what it asks for is checked as if it came from there.

mod questions;

use crate::places::{CLIENTS_SOCKET, KEEPERS_SOCKET};
use pulc_base::log;
use pulc_hal::os::fdpass::Seqpacket;
use pulc_hal::os::process::{Child, Group, Start, Starter, User};
use pulc_hal::os::proctree;
use pulc_hal::os::signals::{self, SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, pidfd_send_signal, wait, waitpid};
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two rounds of killing.
const ROUND: Duration = Duration::from_millis(5);
/// How long keepers that end with the daemon may take to (they kill at once, so this is generous).
const ALONE_FOR: Duration = Duration::from_secs(20);
/// A daemon that dies more often than this within [`DEATHS_WITHIN`] is not started again.
const DEATHS_MAX: usize = 5;
const DEATHS_WITHIN: Duration = Duration::from_secs(60);

/// Where the daemon is found, as long as there is one.
pub(crate) struct Places {
    pub clients: UnixListener,
    pub keepers: UnixListener,
    pub run_dir: PathBuf,
    pub _lock: File,
}

impl Drop for Places {
    fn drop(&mut self) {
        for name in [CLIENTS_SOCKET, KEEPERS_SOCKET] {
            let _ = std::fs::remove_file(self.run_dir.join(name));
        }
    }
}

pub(crate) struct Helper {
    places: Option<Places>,
    /// As whom the daemon runs, and how it is started.
    user: User,
    argv: Vec<CString>,
    env: Vec<CString>,
    users: PathBuf,
    starter: Starter,
    signals: SignalFd,
    null: File,
    daemon: Option<Child>,
    line: Option<Seqpacket>,
    is_ready: bool,
    /// Root wants it to end.
    ends: bool,
    deaths: VecDeque<Instant>,
    code: ExitCode,
    keepers: HashMap<Pid, Keeper>,
    /// A keeper has died a violent death: what it has left is our child.
    sweeps: bool,
}

struct Keeper {
    guardian: Child,
    stays: bool,
    /// When it has to have ended, its daemon being dead.
    ends_by: Option<Instant>,
}

impl Helper {
    /// Starts the daemon.
    pub(crate) fn begin(
        places: Places,
        user: User,
        argv: Vec<CString>,
        env: Vec<CString>,
        users: PathBuf,
    ) -> io::Result<Helper> {
        let mut helper = Helper::without_daemon(user, argv, env, users)?;
        helper.places = Some(places);
        let out = rustix::io::dup(rustix::stdio::stdout())?;
        helper.start_daemon(out.as_fd())?;
        // Whoever waits at the other end sees it close when the daemon lets go of it.
        rustix::stdio::dup2_stdout(&helper.null)?;
        Ok(helper)
    }

    fn without_daemon(user: User, argv: Vec<CString>, env: Vec<CString>, users: PathBuf) -> io::Result<Helper> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let signals = SignalFd::new(&[SIGCHLD, SIGTERM, SIGINT, SIGHUP], true)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Helper {
            places: None,
            user,
            argv,
            env,
            users,
            starter: Starter::default(),
            signals,
            null,
            daemon: None,
            line: None,
            is_ready: false,
            ends: false,
            deaths: VecDeque::new(),
            code: ExitCode::SUCCESS,
            keepers: HashMap::new(),
            sweeps: false,
        })
    }

    fn start_daemon(&mut self, out: BorrowedFd<'_>) -> io::Result<()> {
        let Some(places) = &self.places else { return Err(io::ErrorKind::NotFound.into()) };
        let (ours, theirs) = Seqpacket::pair()?;
        ours.set_nonblocking(true)?;
        let start = Start {
            // This binary, whatever has come to its path since.
            program: c"/proc/self/exe",
            argv: &self.argv,
            env: &[&self.env],
            cwd: Some(c"/"),
            umask: Some(0o077),
            limits: &[],
            cores: &[],
            lowly: false,
            group: Group::NewSession,
            // It leaves by itself when its helper is gone.
            parent_death_signal: None,
            stdio: [Some(self.null.as_fd()), Some(out), None],
            extra_fds: &[theirs.as_fd(), places.clients.as_fd(), places.keepers.as_fd()],
            cgroup: None,
            user: Some(&self.user),
        };
        let child = self.starter.start(&start).map_err(|error| io::Error::other(error.to_string()))?;
        (self.daemon, self.line, self.is_ready) = (Some(child), Some(ours), false);
        Ok(())
    }

    pub(crate) fn run(&mut self) -> ExitCode {
        loop {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                self.ended(pid, status);
            }
            let wakes_in = self.sweep();
            if self.daemon.is_none() && self.keepers.is_empty() && !self.sweeps {
                return self.code;
            }
            let timeout = wakes_in
                .map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) });
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            fds.extend(self.line.iter().map(|line| PollFd::new(line, PollFlags::IN)));
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    log!(Error, "helper", "cannot wait: {error}");
                    std::thread::sleep(ROUND);
                }
            }
            let asked = fds.get(1).is_some_and(|line| !line.revents().is_empty());
            drop(fds);
            while let Ok(signal) = self.signals.read() {
                if signal == SIGTERM || signal == SIGINT {
                    self.ends = true;
                    if let Some(daemon) = &self.daemon {
                        let _ = pidfd_send_signal(&daemon.pidfd, Signal::TERM);
                    }
                }
            }
            if asked {
                self.hear();
            }
        }
    }

    fn ended(&mut self, pid: Pid, status: WaitStatus) {
        if self.daemon.as_ref().is_some_and(|daemon| daemon.pid == pid) {
            self.daemon_ended(status);
        } else if self.keepers.remove(&pid).is_some() && status.exit_status() != Some(0) {
            self.sweeps = true;
        }
    }

    fn daemon_ended(&mut self, status: WaitStatus) {
        (self.daemon, self.line) = (None, None);
        let now = Instant::now();
        for keeper in self.keepers.values_mut().filter(|keeper| !keeper.stays) {
            keeper.ends_by.get_or_insert(now + ALONE_FOR);
        }
        let code = status.exit_status();
        let by_violence = code != Some(0);
        if by_violence && self.is_ready && !self.ends {
            let how = status.terminating_signal().map_or_else(
                || format!("exited with status {}", code.unwrap_or(-1)),
                |signal| format!("was killed by signal {signal} ({})", signals::describe(signal)),
            );
            self.deaths.push_back(now);
            while self.deaths.front().is_some_and(|death| now - *death > DEATHS_WITHIN) {
                self.deaths.pop_front();
            }
            if self.deaths.len() <= DEATHS_MAX {
                log!(Error, "helper", "the daemon {how}; it is started again");
                let null = self.null.try_clone();
                match null.and_then(|null| self.start_daemon(null.as_fd())) {
                    Ok(()) => return,
                    Err(error) => log!(Error, "helper", "the daemon cannot be started: {error}"),
                }
            } else {
                let seconds = DEATHS_WITHIN.as_secs();
                log!(
                    Error,
                    "helper",
                    "the daemon {how}, for the {}th time within {seconds} s; it is left",
                    self.deaths.len()
                );
            }
        }
        if by_violence && !self.ends {
            self.code = ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1).max(1));
        }
        // Another one may be found there, while we wait for keepers that stay.
        self.places = None;
    }

    /// Kills what dead keepers have left, and keepers that should have ended. Returns when to look again.
    fn sweep(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let mut next: Option<Duration> = None;
        for keeper in self.keepers.values() {
            let Some(by) = keeper.ends_by else { continue };
            if by <= now {
                log!(Error, "helper", "a keeper does not end though its daemon has; it is killed");
                let _ = pidfd_send_signal(&keeper.guardian.pidfd, Signal::KILL);
            }
            let wait = by.saturating_duration_since(now).max(ROUND);
            next = Some(next.map_or(wait, |next| next.min(wait)));
        }
        if self.sweeps {
            self.sweeps = !self.kill_orphans().is_empty();
        }
        if self.sweeps { Some(next.map_or(ROUND, |next| next.min(ROUND))) } else { next }
    }

    /// Children that nobody has started here: what guardians and keepers left that died together.
    fn kill_orphans(&self) -> Vec<Pid> {
        let children = proctree::own_children().unwrap_or_else(|error| {
            log!(Error, "helper", "own children cannot be listed: {error}");
            Vec::new()
        });
        let is_known =
            |pid: &Pid| self.keepers.contains_key(pid) || self.daemon.as_ref().is_some_and(|daemon| daemon.pid == *pid);
        let orphans: Vec<Pid> = children.into_iter().filter(|pid| !is_known(pid)).collect();
        for pid in &orphans {
            // Unreaped children of ours: nobody else can have got their numbers.
            let _ = kill_process(*pid, Signal::KILL);
            let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
        }
        orphans
    }
}

#[cfg(test)]
mod tests;
