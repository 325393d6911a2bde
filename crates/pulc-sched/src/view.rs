//! Jobs and nodes as users see them. Changes nothing.

use crate::controller::Controller;
use crate::state::Job;
use pulc_control::queue::{JobNumber, JobView, QueueNode};

/// Jobs of one answer.
const VIEWS_MAX: usize = 5000;

impl Controller {
    /// All jobs that have not ended, running ones first, then in the order of the queue, then those that may not start yet.
    pub(crate) fn queue(&self) -> Vec<JobView> {
        let order = self.order();
        let waits: std::collections::BTreeSet<&JobNumber> = order.iter().collect();
        let running = self.state.placed_jobs().filter(|job| job.holds_slots()).map(|job| job.number);
        let rest = self.state.waiting_jobs().map(|job| job.number).filter(|number| !waits.contains(number));
        let numbers: Vec<JobNumber> = running.chain(order.iter().copied()).chain(rest).take(VIEWS_MAX).collect();
        // Reasons cost a pass each: only the first ones get theirs in the table.
        let mut reasons = 0;
        let jobs = numbers.into_iter().filter_map(|number| self.state.job(number));
        jobs.map(|job| {
            reasons += 1;
            self.view_in(job, (reasons <= 200).then_some(&order))
        })
        .collect()
    }

    pub(crate) fn history(&self, at_most: u32) -> Vec<JobView> {
        let newest = self.state.history.iter().rev().take((at_most as usize).min(VIEWS_MAX));
        newest.filter_map(|number| self.state.job(*number)).map(|job| self.view(job, false)).collect()
    }

    pub(crate) fn view(&self, job: &Job, with_reason: bool) -> JobView {
        let order = if with_reason { self.order() } else { Vec::new() };
        self.view_in(job, with_reason.then_some(&order))
    }

    fn view_in(&self, job: &Job, order: Option<&Vec<JobNumber>>) -> JobView {
        let spec = self.state.spec(job);
        let (why, may_start) = match order {
            Some(order) if !job.state.has_ended() => self.why(job, order),
            _ => (None, None),
        };
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        JobView {
            number: job.number,
            task: job.task,
            name: spec.name.clone(),
            user: job.user,
            command: spec.launch.argv.iter().map(|arg| lossy(arg)).collect::<Vec<_>>().join(" "),
            state: job.state,
            class: job.class,
            ranks: spec.ranks,
            slots: spec.ranks * spec.threads,
            nodes: job.placed.clone(),
            submitted: job.submitted,
            started: job.started,
            ended: job.ended,
            ran_ms: job.ran_ms(self.now),
            limit_ms: job.limit_ms,
            attempt: job.attempt,
            attempt_id: job.instance,
            exit_code: job.code,
            text: if job.state.has_ended() { job.text.clone() } else { why.or_else(|| job.text.clone()) },
            may_start,
            held: job.held,
            requeue: spec.requeue,
            used: job.used,
            files: self.state.files(job),
            directory: lossy(&spec.launch.cwd),
        }
    }

    pub(crate) fn queue_nodes(&self) -> Vec<QueueNode> {
        let mut nodes: Vec<QueueNode> = self
            .seen
            .values()
            .map(|seen| {
                let settings = self.state.nodes.get(&seen.now.node).cloned().unwrap_or_default();
                let drained = self.state.drained(seen.now.node);
                let here = |job: &&Job| job.placed.iter().any(|part| part.node == seen.now.node);
                let jobs: Vec<&Job> = self.state.placed_jobs().filter(here).collect();
                let part = |job: &&Job| {
                    let own = job.placed.iter().filter(|part| part.node == seen.now.node);
                    own.map(|part| part.slots).sum::<u32>()
                };
                let state = match (&drained, seen.now.health.word()) {
                    (Some(_), "up") if jobs.is_empty() => "drained",
                    (Some(_), "up") => "draining",
                    (_, word) => word,
                };
                QueueNode {
                    node: seen.now.node,
                    name: seen.now.name.clone(),
                    state: state.to_owned(),
                    slots: settings.slots.unwrap_or(seen.now.cores),
                    used: jobs.iter().filter(|job| job.holds_slots()).map(part).sum(),
                    cores: seen.now.cores,
                    memory_mib: seen.now.memory_mib,
                    load_milli: seen.now.load_milli,
                    features: settings.features,
                    users: settings.users,
                    drained,
                    jobs: jobs.iter().map(|job| job.number).collect(),
                }
            })
            .collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        nodes
    }
}
