//! Which of the ranks' output pipes the keeper listens to: one that has no credit is left alone until it has. Called by the
//! keeper's loop. Never waits.

use super::output::Next;
use super::{CONTROL, INPUT, Keeper, OUTPUT};
use pulc_base::log;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::AsFd as _;

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

    /// Polls for room to write only while something waits to be written.
    pub(super) fn update_polling(&mut self) -> io::Result<()> {
        let wants = self.control.has_unsent();
        if wants != self.control_writes && !self.psid_gone {
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, self.control.as_fd(), EventData::new_u64(CONTROL), flags)?;
            self.control_writes = wants;
        }
        let wants = self.input.wants_to_write();
        if wants != self.input_writes
            && let Some(fd) = self.input.fd()
        {
            let flags = if wants { EventFlags::OUT } else { EventFlags::empty() };
            epoll::modify(&self.epoll, fd, EventData::new_u64(INPUT), flags)?;
            self.input_writes = wants;
        }
        Ok(())
    }
}
