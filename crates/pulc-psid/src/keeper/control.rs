//! The keeper's end of its line to psid: non-blocking, framed. Never blocks the keeper: what does not fit into the socket
//! waits here, bounded because output only flows against credit.

use super::message::{Order, Report};
use pulc_control::frame::{self, Deframer, FrameError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

pub struct Control {
    stream: UnixStream,
    incoming: Deframer,
    outgoing: Vec<u8>,
    sent: usize,
    closed: bool,
}

impl Control {
    pub fn new(stream: UnixStream) -> io::Result<Control> {
        stream.set_nonblocking(true)?;
        Ok(Control { stream, incoming: Deframer::default(), outgoing: Vec::new(), sent: 0, closed: false })
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
