//! Messages that nobody waits for yet, and where the parts of long ones go. Plain data of the receive handler.

use pulc_handler::TransferId;
use pulc_handler::matching::Entry;

/// Bytes kept without an allocation.
pub(crate) const SMALL_BYTES: usize = 40;

/// A message that no receive waits for.
pub(crate) enum Kept {
    Small {
        bytes: [u8; SMALL_BYTES],
        len: u8,
        cost: u64,
    },
    Whole {
        bytes: Vec<u8>,
        cost: u64,
    },
    /// Comes in parts; complete when `done`.
    Coming {
        bytes: Vec<u8>,
        total: usize,
        cost: u64,
        transfer: u64,
        done: bool,
    },
    /// Its sender waits for a receive.
    Asked {
        total: usize,
        transfer: u64,
        id: TransferId,
    },
    /// A send of this process to itself, known by its request, that still has the bytes.
    Own {
        total: usize,
        send: u32,
    },
}

impl Kept {
    pub fn len(&self) -> usize {
        match self {
            Kept::Small { len, .. } => usize::from(*len),
            Kept::Whole { bytes, .. } => bytes.len(),
            Kept::Coming { total, .. } | Kept::Asked { total, .. } | Kept::Own { total, .. } => *total,
        }
    }

    /// What is to be released when all of it is here.
    pub fn cost_if_whole(&self) -> Option<u64> {
        match self {
            Kept::Small { cost, .. } | Kept::Whole { cost, .. } | Kept::Coming { cost, done: true, .. } => Some(*cost),
            Kept::Coming { .. } | Kept::Asked { .. } | Kept::Own { .. } => None,
        }
    }

    /// A message of this process to itself, copied.
    pub fn of_own(bytes: Vec<u8>) -> Kept {
        Kept::Whole { bytes, cost: 0 }
    }
}

/// Where the parts of a message go.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// To the receive with this request.
    Request(u32),
    /// To a kept message of a context.
    Kept { context: u32, entry: Entry },
    /// To a message that a probe has taken out of its queue.
    Probed(u32),
    /// Thrown away.
    Nowhere,
}

/// Messages in the course of arriving in parts.
#[derive(Default)]
pub(crate) struct Transfers {
    places: Vec<Option<Goal>>,
    free: Vec<u32>,
}

impl Transfers {
    pub fn add(&mut self, goal: Goal) -> u64 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(goal);
                u64::from(place)
            }
            None => {
                self.places.push(Some(goal));
                self.places.len() as u64 - 1
            }
        }
    }

    /// How many there are.
    pub fn under_way(&self) -> usize {
        self.places.iter().flatten().count()
    }

    pub fn goal(&self, number: u64) -> Goal {
        self.places.get(number as usize).copied().flatten().unwrap_or(Goal::Nowhere)
    }

    pub fn redirect(&mut self, number: u64, goal: Goal) {
        if let Some(Some(old)) = self.places.get_mut(number as usize) {
            *old = goal;
        }
    }

    pub fn remove(&mut self, number: u64) -> Goal {
        match self.places.get_mut(number as usize).and_then(Option::take) {
            Some(goal) => {
                self.free.push(number as u32);
                goal
            }
            None => Goal::Nowhere,
        }
    }
}
