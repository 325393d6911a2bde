//! Standard input on its way to rank 0: a bounded buffer in front of a non-blocking pipe. As much may be under way as
//! `INPUT_WINDOW`; what the rank has taken is reported as new credit.

use super::message::Report;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Default)]
pub struct Input {
    pipe: Option<OwnedFd>,
    pending: Vec<u8>,
    ended: bool,
    told: bool,
}

impl Input {
    /// `pipe`: write end, non-blocking.
    pub fn new(pipe: OwnedFd) -> Input {
        Input { pipe: Some(pipe), ..Input::default() }
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    pub fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    pub fn wants_to_write(&self) -> bool {
        self.pipe.is_some() && !self.pending.is_empty()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.pipe.is_some() && !self.ended {
            self.pending.extend_from_slice(bytes);
        }
    }

    pub fn end(&mut self) {
        self.ended = true;
    }

    /// The rank is gone or has closed its end.
    pub fn close(&mut self) {
        self.pipe = None;
        self.pending = Vec::new();
    }

    /// Writes what the pipe takes.
    pub fn write(&mut self, report: &mut dyn FnMut(&Report)) {
        let mut written = 0;
        while let Some(pipe) = &self.pipe {
            if written == self.pending.len() {
                break;
            }
            match rustix::io::write(pipe, &self.pending[written..]) {
                Ok(n) => written += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) if io::Error::from(error).kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.close(),
            }
        }
        let written = written.min(self.pending.len());
        self.pending.drain(..written);
        if written > 0 {
            report(&Report::InputCredit { bytes: written as u32 });
        }
        if self.ended && self.pending.is_empty() {
            self.pipe = None;
        }
        if self.pipe.is_none() && !self.ended && !self.told {
            self.told = true;
            report(&Report::InputClosed);
        }
    }
}
