//! Which of the ranks' output pipes the keeper listens to: one that has no credit is left alone until it has. Called by the
//! keeper's loop. Never waits.

use super::output::Next;
use super::{Keeper, OUTPUT};
use pulc_base::log;
use rustix::event::epoll::{self, EventFlags};

impl Keeper {
    pub(super) fn read_output(&mut self, index: usize) {
        let control = &mut self.control;
        let fd_before = self.output.fd(index).is_some();
        if !fd_before {
            return;
        }
        if self.output.read(index, &mut |report| control.report(report)) == Next::Pause
            && let Some(fd) = self.output.fd(index)
            && let Err(error) = epoll::delete(&self.epoll, fd)
        {
            log!(Warn, "keeper", "output cannot be paused: {error}");
        }
        self.resume_outputs();
    }

    pub(super) fn resume_outputs(&mut self) {
        for index in self.output.retry() {
            self.poll_output(index);
        }
    }

    pub(super) fn poll_output(&mut self, index: usize) {
        if let Some(fd) = self.output.fd(index)
            && let Err(error) = self.poll(fd, OUTPUT | index as u64, EventFlags::IN)
        {
            log!(Error, "keeper", "output cannot be polled: {error}");
        }
    }
}
