//! Who makes room for a more urgent job: the least urgent and youngest jobs, as few as do. They stand still, or start again later if
//! they asked for that or memory does not hold both. Called by the pass over the queue for the first job that has to wait.

use crate::controller::{Controller, Effect};
use crate::fit::{Room, place};
use crate::plan::outranks;
use crate::state::{Change, Job, Verdict};
use pulc_control::StopKind;
use pulc_control::queue::{JobNumber, JobState, Outcome, Yield};
use std::cmp::Reverse;

#[derive(Clone, Copy, PartialEq)]
enum How {
    Suspend,
    Requeue,
}

impl Controller {
    /// Tells others to give way if that helps this job. Its slots are free when they have done so.
    pub(crate) fn make_room(&mut self, number: JobNumber, rooms: &[Room]) {
        let Some(job) = self.state.job(number).filter(|job| job.state == JobState::Pending) else { return };
        let leaves = |job: &Job| matches!(job.state, JobState::Suspending | JobState::Ending);
        if self.fits_without(job, rooms, |other| leaves(other)) {
            return;
        }
        let mut victims: Vec<(&Job, How)> = self
            .state
            .placed_jobs()
            .filter(|other| other.state == JobState::Running && outranks(job.class, other.class))
            .filter_map(|other| Some((other, self.how(other, job)?)))
            .collect();
        victims.sort_by_key(|(other, _)| (other.class, Reverse((other.placed_at, other.number))));
        let enough = |victims: &[(&Job, How)]| {
            self.fits_without(job, rooms, |other| {
                leaves(other) || victims.iter().any(|(victim, _)| victim.number == other.number)
            })
        };
        let Some(count) = (1..=victims.len()).find(|count| enough(&victims[..*count])) else { return };
        victims.truncate(count);
        // Those that turn out not to be needed stay.
        let mut at = 0;
        while at < victims.len() {
            let spared = victims.remove(at);
            if !enough(&victims) {
                victims.insert(at, spared);
                at += 1;
            }
        }
        let (class, label) = (job.class, crate::controller::label(job));
        let chosen: Vec<(JobNumber, How)> = victims.into_iter().map(|(victim, how)| (victim.number, how)).collect();
        for (victim, how) in chosen {
            let text = format!("job {label} is {} and needs its slots", class.word());
            match how {
                How::Suspend => self.suspend(victim, false, &text),
                How::Requeue => {
                    let verdict = Verdict { outcome: Outcome::Cancelled, text, requeue: true };
                    self.end(victim, StopKind::Gently, 143, verdict);
                }
            }
        }
    }

    /// Makes a running job stand still.
    pub(crate) fn suspend(&mut self, number: JobNumber, by_user: bool, why: &str) {
        let Some(job) = self.state.job(number) else { return };
        let (Some(first), Some(instance)) = (job.placed.first(), job.instance) else { return };
        let (to, label) = (first.node, crate::controller::label(job));
        self.record(Change::Suspending { job: number, by_user });
        self.effect(Effect::Freeze { to, job: instance, still: true });
        self.tell(format!("job {label} has to stand still: {why}"));
    }

    /// How `other` would give way to `job`, if it may.
    fn how(&self, other: &Job, job: &Job) -> Option<How> {
        let spec = self.state.spec(other);
        let memory_holds_both = self.state.spec(job).memory_mib.is_none_or(|needed| {
            other.placed.iter().all(|part| {
                self.seen
                    .get(&part.node)
                    .is_none_or(|seen| seen.now.memory_free_mib >= needed || seen.now.memory_mib == 0)
            })
        });
        match spec.yields {
            Yield::Suspend if memory_holds_both => Some(How::Suspend),
            Yield::Suspend | Yield::Requeue if spec.requeue => Some(How::Requeue),
            _ => None,
        }
    }

    fn fits_without(&self, job: &Job, rooms: &[Room], gone: impl Fn(&Job) -> bool) -> bool {
        let rooms = self.rooms_without(rooms, gone);
        place(self.state.spec(job), job.user, &self.rooms_for(job, &rooms)).is_some()
    }
}
