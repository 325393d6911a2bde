//! What the daemon asks for, and what it gets. Part of the helper's loop: one question, one answer, and nothing is believed.

use super::{Helper, Keeper};
use crate::life::environment_of_user;
use crate::message::{Answer, MESSAGE_BYTES_MAX, Part, Question};
use crate::permits::Permits;
use pulc_base::{JobId, boot, log};
use pulc_hal::os::account;
use pulc_hal::os::process::{Group, Start, User};
use pulc_hal::os::proctree;
use pulc_hal::os::signals::SIGTERM;
use rustix::process::{Pid, Signal, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

/// Keepers at once: a daemon that has gone mad must not fill the machine.
const KEEPERS_MAX: usize = 4096;

impl Helper {
    /// One question and its answer.
    pub(super) fn hear(&mut self) {
        let Some(line) = &self.line else { return };
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let received = match line.recv(&mut buffer) {
            Ok(Some(received)) => received,
            Ok(None) => return self.line = None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                // Too long, or with too many descriptors.
                return self.answer(&refused("the helper was sent what is no question".to_owned()), &[]);
            }
            Err(error) => {
                log!(Error, "helper", "the line to the daemon: {error}");
                return self.line = None;
            }
        };
        let mut fds = received.fds.into_iter();
        let (first, more) = (fds.next(), fds.next());
        match (Question::decode(&buffer[..received.bytes]), first, more) {
            (Some(Question::Ready), None, None) => {
                self.is_ready = true;
                self.answer(&Answer::Done, &[]);
            }
            (Some(Question::Become { uid, part, name }), Some(line), None) => {
                match self.become_user(uid, &name, part, &line) {
                    Ok((pid, pidfd)) => self.answer(&Answer::Started { pid }, &[pidfd.as_fd()]),
                    Err(why) => self.answer(&refused(why), &[]),
                }
            }
            (Some(Question::Clear { job, index }), None, None) => {
                let count = self.clear(JobId(job), index);
                self.answer(&Answer::Left { count }, &[]);
            }
            (Some(Question::End { pid }), None, None) => {
                let answer = self.end(pid);
                self.answer(&answer, &[]);
            }
            _ => self.answer(&refused("the helper was sent what is no question".to_owned()), &[]),
        }
    }

    /// A daemon that does not read its answers gets none any more.
    fn answer(&mut self, answer: &Answer, fds: &[BorrowedFd<'_>]) {
        if let Answer::Refused { why } = answer {
            log!(Warn, "helper", "refused: {why}");
        }
        if let Some(line) = &self.line
            && let Err(error) = line.send(&answer.encode(), fds)
        {
            log!(Error, "helper", "the daemon does not take an answer: {error}");
            self.line = None;
        }
    }

    /// Starts the keeper program, and no other, as a user who may have processes here.
    fn become_user(&mut self, uid: u32, name: &str, part: Part, line: &OwnedFd) -> Result<(u32, OwnedFd), String> {
        if self.keepers.len() >= KEEPERS_MAX {
            return Err(format!("{KEEPERS_MAX} keepers run already on this machine"));
        }
        // Before anything is looked up.
        if uid == 0 {
            return Err("nothing is run as root".to_owned());
        }
        if uid == self.user.uid {
            return Err(format!("nothing is run as the daemon's own account ({uid})"));
        }
        let found = account::by_number(uid).map_err(|error| format!("user {uid} cannot be looked up: {error}"))?;
        let Some(account) = found else { return Err(format!("there is no user {uid} ({name}) on this machine")) };
        if account.name != name {
            return Err(format!(
                "user {uid} is {name} where the job was asked for, but {} on this machine; give users the same numbers everywhere",
                account.name
            ));
        }
        let groups = account::groups_of(&account)
            .map_err(|error| format!("the groups of user {name} cannot be had: {error}"))?;
        Permits::read(&self.users)?.allow(&account, &groups)?;
        let user = User { uid, gid: account.gid, groups };
        let mut argv = vec![c"pulc".to_owned(), c"keeper".to_owned()];
        let stays = part == Part::StayingKeeper;
        match part {
            Part::Keeper => {}
            Part::StayingKeeper => argv.push(c"stays".to_owned()),
            Part::Clerk => argv.push(c"clerk".to_owned()),
        }
        let start = Start {
            program: c"/proc/self/exe",
            argv: &argv,
            env: &[&environment_of_user(&account)],
            cwd: Some(c"/"),
            umask: None,
            limits: &[],
            cores: &[],
            lowly: false,
            group: Group::NewSession,
            // To the guardian: as when its psid ends.
            parent_death_signal: Some(SIGTERM),
            // Its log would be the daemon's, into which users must not write; what matters comes by its line.
            stdio: [Some(self.null.as_fd()), Some(self.null.as_fd()), Some(self.null.as_fd())],
            extra_fds: &[line.as_fd()],
            cgroup: None,
            user: Some(&user),
        };
        let guardian = self.starter.start(&start).map_err(|error| format!("user {name}: {error}"))?;
        let pidfd = guardian.pidfd.try_clone().map_err(|error| error.to_string());
        let pid = guardian.pid;
        self.keepers.insert(pid, Keeper { guardian, stays, ends_by: None });
        Ok((pid.as_raw_nonzero().get().unsigned_abs(), pidfd?))
    }

    /// Kills what is left here of a job, by its tag; root's processes and the daemon's are nobody's job.
    fn clear(&mut self, job: JobId, index: u32) -> u32 {
        let tags = [format!("{}={job}", boot::ENV_JOBID), format!("{}={index}", boot::ENV_NODE)];
        let found = proctree::tagged(&[&tags[0], &tags[1]]).unwrap_or_else(|error| {
            log!(Error, "helper", "processes of job {job} cannot be looked for: {error}");
            Vec::new()
        });
        let owner = |pid: Pid| std::fs::metadata(format!("/proc/{}", pid.as_raw_nonzero())).ok().map(|data| data.uid());
        let of_job = found.iter().filter(|found| owner(found.pid).is_some_and(|uid| uid != 0 && uid != self.user.uid));
        let mut count = 0;
        for process in of_job {
            process.kill();
            count += 1;
        }
        let orphans = self.kill_orphans();
        self.sweeps |= !orphans.is_empty();
        count + orphans.len() as u32
    }

    fn end(&self, pid: u32) -> Answer {
        let known = i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(|pid| self.keepers.get(&pid));
        match known {
            Some(keeper) => {
                let _ = pidfd_send_signal(&keeper.guardian.pidfd, Signal::KILL);
                Answer::Done
            }
            None => refused(format!("process {pid} is no keeper that was started here")),
        }
    }
}

fn refused(why: String) -> Answer {
    Answer::Refused { why }
}
