//! Descriptors of the user's that a wait looks after beside everything else, level-triggered as in poll(2). Filled by the
//! interface, polled by the handler's sleep. Must never read or write them.

use crate::error::HalError;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A set of descriptors, each with what is wanted of it and, after a poll, what it is ready for.
#[derive(Default)]
pub struct Watched<'a> {
    fds: Vec<PollFd<'a>>,
    found: Vec<PollFlags>,
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    pub read: bool,
    pub write: bool,
    /// The other end is closed, or there is an error to be fetched: reading or writing tells.
    pub ended: bool,
    /// No such descriptor is open.
    pub bad: bool,
}

impl Readiness {
    pub fn any(self) -> bool {
        self.read || self.write || self.ended || self.bad
    }
}

impl<'a> Watched<'a> {
    pub fn add(&mut self, fd: BorrowedFd<'a>, read: bool, write: bool) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, read);
        flags.set(PollFlags::OUT, write);
        self.fds.push(PollFd::from_borrowed_fd(fd, flags));
        self.found.push(PollFlags::empty());
    }

    pub fn len(&self) -> usize {
        self.fds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// Asks the kernel without waiting; how many are ready.
    pub fn look(&mut self) -> Result<usize, HalError> {
        if self.fds.is_empty() {
            return Ok(0);
        }
        loop {
            match rustix::event::poll(&mut self.fds, Some(&Timespec::default())) {
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(HalError::system("poll descriptors")(errno)),
                Ok(count) => {
                    self.found.clear();
                    self.found.extend(self.fds.iter().map(PollFd::revents));
                    return Ok(count);
                }
            }
        }
    }

    /// Waits until one of them is ready or `other` is readable, at most for `limit`; a signal ends it too.
    pub fn wait(&mut self, other: BorrowedFd<'_>, limit: Duration) -> Result<(), HalError> {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let mut all = vec![PollFd::from_borrowed_fd(other, PollFlags::IN)];
        all.extend(self.fds.iter().cloned());
        match rustix::event::poll(&mut all, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(HalError::system("poll descriptors")(errno)),
            Ok(_) => {
                self.take_results(&all[1..]);
                Ok(())
            }
        }
    }

    /// Whether the last poll found any of them ready.
    pub fn any_ready(&self) -> bool {
        self.found.iter().any(|flags| !flags.is_empty())
    }

    /// What the last poll found out about the descriptor that was added as number `index`.
    pub fn readiness(&self, index: usize) -> Readiness {
        let flags = self.found[index];
        Readiness {
            read: flags.contains(PollFlags::IN),
            write: flags.contains(PollFlags::OUT),
            ended: flags.intersects(PollFlags::HUP | PollFlags::ERR),
            bad: flags.contains(PollFlags::NVAL),
        }
    }

    pub(crate) fn fds(&self) -> &[PollFd<'a>] {
        &self.fds
    }

    /// What a poll of copies of them found.
    pub(crate) fn take_results(&mut self, polled: &[PollFd<'_>]) {
        self.found.clear();
        self.found.extend(polled.iter().map(PollFd::revents));
    }
}

/// A descriptor that becomes ready when any of a set of others does, for whoever waits in a loop of his own: an epoll
/// instance. What became ready is not told.
#[derive(Debug)]
pub struct Gate(OwnedFd);

impl Gate {
    pub fn new<'f>(fds: impl IntoIterator<Item = BorrowedFd<'f>>) -> Result<Gate, HalError> {
        use rustix::event::epoll;
        let gate = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(HalError::system("make an epoll instance"))?;
        for fd in fds {
            epoll::add(&gate, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(HalError::system("watch a descriptor"))?;
        }
        Ok(Gate(gate))
    }
}

impl Gate {
    /// Does not watch this one any more.
    pub fn leave_out(&self, fd: BorrowedFd<'_>) {
        // It can only fail when it was left out before.
        let _ = rustix::event::epoll::delete(&self.0, fd);
    }
}

impl std::os::fd::AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_pipe_is_readable_when_something_is_in_it_and_ended_when_its_writer_is_closed() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut watched = Watched::default();
        watched.add(read.as_fd(), true, false);
        assert_eq!(watched.look().unwrap(), 0);
        rustix::io::write(&write, b"x").unwrap();
        assert_eq!(watched.look().unwrap(), 1);
        assert_eq!(watched.readiness(0), Readiness { read: true, ..Readiness::default() });
        rustix::io::read(&read, &mut [0; 8]).unwrap();
        drop(write);
        assert_eq!(watched.look().unwrap(), 1);
        assert!(watched.readiness(0).ended && watched.any_ready());
    }

    #[test]
    fn a_gate_is_readable_as_long_as_one_behind_it_is() {
        let ((quiet, _a), (loud, b)) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        let gate = Gate::new([quiet.as_fd(), loud.as_fd()]).unwrap();
        let mut watched = Watched::default();
        watched.add(gate.as_fd(), true, false);
        assert_eq!(watched.look().unwrap(), 0);
        rustix::io::write(&b, b"x").unwrap();
        assert_eq!(watched.look().unwrap(), 1);
        rustix::io::read(&loud, &mut [0; 8]).unwrap();
        assert_eq!(watched.look().unwrap(), 0);
    }
}
