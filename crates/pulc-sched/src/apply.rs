//! What each record of the log changes. Total: a record that fits no job changes nothing, so that any log can be read to its
//! end. Called when a record is made and when the log is read; must stay the same function of the records for ever.

use crate::state::{Change, HISTORY_MAX, Job, NodeSettings, Part, Record, State};
use pulc_control::queue::{JobNumber, JobSpec, JobState, Millis, NodePatch, Used};
use std::sync::Arc;

impl State {
    pub fn apply(&mut self, record: &Record) {
        let at = record.at.max(self.time);
        self.time = at;
        match &record.change {
            Change::Submitted { user, spec } => self.submitted(at, *user, spec),
            Change::Placed { job, instance, nodes } => self.change(*job, |job| {
                job.state = JobState::Starting;
                job.instance = Some(*instance);
                job.placed.clone_from(nodes);
                job.placed_at = at;
                (job.text, job.code, job.verdict) = (None, None, None);
            }),
            Change::Running { job } => self.change(*job, |job| {
                job.state = JobState::Running;
                job.started = Some(at);
                (job.still_ms, job.still_since) = (0, None);
            }),
            Change::Ending { job, verdict } => self.change(*job, |job| {
                job.state = JobState::Ending;
                job.verdict = Some(verdict.clone());
            }),
            Change::Suspending { job, by_user } => self.change(*job, |job| {
                job.state = JobState::Suspending;
                job.stopped_by_user = *by_user;
            }),
            Change::Suspended { job } => self.change(*job, |job| {
                job.state = JobState::Suspended;
                job.still_since = Some(at);
            }),
            Change::MayResume { job } => self.change(*job, |job| job.stopped_by_user = false),
            Change::Resumed { job } => self.change(*job, |job| {
                go_on(job, at);
                job.state = JobState::Running;
                job.stopped_by_user = false;
            }),
            Change::Requeued { job, text, used, counts } => {
                self.stuck.retain(|(stuck, _), _| stuck != job);
                self.count_usage(at, *job);
                self.change(*job, |job| {
                    job.state = JobState::Pending;
                    job.attempt = job.attempt.saturating_add(u32::from(*counts));
                    job.text = Some(text.clone());
                    add(&mut job.used, used);
                    job.placed.clear();
                    (job.instance, job.started, job.verdict) = (None, None, None);
                    (job.still_since, job.still_ms, job.stopped_by_user) = (None, 0, false);
                });
            }
            Change::Ended { job, outcome, code, text, used } => {
                self.stuck.retain(|(stuck, _), _| stuck != job);
                self.count_usage(at, *job);
                self.change(*job, |job| {
                    go_on(job, at);
                    job.state = JobState::Ended(*outcome);
                    job.ended = Some(at);
                    (job.code, job.text, job.verdict) = (*code, text.clone(), None);
                    add(&mut job.used, used);
                });
                self.tied.remove(job);
                self.forget_old();
            }
            Change::Held { job, held } => self.change(*job, |job| job.held = *held),
            Change::Class { job, class } => self.change(*job, |job| job.class = *class),
            Change::Limit { job, limit_ms } => self.change(*job, |job| job.limit_ms = *limit_ms),
            Change::Node { node, name, patch } => {
                let settings = self.nodes.entry(*node).or_default();
                settings.name.clone_from(name);
                change_node(settings, patch);
            }
            Change::Reserved(reservation) => {
                self.reservations.insert(reservation.name.clone(), reservation.clone());
            }
            Change::Unreserved { name } => {
                self.reservations.remove(name);
            }
            Change::Snapshot(part) => self.restore(part),
            Change::Configured(before) => self.config = before.into(),
            Change::SetNetworks(before) => self.config = before.into(),
            Change::Set(config) => self.config.clone_from(config),
            Change::Stuck { job, node, text: Some(text) } => {
                if self.jobs.get(job).is_some_and(|job| !job.state.has_ended()) {
                    self.stuck.insert((*job, *node), text.clone());
                }
                self.change(*job, |job| job.text = Some(text.clone()));
            }
            Change::Stuck { job, node, text: None } => _ = self.stuck.remove(&(*job, *node)),
            Change::Noted { job, text } => self.change(*job, |job| job.text = Some(text.clone())),
            Change::Checked { node, failure } => {
                match failure {
                    Some(why) => self.unfit.insert(*node, why.clone()),
                    None => self.unfit.remove(node),
                };
            }
            Change::Tied { job } => {
                if self.jobs.get(job).is_some_and(|job| !job.state.has_ended()) {
                    self.tied.insert(*job);
                }
            }
        }
    }

    fn submitted(&mut self, at: Millis, user: u32, spec: &JobSpec) {
        let first = self.next.max(1);
        let indices: Vec<Option<u32>> = match &spec.array {
            Some(array) => array.indices.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        // No cluster comes near it: a number of a log that was made up.
        let Some(next) = first.checked_add(indices.len() as u64).filter(|next| *next < u64::MAX) else { return };
        self.next = next;
        self.specs.insert(first, Arc::new(spec.clone()));
        for (number, index) in (first..).zip(indices) {
            let number = JobNumber(number);
            let job = Job {
                number,
                spec: first,
                task: index.map(|index| (JobNumber(first), index)),
                user,
                submitted: at,
                state: JobState::Pending,
                held: spec.hold,
                class: spec.class,
                limit_ms: spec.limit_ms,
                attempt: 0,
                instance: None,
                placed: Vec::new(),
                placed_at: 0,
                started: None,
                ended: None,
                still_since: None,
                still_ms: 0,
                stopped_by_user: false,
                verdict: None,
                code: None,
                text: None,
                used: Used::default(),
            };
            self.waiting.insert(number);
            self.jobs.insert(number, job);
        }
    }

    /// Changes a job that has not ended, and what is known of it elsewhere.
    fn change(&mut self, number: JobNumber, change: impl FnOnce(&mut Job)) {
        let Some(job) = self.jobs.get_mut(&number).filter(|job| !job.state.has_ended()) else { return };
        if let Some(instance) = job.instance {
            self.instances.remove(&instance);
        }
        change(job);
        self.index(number);
    }

    fn index(&mut self, number: JobNumber) {
        let Some(job) = self.jobs.get(&number) else { return };
        let (waits, placed, ended) =
            (matches!(job.state, JobState::Pending | JobState::Suspended), job.is_placed(), job.state.has_ended());
        let instance = job.instance.filter(|_| placed);
        for (set, is) in [(&mut self.waiting, waits), (&mut self.placed, placed)] {
            if is {
                set.insert(number);
            } else {
                set.remove(&number);
            }
        }
        if let Some(instance) = instance {
            self.instances.insert(instance, number);
        }
        if ended {
            self.history.push_back(number);
        }
    }

    fn count_usage(&mut self, at: Millis, number: JobNumber) {
        let Some(job) = self.jobs.get(&number).filter(|job| !job.state.has_ended()) else { return };
        let slot_ms = job.ran_ms(at).saturating_mul(job.slots().into());
        if slot_ms > 0 {
            self.usage.entry(job.user).or_default().add(at, slot_ms);
        }
    }

    /// The oldest ended jobs go when there are too many.
    fn forget_old(&mut self) {
        while self.history.len() > HISTORY_MAX {
            let Some(job) = self.history.pop_front().and_then(|number| self.jobs.remove(&number)) else { continue };
            // Jobs of one submission have consecutive numbers from its first one on.
            let others = self.jobs.range(JobNumber(job.spec)..).take_while(|(_, other)| other.spec == job.spec);
            if others.count() == 0 {
                self.specs.remove(&job.spec);
            }
        }
    }

    fn restore(&mut self, part: &Part) {
        match part {
            Part::Head { next, usage } => {
                self.next = *next;
                self.usage = usage.iter().copied().collect();
            }
            Part::Spec { key, spec } => {
                self.specs.insert(*key, Arc::new(JobSpec::clone(spec)));
            }
            Part::Job(job) if self.specs.contains_key(&job.spec) => {
                self.jobs.insert(job.number, Job::clone(job));
                self.index(job.number);
            }
            Part::Job(_) => {}
            Part::Node { node, settings } => {
                self.nodes.insert(*node, settings.clone());
            }
            Part::Reservation(reservation) => {
                self.reservations.insert(reservation.name.clone(), reservation.clone());
            }
        }
    }
}

/// Ends a time of standing still, if there is one.
fn go_on(job: &mut Job, at: Millis) {
    if let Some(since) = job.still_since.take() {
        job.still_ms = job.still_ms.saturating_add(at.saturating_sub(since));
    }
}

fn add(sum: &mut Used, more: &Used) {
    sum.cpu_ms = sum.cpu_ms.saturating_add(more.cpu_ms);
    sum.memory_peak_kib = sum.memory_peak_kib.max(more.memory_peak_kib);
}

fn change_node(settings: &mut NodeSettings, patch: &NodePatch) {
    if let Some(slots) = patch.slots {
        settings.slots = slots;
    }
    if let Some(features) = &patch.features {
        settings.features.clone_from(features);
    }
    if let Some(users) = &patch.users {
        settings.users.clone_from(users);
    }
    if let Some(drained) = &patch.drained {
        settings.drained.clone_from(drained);
    }
}
