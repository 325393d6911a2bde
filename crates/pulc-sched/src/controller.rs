//! The controller as a machine: events in, records and effects out. Called by psid's queue room, by tests and by the simulator.
//! Effects may happen only when the records of the same step are on disk. Never does I/O, never asks a clock.

use crate::earmark::Earmark;
use crate::report::{Cause, Health, NodeSeen, Report, Seen};
use crate::state::{Change, Job, Record, State, Verdict};
use crate::tie::Tie;
use pulc_base::{JobId, NodeId};
use pulc_control::StopKind;
use pulc_control::queue::{
    ClusterConfig, Happened, JobNumber, JobSpec, JobState, Millis, Outcome, Placed, QueueReply, QueueRequest, Used,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Attempts of one job that nodes may fail.
pub(crate) const ATTEMPTS_MAX: u32 = 20;
/// Things that happened, remembered for who asks later.
const HAPPENED_MAX: usize = 2000;
/// What is kept of a note about a job, in characters.
const NOTE_MAX: usize = 400;
/// Clients that wait for a job's end or follow events.
pub(crate) const WAITERS_MAX: usize = 1000;
/// How long jobs wait for a node whose daemon has ended but whose kernel answers, or that has not come back after a restart of the
/// controller.
pub const GRACE_MS: u64 = 60_000;

#[derive(Clone, Debug)]
pub enum Event {
    /// A client's request; answered by [`Effect::Reply`] with the same ticket.
    Ask { ticket: u64, user: u32, request: QueueRequest },
    /// The client has gone.
    Hung { ticket: u64 },
    /// The daemon through which the client asked is away; the client may come back by itself.
    Away { ticket: u64 },
    /// A node is there, or something about it has changed.
    Node(NodeSeen),
    /// What a node says about a job of which it is the first node.
    Report { from: NodeId, job: JobId, report: Report },
    /// All attempts of which a node is the first node, as an answer to [`Effect::AskRoll`].
    Roll { from: NodeId, jobs: Vec<JobId> },
    /// What a node's health check has said: why it fails, if it does.
    Checked { from: NodeId, failure: Option<String> },
}

#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    Start {
        to: NodeId,
        order: Box<StartOrder>,
    },
    Stop {
        to: NodeId,
        job: JobId,
        kind: StopKind,
        code: u8,
        text: String,
    },
    /// Make a job stand still, or go on.
    Freeze {
        to: NodeId,
        job: JobId,
        still: bool,
    },
    /// The end of this attempt is on disk: its node may forget it.
    Seen {
        to: NodeId,
        job: JobId,
    },
    AskRoll {
        to: NodeId,
    },
    Reply {
        ticket: u64,
        reply: QueueReply,
    },
    /// The set of nodes that get nothing new has changed.
    Drained(Vec<NodeId>),
    /// What is set for the whole cluster has changed.
    Configured(ClusterConfig),
}

/// All that a first node needs to start a job.
#[derive(Clone, PartialEq, Debug)]
pub struct StartOrder {
    pub job: JobId,
    pub number: JobNumber,
    pub task: Option<(JobNumber, u32)>,
    pub attempt: u32,
    pub user: u32,
    pub nodes: Vec<Placed>,
    pub spec: JobSpec,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    pub records: Vec<Record>,
    pub effects: Vec<Effect>,
}

pub struct Controller {
    pub(crate) state: State,
    pub(crate) seen: BTreeMap<NodeId, Seen>,
    pub(crate) earmark: Option<Earmark>,
    pub(crate) happened: VecDeque<Happened>,
    pub(crate) followers: Vec<u64>,
    pub(crate) waits: Vec<(u64, Vec<JobNumber>)>,
    pub(crate) ties: BTreeMap<JobNumber, Tie>,
    /// Attempts that a node that was asked should know.
    pub(crate) rolls: BTreeMap<NodeId, BTreeSet<JobId>>,
    /// Nodes that were lost with jobs: they may still run what was given up, and get nothing new until they have said what they have.
    pub(crate) owe_roll: BTreeSet<NodeId>,
    /// Nodes whose health checks fail where that is only told.
    pub(crate) failing: BTreeSet<NodeId>,
    pub(crate) now: Millis,
    random: u64,
    pub(crate) out: Step,
}

impl Controller {
    /// Goes on from the state that the log tells. `seed` makes the ids of attempts; it must differ from one start to the next.
    pub fn recover(state: State, now: Millis, seed: u64) -> Controller {
        let mut controller = Controller {
            now: now.max(state.time),
            state,
            seen: BTreeMap::new(),
            earmark: None,
            happened: VecDeque::new(),
            followers: Vec::new(),
            waits: Vec::new(),
            ties: BTreeMap::new(),
            rolls: BTreeMap::new(),
            owe_roll: BTreeSet::new(),
            failing: BTreeSet::new(),
            random: seed,
            out: Step::default(),
        };
        // Clients whose jobs live only as long as they do have to come back, and nodes of running jobs.
        controller.ties = controller.state.tied.iter().map(|job| (*job, Tie::Loose(controller.now))).collect();
        let parts: Vec<Placed> = controller.state.placed_jobs().flat_map(|job| job.placed.clone()).collect();
        for part in parts {
            let now = controller.now;
            controller.seen.entry(part.node).or_insert_with(|| Seen::missing(&part, now));
        }
        controller
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// What one event changes. To be followed by [`Controller::settle`] when no more events are waiting.
    pub fn step(&mut self, now: Millis, event: Event) -> Step {
        self.now = now.max(self.now);
        match event {
            Event::Ask { ticket, user, request } => self.ask(ticket, user, request),
            Event::Hung { ticket } => self.cut(ticket),
            Event::Away { ticket } => self.loosen(ticket),
            Event::Node(node) => self.node_seen(node),
            Event::Report { from, job, report } => self.reported(from, job, report),
            Event::Roll { from, jobs } => self.roll(from, &jobs),
            Event::Checked { from, failure } => self.checked(from, failure),
        }
        std::mem::take(&mut self.out)
    }

    /// What is due, and the pass over the queue.
    pub fn settle(&mut self, now: Millis) -> Step {
        self.now = now.max(self.now);
        self.missing_nodes();
        self.end_loose();
        self.limits();
        self.plan();
        self.answer_waits();
        std::mem::take(&mut self.out)
    }

    /// When [`Controller::settle`] has something to do even if nothing happens.
    pub fn next_deadline(&self) -> Option<Millis> {
        let limits = self.state.placed_jobs().filter(|job| job.state == JobState::Running);
        let limits = limits.filter_map(|job| job.ends_by(self.now));
        let begins = self.state.waiting_jobs().filter_map(|job| self.state.spec(job).begin);
        let borders = self.state.reservations.values().flat_map(|reservation| [reservation.from, reservation.until]);
        let graces = self.seen.values().filter_map(|seen| seen.missing_since.map(|since| since + GRACE_MS));
        let all = limits.chain(begins.chain(borders).filter(|at| *at > self.now)).chain(graces);
        let all = all.chain(self.loose_until());
        all.min()
    }

    pub(crate) fn record(&mut self, change: Change) {
        let record = Record { at: self.now, change };
        self.state.apply(&record);
        self.out.records.push(record);
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    pub(crate) fn reply(&mut self, ticket: u64, reply: QueueReply) {
        self.effect(Effect::Reply { ticket, reply });
    }

    pub(crate) fn tell(&mut self, text: String) {
        let happened = Happened { at: self.now, text };
        for ticket in self.followers.clone() {
            self.reply(ticket, QueueReply::Events(vec![happened.clone()]));
        }
        if self.happened.len() >= HAPPENED_MAX {
            self.happened.pop_front();
        }
        self.happened.push_back(happened);
    }

    /// Ids of attempts look random, so that those of two controllers never meet (splitmix64).
    pub(crate) fn new_instance(&mut self) -> JobId {
        loop {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.random;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let id = JobId(bits ^ (bits >> 31));
            if self.state.by_instance(id).is_none() {
                return id;
            }
        }
    }

    /// Gives a job its slots and has it started.
    pub(crate) fn start(&mut self, number: JobNumber, nodes: Vec<Placed>) {
        let instance = self.new_instance();
        let names = names(&nodes);
        self.record(Change::Placed { job: number, instance, nodes: nodes.clone() });
        let Some(job) = self.state.job(number) else { return };
        let (to, label) = (nodes[0].node, label(job));
        let order = StartOrder {
            job: instance,
            number,
            task: job.task,
            attempt: job.attempt,
            user: job.user,
            nodes,
            spec: self.state.spec(job).clone(),
        };
        self.effect(Effect::Start { to, order: Box::new(order) });
        self.tell(format!("job {label} starts on {names}"));
    }

    /// Tells a job that has processes to end; what becomes of it is decided when it has ended.
    pub(crate) fn end(&mut self, number: JobNumber, kind: StopKind, code: u8, verdict: Verdict) {
        let Some(job) = self.state.job(number) else { return };
        let (Some(first), Some(instance)) = (job.placed.first(), job.instance) else { return };
        let (to, text, label) = (first.node, verdict.text.clone(), label(job));
        if job.state != JobState::Ending {
            self.record(Change::Ending { job: number, verdict });
            self.tell(format!("job {label} is told to end: {text}"));
        }
        self.effect(Effect::Stop { to, job: instance, kind, code, text });
    }

    /// Nothing is left of a job's attempt.
    pub(crate) fn finished(&mut self, number: JobNumber, verdict: Verdict, code: Option<u8>, used: Used) {
        let Some(job) = self.state.job(number) else { return };
        let label = label(job);
        let stuck = self.state.stuck.keys().any(|(job, _)| *job == number);
        if verdict.requeue {
            self.tell(format!("job {label} waits again: {}", verdict.text));
            // Whether an attempt has begun whose node said nothing any more, nobody knows.
            self.record(Change::Requeued { job: number, text: verdict.text, used, counts: true });
        } else {
            let state = JobState::Ended(verdict.outcome);
            let text = Some(verdict.text).filter(|text| !text.is_empty());
            let more = text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            self.tell(format!("job {label} {}{more}", state.word().to_lowercase()));
            self.record(Change::Ended { job: number, outcome: verdict.outcome, code, text, used });
        }
        if stuck {
            self.tell_drained();
        }
    }

    /// What becomes of a job whose node was lost.
    pub(crate) fn verdict_of_loss(&self, job: &Job, text: String) -> Verdict {
        let requeue = self.state.spec(job).requeue && job.attempt < ATTEMPTS_MAX;
        Verdict { outcome: Outcome::NodeFail, text, requeue }
    }

    fn reported(&mut self, from: NodeId, instance: JobId, report: Report) {
        let Some(job) = self.state.by_instance(instance).filter(|job| job.placed[0].node == from) else {
            // An attempt that was given up, or an end that is on disk already.
            return match report {
                Report::Ended { .. } => self.effect(Effect::Seen { to: from, job: instance }),
                _ => self.give_up(from, instance),
            };
        };
        let (number, state) = (job.number, job.state);
        match report {
            Report::Started if state == JobState::Starting => self.record(Change::Running { job: number }),
            Report::Still if state == JobState::Suspending => {
                self.record(Change::Suspended { job: number });
                let label = self.state.job(number).map(label).unwrap_or_default();
                self.tell(format!("job {label} stands still"));
            }
            Report::Started | Report::Still => {}
            Report::Stuck { node, text } => self.told_stuck(number, node, &note(&text)),
            Report::Noted { text } => {
                let text = note(&text);
                self.tell(format!("job {}: {text}", label(job)));
                self.record(Change::Noted { job: number, text });
            }
            Report::Ended { cause, code, text, used } => {
                let verdict = job.verdict.clone().unwrap_or_else(|| {
                    let text = text.unwrap_or_default();
                    let ended = |outcome| Verdict { outcome, text: text.clone(), requeue: false };
                    match cause {
                        Cause::Exited if code == 0 => ended(Outcome::Completed),
                        Cause::Exited => ended(Outcome::Failed),
                        Cause::Killed => ended(Outcome::Cancelled),
                        Cause::NotStarted => ended(Outcome::NotStarted),
                        Cause::NodeLost => self.verdict_of_loss(job, text),
                        Cause::Unfit => {
                            let requeue = job.attempt < ATTEMPTS_MAX;
                            Verdict { outcome: Outcome::NodeFail, text, requeue }
                        }
                    }
                });
                self.finished(number, verdict, Some(code), used);
                self.effect(Effect::Seen { to: from, job: instance });
            }
        }
    }

    /// An attempt that nobody waits for must not go on.
    fn give_up(&mut self, to: NodeId, job: JobId) {
        let text = "the controller has given this attempt up".to_owned();
        self.effect(Effect::Stop { to, job, kind: StopKind::AtOnce, code: 143, text });
    }

    fn limits(&mut self) {
        let over = |job: &&Job| {
            job.state == JobState::Running && job.limit_ms.is_some_and(|limit| job.ran_ms(self.now) >= limit)
        };
        let due: Vec<(JobNumber, u64)> =
            self.state.placed_jobs().filter(over).map(|job| (job.number, job.limit_ms.unwrap_or_default())).collect();
        for (number, limit_ms) in due {
            let text = format!("its time limit of {} s is over", limit_ms as f64 / 1000.0);
            let verdict = Verdict { outcome: Outcome::Timeout, text, requeue: false };
            self.end(number, StopKind::Gently, 124, verdict);
        }
    }
}

/// Of what a node says so much is kept, on one line.
fn note(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(NOTE_MAX).collect()
}

/// `17`, or `17_3` for a task of an array.
pub(crate) fn label(job: &Job) -> String {
    match job.task {
        Some((array, index)) => format!("{array}_{index}"),
        None => job.number.to_string(),
    }
}

pub(crate) fn names(nodes: &[Placed]) -> String {
    nodes.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether something new may be put on a node in this state.
pub(crate) fn takes_work(health: Health) -> bool {
    health == Health::Up
}
