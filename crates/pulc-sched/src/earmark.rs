//! The promise to the first job that has to wait (EASY backfill): which slots it will get and when at the latest. Later jobs may start
//! only if they have ended by then or leave those slots alone. Made anew in every pass as long as all jobs before it have time
//! limits; otherwise kept, since nobody knows when its slots come free.
//! Source: Lifka, The ANL/IBM SP scheduling system, 1995; Mu'alem and Feitelson, 2001.

use crate::controller::Controller;
use crate::fit::{Room, place};
use crate::plan::occupy;
use crate::state::Job;
use pulc_base::{JobId, NodeId};
use pulc_control::queue::{Exclusive, JobNumber, JobState, Millis, Placed};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Earmark {
    pub job: JobNumber,
    pub placed: Vec<Placed>,
    /// When it can start at the latest; none if that depends on jobs without a limit.
    pub shadow: Option<Millis>,
    /// Attempts that held slots when the promise was made.
    blocking: BTreeSet<JobId>,
    /// Slots that others may hold beyond the shadow, on the earmarked nodes.
    spare: BTreeMap<NodeId, u32>,
}

impl Earmark {
    /// Whether a job may be put there without delaying the one that waits.
    pub fn allows(&self, placed: &[Placed], end: Option<Millis>, exclusive: Exclusive) -> bool {
        self.ends_before(end)
            || placed.iter().all(|part| {
                self.spare.get(&part.node).is_none_or(|spare| *spare >= part.slots && exclusive == Exclusive::No)
            })
    }

    pub fn take(&mut self, placed: &[Placed], end: Option<Millis>) {
        if self.ends_before(end) {
            return;
        }
        for part in placed {
            if let Some(spare) = self.spare.get_mut(&part.node) {
                *spare = spare.saturating_sub(part.slots);
            }
        }
    }

    fn ends_before(&self, end: Option<Millis>) -> bool {
        self.shadow.zip(end).is_some_and(|(shadow, end)| end <= shadow)
    }
}

impl Controller {
    /// The promise to a job that has to wait; none if it could not run even if everything else had ended, so that it holds nobody up.
    pub(crate) fn earmark(&self, number: JobNumber, now: &[Room], kept: Option<&Earmark>) -> Option<Earmark> {
        let job = self.state.job(number)?;
        let ends: BTreeSet<Millis> = self.holders().filter_map(|job| job.ends_by(self.now)).collect();
        let ends: Vec<Millis> = ends.into_iter().collect();
        let by = |at: Millis| self.rooms_without(now, |job| job.ends_by(self.now).is_some_and(|end| end <= at));
        let fits = |rooms: &[Room]| self.place_again(job, rooms);
        let latest = ends.last().copied();
        if latest.is_some_and(|at| fits(&by(at)).is_some()) {
            // The first moment at which it fits.
            let at = ends[ends.partition_point(|at| fits(&by(*at)).is_none()).min(ends.len() - 1)];
            let rooms = by(at);
            let placed = fits(&rooms)?;
            return Some(self.promise(job, placed, Some(at), &rooms, BTreeSet::new()));
        }
        let usable = |placed: &[Placed]| placed.iter().all(|part| now.iter().any(|room| room.node == part.node));
        let kept = kept.filter(|kept| kept.job == number && kept.shadow.is_none() && usable(&kept.placed));
        let blocking = match kept {
            Some(kept) => kept.blocking.clone(),
            None => self.holders().filter_map(|job| job.instance).collect(),
        };
        let rooms = self.rooms_without(now, |job| job.instance.is_some_and(|instance| blocking.contains(&instance)));
        let placed = match kept {
            Some(kept) => kept.placed.clone(),
            None => fits(&rooms)?,
        };
        Some(self.promise(job, placed, None, &rooms, blocking))
    }

    fn promise(
        &self,
        job: &Job,
        placed: Vec<Placed>,
        shadow: Option<Millis>,
        then: &[Room],
        blocking: BTreeSet<JobId>,
    ) -> Earmark {
        let alone = self.state.spec(job).exclusive != Exclusive::No;
        let spare = |part: &Placed| {
            let free = then.iter().find(|room| room.node == part.node).map_or(0, |room| room.free);
            (part.node, if alone { 0 } else { free.saturating_sub(part.slots) })
        };
        let spare = placed.iter().map(spare).collect();
        Earmark { job: job.number, placed, shadow, blocking, spare }
    }

    fn place_again(&self, job: &Job, rooms: &[Room]) -> Option<Vec<Placed>> {
        if job.state == JobState::Suspended {
            let free = |part: &Placed| {
                rooms.iter().any(|room| room.node == part.node && room.free >= part.slots.min(room.slots))
            };
            return job.placed.iter().all(free).then(|| job.placed.clone());
        }
        place(self.state.spec(job), job.user, &self.rooms_for(job, rooms))
    }

    fn holders(&self) -> impl Iterator<Item = &Job> {
        self.state.placed_jobs().filter(|job| job.holds_slots())
    }

    /// The rooms as they are when these jobs have ended.
    pub(crate) fn rooms_without(&self, now: &[Room], gone: impl Fn(&Job) -> bool) -> Vec<Room> {
        let mut rooms = now.to_vec();
        for room in &mut rooms {
            room.free = room.slots;
            room.held_by.clear();
            room.closed = None;
        }
        for job in self.holders().filter(|job| !gone(job)) {
            occupy(&mut rooms, &job.placed, job.user, self.state.spec(job).exclusive);
        }
        rooms
    }
}
