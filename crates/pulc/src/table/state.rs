//! What one port has: receives that wait, messages that are kept, and where it stands. Plain data of the table.

use super::moves::Stage;
use crate::select::Readiness;
use crate::waiting::Ticket;
use pulc_base::Rank;
use pulc_handler::matching::Matching;
use pulc_handler::{End, TransferId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes kept without an allocation.
pub(super) const SMALL_BYTES: usize = 40;

/// A receive that waits in a port's queue.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    pub ticket: Ticket,
    pub capacity: usize,
}

/// A question for the number of a port.
pub(super) struct Question {
    /// Who alone may answer.
    pub asked: Rank,
    /// What it will be known by.
    pub address: (Rank, Arc<str>),
    /// The port has moved there.
    pub elsewhere: Option<Rank>,
}

/// Whose credit a kept message counts against, and how much.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub payer: Rank,
    pub bytes: u64,
}

/// A message that nobody waited for.
pub(crate) enum Kept {
    Small {
        bytes: [u8; SMALL_BYTES],
        len: u8,
        cost: Cost,
    },
    Whole {
        bytes: Vec<u8>,
        cost: Cost,
    },
    /// Comes in parts; complete when `done`. `asked` bytes count against the budget for messages that were asked for.
    Coming {
        bytes: Vec<u8>,
        total: usize,
        cost: Cost,
        asked: usize,
        transfer: u64,
        done: bool,
    },
    /// Its sender waits for a grant.
    Asked {
        total: usize,
        transfer: u64,
        id: TransferId,
    },
    /// Nothing more of this sender comes here: only for ports that have moved away, from which nobody receives.
    Last,
}

impl Kept {
    pub fn len(&self) -> usize {
        match self {
            Kept::Small { len, .. } => usize::from(*len),
            Kept::Whole { bytes, .. } => bytes.len(),
            Kept::Coming { total, .. } | Kept::Asked { total, .. } => *total,
            Kept::Last => 0,
        }
    }
}

/// One open port.
pub(crate) struct PortState {
    pub number: u32,
    pub name: Arc<str>,
    pub queue: Matching<Posted, Kept>,
    /// Bytes of kept datagrams.
    pub backlog: u64,
    pub dropped: u64,
    /// Who has been told its number.
    pub known_by: BTreeSet<Rank>,
    /// Whether it stays, and where it went.
    pub(super) stage: Stage,
    /// Its old owner.
    pub(super) before: Option<Rank>,
    /// That one still has messages for it.
    pub from: Option<Rank>,
    /// Senders of which it has none any more.
    pub(super) came: BTreeSet<Rank>,
    /// The old owner ended before it had handed everything over: to be told once.
    pub broken: Option<(Rank, End)>,
}

impl PortState {
    pub(super) fn new(number: u32, name: Arc<str>) -> PortState {
        PortState {
            number,
            name,
            queue: Matching::default(),
            backlog: 0,
            dropped: 0,
            known_by: BTreeSet::new(),
            stage: Stage::default(),
            before: None,
            from: None,
            came: BTreeSet::new(),
            broken: None,
        }
    }
}

impl super::PortTable {
    /// Takes a posted receive out of its port's queue.
    pub fn unpost(&mut self, ticket: Ticket) {
        for port in self.ports.iter_mut().flatten() {
            for entry in port.queue.posted_entries() {
                if port.queue.posted_mut(entry).is_some_and(|posted| posted.ticket == ticket) {
                    port.queue.unpost(entry);
                    return;
                }
            }
        }
    }

    /// What a receive from this port would find.
    pub fn readiness(&mut self, number: u32) -> Readiness {
        let nobody_left = self.others_alive == 0 && self.last_end.is_some();
        let Some(port) = self.port(number) else { return Readiness::default() };
        let read = port.queue.kept_len() > 0;
        Readiness { read, write: false, ended: !read && (nobody_left || port.broken.is_some()) }
    }
}
