//! Which process has which slot of the board, and whether any of them still lives: as long as one does, its broker must be there, because
//! a slot is worth nothing on another broker's board. Called by the broker.

use pulc_sockets::board;
use pulc_sockets::message::{Join, NO_BOARD, NO_SLOT, Reason};
use rustix::process::{Pid, test_kill_process};

pub struct Slots {
    /// What this broker calls its board.
    pub board: u32,
    given: u32,
    owners: Vec<u32>,
}

impl Slots {
    pub fn new(board: u32) -> Slots {
        Slots { board, given: 0, owners: Vec::new() }
    }

    /// The slot of the process that asks, a new one if it has none.
    pub fn of(&mut self, join: &Join, pid: u32) -> Result<u32, Reason> {
        let slot = match (join.slot, join.board) {
            (NO_SLOT, _) => {
                // When all were given out the oldest is given again, which costs bells.
                let slot = self.given % board::SLOTS;
                self.given = self.given.wrapping_add(1);
                slot
            }
            // Who does not say which board is believed: it has one.
            (slot, board) if board == self.board || board == NO_BOARD => slot,
            _ => return Err(Reason::OtherBroker),
        };
        if !self.owners.contains(&pid) {
            self.owners.push(pid);
        }
        Ok(slot)
    }

    /// Whether a process that has a slot lives. A process that another one has taken the number of counts too: then the broker stays
    /// a little longer.
    pub fn are_needed(&mut self) -> bool {
        self.owners.retain(|pid| {
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
        });
        !self.owners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_sockets::Side;
    use pulc_sockets::message::Place;

    fn join(slot: u32, board: u32) -> Join {
        let local = Place { address: [1; 16], port: 1 };
        Join {
            side: Side::Active,
            is_datagram: false,
            cookie: 5,
            local,
            remote: Place { port: 2, ..local },
            slot,
            board,
        }
    }

    #[test]
    fn a_slot_of_another_brokers_board_is_not_taken_for_one_of_ours() {
        let mut slots = Slots::new(7);
        let first = slots.of(&join(NO_SLOT, NO_BOARD), 1).unwrap();
        let second = slots.of(&join(NO_SLOT, NO_BOARD), 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(slots.of(&join(second, 7), 2), Ok(second));
        assert_eq!(slots.of(&join(second, 8), 2), Err(Reason::OtherBroker));
    }

    #[test]
    fn slots_are_needed_while_a_process_that_has_one_lives() {
        let mut slots = Slots::new(7);
        assert!(!slots.are_needed());
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        slots.of(&join(NO_SLOT, NO_BOARD), child.id()).unwrap();
        assert!(slots.are_needed());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!slots.are_needed());
    }
}
