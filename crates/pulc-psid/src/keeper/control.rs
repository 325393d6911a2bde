//! The keeper's end of its line to psid: non-blocking, framed. Never blocks the keeper: what does not fit into the socket
//! waits here, bounded because output only flows against credit. The keeper of a queued job opens a new line when psid has
//! died, and says again there what it has reported.

use super::message::{Back, ORDERS, Order, Report, Stay};
use super::outlet::Outlet;
use pulc_base::JobId;
use pulc_base::boot::Boot;
use pulc_control::frame::{self, Deframer, FrameError};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

pub struct Control {
    stream: UnixStream,
    incoming: Deframer,
    outgoing: Vec<u8>,
    sent: usize,
    closed: bool,
    pub outlet: Outlet,
    told: Back,
    reached_at: Option<IpAddr>,
    stuck: Option<String>,
}

impl Control {
    pub fn new(stream: UnixStream) -> io::Result<Control> {
        stream.set_nonblocking(true)?;
        Ok(Control {
            stream,
            incoming: Deframer::default(),
            outgoing: Vec::new(),
            sent: 0,
            closed: false,
            outlet: Outlet::default(),
            told: Back::default(),
            reached_at: None,
            stuck: None,
        })
    }

    /// A new line to the psid that listens there; the first word on it is all that was reported.
    ///
    /// # Errors
    /// As long as nobody listens, or somebody who is not this user.
    pub fn open_again(&mut self, job: JobId, stay: &Stay) -> io::Result<()> {
        let stream = if stay.socket.starts_with('/') {
            // In a directory that only root may write to: who listens there was put there by root.
            UnixStream::connect(&stay.socket)?
        } else {
            let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&stay.socket)?)?;
            let owner = rustix::net::sockopt::socket_peercred(&stream)?.uid;
            if owner != rustix::process::geteuid() {
                return Err(io::Error::other("another user listens at the keepers' socket"));
            }
            stream
        };
        stream.set_nonblocking(true)?;
        (self.stream, self.incoming, self.closed) = (stream, Deframer::default(), false);
        self.outgoing.clear();
        self.sent = 0;
        self.told.job = job.0;
        self.told.memo.clone_from(&stay.memo);
        self.send(&Report::Back(Box::new(self.told.clone())));
        self.send(&Report::Knows { orders: ORDERS });
        if let Some(at) = self.reached_at {
            self.send(&Report::Reached { at });
        }
        if let Some(text) = self.stuck.clone() {
            self.send(&Report::Stuck { text });
        }
        self.send_again();
        Ok(())
    }

    /// To this psid and to each later one.
    pub fn report_stuck(&mut self, text: String) {
        self.report(&Report::Stuck { text: text.clone() });
        self.stuck = Some(text);
    }

    /// What a later psid has to know of the job's network: where the rank `first` is reached.
    pub fn keep_network(&mut self, boot: &Boot, first: u32) {
        let rail = boot.tasks.get(first as usize).and_then(|task| task.rails.first());
        self.reached_at = rail.map(|rail| rail.ip());
    }

    /// Sends again what the first node has not written.
    pub fn send_again(&mut self) {
        let frames: Vec<Report> = match &self.outlet {
            Outlet::Kept(kept) => kept.frames().collect(),
            _ => Vec::new(),
        };
        frames.iter().for_each(|frame| self.send(frame));
    }

    /// Orders that have come; an error when psid is gone or talks nonsense.
    pub fn receive(&mut self) -> Result<Vec<Order>, FrameError> {
        let mut buffer = [0; 64 << 10];
        let mut orders = Vec::new();
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.closed = true;
                    return if orders.is_empty() { Err(FrameError::Closed) } else { Ok(orders) };
                }
                Ok(n) => {
                    self.incoming.feed(&buffer[..n]);
                    while let Some(order) = self.incoming.take()? {
                        orders.push(order);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(orders),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if orders.is_empty() => return Err(error.into()),
                Err(_) => return Ok(orders),
            }
        }
    }

    /// Queues a report; [`Control::flush`] sends.
    pub fn report(&mut self, report: &Report) {
        match report {
            Report::Output { rank, stream, more, bytes, .. } => {
                if let Some(report) = self.outlet.pass(*rank, *stream, *more, bytes) {
                    self.send(&report);
                }
            }
            other => {
                self.remember(other);
                self.send(other);
            }
        }
    }

    /// For a psid that was started again.
    fn remember(&mut self, report: &Report) {
        match report {
            Report::Started { pids } => self.told.pids.clone_from(pids),
            Report::Exited { ranks } => self.told.ended.extend_from_slice(ranks),
            Report::Failed { text } if self.told.failed.is_none() => self.told.failed = Some(text.clone()),
            Report::Abort { rank, code, text } => self.told.abort = Some((*rank, *code, text.clone())),
            Report::Frozen { still } => self.told.still = *still,
            Report::Used(used) => self.told.used = *used,
            Report::Clean => self.told.clean = true,
            _ => {}
        }
    }

    fn send(&mut self, report: &Report) {
        if self.closed {
            return;
        }
        match frame::encode(report) {
            Ok(bytes) => self.outgoing.extend_from_slice(&bytes),
            Err(error) => pulc_base::log!(Error, "keeper", "a report could not be sent: {error}"),
        }
    }

    /// Sends what the socket takes. A psid that is gone is noticed by `receive`.
    pub fn flush(&mut self) {
        while self.sent < self.outgoing.len() && !self.closed {
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
        }
        if self.sent == self.outgoing.len() || self.closed {
            self.outgoing.clear();
            self.sent = 0;
        } else if self.sent > 1 << 20 {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub fn has_unsent(&self) -> bool {
        self.sent < self.outgoing.len()
    }
}

/// Tells psid why a keeper fails that has no loop any more, or none yet.
pub fn last_words(mut line: UnixStream, text: String) {
    if let Ok(bytes) = frame::encode(&Report::Failed { text }) {
        let _ = line.write_all(&bytes);
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
