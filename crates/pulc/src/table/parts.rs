//! Parts of messages at ports: where each goes. The other half of `table`, with the same callers and the same rules.

use super::{Kept, PortTable};
use crate::transfers::Goal;
use crate::waiting::Receive;
use pulc_handler::{Body, Hand};

impl PortTable {
    pub(super) fn take_part(&mut self, number: u64, body: Body<'_>, hand: &mut Hand<'_>) {
        match self.transfers.goal(number) {
            Some(Goal::Receive(ticket)) => {
                if let Some(Receive::Coming { place, .. }) = self.receives.of(ticket) {
                    place.take(body, hand.buffer_of(ticket.0));
                }
            }
            Some(Goal::Kept { port, entry }) => {
                if let Some(Kept::Coming { bytes, .. }) = self.port(port).and_then(|port| port.queue.kept_mut(entry)) {
                    body.append_to(bytes);
                }
            }
            Some(Goal::Nowhere) | None => {}
        }
    }

    /// Where the rest of a message goes whose receiver polls.
    pub(super) fn place_of_part<'a>(&mut self, number: u64, hand: &'a mut Hand<'_>) -> Option<&'a mut [u8]> {
        let Goal::Receive(ticket) = self.transfers.goal(number)? else { return None };
        let Receive::Coming { place, total, .. } = self.receives.of(ticket)? else { return None };
        place.rest(*total, hand.buffer_of(ticket.0)?)
    }

    /// So many bytes are there.
    pub(super) fn part_landed(&mut self, number: u64, bytes: usize) {
        if let Some(Goal::Receive(ticket)) = self.transfers.goal(number)
            && let Some(Receive::Coming { place, .. }) = self.receives.of(ticket)
        {
            place.landed(bytes);
        }
    }
}
