//! What a job gives back: when its processes on this node have ended, and before the node says that nothing of it is left. Part of the job
//! room; the work is done by [`crate::stage`].

use super::local::LocalJob;
use super::message::JobBody;
use super::{Event, Room};
use crate::keeper::message::Order;
use crate::queue::order::{ENV_ARRAY, ENV_INDEX};
use pulc_base::JobId;
use pulc_control::owner::Owner;
use pulc_control::queue::FileNames;
use pulc_control::stage::{Output, Stage};
use std::time::Duration;

/// Between two words to the job's origin.
const WORD: Duration = Duration::from_secs(5);

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returning {
    Going,
    /// Everything else of the job has gone already.
    LastOfAll,
    /// With what is to be said of it.
    Over(Option<String>),
}

impl LocalJob {
    /// Whether the job leaves something on this node that is wanted at its home.
    pub(super) fn returns(&self) -> bool {
        Stage::of(&self.order.launch)
            .ok()
            .flatten()
            .is_some_and(|stage| stage.outputs.iter().any(|output| output.is_of(self.index)))
    }

    pub(super) fn is_returning(&self) -> bool {
        matches!(self.returning, Some(Returning::Going | Returning::LastOfAll))
    }

    /// Whether nothing may be removed yet; it is then asked for again.
    pub(super) fn still_returns(&mut self) -> bool {
        if self.is_returning() {
            self.returning = Some(Returning::LastOfAll);
        }
        self.is_returning()
    }

    /// What this node gives back, with the places where it belongs.
    fn outputs(&self, job: JobId, stage: Stage) -> Vec<Output> {
        let variable = |name: &str| {
            let found = self.order.launch.env.iter().rfind(|(known, _)| known == name.as_bytes());
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        let number = self.order.queued.as_ref().map_or_else(|| job.to_string(), |queued| queued.number.to_string());
        let array = variable(ENV_ARRAY).unwrap_or_else(|| number.clone());
        let (index, user) = (variable(ENV_INDEX).unwrap_or_default(), self.order.user.to_string());
        let names = FileNames { job: &number, array: &array, index: &index, name: "", node: self.name(), user: &user };
        let own = stage.outputs.iter().filter(|output| output.is_of(self.index));
        own.map(|output| output.filled(&names)).collect()
    }
}

impl Room {
    /// The keeper says that no process of the job is left and that all output was sent.
    pub(super) fn processes_gone(&mut self, job: JobId) {
        let Some(part) = self.local.get_mut(&job) else { return };
        part.clean = true;
        if !self.begin_returning(job) {
            self.part_over(job);
        }
    }

    /// Nothing of the job is wanted here any more.
    fn part_over(&mut self, job: JobId) {
        let closed_by = self.patience.closed_by();
        let Some(part) = self.local.get_mut(&job) else { return };
        let (origin, queued) = (part.origin(), part.order.queued.is_some());
        // A guardian that stands still keeps the line open.
        part.closed_by = (part.orphan || !queued).then_some(closed_by);
        // The keeper of a queued job stays until the job's end is on record; others tell by their end.
        if part.orphan || (!queued && part.returns()) {
            part.tell_keeper(Order::Dismiss);
        }
        if queued {
            self.send(origin, job, JobBody::Clean);
        }
    }

    /// Begins with it. Returns whether there is something to be waited for.
    fn begin_returning(&mut self, job: JobId) -> bool {
        let Some(staging) = self.config.stage.clone() else { return false };
        // A job that never began has written nothing.
        let Some(part) = self.local.get_mut(&job).filter(|part| part.gone && part.returning.is_none()) else {
            return false;
        };
        let (Ok(Some(stage)), Some(room)) = (Stage::of(&part.order.launch), part.placed.room.clone()) else {
            return false;
        };
        let home = stage.home;
        let outputs = part.outputs(job, stage);
        let Some(home) = home.filter(|_| !outputs.is_empty()) else { return false };
        part.returning = Some(Returning::Going);
        let (events, patient) = (self.events.clone(), part.order.queued.is_some());
        let owner = Owner::of(&part.order.launch);
        tokio::spawn(async move {
            let work = staging.give_back(job, room, outputs, owner, (home, patient));
            tokio::pin!(work);
            let outcome = loop {
                match tokio::time::timeout(WORD, &mut work).await {
                    Ok(outcome) => break outcome,
                    Err(_) => _ = events.try_send(Event::Returning(job)),
                }
            };
            let _ = events.send(Event::Returned(job, outcome)).await;
        });
        true
    }

    pub(super) fn returning_goes_on(&mut self, job: JobId) {
        if let Some(part) = self.local.get(&job) {
            let origin = part.origin();
            self.send(origin, job, JobBody::Returning);
        }
    }

    pub(super) fn returned(&mut self, job: JobId, outcome: Result<(), String>) {
        let Some(part) = self.local.get_mut(&job) else { return };
        let text = outcome.err().map(|why| format!("node {}: {why}", part.name()));
        let (origin, before) = (part.origin(), part.returning.replace(Returning::Over(text.clone())));
        if let Some(text) = text {
            self.send(origin, job, JobBody::NotReturned { text });
        }
        self.part_over(job);
        if before == Some(Returning::LastOfAll) {
            self.cleared(job);
        }
    }

    /// What the origin of a job whose processes have ended has to be told about that; nothing while it goes on.
    pub(super) fn return_or_not(&mut self, job: JobId) -> Option<Vec<JobBody>> {
        if self.begin_returning(job) {
            return None;
        }
        match &self.local.get(&job)?.returning {
            None | Some(Returning::Over(None)) => Some(vec![JobBody::Clean]),
            Some(Returning::Over(Some(text))) => {
                Some(vec![JobBody::NotReturned { text: text.clone() }, JobBody::Clean])
            }
            Some(Returning::Going | Returning::LastOfAll) => None,
        }
    }
}
