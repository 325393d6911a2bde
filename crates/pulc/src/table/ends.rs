//! What the end of a rank means for ports that move. Part of the receive handler.

use super::PortTable;
use super::moves::{Answer, Stage};
use pulc_base::Rank;
use pulc_handler::{End, Outbox};

impl PortTable {
    /// A rank has ended: what that means for moves.
    pub(super) fn end_moves(&mut self, rank: Rank, end: End, outbox: &mut Outbox) {
        self.known.retain(|_, place| place.rank != rank && place.via != Some(rank));
        let numbers: Vec<u32> = self.ports.iter().flatten().map(|port| port.number).collect();
        for number in numbers {
            let Some(port) = self.port(number) else { continue };
            let is_from_there = port.from == Some(rank);
            if is_from_there {
                port.from = None;
                port.came.clear();
                port.broken = Some((rank, end));
            }
            match &mut port.stage {
                Stage::Offered { to, answer } if *to == rank => *answer = Some(Answer::Gone(end)),
                Stage::Moved(moved) if moved.to == rank => self.close_and_release(number, outbox),
                Stage::Moved(moved) => {
                    moved.open.remove(&rank);
                    self.pass_on(number, outbox);
                }
                _ => {}
            }
            if is_from_there {
                self.look_again(number);
            }
        }
        let lost: Vec<u32> =
            self.offers.iter().filter(|offer| offer.from == rank && !offer.is_ours).filter_map(|o| o.taken).collect();
        lost.into_iter().for_each(|number| self.close_and_release(number, outbox));
        self.offers.retain(|offer| offer.from != rank || offer.is_ours);
    }

    pub(super) fn close_and_release(&mut self, number: u32, outbox: &mut Outbox) {
        for (src, cost) in self.close(number, outbox) {
            outbox.release(src, cost);
        }
    }
}
