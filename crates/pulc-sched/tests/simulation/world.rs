//! A cluster of the simulator: nodes that do what they are told, some time later, and checks after every event.

use pulc_base::{JobId, NodeId};
use pulc_control::LaunchSpec;
use pulc_control::queue::{Class, Exclusive, Files, JobNumber, JobSpec, Millis, QueueReply, QueueRequest, Used, Yield};
use pulc_sched::{Cause, Controller, Effect, Event, Health, NodeSeen, Record, Report, State, Step};
use pulc_testkit::Chance;
use std::collections::{BTreeMap, BTreeSet};

pub fn spec(ranks: u32, limit_ms: Option<u64>) -> JobSpec {
    JobSpec {
        name: "sim".to_owned(),
        ranks,
        threads: 1,
        nodes: None,
        on: Vec::new(),
        not_on: Vec::new(),
        features: Vec::new(),
        memory_mib: None,
        cores: None,
        exclusive: Exclusive::No,
        overbook: false,
        class: Class::Normal,
        nice: 0,
        limit_ms,
        after: Vec::new(),
        array: None,
        begin: None,
        hold: false,
        requeue: true,
        yields: Yield::Suspend,
        reservation: None,
        script: false,
        text: None,
        files: Files::default(),
        launch: LaunchSpec {
            argv: vec![b"true".to_vec()],
            env: Vec::new(),
            cwd: b"/".to_vec(),
            umask: 0o22,
            limits: Vec::new(),
            pin: false,
            kill_delay_ms: 0,
        },
    }
}

/// A cluster whose nodes do what they are told, some time later.
pub struct World {
    pub controller: Controller,
    pub log: Vec<Record>,
    pub now: Millis,
    seed: u64,
    pub slots: BTreeMap<NodeId, u32>,
    pub up: BTreeSet<NodeId>,
    /// Attempts that run, with the time that they still need and where.
    running: BTreeMap<JobId, Attempt>,
    /// What nodes will report, by time.
    reports: BTreeMap<(Millis, u64), (NodeId, JobId, Report)>,
    reported: u64,
    pub accepted: BTreeSet<JobNumber>,
    ended: BTreeMap<JobNumber, u32>,
    /// How long each job needs, by number; used when it starts.
    needs: BTreeMap<JobNumber, u64>,
    pub chance: Chance,
}

struct Attempt {
    number: JobNumber,
    nodes: Vec<NodeId>,
    left_ms: u64,
    since: Millis,
    still: bool,
    /// Its node will report its end, whatever becomes of the others.
    stopped: bool,
}

impl World {
    pub fn new(seed: u64, nodes: &[u32]) -> World {
        let mut world = World {
            controller: Controller::recover(State::default(), 1_000_000, seed),
            log: Vec::new(),
            now: 1_000_000,
            seed,
            slots: BTreeMap::new(),
            up: BTreeSet::new(),
            running: BTreeMap::new(),
            reports: BTreeMap::new(),
            reported: 0,
            accepted: BTreeSet::new(),
            ended: BTreeMap::new(),
            needs: BTreeMap::new(),
            chance: Chance(seed | 1),
        };
        for (index, slots) in (0u8..).zip(nodes) {
            world.slots.insert(NodeId([index; 16]), *slots);
        }
        for node in world.slots.keys().copied().collect::<Vec<_>>() {
            world.health(node, Health::Up);
        }
        world
    }

    pub fn event(&mut self, event: Event) -> Vec<QueueReply> {
        let step = self.controller.step(self.now, event);
        let mut replies = self.carry_out(step);
        let step = self.controller.settle(self.now);
        replies.extend(self.carry_out(step));
        self.check();
        replies
    }

    pub fn health(&mut self, node: NodeId, health: Health) {
        let slots = self.slots[&node];
        if health == Health::Up {
            self.up.insert(node);
        } else {
            self.up.remove(&node);
        }
        let name = format!("n{}", node.0[0]);
        let seen = NodeSeen {
            node,
            name,
            health,
            cores: slots,
            memory_mib: 1000,
            memory_free_mib: 500,
            load_milli: 0,
            addresses: Vec::new(),
        };
        self.event(Event::Node(seen));
    }

    pub fn submit(&mut self, spec: JobSpec, needs_ms: u64) -> Option<JobNumber> {
        let next = JobNumber(self.accepted.last().map_or(1, |number| number.0 + 1));
        self.needs.insert(next, needs_ms);
        let request = QueueRequest::Submit(Box::new(spec));
        match self.event(Event::Ask { ticket: 1, user: 1, request }).into_iter().next() {
            Some(QueueReply::Accepted { number, tasks }) => {
                (number.0..number.0 + u64::from(tasks)).for_each(|number| {
                    self.accepted.insert(JobNumber(number));
                    self.needs.entry(JobNumber(number)).or_insert(needs_ms);
                });
                Some(number)
            }
            Some(QueueReply::Refused { .. }) => None,
            other => panic!("not an answer to a submission: {other:?}"),
        }
    }

    fn carry_out(&mut self, step: Step) -> Vec<QueueReply> {
        self.log.extend(step.records);
        let mut replies = Vec::new();
        for effect in step.effects {
            match effect {
                Effect::Reply { reply, .. } => replies.push(reply),
                Effect::Start { to, order } => {
                    assert!(self.up.contains(&to), "an order for a node that is not up");
                    let nodes = order.nodes.iter().map(|part| part.node).collect();
                    let left_ms = self.needs.get(&order.number).copied().unwrap_or(1000);
                    let (number, since) = (order.number, self.now);
                    let attempt = Attempt { number, nodes, left_ms, since, still: false, stopped: false };
                    let again = self.running.values().any(|other| other.number == order.number);
                    assert!(!again, "job {} runs twice", order.number);
                    self.running.insert(order.job, attempt);
                    self.report(self.now, to, order.job, Report::Started);
                    self.report(self.now + left_ms, to, order.job, exited(0));
                }
                Effect::Stop { to, job, .. } => {
                    if let Some(attempt) = self.running.get_mut(&job) {
                        attempt.stopped = true;
                        self.drop_reports(job);
                        self.report(self.now, to, job, exited(143));
                    }
                }
                Effect::Freeze { to, job, still } => {
                    let Some(attempt) = self.running.get_mut(&job).filter(|attempt| attempt.still != still) else {
                        continue;
                    };
                    attempt.still = still;
                    if still {
                        attempt.left_ms = attempt.left_ms.saturating_sub(self.now - attempt.since);
                    } else {
                        attempt.since = self.now;
                    }
                    let left_ms = attempt.left_ms;
                    self.drop_reports(job);
                    if still {
                        self.report(self.now, to, job, Report::Still);
                    } else {
                        self.report(self.now + left_ms, to, job, exited(0));
                    }
                }
                Effect::AskRoll { to } => {
                    let first = |attempt: &Attempt| attempt.nodes.first() == Some(&to);
                    let jobs = self.running.iter().filter(|(_, attempt)| first(attempt)).map(|(job, _)| *job);
                    let jobs: Vec<JobId> = jobs.collect();
                    let step = self.controller.step(self.now, Event::Roll { from: to, jobs });
                    replies.extend(self.carry_out(step));
                }
                Effect::Seen { .. } | Effect::Drained(_) | Effect::Configured(_) => {}
            }
        }
        replies
    }

    fn report(&mut self, at: Millis, from: NodeId, job: JobId, report: Report) {
        self.reported += 1;
        self.reports.insert((at, self.reported), (from, job, report));
    }

    fn drop_reports(&mut self, job: JobId) {
        self.reports.retain(|_, (_, other, report)| *other != job || *report == Report::Started);
    }

    /// Goes on to the next thing that happens, at most to `until`; returns whether there was one.
    pub fn advance(&mut self, until: Millis) -> bool {
        let report = self.reports.first_key_value().map(|(key, _)| *key);
        let deadline = self.controller.next_deadline().map(|at| at.max(self.now));
        let next = report.map(|(at, _)| at).into_iter().chain(deadline).min();
        let Some(at) = next.filter(|at| *at <= until) else {
            self.now = until.max(self.now);
            return false;
        };
        self.now = at.max(self.now);
        match report.filter(|(when, _)| *when <= self.now) {
            Some(key) => {
                let (from, job, report) = self.reports.remove(&key).expect("it was just there");
                if matches!(report, Report::Ended { .. }) && self.running.remove(&job).is_none() {
                    return true;
                }
                self.event(Event::Report { from, job, report });
            }
            None => {
                let step = self.controller.settle(self.now);
                self.carry_out(step);
                self.check();
                // Nothing that is due may stay due for ever.
                self.now += 1;
            }
        }
        true
    }

    /// A node vanishes with all that it ran.
    pub fn lose(&mut self, node: NodeId) {
        let touched: Vec<JobId> =
            self.running.iter().filter(|(_, attempt)| attempt.nodes.contains(&node)).map(|(job, _)| *job).collect();
        for job in touched {
            let attempt = &self.running[&job];
            let is_first = attempt.nodes[0] == node;
            if is_first || !attempt.stopped {
                self.drop_reports(job);
            }
            if is_first {
                self.running.remove(&job);
            }
        }
        self.health(node, Health::Down);
    }

    /// The controller is killed and started again from its log.
    pub fn restart_controller(&mut self) {
        let mut state = State::default();
        self.log.iter().for_each(|record| state.apply(record));
        assert_eq!(&state, self.controller.state(), "the log tells another state");
        self.seed = self.seed.wrapping_add(0x1234_5677);
        self.controller = Controller::recover(state, self.now, self.seed);
        for node in self.up.clone() {
            self.health(node, Health::Up);
        }
    }

    fn check(&mut self) {
        let mut held = BTreeMap::<NodeId, u32>::new();
        for job in self.controller.state().jobs() {
            if job.holds_slots() {
                job.placed.iter().for_each(|part| *held.entry(part.node).or_default() += part.slots);
            }
            if job.state.has_ended() && !self.ended.contains_key(&job.number) {
                self.ended.insert(job.number, 1);
            }
            assert!(!self.ended.contains_key(&job.number) || job.state.has_ended(), "job {} came back", job.number);
        }
        for (node, held) in held {
            assert!(held <= self.slots[&node], "seed {}: {held} slots of {node} are given away", self.seed);
        }
        let lost = self.accepted.iter().find(|number| self.controller.state().job(**number).is_none());
        assert!(lost.is_none(), "job {lost:?} is lost");
    }

    pub fn finish(&mut self) {
        let end = self.now + 1_000_000_000;
        while self.advance(end) {}
        for job in self.controller.state().jobs() {
            assert!(job.state.has_ended(), "seed {}: job {} never ended: {:?}", self.seed, job.number, job.state);
        }
    }
}

pub fn exited(code: u8) -> Report {
    Report::Ended { cause: Cause::Exited, code, text: None, used: Used { cpu_ms: 1, memory_peak_kib: 1 } }
}
