//! Ranks that attach to their keeper's socket, and what they say there that others have to know. Part of the keeper's loop.

use super::broker::Event;
use super::message::Report;
use super::{ACCEPTS_MAX, CONNECTION, Keeper};
use crate::error::is_out_of_descriptors;
use pulc_base::log;
use pulc_control::StopKind;
use rustix::event::epoll::EventFlags;
use std::io;

impl Keeper {
    pub(super) fn accept(&mut self) {
        let mut events = Vec::new();
        for _ in 0..ACCEPTS_MAX {
            let Some(broker) = &mut self.broker else { break };
            match broker.accept(&mut events) {
                Ok(index) => {
                    if let Some(fd) = self.broker.as_ref().and_then(|broker| broker.conn_fd(index))
                        && let Err(error) = self.poll(fd, CONNECTION | index as u64, EventFlags::IN)
                    {
                        log!(Error, "keeper", "an attaching rank cannot be polled: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_out_of_descriptors(&error) && broker.free_a_descriptor(&mut events) => {}
                Err(error) => {
                    log!(Error, "keeper", "a rank cannot attach: {error}");
                    self.stop(StopKind::Gently);
                    break;
                }
            }
        }
        self.broker_events(events);
    }

    /// Closed connections need nothing: closing removed them from the poll set.
    pub(super) fn broker_events(&mut self, events: Vec<Event>) {
        for event in events {
            if let Event::Abort { rank, code, text } = event {
                self.control.report(&Report::Abort { rank, code, text });
            }
        }
    }
}
