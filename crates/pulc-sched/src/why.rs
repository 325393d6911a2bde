//! Why a job does not run, in words, and when it may start. Called for `pulc queue` and `pulc job`; says only what the pass over the
//! queue goes by.

use crate::controller::{Controller, label, names, takes_work};
use crate::fit::place;
use crate::plan::Readiness;
use crate::state::Job;
use pulc_base::NodeId;
use pulc_control::queue::{JobNumber, JobState, Millis, Placed};

impl Controller {
    /// For a job that waits: what for, and the earliest moment known. `order` is that of the queue now.
    pub(crate) fn why(&self, job: &Job, order: &[JobNumber]) -> (Option<String>, Option<Millis>) {
        match job.state {
            JobState::Pending | JobState::Suspended => {}
            JobState::Starting => return (Some("its nodes get ready".to_owned()), None),
            JobState::Ending => return (self.why_it_ends(job), None),
            JobState::Running => return (self.missing_node(job), None),
            JobState::Suspending | JobState::Ended(_) => return (job.text.clone(), None),
        }
        if job.stopped_by_user {
            return (Some(format!("its user made it stand still; `pulc resume {}` lets it go on", label(job))), None);
        }
        if job.held {
            return (Some(format!("it is held back; `pulc release {}` lets it go", label(job))), None);
        }
        let spec = self.state.spec(job);
        if let Readiness::NotYet(why) | Readiness::Never(why) = self.readiness(job) {
            return (Some(why), spec.begin.filter(|begin| *begin > self.now));
        }
        let Some(position) = order.iter().position(|number| *number == job.number) else {
            let limit = spec.array.as_ref().and_then(|array| array.at_most_at_once).unwrap_or_default();
            return (Some(format!("no more than {limit} tasks of its array run at once")), None);
        };
        if let Some(earmark) = self.earmark.as_ref().filter(|earmark| earmark.job == job.number) {
            let what = self.shortage(job);
            let who = self.in_the_way(&earmark.placed);
            let when = if earmark.shadow.is_some() { "" } else { "; those have no time limit, so nobody knows when" };
            return (Some(format!("it is the next one: {what}; it waits for {who}{when}")), earmark.shadow);
        }
        let rooms = self.rooms();
        if !self.could_run_now(job) {
            return (Some(self.nodes_missing(job)), None);
        }
        let before = order[..position].iter().find_map(|number| self.state.job(*number)).map(label);
        let fits = place(spec, job.user, &self.rooms_for(job, &rooms)).is_some();
        let text = match before {
            Some(first) if fits => format!("it would fit, but would delay job {first}, which is the next one"),
            Some(first) => {
                format!("{}; {position} jobs are before it, job {first} is the next one", self.shortage(job))
            }
            None => self.shortage(job),
        };
        (Some(text), self.earliest(job))
    }

    fn why_it_ends(&self, job: &Job) -> Option<String> {
        let verdict = job.verdict.as_ref().map(|verdict| verdict.text.clone());
        let name = |at: &NodeId| job.placed.iter().find(|part| part.node == *at).map(|part| part.name.clone());
        let own = self.state.stuck.iter().filter(|((stuck, _), _)| *stuck == job.number);
        let stuck = own.filter_map(|((_, node), text)| Some(format!("node {}: {text}", name(node)?)));
        let all: Vec<String> = verdict.into_iter().chain(stuck).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Whether it would run if nothing else did on the nodes that take work now.
    fn could_run_now(&self, job: &Job) -> bool {
        let rooms = self.rooms_without(&self.rooms(), |_| true);
        match job.state {
            JobState::Suspended => job.placed.iter().all(|part| rooms.iter().any(|room| room.node == part.node)),
            _ => place(self.state.spec(job), job.user, &self.rooms_for(job, &rooms)).is_some(),
        }
    }

    /// Nodes it needs that take no work now.
    fn nodes_missing(&self, job: &Job) -> String {
        let spec = self.state.spec(job);
        let away: Vec<String> = self
            .seen
            .values()
            .filter_map(|seen| {
                let drained = self.state.drained(seen.now.node);
                match drained {
                    _ if !takes_work(seen.now.health) => {
                        Some(format!("{} ({})", seen.now.name, seen.now.health.word()))
                    }
                    Some(why) => Some(format!("{} (drained: {why})", seen.now.name)),
                    None if self.owe_roll.contains(&seen.now.node) => {
                        Some(format!("{} (has just come back and says what it still runs)", seen.now.name))
                    }
                    None => None,
                }
            })
            .collect();
        if !self.state.reservations.is_empty() {
            return match &spec.reservation {
                Some(name) => format!("its reservation {name:?} has not begun, or its nodes are not up"),
                None => "nodes that it needs are reserved for others".to_owned(),
            };
        }
        if away.is_empty() {
            return "no set of nodes fits it any more; see `pulc nodes --queue`".to_owned();
        }
        format!("it needs nodes that take no work now: {}", away.join(", "))
    }

    fn shortage(&self, job: &Job) -> String {
        let spec = self.state.spec(job);
        if job.state == JobState::Suspended {
            return format!("it stands still for a more urgent job and goes on when {} has room", names(&job.placed));
        }
        let rooms = self.rooms();
        let free: u32 =
            rooms.iter().filter(|room| room.suits(spec, job.user) && room.closed.is_none()).map(|room| room.free).sum();
        let slots = spec.ranks * spec.threads.max(1);
        match spec.nodes {
            Some(nodes) => format!("it needs {slots} slots on {nodes} nodes, {free} are free where it may run"),
            None => format!("it needs {slots} slots, {free} are free where it may run"),
        }
    }

    fn in_the_way(&self, placed: &[Placed]) -> String {
        let mut jobs: Vec<String> = self
            .state
            .placed_jobs()
            .filter(|job| job.holds_slots())
            .filter(|job| job.placed.iter().any(|part| placed.iter().any(|wanted| wanted.node == part.node)))
            .map(label)
            .collect();
        let more = jobs.len().saturating_sub(5);
        jobs.truncate(5);
        let list = jobs.join(", ");
        match (jobs.len(), more) {
            (0, _) => "nodes to come free".to_owned(),
            (1, _) => format!("job {list} on {}", names(placed)),
            (_, 0) => format!("jobs {list} on {}", names(placed)),
            (_, more) => format!("jobs {list} and {more} more on {}", names(placed)),
        }
    }

    /// When enough of what runs now will have ended, if everything has a limit; what waits before it is not counted.
    fn earliest(&self, job: &Job) -> Option<Millis> {
        self.earmark(job.number, &self.rooms(), None).and_then(|earmark| earmark.shadow).map(|at| at.max(self.now))
    }

    fn missing_node(&self, job: &Job) -> Option<String> {
        let missing = job
            .placed
            .iter()
            .find(|part| self.seen.get(&part.node).is_some_and(|seen| seen.missing_since.is_some()))?;
        Some(format!("the daemon of node {} is away; the job goes on meanwhile", missing.name))
    }
}
