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
    /// Empty places: looking for one must not take longer the more a peer has begun.
    free: Vec<u32>,
}

impl Transfers {
    pub fn add(&mut self, id: TransferId, goal: Goal) -> u64 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some((goal, id));
                place.into()
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
        let removed = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number as u32);
        Some(removed)
    }
}
