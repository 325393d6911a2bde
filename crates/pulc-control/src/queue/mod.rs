//! What clients and the controller say to each other about queued jobs: the job as asked for, the job as it is, nodes as the
//! queue sees them, reservations. Plain data; made by the commands, judged by `pulc-sched`, carried by psid. Decides nothing.

mod config;
mod spec;

pub use config::{ClusterConfig, ConfigBefore, ConfigWithNetworks, Desks, HealthAction, HealthCheck, KEYS, Setting};
pub use spec::{After, Array, Dependency, Exclusive, FileNames, Files, JobSpec, Yield};

use crate::message::StopKind;
use pulc_base::{JobId, NodeId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Milliseconds since 1970 on the controller's own clock, which never goes back whatever the wall clock does.
pub type Millis = u64;

/// Number of a queued job, in the order of submission. Users see it; [`JobId`] is one attempt to run it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct JobNumber(pub u64);

impl fmt::Display for JobNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who is meant: `17`, all of array `17`, or `17_3`, its task with index 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    pub number: JobNumber,
    pub index: Option<u32>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let bad = || format!("{text:?} is no job number; it is a number as `pulc queue` shows it, like 17 or 17_3");
        let (number, index) = match text.split_once('_') {
            Some((number, index)) => (number, Some(index.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        Ok(Target { number: JobNumber(number.parse().map_err(|_| bad())?), index })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}_{index}", self.number),
            None => self.number.fmt(f),
        }
    }
}

/// More urgent jobs go first. Jobs of class `Urgent` take the place of any lower one, every class that of `Idle` ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Idle,
    #[default]
    Normal,
    High,
    Urgent,
}

impl Class {
    pub const ALL: [(&'static str, Class); 4] =
        [("idle", Class::Idle), ("normal", Class::Normal), ("high", Class::High), ("urgent", Class::Urgent)];

    pub fn word(self) -> &'static str {
        Class::ALL.iter().find(|(_, class)| *class == self).map_or("", |(word, _)| word)
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Class, String> {
        let found = Class::ALL.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, class)| *class)
            .ok_or_else(|| format!("{text:?} is no priority; there are idle, normal, high, urgent"))
    }
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    Failed,
    Cancelled,
    Timeout,
    NodeFail,
    /// It could not be started.
    NotStarted,
    /// What it waited for can't come any more.
    Impossible,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Pending,
    Starting,
    Running,
    /// Told to stand still, not yet still on all nodes.
    Suspending,
    Suspended,
    /// Told to end.
    Ending,
    Ended(Outcome),
}

impl JobState {
    pub const ALL: [JobState; 13] = [
        JobState::Pending,
        JobState::Starting,
        JobState::Running,
        JobState::Suspending,
        JobState::Suspended,
        JobState::Ending,
        JobState::Ended(Outcome::Completed),
        JobState::Ended(Outcome::Failed),
        JobState::Ended(Outcome::Cancelled),
        JobState::Ended(Outcome::Timeout),
        JobState::Ended(Outcome::NodeFail),
        JobState::Ended(Outcome::NotStarted),
        JobState::Ended(Outcome::Impossible),
    ];

    /// The word that users see, as they know it from other systems.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Pending => "PENDING",
            JobState::Starting => "STARTING",
            JobState::Running => "RUNNING",
            JobState::Suspending | JobState::Suspended => "SUSPENDED",
            JobState::Ending => "COMPLETING",
            JobState::Ended(Outcome::Completed) => "COMPLETED",
            JobState::Ended(Outcome::Failed | Outcome::NotStarted) => "FAILED",
            JobState::Ended(Outcome::Cancelled) => "CANCELLED",
            JobState::Ended(Outcome::Timeout) => "TIMEOUT",
            JobState::Ended(Outcome::NodeFail) => "NODE_FAIL",
            JobState::Ended(Outcome::Impossible) => "DEADLINE",
        }
    }

    /// Two letters for narrow tables.
    pub fn short(self) -> &'static str {
        match self {
            JobState::Pending => "PD",
            JobState::Starting => "CF",
            JobState::Running => "R",
            JobState::Suspending | JobState::Suspended => "S",
            JobState::Ending => "CG",
            JobState::Ended(Outcome::Completed) => "CD",
            JobState::Ended(Outcome::Failed | Outcome::NotStarted) => "F",
            JobState::Ended(Outcome::Cancelled) => "CA",
            JobState::Ended(Outcome::Timeout) => "TO",
            JobState::Ended(Outcome::NodeFail) => "NF",
            JobState::Ended(Outcome::Impossible) => "DL",
        }
    }

    pub fn has_ended(self) -> bool {
        matches!(self, JobState::Ended(_))
    }
}

/// Ranks of a job on one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placed {
    pub node: NodeId,
    pub name: String,
    pub ranks: u32,
    pub slots: u32,
}

/// What a job has used, as far as its keepers could count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Used {
    pub cpu_ms: u64,
    pub memory_peak_kib: u64,
}

/// A job as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobView {
    pub number: JobNumber,
    /// Array and index, if it is a task of one.
    pub task: Option<(JobNumber, u32)>,
    pub name: String,
    pub user: u32,
    pub command: String,
    pub state: JobState,
    pub class: Class,
    pub ranks: u32,
    pub slots: u32,
    pub nodes: Vec<Placed>,
    pub submitted: Millis,
    pub started: Option<Millis>,
    pub ended: Option<Millis>,
    /// Time it has run, without the time it stood still.
    pub ran_ms: u64,
    pub limit_ms: Option<u64>,
    pub attempt: u32,
    pub attempt_id: Option<JobId>,
    pub exit_code: Option<u8>,
    /// How it ended, or why it does not run.
    pub text: Option<String>,
    /// The earliest moment at which it can be started as far as is known, if it waits.
    pub may_start: Option<Millis>,
    pub held: bool,
    pub requeue: bool,
    pub used: Used,
    pub files: Files,
    pub directory: String,
}

impl JobView {
    /// `17`, or `17_3` for a task of an array.
    pub fn label(&self) -> String {
        match self.task {
            Some((array, index)) => format!("{array}_{index}"),
            None => self.number.to_string(),
        }
    }
}

impl JobView {
    /// The name of one of its files, filled in.
    pub fn file(&self, pattern: &str) -> String {
        let array = self.task.map_or(self.number, |(array, _)| array);
        let index = self.task.map(|(_, index)| index.to_string()).unwrap_or_default();
        let node = self.nodes.first().map(|part| part.name.as_str()).unwrap_or_default();
        let (number, array, user) = (self.number.to_string(), array.to_string(), self.user.to_string());
        FileNames { job: &number, array: &array, index: &index, name: &self.name, node, user: &user }.fill(pattern)
    }
}

/// A node as the queue sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueNode {
    pub node: NodeId,
    pub name: String,
    pub state: String,
    pub slots: u32,
    pub used: u32,
    pub cores: u32,
    pub memory_mib: u64,
    pub load_milli: u32,
    pub features: Vec<String>,
    pub users: Vec<u32>,
    pub drained: Option<String>,
    pub jobs: Vec<JobNumber>,
}

/// What is to be changed about a node; what is none stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodePatch {
    /// Processes that the queue may start there; none again with `Some(None)`: as many as it has cores.
    pub slots: Option<Option<u32>>,
    pub features: Option<Vec<String>>,
    /// Whose jobs may run there, as [`crate::who::Who`] has numbers; everybody's if empty.
    pub users: Option<Vec<u32>>,
    /// Why nothing new is started there; none again with `Some(None)`.
    pub drained: Option<Option<String>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reservation {
    pub name: String,
    /// Nodes by name; all if empty.
    pub nodes: Vec<String>,
    pub from: Millis,
    pub until: Millis,
    /// Who may use it, as [`crate::who::Who`] has numbers; whoever names it if empty.
    pub users: Vec<u32>,
}

/// What is done with a job that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verb {
    Cancel(StopKind),
    Hold,
    Release,
    Suspend,
    Resume,
    /// Ends this attempt and lets it wait for another one.
    Requeue,
    Class(Class),
    /// Another time limit.
    Limit(Option<u64>),
}

/// From a client to the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum QueueRequest {
    Submit(Box<JobSpec>),
    /// Jobs that have not ended.
    Queue,
    /// Jobs that have ended, the newest first.
    History {
        at_most: u32,
    },
    Job(Target),
    Change {
        targets: Vec<Target>,
        verb: Verb,
    },
    Nodes,
    Node {
        name: String,
        patch: NodePatch,
    },
    Reserve(Reservation),
    Unreserve(String),
    Reservations,
    /// Answered with [`QueueReply::Jobs`] when all of them have ended.
    Wait(Target),
    /// The newest things that happened, and with `follow` what happens from now on.
    Events {
        at_most: u32,
        follow: bool,
    },
    /// Numbers for monitoring, in Prometheus' text format.
    Metrics,
    /// The job lives as long as this client: it is cancelled when the client goes. Answered with [`QueueReply::Jobs`] when it has ended.
    Tie(Target),
    /// Changes what is set for the cluster, all of it or nothing, and answers with [`QueueReply::Config`].
    Config(Vec<Setting>),
}

/// From the controller to a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum QueueReply {
    /// The job is on disk.
    Accepted {
        number: JobNumber,
        tasks: u32,
    },
    Jobs(Vec<JobView>),
    Nodes(Vec<QueueNode>),
    Reservations(Vec<Reservation>),
    Events(Vec<Happened>),
    Text(String),
    Done {
        text: String,
    },
    Refused {
        why: String,
    },
    Config(ClusterConfig),
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Happened {
    pub at: Millis,
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_tasks_are_named_as_they_are_shown() {
        for text in ["17", "17_3"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for nonsense in ["", "x", "17_", "_3", "17_3_1", "-1"] {
            assert!(nonsense.parse::<Target>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn classes_are_ordered_and_read_as_they_are_written() {
        assert!(Class::Urgent > Class::High && Class::High > Class::Normal && Class::Normal > Class::Idle);
        for (word, class) in Class::ALL {
            assert_eq!((word.parse(), class.word()), (Ok(class), word));
        }
    }
}
