//! The queue as the log tells it: jobs, settings of nodes, reservations, usage. Changed only by `apply`, which every record goes
//! through, at once when it is made and again when the log is read. Never asks a clock and never decides anything.

use pulc_base::{JobId, NodeId};
use pulc_control::queue::{
    Class, ClusterConfig, ConfigBefore, ConfigWithNetworks, Files, JobNumber, JobSpec, JobState, Millis, NodePatch,
    Outcome, Placed, Reservation, Used,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Ended jobs that are remembered.
pub const HISTORY_MAX: usize = 10_000;
/// After so long, usage counts half.
const HALF_LIFE_MS: f64 = 7.0 * 24.0 * 3600.0 * 1000.0;

/// One entry of the log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    pub at: Millis,
    pub change: Change,
}

/// Variants are only ever appended: their position is their number on disk.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Takes the next number, or as many as the array has tasks.
    Submitted {
        user: u32,
        spec: Box<JobSpec>,
    },
    Placed {
        job: JobNumber,
        instance: JobId,
        nodes: Vec<Placed>,
    },
    Running {
        job: JobNumber,
    },
    /// Told to end; the verdict is known already.
    Ending {
        job: JobNumber,
        verdict: Verdict,
    },
    Suspending {
        job: JobNumber,
        by_user: bool,
    },
    Suspended {
        job: JobNumber,
    },
    /// Its user no longer wants it to stand still.
    MayResume {
        job: JobNumber,
    },
    Resumed {
        job: JobNumber,
    },
    /// Waits again. `counts`: the attempt may have begun.
    Requeued {
        job: JobNumber,
        text: String,
        used: Used,
        counts: bool,
    },
    Ended {
        job: JobNumber,
        outcome: Outcome,
        code: Option<u8>,
        text: Option<String>,
        used: Used,
    },
    Held {
        job: JobNumber,
        held: bool,
    },
    Class {
        job: JobNumber,
        class: Class,
    },
    Limit {
        job: JobNumber,
        limit_ms: Option<u64>,
    },
    Node {
        node: NodeId,
        name: String,
        patch: NodePatch,
    },
    Reserved(Reservation),
    Unreserved {
        name: String,
    },
    /// Parts of a whole state, at the beginning of a log that was rewritten.
    Snapshot(Part),
    /// Lives only as long as a client that has asked for it.
    Tied {
        job: JobNumber,
    },
    /// As it was said before networks could be set.
    Configured(ConfigBefore),
    /// What a node's health check has said that is to keep it from new work; none any more.
    Checked {
        node: NodeId,
        failure: Option<String>,
    },
    /// As it was said before desks could be set.
    SetNetworks(ConfigWithNetworks),
    /// Something that the user of a job that runs should know.
    Noted {
        job: JobNumber,
        text: String,
    },
    /// What is set for the whole cluster.
    Set(ClusterConfig),
    /// Processes of a job on this node do not end even by SIGKILL; none: the node takes work all the same.
    Stuck {
        job: JobNumber,
        node: NodeId,
        text: Option<String>,
    },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Part {
    Head { next: u64, usage: Vec<(u32, Usage)> },
    Spec { key: u64, spec: Box<JobSpec> },
    Job(Box<Job>),
    Node { node: NodeId, settings: NodeSettings },
    Reservation(Reservation),
}

/// What is said of a job when its processes have ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub outcome: Outcome,
    pub text: String,
    /// Waits again instead.
    pub requeue: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    pub number: JobNumber,
    /// First number of its submission, under which its spec is kept.
    pub spec: u64,
    pub task: Option<(JobNumber, u32)>,
    pub user: u32,
    pub submitted: Millis,
    pub state: JobState,
    pub held: bool,
    pub class: Class,
    pub limit_ms: Option<u64>,
    /// Attempts that may have begun.
    pub attempt: u32,
    pub instance: Option<JobId>,
    pub placed: Vec<Placed>,
    pub placed_at: Millis,
    pub started: Option<Millis>,
    pub ended: Option<Millis>,
    /// Since when it stands still.
    pub still_since: Option<Millis>,
    /// Time it has stood still before that.
    pub still_ms: u64,
    /// It stands still because its user wants so, and goes on when its user wants so.
    pub stopped_by_user: bool,
    pub verdict: Option<Verdict>,
    pub code: Option<u8>,
    pub text: Option<String>,
    pub used: Used,
}

impl Job {
    /// Whether slots are taken by it.
    pub fn holds_slots(&self) -> bool {
        match self.state {
            JobState::Starting | JobState::Running | JobState::Suspending => true,
            // One that stood still has given them away, and is killed where it stands.
            JobState::Ending => self.still_since.is_none(),
            _ => false,
        }
    }

    /// Whether it has processes somewhere, or may have.
    pub fn is_placed(&self) -> bool {
        self.holds_slots() || matches!(self.state, JobState::Suspended | JobState::Ending)
    }

    pub fn slots(&self) -> u32 {
        self.placed.iter().fold(0, |sum, part| sum.saturating_add(part.slots))
    }

    /// How long it has run until `now`, without the time it stood still.
    pub fn ran_ms(&self, now: Millis) -> u64 {
        let Some(started) = self.started else { return 0 };
        let until = self.ended.unwrap_or(now);
        let still = self.still_ms.saturating_add(self.still_since.map_or(0, |since| until.saturating_sub(since)));
        until.saturating_sub(started).saturating_sub(still)
    }

    /// When it will have ended at the latest; none without a limit.
    pub fn ends_by(&self, now: Millis) -> Option<Millis> {
        match self.state {
            JobState::Ending | JobState::Suspending => Some(now),
            _ => self.limit_ms.map(|limit| now + limit.saturating_sub(self.ran_ms(now))),
        }
    }
}

/// What an operator has said about a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeSettings {
    pub name: String,
    pub slots: Option<u32>,
    pub features: Vec<String>,
    pub users: Vec<u32>,
    pub drained: Option<String>,
}

/// Slot milliseconds, less and less worth with time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    pub slot_ms: f64,
    pub at: Millis,
}

impl Usage {
    pub fn decayed(&self, now: Millis) -> f64 {
        self.slot_ms * 0.5_f64.powf(now.saturating_sub(self.at) as f64 / HALF_LIFE_MS)
    }

    pub(crate) fn add(&mut self, now: Millis, slot_ms: u64) {
        *self = Usage { slot_ms: self.decayed(now) + slot_ms as f64, at: now };
    }
}

#[derive(Clone, Default, Debug, PartialEq)]
pub struct State {
    pub(crate) next: u64,
    pub(crate) jobs: BTreeMap<JobNumber, Job>,
    pub(crate) specs: BTreeMap<u64, Arc<JobSpec>>,
    pub(crate) nodes: BTreeMap<NodeId, NodeSettings>,
    pub(crate) reservations: BTreeMap<String, Reservation>,
    pub(crate) usage: BTreeMap<u32, Usage>,
    /// Jobs that have not ended and live only as long as a client.
    pub(crate) tied: BTreeSet<JobNumber>,
    pub(crate) config: ClusterConfig,
    /// Nodes whose health check fails, and what it says.
    pub(crate) unfit: BTreeMap<NodeId, String>,
    /// Processes of jobs that have not ended, and that nothing ends.
    pub(crate) stuck: BTreeMap<(JobNumber, NodeId), String>,
    /// Time of the last record.
    pub(crate) time: Millis,
    // What follows from the jobs' states.
    pub(crate) waiting: BTreeSet<JobNumber>,
    pub(crate) placed: BTreeSet<JobNumber>,
    pub(crate) instances: BTreeMap<JobId, JobNumber>,
    pub(crate) history: VecDeque<JobNumber>,
}

impl State {
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub fn job(&self, number: JobNumber) -> Option<&Job> {
        self.jobs.get(&number)
    }

    /// Time of the last record.
    pub fn time(&self) -> Millis {
        self.time
    }

    pub fn spec(&self, job: &Job) -> &JobSpec {
        self.specs.get(&job.spec).expect("a spec is kept as long as one of its jobs")
    }

    /// Jobs that have processes somewhere, or may have.
    pub(crate) fn placed_jobs(&self) -> impl Iterator<Item = &Job> {
        self.placed.iter().filter_map(|number| self.jobs.get(number))
    }

    /// Jobs that want to be started, or to go on.
    pub(crate) fn waiting_jobs(&self) -> impl Iterator<Item = &Job> {
        self.waiting.iter().filter_map(|number| self.jobs.get(number))
    }

    pub(crate) fn by_instance(&self, instance: JobId) -> Option<&Job> {
        self.jobs.get(self.instances.get(&instance)?)
    }

    /// Everything that has to be written to begin a new log with this state.
    pub fn snapshot(&self) -> Vec<Record> {
        let head =
            Part::Head { next: self.next, usage: self.usage.iter().map(|(user, usage)| (*user, *usage)).collect() };
        let specs = self.specs.iter().map(|(key, spec)| Part::Spec { key: *key, spec: Box::new(JobSpec::clone(spec)) });
        let nodes = self.nodes.iter().map(|(node, settings)| Part::Node { node: *node, settings: settings.clone() });
        let reservations = self.reservations.values().cloned().map(Part::Reservation);
        // Ended ones in the order of their ends, which is that of the history.
        let ended = self.history.iter().filter_map(|number| self.jobs.get(number));
        let live = self.jobs.values().filter(|job| !job.state.has_ended());
        let jobs = ended.chain(live).map(|job| Part::Job(Box::new(job.clone())));
        let parts = std::iter::once(head).chain(specs).chain(nodes).chain(reservations).chain(jobs);
        let ties = self.tied.iter().map(|job| Change::Tied { job: *job });
        let config = Some(&self.config).filter(|config| config.version > 0);
        let config = config.map(|config| Change::Set(config.clone()));
        let unfit = self.unfit.iter().map(|(node, why)| Change::Checked { node: *node, failure: Some(why.clone()) });
        let stuck = self.stuck.iter().map(|((job, node), text)| Change::Stuck {
            job: *job,
            node: *node,
            text: Some(text.clone()),
        });
        parts
            .map(Change::Snapshot)
            .chain(ties)
            .chain(config)
            .chain(unfit)
            .chain(stuck)
            .map(|change| Record { at: self.time, change })
            .collect()
    }

    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Why a node gets nothing new: an operator wants so, its health check fails, or processes on it do not end.
    pub(crate) fn drained(&self, node: NodeId) -> Option<String> {
        let said = self.nodes.get(&node).and_then(|settings| settings.drained.clone());
        let unfit = || self.unfit.get(&node).map(|why| format!("its health check fails: {why}"));
        let stuck =
            || self.stuck.iter().find(|((_, at), _)| *at == node).map(|((job, _), text)| format!("job {job}: {text}"));
        said.or_else(unfit).or_else(stuck)
    }

    pub(crate) fn files(&self, job: &Job) -> Files {
        self.spec(job).files.clone()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pulc_control::LaunchSpec;
    use pulc_control::queue::{Exclusive, Yield};

    /// A job of so many processes that wants nothing else.
    pub(crate) fn spec(ranks: u32) -> JobSpec {
        JobSpec {
            name: "test".to_owned(),
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
            limit_ms: None,
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

    #[test]
    fn a_snapshot_gives_the_same_state() {
        let mut state = State::default();
        let submitted = |spec: JobSpec| Change::Submitted { user: 1, spec: Box::new(spec) };
        let mut array = spec(2);
        array.array = Some(pulc_control::queue::Array { indices: vec![0, 5], at_most_at_once: Some(1) });
        let part = Placed { node: NodeId([1; 16]), name: "n1".into(), ranks: 1, slots: 1 };
        let ended = |job| Change::Ended {
            job: JobNumber(job),
            outcome: Outcome::Completed,
            code: Some(0),
            text: None,
            used: Used::default(),
        };
        let changes = [
            submitted(spec(1)),
            submitted(array),
            submitted(spec(3)),
            Change::Placed { job: JobNumber(2), instance: JobId(9), nodes: vec![part] },
            Change::Running { job: JobNumber(2) },
            Change::Tied { job: JobNumber(2) },
            Change::Set(ClusterConfig { version: 3, ..ClusterConfig::default() }),
            Change::Checked { node: NodeId([1; 16]), failure: Some("no disk".into()) },
            Change::Stuck { job: JobNumber(2), node: NodeId([1; 16]), text: Some("4711".into()) },
            ended(4),
            ended(1),
            Change::Node { node: NodeId([1; 16]), name: "n1".into(), patch: NodePatch::default() },
        ];
        for (at, change) in (1000..).zip(changes) {
            state.apply(&Record { at, change });
        }
        let mut again = State::default();
        state.snapshot().iter().for_each(|record| again.apply(record));
        assert_eq!(state, again);
        assert_eq!(state.by_instance(JobId(9)).unwrap().number, JobNumber(2));
        assert_eq!(state.job(JobNumber(3)).unwrap().task, Some((JobNumber(2), 5)));
    }
}
