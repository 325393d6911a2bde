//! What clients ask for: jobs in, jobs changed, settings of nodes, reservations, questions. A request is answered by one reply, which
//! leaves when what it says is on disk; those that wait for something are answered later.

use crate::controller::{Controller, WAITERS_MAX, label};
use crate::state::{Change, Verdict};
use pulc_base::NodeId;
use pulc_control::StopKind;
use pulc_control::queue::{
    Happened, JobNumber, JobSpec, JobState, NodePatch, Outcome, QueueReply, QueueRequest, Reservation, Target, Used,
    Verb,
};

const RESERVATIONS_MAX: usize = 1000;
const TARGETS_MAX: usize = 10_000;

impl Controller {
    pub(crate) fn ask(&mut self, ticket: u64, user: u32, request: QueueRequest) {
        let refused = |why| QueueReply::Refused { why };
        let reply = match request {
            QueueRequest::Submit(spec) => self.submit(user, spec).unwrap_or_else(refused),
            QueueRequest::Queue => QueueReply::Jobs(self.queue()),
            QueueRequest::History { at_most } => QueueReply::Jobs(self.history(at_most)),
            QueueRequest::Job(target) => {
                let jobs: Vec<_> = self.targets(target).into_iter().map(|job| self.view(job, true)).collect();
                if jobs.is_empty() { refused(unknown(target)) } else { QueueReply::Jobs(jobs) }
            }
            QueueRequest::Change { targets, verb } => self.change_all(user, &targets, verb).unwrap_or_else(refused),
            QueueRequest::Nodes => QueueReply::Nodes(self.queue_nodes()),
            QueueRequest::Node { name, patch } => self.set_node(&name, patch).unwrap_or_else(refused),
            QueueRequest::Reserve(reservation) => self.reserve(reservation).unwrap_or_else(refused),
            QueueRequest::Unreserve(name) => self.unreserve(name).unwrap_or_else(refused),
            QueueRequest::Reservations => QueueReply::Reservations(self.state.reservations.values().cloned().collect()),
            QueueRequest::Wait(target) => match self.wait(ticket, target) {
                Ok(None) => return,
                Ok(Some(reply)) => reply,
                Err(why) => refused(why),
            },
            QueueRequest::Events { at_most, follow } => {
                if follow && self.followers.len() < WAITERS_MAX {
                    self.followers.push(ticket);
                }
                let skip = self.happened.len().saturating_sub(at_most as usize);
                let events: Vec<Happened> = self.happened.iter().skip(skip).cloned().collect();
                QueueReply::Events(events)
            }
            QueueRequest::Metrics => QueueReply::Text(self.metrics()),
            QueueRequest::Config(settings) => self.configure(&settings).unwrap_or_else(refused),
            QueueRequest::Tie(target) => match self.tie(ticket, user, target) {
                Ok(None) => return,
                Ok(Some(reply)) => reply,
                Err(why) => refused(why),
            },
        };
        self.reply(ticket, reply);
    }

    fn submit(&mut self, user: u32, spec: Box<JobSpec>) -> Result<QueueReply, String> {
        self.admit(user, &spec)?;
        let number = JobNumber(self.state.next.max(1));
        let tasks = spec.array.as_ref().map_or(1, |array| array.indices.len() as u32);
        let name = spec.name.clone();
        self.record(Change::Submitted { user, spec });
        self.tell(format!("job {number} ({name}) was submitted"));
        Ok(QueueReply::Accepted { number, tasks })
    }

    fn change_all(&mut self, user: u32, targets: &[Target], verb: Verb) -> Result<QueueReply, String> {
        if targets.is_empty() || targets.len() > TARGETS_MAX {
            return Err(format!("{} jobs are named; from 1 to {TARGETS_MAX} are possible", targets.len()));
        }
        let mut texts = Vec::new();
        let (mut done, mut failed) = (0, Vec::new());
        for target in targets {
            let jobs: Vec<JobNumber> = self.targets(*target).into_iter().map(|job| job.number).collect();
            if jobs.is_empty() {
                failed.push(unknown(*target));
            }
            let is_array = jobs.len() > 1;
            for number in jobs {
                match self.change_one(user, number, verb) {
                    Ok(text) => {
                        done += 1;
                        texts.push(text);
                    }
                    // Of an array, those that are over are not meant.
                    Err(_) if is_array && self.state.job(number).is_some_and(|job| job.state.has_ended()) => {}
                    Err(why) => failed.push(why),
                }
            }
        }
        if failed.is_empty() && done == 0 {
            failed.push("all tasks that were named have ended already".to_owned());
        }
        if failed.is_empty() {
            texts.truncate(1);
            let text = if done == 1 { texts.pop().unwrap_or_default() } else { format!("{done} jobs") };
            return Ok(QueueReply::Done { text });
        }
        let some = if done > 0 { format!(" ({done} others were changed)") } else { String::new() };
        failed.truncate(3);
        Err(format!("{}{some}", failed.join("; ")))
    }

    fn change_one(&mut self, user: u32, number: JobNumber, verb: Verb) -> Result<String, String> {
        let Some(job) = self.state.job(number) else { return Err(format!("there is no job {number}")) };
        let (label, state) = (label(job), job.state);
        if job.user != user && user != 0 {
            return Err(format!("job {label} is not yours but user {}'s", job.user));
        }
        if state.has_ended() {
            return Err(format!("job {label} has ended already ({})", state.word()));
        }
        let no = |what: &str| Err(format!("job {label} is {}, {what}", state.word()));
        match verb {
            Verb::Cancel(kind) => self.cancel(number, kind, "it was cancelled".to_owned()),
            Verb::Hold if state == JobState::Pending => self.record(Change::Held { job: number, held: true }),
            Verb::Hold => return no("so it can't be held back; `pulc suspend` makes a running job stand still"),
            Verb::Release => self.record(Change::Held { job: number, held: false }),
            Verb::Suspend if state == JobState::Running => self.suspend(number, true, "its user wants so"),
            Verb::Suspend => return no("only running jobs can be made to stand still"),
            Verb::Resume if matches!(state, JobState::Suspended | JobState::Suspending) => {
                self.record(Change::MayResume { job: number });
            }
            Verb::Resume => return no("only a suspended job can go on"),
            Verb::Requeue if job.is_placed() => {
                let text = "its user wants it to start again".to_owned();
                let verdict = Verdict { outcome: Outcome::Cancelled, text, requeue: true };
                self.end(number, StopKind::Gently, 143, verdict);
            }
            Verb::Requeue => return no("it waits already"),
            Verb::Class(class) => self.record(Change::Class { job: number, class }),
            Verb::Limit(limit_ms) => self.record(Change::Limit { job: number, limit_ms }),
        }
        Ok(format!("job {label}"))
    }

    pub(crate) fn cancel(&mut self, number: JobNumber, kind: StopKind, text: String) {
        let Some(job) = self.state.job(number) else { return };
        let verdict = Verdict { outcome: Outcome::Cancelled, text, requeue: false };
        if job.is_placed() {
            self.end(number, kind, 143, verdict);
        } else {
            self.finished(number, verdict, None, Used::default());
        }
    }

    fn set_node(&mut self, name: &str, patch: NodePatch) -> Result<QueueReply, String> {
        let found: Vec<NodeId> =
            self.seen.iter().filter(|(_, seen)| seen.now.name == name).map(|(id, _)| *id).collect();
        let [node] = found[..] else {
            return Err(match found.len() {
                0 => format!("there is no node {name:?}; `pulc nodes` shows those there are"),
                count => format!("{count} nodes are called {name:?}; give them different names (`pulc up --name`)"),
            });
        };
        if patch.slots.flatten().is_some_and(|slots| slots > 100_000) {
            return Err("a node has at most 100000 slots".to_owned());
        }
        let drains = patch.drained.clone();
        self.record(Change::Node { node, name: name.to_owned(), patch });
        if drains == Some(None) {
            // Until the next time that it fails.
            self.fit_again(node);
            self.unstuck(node);
        }
        match drains {
            Some(Some(why)) => self.tell(format!("node {name} gets nothing new: {why}")),
            Some(None) => self.tell(format!("node {name} gets work again")),
            None => self.tell(format!("settings of node {name} were changed")),
        }
        self.tell_drained();
        Ok(QueueReply::Done { text: format!("node {name}") })
    }

    fn reserve(&mut self, reservation: Reservation) -> Result<QueueReply, String> {
        let name = reservation.name.clone();
        if name.is_empty() || name.len() > 64 {
            return Err("a reservation has a name of 1 to 64 characters".to_owned());
        }
        if reservation.until <= reservation.from.max(self.now) {
            return Err("a reservation ends after it begins, and not in the past".to_owned());
        }
        if self.state.reservations.len() >= RESERVATIONS_MAX && !self.state.reservations.contains_key(&name) {
            return Err(format!("there are {RESERVATIONS_MAX} reservations, the limit; remove some"));
        }
        let known: Vec<&str> = self.seen.values().map(|seen| seen.now.name.as_str()).collect();
        if let Some(node) = reservation.nodes.iter().find(|node| !known.contains(&node.as_str())) {
            return Err(format!("there is no node {node:?}; `pulc nodes` shows those there are"));
        }
        self.record(Change::Reserved(reservation));
        self.tell(format!("reservation {name} was made"));
        Ok(QueueReply::Done { text: format!("reservation {name}") })
    }

    fn unreserve(&mut self, name: String) -> Result<QueueReply, String> {
        if !self.state.reservations.contains_key(&name) {
            return Err(format!("there is no reservation {name:?}; see `pulc reserve`"));
        }
        self.record(Change::Unreserved { name: name.clone() });
        self.tell(format!("reservation {name} was removed"));
        Ok(QueueReply::Done { text: format!("reservation {name}") })
    }

    pub(crate) fn wait(&mut self, ticket: u64, target: Target) -> Result<Option<QueueReply>, String> {
        let jobs: Vec<JobNumber> = self.targets(target).into_iter().map(|job| job.number).collect();
        if jobs.is_empty() {
            return Err(unknown(target));
        }
        if let Some(reply) = self.answer_to_wait(&jobs) {
            return Ok(Some(reply));
        }
        if self.waits.len() >= WAITERS_MAX {
            return Err(format!("{WAITERS_MAX} clients wait for jobs already; ask again later"));
        }
        self.waits.push((ticket, jobs));
        Ok(None)
    }

    fn answer_to_wait(&self, jobs: &[JobNumber]) -> Option<QueueReply> {
        let jobs: Vec<_> = jobs.iter().filter_map(|number| self.state.job(*number)).collect();
        let over = jobs.iter().all(|job| job.state.has_ended());
        over.then(|| QueueReply::Jobs(jobs.into_iter().map(|job| self.view(job, false)).collect()))
    }

    pub(crate) fn answer_waits(&mut self) {
        for (ticket, jobs) in std::mem::take(&mut self.waits) {
            match self.answer_to_wait(&jobs) {
                Some(reply) => self.reply(ticket, reply),
                None => self.waits.push((ticket, jobs)),
            }
        }
    }
}

fn unknown(target: Target) -> String {
    format!("there is no job {target}; see `pulc queue` and `pulc history`")
}
