//! The pass over the queue: first come first served inside each class, with EASY backfill. Called by `settle` whenever something may
//! have changed. Starts what fits, makes room for what may push others aside, and lets later jobs start only where they can't delay
//! the first one that waits.

use crate::controller::{Controller, Effect, takes_work};
use crate::earmark::Earmark;
use crate::fit::{Closed, Room, place};
use crate::report::Seen;
use crate::state::{Change, Job, Verdict};
use pulc_base::NodeId;
use pulc_control::network;
use pulc_control::owner::Owner;
use pulc_control::queue::{
    After, Class, Dependency, Exclusive, JobNumber, JobSpec, JobState, Millis, Outcome, Placed, Target, Used,
};
use pulc_control::who::Who;
use std::borrow::Cow;
use std::cmp::Reverse;

/// Jobs behind the first one that waits, looked at in one pass.
const BACKFILL_DEPTH: usize = 1000;

/// Whether what a job waits for has come.
pub(crate) enum Readiness {
    Ready,
    NotYet(String),
    /// It can't come any more.
    Never(String),
}

impl Controller {
    pub(crate) fn plan(&mut self) {
        self.end_impossible();
        let order = self.order();
        let kept = self.earmark.take();
        let mut rooms = self.rooms();
        let all_free = |rooms: &[Room]| rooms.iter().map(|room| u64::from(room.free)).sum::<u64>();
        let mut free = all_free(&rooms);
        let mut earmark: Option<Earmark> = None;
        let mut looked = 0;
        for number in order {
            let Some(job) = self.state.job(number) else { continue };
            let spec = self.state.spec(job);
            let end = job.limit_ms.map(|limit| self.now + limit.saturating_sub(job.ran_ms(self.now)));
            let found = match job.state {
                JobState::Suspended => fits_again(job, &rooms).then(|| job.placed.clone()),
                // Seen without a look at every node, which a long queue before a full cluster would pay for each of its jobs.
                _ if !spec.overbook && u64::from(spec.ranks) * u64::from(spec.threads.max(1)) > free => None,
                _ => place(spec, job.user, &self.rooms_for(job, &rooms)),
            };
            let exclusive = spec.exclusive;
            let allowed =
                |placed: &Vec<Placed>| earmark.as_ref().is_none_or(|earmark| earmark.allows(placed, end, exclusive));
            if let Some(placed) = found.filter(allowed) {
                if let Some(earmark) = &mut earmark {
                    earmark.take(&placed, end);
                }
                occupy(&mut rooms, &placed, job.user, exclusive);
                free = all_free(&rooms);
                match job.state {
                    JobState::Suspended => self.resume(number),
                    _ => self.start(number, placed),
                }
                continue;
            }
            if earmark.is_none() {
                self.make_room(number, &rooms);
                earmark = self.earmark(number, &rooms, kept.as_ref());
            }
            looked += 1;
            if looked > BACKFILL_DEPTH {
                break;
            }
        }
        self.earmark = earmark;
    }

    fn resume(&mut self, number: JobNumber) {
        let Some(job) = self.state.job(number) else { return };
        let (Some(first), Some(instance)) = (job.placed.first(), job.instance) else { return };
        let (to, label) = (first.node, crate::controller::label(job));
        self.record(Change::Resumed { job: number });
        self.effect(Effect::Freeze { to, job: instance, still: false });
        self.tell(format!("job {label} goes on"));
    }

    /// A node as if nothing ran there.
    pub(crate) fn room_of(&self, seen: &Seen) -> Room {
        let settings = self.state.nodes.get(&seen.now.node);
        let slots = settings.and_then(|settings| settings.slots).unwrap_or(seen.now.cores);
        Room {
            node: seen.now.node,
            name: seen.now.name.clone(),
            slots,
            free: slots,
            cores: seen.now.cores,
            memory_mib: seen.now.memory_mib,
            load_milli: seen.now.load_milli,
            addresses: seen.now.addresses.clone(),
            features: settings.map(|settings| settings.features.clone()).unwrap_or_default(),
            users: settings.map(|settings| settings.users.clone()).unwrap_or_default(),
            held_by: Vec::new(),
            closed: None,
        }
    }

    /// Nodes that take work, with what is free there.
    pub(crate) fn rooms(&self) -> Vec<Room> {
        let able = self.seen.values().filter(|seen| takes_work(seen.now.health));
        let mut rooms: Vec<Room> = able.map(|seen| self.room_of(seen)).collect();
        rooms.retain(|room| self.state.drained(room.node).is_none());
        rooms.retain(|room| !self.owe_roll.contains(&room.node));
        for job in self.state.placed_jobs().filter(|job| job.holds_slots()) {
            occupy(&mut rooms, &job.placed, job.user, self.state.spec(job).exclusive);
        }
        rooms
    }

    /// Those of them that no reservation keeps from this job and that are in a network that it wants.
    pub(crate) fn rooms_for<'a>(&self, job: &Job, rooms: &'a [Room]) -> Cow<'a, [Room]> {
        let spec = self.state.spec(job);
        let rooms = in_networks_of(spec, rooms);
        if self.state.reservations.is_empty() && spec.reservation.is_none() {
            return rooms;
        }
        let end = job.limit_ms.map(|limit| self.now + limit);
        let may_use = |room: &&Room| self.may_use(spec, job.user, &room.name, end);
        Cow::Owned(rooms.iter().filter(may_use).cloned().collect())
    }

    fn may_use(&self, spec: &JobSpec, user: u32, node: &str, end: Option<Millis>) -> bool {
        let touches = |nodes: &[String]| nodes.is_empty() || nodes.iter().any(|name| name == node);
        let mut inside = spec.reservation.is_none();
        for reservation in self.state.reservations.values().filter(|reservation| touches(&reservation.nodes)) {
            let mine = spec.reservation.as_deref() == Some(reservation.name.as_str())
                && Who::any(&reservation.users, user, || Owner::groups_of(&spec.launch));
            let now_in_it = (reservation.from..reservation.until).contains(&self.now);
            if mine {
                inside |= now_in_it;
            } else if reservation.until > self.now && end.is_none_or(|end| end > reservation.from) {
                return false;
            }
        }
        inside
    }

    /// Who wants slots, the most urgent first.
    pub(crate) fn order(&self) -> Vec<JobNumber> {
        let mut order: Vec<_> = self
            .state
            .waiting_jobs()
            .filter(|job| match job.state {
                JobState::Suspended => !job.stopped_by_user,
                _ => !job.held && matches!(self.readiness(job), Readiness::Ready),
            })
            .map(|job| {
                let stands_still = job.state == JobState::Suspended;
                let spec = self.state.spec(job);
                (Reverse(job.class), Reverse(stands_still), self.usage_step(job.user), spec.nice, job.number)
            })
            .collect();
        order.sort_unstable();
        self.within_arrays(order.into_iter().map(|entry| entry.4))
    }

    /// No more tasks of an array than may run at once.
    fn within_arrays(&self, order: impl Iterator<Item = JobNumber>) -> Vec<JobNumber> {
        let mut running = std::collections::HashMap::<u64, u32>::new();
        for job in self.state.placed_jobs() {
            *running.entry(job.spec).or_default() += 1;
        }
        order
            .filter(|number| {
                let Some(job) = self.state.job(*number) else { return false };
                let limit = self.state.spec(job).array.as_ref().and_then(|array| array.at_most_at_once);
                let Some(limit) = limit.filter(|_| job.state == JobState::Pending) else { return true };
                let count = running.entry(job.spec).or_default();
                *count += 1;
                *count <= limit
            })
            .collect()
    }

    /// Usage of a user in steps of powers of two of slot hours: a tie-break, not a rank list.
    fn usage_step(&self, user: u32) -> u32 {
        let hours = self.state.usage.get(&user).map_or(0.0, |usage| usage.decayed(self.now) / 3_600_000.0);
        (1.0 + hours).log2() as u32
    }

    pub(crate) fn readiness(&self, job: &Job) -> Readiness {
        let spec = self.state.spec(job);
        if spec.begin.is_some_and(|begin| begin > self.now) {
            return Readiness::NotYet("it is not to start before its time".to_owned());
        }
        for dependency in &spec.after {
            match self.dependency(dependency) {
                Readiness::Ready => {}
                other => return other,
            }
        }
        Readiness::Ready
    }

    fn dependency(&self, dependency: &Dependency) -> Readiness {
        let on = dependency.on;
        for job in self.targets(on) {
            let has_ended = job.state.has_ended();
            let well = job.state == JobState::Ended(Outcome::Completed);
            let came = match dependency.kind {
                After::Start => has_ended || job.started.is_some(),
                After::Any => has_ended,
                After::Ok => well,
                After::NotOk => has_ended && !well,
            };
            let word = match dependency.kind {
                After::Start => "started",
                After::Any => "ended",
                After::Ok => "ended well",
                After::NotOk => "failed",
            };
            if came {
                continue;
            }
            if has_ended {
                return Readiness::Never(format!("it waits until job {on} has {word}, which can't come any more"));
            }
            return Readiness::NotYet(format!("it waits until job {on} has {word}"));
        }
        Readiness::Ready
    }

    /// The jobs that are meant; none if there is no such job any more.
    pub(crate) fn targets(&self, target: Target) -> Vec<&Job> {
        let Some(job) = self.state.job(target.number) else { return Vec::new() };
        match (target.index, job.task) {
            (None, Some((array, _))) if array == target.number => self.tasks(job.spec).collect(),
            (None, _) => vec![job],
            (Some(index), _) => self.tasks(job.spec).filter(|job| job.task == Some((target.number, index))).collect(),
        }
    }

    fn tasks(&self, spec: u64) -> impl Iterator<Item = &Job> {
        self.state.jobs.range(JobNumber(spec)..).map(|(_, job)| job).take_while(move |job| job.spec == spec)
    }

    fn end_impossible(&mut self) {
        let never: Vec<(JobNumber, String)> = self
            .state
            .waiting_jobs()
            .filter(|job| job.state == JobState::Pending && !self.state.spec(job).after.is_empty())
            .filter_map(|job| match self.readiness(job) {
                Readiness::Never(why) => Some((job.number, why)),
                _ => None,
            })
            .collect();
        for (number, text) in never {
            let verdict = Verdict { outcome: Outcome::Impossible, text, requeue: false };
            self.finished(number, verdict, None, Used::default());
        }
    }
}

/// The room of a node. Rooms stand in the order of their nodes' ids: they are made from a map of them.
pub(crate) fn room_at(rooms: &[Room], node: NodeId) -> Option<usize> {
    rooms.binary_search_by_key(&node, |room| room.node).ok()
}

/// Takes what a job holds; nodes that are not among the rooms do not matter.
pub(crate) fn occupy(rooms: &mut [Room], placed: &[Placed], user: u32, exclusive: Exclusive) {
    for part in placed {
        if let Some(at) = room_at(rooms, part.node) {
            rooms[at].occupy(part.slots, user, exclusive);
        }
    }
}

/// Whether a job that stands still finds its own slots free.
fn fits_again(job: &Job, rooms: &[Room]) -> bool {
    job.placed.iter().all(|part| {
        room_at(rooms, part.node).map(|at| &rooms[at]).is_some_and(|room| {
            let shut = match room.closed {
                Some(Closed::ToAll) => true,
                Some(Closed::ToOthersThan(user)) => user != job.user,
                None => false,
            };
            room.free >= part.slots.min(room.slots) && !shut
        })
    })
}

/// Whether jobs of class `over` may push aside jobs of class `under`.
pub(crate) fn outranks(over: Class, under: Class) -> bool {
    over > under && (over == Class::Urgent || under == Class::Idle)
}

/// Those in a network that the job's user wants, if any is wanted. What makes no sense was refused when it was submitted.
pub(crate) fn in_networks_of<'a>(spec: &JobSpec, rooms: &'a [Room]) -> Cow<'a, [Room]> {
    match network::wanted(&spec.launch) {
        Ok(Some(networks)) => Cow::Owned(rooms.iter().filter(|room| room.is_in(&networks)).cloned().collect()),
        _ => Cow::Borrowed(rooms),
    }
}
