//! The daemon's end: asks the helper and waits for the answer. Blocks, at worst as long as the system's user database does: psid asks on
//! threads that may.

use crate::message::{Answer, MESSAGE_BYTES_MAX, Part, Question};
use pulc_base::JobId;
use pulc_hal::os::fdpass::Seqpacket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// For an answer; the user database may have to be asked over a network.
const PATIENCE: Duration = Duration::from_secs(60);

/// The line to the helper.
pub struct Line {
    socket: Mutex<Option<Seqpacket>>,
    watched: Seqpacket,
}

/// A keeper that the helper has started: its guardian, which is the helper's child. Or a clerk.
#[derive(Debug)]
pub struct Helped {
    pub pid: u32,
    pub pidfd: OwnedFd,
}

impl Line {
    /// # Errors
    /// When there are no descriptors to be had.
    pub fn new(fd: OwnedFd) -> io::Result<Line> {
        let socket = Seqpacket::from(fd);
        set_socket_timeout(socket.as_fd(), Timeout::Recv, Some(PATIENCE))?;
        let watched = socket.share()?;
        Ok(Line { socket: Mutex::new(Some(socket)), watched })
    }

    /// From now on the daemon is started again when it dies.
    ///
    /// # Errors
    /// When the helper is gone.
    pub fn ready(&self) -> Result<(), String> {
        self.ask(&Question::Ready, &[]).map(drop)
    }

    /// A keeper or a clerk of this user, with its line to psid.
    ///
    /// # Errors
    /// Why not, in one line: the user is not permitted, is not known here, has another name here.
    pub fn start_as(&self, uid: u32, name: &str, part: Part, line: BorrowedFd<'_>) -> Result<Helped, String> {
        let question = Question::Become { uid, part, name: name.to_owned() };
        match self.ask(&question, &[line])? {
            (Answer::Started { pid }, Some(pidfd)) => Ok(Helped { pid, pidfd }),
            other => Err(unfit(&other.0)),
        }
    }

    /// Kills what is left here of a job whose keeper is dead, and returns how many processes there still were.
    ///
    /// # Errors
    /// When the helper is gone.
    pub fn clear(&self, job: JobId, index: u32) -> Result<u32, String> {
        match self.ask(&Question::Clear { job: job.0, index }, &[])? {
            (Answer::Left { count }, _) => Ok(count),
            other => Err(unfit(&other.0)),
        }
    }

    /// Kills a keeper's guardian, which takes the keeper along.
    ///
    /// # Errors
    /// When the helper is gone, or did not start it.
    pub fn end(&self, pid: u32) -> Result<(), String> {
        self.ask(&Question::End { pid }, &[]).map(drop)
    }

    /// Returns when the helper has ended.
    pub fn wait_for_its_end(&self) {
        // Nothing but the end of the other side makes it ready.
        let long = Timespec { tv_sec: 3600, tv_nsec: 0 };
        loop {
            let mut fds = [PollFd::new(&self.watched, PollFlags::empty())];
            match poll(&mut fds, Some(&long)) {
                Ok(_) if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => return,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn ask(&self, question: &Question, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Option<OwnedFd>), String> {
        let mut held = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = held.as_ref() else { return Err(GONE.to_owned()) };
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let answer = socket.send(&question.encode(), fds).and_then(|()| socket.recv(&mut buffer));
        let answer = match answer {
            Ok(Some(received)) => {
                Answer::decode(&buffer[..received.bytes]).map(|answer| (answer, received.fds.into_iter().next()))
            }
            Ok(None) => None,
            Err(error) => {
                pulc_base::log!(Error, "psid", "the line to the privileged helper: {error}");
                None
            }
        };
        match answer {
            Some((Answer::Refused { why }, _)) => Err(why),
            Some(answer) => Ok(answer),
            None => {
                // What comes later would be taken for the answer to something else.
                *held = None;
                Err(GONE.to_owned())
            }
        }
    }
}

const GONE: &str = "the privileged helper of this node's daemon does not answer any more";

fn unfit(answer: &Answer) -> String {
    format!("the privileged helper gave an answer to another question: {answer:?}")
}
