//! Finding a port by its name: asked once, remembered, and looked up again when it has moved. Used by `port` for single sends and
//! by `members` for many; always with the engine locked, never blocks.

use crate::table::{PortTable, Whereabouts};
use crate::{Address, Error, error};
use pulc_base::{Proto, Rank};
use pulc_handler::{Engine, Process, SendFault};
use std::sync::atomic::Ordering;

/// One search on its way.
#[derive(Default)]
pub(crate) struct Finding {
    question: Option<u64>,
    /// Who has the port now, as its old owner says.
    elsewhere: Option<Rank>,
}

/// Why there is no place.
pub(crate) enum NotFound {
    Said(Error),
    /// No channel can be made to its rank; to be told with the engine unlocked.
    NoWay(SendFault),
}

impl NotFound {
    pub fn into_error(self, process: &Process) -> Error {
        match self {
            NotFound::Said(error) => error,
            NotFound::NoWay(fault) => error::of_send(process, fault),
        }
    }
}

impl Finding {
    /// Whether anybody had to be asked.
    pub fn has_asked(&self) -> bool {
        self.question.is_some()
    }

    /// Where the port is. `None`: not known yet, or its messages may not go there yet.
    pub fn step(&mut self, engine: &mut Engine, to: &Address) -> Option<Result<Whereabouts, NotFound>> {
        let dst = to.rank();
        let table = engine.handler::<PortTable>(Proto::PORT).expect("registered by attach");
        let key = (dst, to.shared_name().clone());
        if let Some(place) = table.known.get(&key).copied() {
            if place.via.is_some() {
                return None;
            }
            return Some(Ok(self.found(table, to, place)));
        }
        let mut owner = self.elsewhere.unwrap_or(dst);
        if let Some(moved_to) = self.question.and_then(|question| table.elsewhere(question)) {
            self.forget(table);
            (self.elsewhere, owner) = (Some(moved_to), moved_to);
        }
        if let Some(end) = engine.end_of(owner) {
            return Some(Err(NotFound::Said(Error::PeerGone { rank: owner, how: end.to_string() })));
        }
        if self.question.is_none() {
            if let Err(fault) = engine.connect(owner) {
                return Some(Err(NotFound::NoWay(fault)));
            }
            let (table, outbox) = engine.handler_and_outbox::<PortTable>(Proto::PORT).expect("registered by attach");
            self.question = Some(table.ask(owner, key, outbox));
        }
        None
    }

    /// An address remembers the port itself unless that has moved to another process.
    fn found(&mut self, table: &mut PortTable, to: &Address, place: Whereabouts) -> Whereabouts {
        self.forget(table);
        if place.rank == to.rank() {
            to.remember(place.number, table.epoch.load(Ordering::Relaxed));
        }
        place
    }

    /// Nobody waits for the answer any more.
    pub fn forget(&mut self, table: &mut PortTable) {
        if let Some(question) = self.question.take() {
            table.forget_question(question);
        }
    }
}
