//! Messages in the course of arriving in parts, and where their parts go. Used by `table` only.

use crate::waiting::Ticket;
use pulc_handler::TransferId;
use pulc_handler::matching::Entry;

#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// To a receive that waits for it.
    Receive(Ticket),
    /// To a kept message of a port.
    Kept { port: u32, entry: Entry },
    /// Thrown away: its port is closed, or there was no room for a datagram.
    Nowhere,
}

#[derive(Default)]
pub(crate) struct Transfers {
    places: Vec<Option<(Goal, TransferId)>>,
}

impl Transfers {
    pub fn add(&mut self, id: TransferId, goal: Goal) -> u64 {
        match self.places.iter().position(Option::is_none) {
            Some(place) => {
                self.places[place] = Some((goal, id));
                place as u64
            }
            None => {
                self.places.push(Some((goal, id)));
                self.places.len() as u64 - 1
            }
        }
    }

    pub fn goal(&self, number: u64) -> Option<Goal> {
        self.places.get(number as usize)?.map(|(goal, _)| goal)
    }

    pub fn redirect(&mut self, number: u64, goal: Goal) {
        if let Some(Some((old, _))) = self.places.get_mut(number as usize) {
            *old = goal;
        }
    }

    pub fn remove(&mut self, number: u64) -> Option<(Goal, TransferId)> {
        self.places.get_mut(number as usize)?.take()
    }
}
