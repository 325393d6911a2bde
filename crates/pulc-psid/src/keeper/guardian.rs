//! The guardian: parent and subreaper of one keeper, and all it does is outlive it. The program `pulc keeper` splits into the
//! two before anything else happens. A keeper that is killed leaves its orphans to the guardian, which kills them, whether
//! psid lives or not; a guardian that is killed leaves the keeper, which then ends the job; so of guardian, keeper and psid
//! any two may die in the same instant and nothing is left. It holds no line to psid, knows no rank, and never outlives the
//! keeper's job.

use super::remains::Remains;
use crate::stage;
use pulc_base::log;
use pulc_hal::os::process::{Child, Forked, fork_alone};
use pulc_hal::os::signals::{self, SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getppid, pidfd_send_signal, wait};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a keeper whose psid has died may take to end the job (it kills at once, so this is generous).
const ALONE_FOR: Duration = Duration::from_secs(20);
/// How long to go on killing what a dead keeper has left.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a psid that is being killed may look alive.
const DYING_FOR: Duration = Duration::from_millis(200);
/// Pause between two rounds of killing.
const ROUND: Duration = Duration::from_millis(5);

/// Who this process is after [`split`].
pub enum Part {
    /// Its life is over.
    Guardian(ExitCode),
    /// Goes on as keeper, with its line to psid.
    Keeper(Guarded, OwnedFd),
}

/// A keeper's ties to its guardian.
pub struct Guarded {
    guardian: Pid,
    will: OwnedFd,
}

impl Guarded {
    /// Leaves word how to find what was started, for the case of a violent death. Before it is started.
    pub fn leave_word(&self, remains: &Remains) -> io::Result<()> {
        rustix::io::write(&self.will, remains.to_line().as_bytes())?;
        Ok(())
    }

    pub fn guardian_lives(&self) -> bool {
        getppid() == Some(self.guardian)
    }
}

/// Splits the calling process, which must be single-threaded, into guardian and keeper. `line` is the keeper's: the guardian
/// holds no end of it, so that psid sees it close when the keeper dies.
///
/// # Errors
/// With the line, when there is no process or descriptor to be had.
pub fn split(line: OwnedFd, stays: bool) -> Result<Part, (io::Error, OwnedFd)> {
    let psid = getppid();
    let me = rustix::process::getpid();
    let ready = rustix::process::set_child_subreaper(Some(me))
        .and_then(|()| pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK))
        .map_err(io::Error::from)
        .and_then(|pipe| Ok((pipe, fork_alone()?)));
    match ready {
        Err(error) => Err((error, line)),
        Ok(((_, will), Forked::Child)) => {
            // The keeper is told when its guardian dies, and asks who its parent is whenever it is told.
            if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::TERM)) {
                return Err((error.into(), line));
            }
            if getppid() != Some(me) {
                return Err((io::Error::other("its guardian died"), line));
            }
            let _ = rustix::thread::set_name(c"pulc-keeper");
            Ok(Part::Keeper(Guarded { guardian: me, will }, line))
        }
        Ok(((word, will), Forked::Parent(keeper))) => {
            drop((line, will));
            let _ = rustix::thread::set_name(c"pulc-guardian");
            let ended = guard(&keeper, psid, stays).unwrap_or_else(|error| {
                log!(Error, "guardian", "{error}; the job ends");
                let _ = pidfd_send_signal(&keeper.pidfd, Signal::KILL);
                None
            });
            match ended {
                Some(status) if status.exit_status() == Some(0) => Ok(Part::Guardian(ExitCode::SUCCESS)),
                _ => Ok(Part::Guardian(bury(word, stays))),
            }
        }
    }
}

/// Watches the keeper until it has ended, and tells how.
fn guard(keeper: &Child, psid: Option<Pid>, stays: bool) -> io::Result<Option<WaitStatus>> {
    let signals = SignalFd::new(&[SIGCHLD, SIGTERM, SIGINT, SIGHUP], true)?;
    let mut alone_since = None;
    loop {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == keeper.pid {
                return Ok(Some(status));
            }
        }
        // psid's death comes as SIGTERM, or came before we could be told.
        // The keeper of a queued job knows by itself how long it goes on alone.
        if !stays && alone_since.is_none() && getppid() != psid {
            alone_since = Some(Instant::now());
        }
        if alone_since.is_some_and(|since| since.elapsed() > ALONE_FOR) {
            log!(Error, "guardian", "the keeper does not end its job though psid is gone; it is killed");
            pidfd_send_signal(&keeper.pidfd, Signal::KILL)?;
        }
        let pause = if alone_since.is_some() { 100_000_000 } else { 0 };
        let timeout = (pause > 0).then_some(Timespec { tv_sec: 0, tv_nsec: pause });
        match poll(&mut [PollFd::new(&signals, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Ok(signal) = signals.read() {
            // Somebody wants the job to end. (After psid's death the keeper knows by itself.)
            if signal == signals::SIGCHLD || getppid() != psid {
                continue;
            }
            // While a psid of several threads dies, its last thread is still our parent.
            if stays {
                std::thread::sleep(DYING_FOR);
            }
            if getppid() == psid {
                pidfd_send_signal(&keeper.pidfd, Signal::TERM)?;
            }
        }
    }
}

/// The keeper died a violent death: kills what it has left, until nothing is there, and removes the job's directory, since psid may
/// have died as well. That of a queued job is left to its next daemon.
fn bury(word: OwnedFd, stays: bool) -> ExitCode {
    let mut text = Vec::new();
    // Not blocking: a rank that was just being born may hold the other end for a moment.
    let _ = std::fs::File::from(word).read_to_end(&mut text);
    let remains = Remains::parse(&String::from_utf8_lossy(&text));
    let begin = Instant::now();
    while let Some(left) = remains.kill(|_| false) {
        if begin.elapsed() > PATIENCE {
            log!(Error, "guardian", "{left} of a dead keeper's job do not end even by SIGKILL");
            break;
        }
        std::thread::sleep(ROUND);
    }
    if let Some(room) = remains.room().filter(|_| !stays) {
        stage::remove(room);
    }
    ExitCode::FAILURE
}
