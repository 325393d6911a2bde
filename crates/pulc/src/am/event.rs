//! Completion: what a sender can wait for. An event belongs to one message, a group counts any number of them. Filled by the
//! table of active messages (with the engine locked), waited for through a [`Bundle`](super::Bundle).

use pulc_hal::tally;
use pulc_handler::{SendFault, Sent};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Completion of one message, local or remote as it was asked for.
#[derive(Clone, Debug)]
pub struct Event(Arc<EventState>);

#[derive(Debug, Default)]
pub(crate) struct EventState {
    state: AtomicU32,
    /// Those of this group that are under way, and how many have failed.
    group: Option<Arc<GroupState>>,
}

#[derive(Debug, Default)]
pub(crate) struct GroupState {
    open: AtomicU32,
    failed: AtomicU32,
}

/// Completion of any number of messages.
#[derive(Clone, Debug, Default)]
pub struct Group(Arc<GroupState>);

impl Event {
    /// A pending one, for requests whose handler is not typed, counted in `group` if there is one.
    pub fn new(group: Option<&Group>) -> Event {
        let group = group.map(|group| Arc::clone(&group.0));
        if let Some(group) = &group {
            tally::begin(&group.open);
        }
        Event(Arc::new(EventState { state: AtomicU32::new(tally::PENDING), group }))
    }

    pub(crate) fn state(&self) -> Arc<EventState> {
        Arc::clone(&self.0)
    }

    /// `None` while it is pending, then whether it went well. A message that failed has also come back to the error handler
    /// of its endpoint.
    pub fn outcome(&self) -> Option<bool> {
        tally::outcome(&self.0.state)
    }
}

impl EventState {
    pub fn finish(&self, went_well: bool) {
        if tally::settle(&self.state, went_well)
            && let Some(group) = &self.group
        {
            tally::end(&group.open, &group.failed, went_well);
        }
    }
}

impl Sent for EventState {
    fn sent(&self, result: Result<(), SendFault>) {
        self.finish(result.is_ok());
    }
}

impl Group {
    pub fn new() -> Group {
        Group::default()
    }

    /// Messages of the group that are not complete.
    pub fn open(&self) -> usize {
        tally::left(&self.0.open) as usize
    }

    /// Messages of the group that failed so far.
    pub fn failed(&self) -> usize {
        self.0.failed.load(Ordering::Relaxed) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_what_is_open_and_what_failed_and_every_event_once() {
        let group = Group::new();
        let events = [Event::new(Some(&group)), Event::new(Some(&group)), Event::new(None)];
        assert_eq!((group.open(), events[0].outcome()), (2, None));
        events[0].state().finish(true);
        events[0].state().finish(false);
        events[1].state().finish(false);
        events[2].state().finish(true);
        assert_eq!((group.open(), group.failed()), (0, 1));
        assert_eq!(events.map(|event| event.outcome()), [Some(true), Some(false), Some(true)]);
    }
}
