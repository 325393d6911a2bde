//! Nodes that are lost and come back, step by step: what may be started again, and where nothing new may be started yet.

use crate::world::spec;
use pulc_base::{JobId, NodeId};
use pulc_control::queue::{JobNumber, JobState, Outcome, QueueRequest};
use pulc_sched::{Controller, Effect, Event, Health, NodeSeen, Report, State};

const NODE: NodeId = NodeId([1; 16]);

/// One node of four slots, and all that the controller wants done.
struct Cluster {
    controller: Controller,
    now: u64,
}

impl Cluster {
    fn new() -> Cluster {
        let mut cluster = Cluster { controller: Controller::recover(State::default(), 1_000_000, 5), now: 1_000_000 };
        cluster.health(Health::Up);
        cluster.event(Event::Roll { from: NODE, jobs: Vec::new() });
        cluster
    }

    fn event(&mut self, event: Event) -> Vec<Effect> {
        self.now += 10;
        let mut effects = self.controller.step(self.now, event).effects;
        effects.extend(self.controller.settle(self.now).effects);
        effects
    }

    fn health(&mut self, health: Health) -> Vec<Effect> {
        let seen = NodeSeen {
            node: NODE,
            name: "n1".to_owned(),
            health,
            cores: 4,
            memory_mib: 1000,
            memory_free_mib: 500,
            load_milli: 0,
            addresses: Vec::new(),
        };
        self.event(Event::Node(seen))
    }

    /// Submits a job of one process; returns its attempt.
    fn submit(&mut self, requeue: bool) -> JobId {
        let mut job = spec(1, None);
        job.requeue = requeue;
        let request = QueueRequest::Submit(Box::new(job));
        let effects = self.event(Event::Ask { ticket: 1, user: 1, request });
        started(&effects).expect("there is room")
    }

    fn state(&self, number: u64) -> (JobState, u32) {
        let job = self.controller.state().job(JobNumber(number)).expect("it was accepted");
        (job.state, job.attempt)
    }
}

fn started(effects: &[Effect]) -> Option<JobId> {
    effects.iter().find_map(|effect| match effect {
        Effect::Start { order, .. } => Some(order.job),
        _ => None,
    })
}

fn asks(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::AskRoll { .. }))
}

#[test]
fn an_order_that_was_lost_with_a_daemon_is_given_again_only_for_a_job_that_may_start_again() {
    let mut cluster = Cluster::new();
    cluster.submit(true);
    cluster.submit(false);
    cluster.health(Health::Gone);
    assert!(asks(&cluster.health(Health::Up)));
    let effects = cluster.event(Event::Roll { from: NODE, jobs: Vec::new() });
    assert!(started(&effects).is_some(), "{effects:?}");
    // Nobody knows whether it had begun.
    assert_eq!(cluster.state(1), (JobState::Starting, 1));
    assert_eq!(cluster.state(2).0, JobState::Ended(Outcome::NodeFail));
}

#[test]
fn a_node_that_was_lost_with_jobs_gets_nothing_new_before_it_has_said_what_it_still_runs() {
    // Also if its daemon is slow to answer when it comes back.
    for back in [Health::Up, Health::Torpid] {
        let mut cluster = Cluster::new();
        let first = cluster.submit(true);
        cluster.event(Event::Report { from: NODE, job: first, report: Report::Started });
        cluster.health(Health::Down);
        assert_eq!(cluster.state(1), (JobState::Pending, 1));
        assert!(asks(&cluster.health(back)));
        assert_eq!(started(&cluster.health(Health::Up)), None);
        let effects = cluster.event(Event::Roll { from: NODE, jobs: vec![first] });
        let at = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted);
        let stop = at(|effect| matches!(effect, Effect::Stop { .. }));
        let start = at(|effect| matches!(effect, Effect::Start { .. }));
        assert!(stop.is_some() && stop < start, "{effects:?}");
    }
}
