//! What nodes say, and what becomes of jobs when nodes are lost. A node that is lost for good fails its jobs at once; one whose
//! daemon has ended while its kernel answers gets time to come back, and its jobs go on meanwhile.

use crate::controller::{Controller, GRACE_MS};
use crate::state::Job;
use pulc_base::NodeId;
use pulc_control::StopKind;
use pulc_control::queue::{JobNumber, JobState, Millis, Placed, Used};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What a first node says about a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Report {
    /// All its processes have been started.
    Started,
    /// It stands still on all its nodes.
    Still,
    /// Nothing of it is left anywhere. Repeated until it is acknowledged.
    Ended { cause: Cause, code: u8, text: Option<String>, used: Used },
    /// Something that its user should know, which does not end it.
    Noted { text: String },
    /// Processes of it on this node do not end even by SIGKILL.
    Stuck { node: NodeId, text: String },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// Its processes have ended by themselves.
    Exited,
    NotStarted,
    NodeLost,
    /// Somebody on its nodes has ended it.
    Killed,
    /// It did not begin, since the health check of one of its nodes fails.
    Unfit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    Joining,
    Up,
    Torpid,
    /// Its daemon has ended, its kernel answers.
    Gone,
    Down,
    Left,
}

impl Health {
    pub fn word(self) -> &'static str {
        match self {
            Health::Joining => "joining",
            Health::Up => "up",
            Health::Torpid | Health::Gone => "torpid",
            Health::Down => "down",
            Health::Left => "left",
        }
    }
}

/// A node as the cluster sees it now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSeen {
    pub node: NodeId,
    pub name: String,
    pub health: Health,
    pub cores: u32,
    pub memory_mib: u64,
    pub memory_free_mib: u64,
    pub load_milli: u32,
    pub addresses: Vec<IpAddr>,
}

/// What is remembered of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub now: NodeSeen,
    /// Since when jobs wait for it to come back.
    pub missing_since: Option<Millis>,
}

impl Seen {
    /// A node that has to come back after a restart of the controller.
    pub(crate) fn missing(part: &Placed, now: Millis) -> Seen {
        let node = NodeSeen {
            node: part.node,
            name: part.name.clone(),
            health: Health::Gone,
            cores: 0,
            memory_mib: 0,
            memory_free_mib: 0,
            load_milli: 0,
            addresses: Vec::new(),
        };
        Seen { now: node, missing_since: Some(now) }
    }
}

impl Controller {
    pub(crate) fn node_seen(&mut self, mut node: NodeSeen) {
        let (id, health) = (node.node, node.health);
        let before = self.seen.get(&id);
        let was = before.map(|seen| seen.now.health);
        if was == Some(Health::Down) && health == Health::Gone {
            // It was waited for long enough.
            return;
        }
        let mut missing_since = before.and_then(|seen| seen.missing_since);
        if let Some(before) = before.filter(|_| node.memory_mib == 0) {
            // Not everybody who says something about a node knows its memory.
            (node.memory_mib, node.memory_free_mib) = (before.now.memory_mib, before.now.memory_free_mib);
        }
        match health {
            Health::Up | Health::Torpid => missing_since = None,
            Health::Gone => missing_since = missing_since.or(Some(self.now)),
            Health::Joining | Health::Down | Health::Left => {}
        }
        let name = node.name.clone();
        self.seen.insert(id, Seen { now: node, missing_since });
        if was != Some(health) {
            self.tell(format!("node {name} is {}", health.word()));
        }
        match health {
            Health::Up | Health::Torpid if !matches!(was, Some(Health::Up | Health::Torpid)) => self.ask_roll(id),
            Health::Down | Health::Left if was != Some(health) => {
                let how = if health == Health::Left { "has left the cluster" } else { "was lost" };
                self.lose(id, &format!("node {name} {how}"));
            }
            _ => {}
        }
    }

    /// Whether nothing that matters has changed about a node.
    pub fn knows(&self, node: &NodeSeen) -> bool {
        self.seen.get(&node.node).is_some_and(|seen| {
            let known = &seen.now;
            let load = known.load_milli.abs_diff(node.load_milli) < 250;
            let memory = known.memory_mib == node.memory_mib
                && known.memory_free_mib.abs_diff(node.memory_free_mib) < node.memory_mib / 16 + 1;
            load && memory
                && known.health == node.health
                && known.cores == node.cores
                && known.name == node.name
                && known.addresses == node.addresses
        })
    }

    /// Nodes that were waited for long enough.
    pub(crate) fn missing_nodes(&mut self) {
        let over = |since: Option<Millis>| since.is_some_and(|since| self.now >= since + GRACE_MS);
        let due: Vec<(NodeId, String)> = self
            .seen
            .iter()
            .filter(|(_, seen)| over(seen.missing_since))
            .map(|(id, seen)| (*id, seen.now.name.clone()))
            .collect();
        for (id, name) in due {
            if let Some(seen) = self.seen.get_mut(&id) {
                seen.missing_since = None;
                seen.now.health = Health::Down;
            }
            self.lose(id, &format!("node {name} has not come back within {} s", GRACE_MS / 1000));
        }
    }

    fn lose(&mut self, node: NodeId, text: &str) {
        if let Some(seen) = self.seen.get_mut(&node) {
            seen.missing_since = None;
        }
        let touched: Vec<JobNumber> = self
            .state
            .placed_jobs()
            .filter(|job| job.placed.iter().any(|part| part.node == node))
            .map(|job| job.number)
            .collect();
        if !touched.is_empty() {
            self.owe_roll.insert(node);
        }
        for number in touched {
            let Some(job) = self.state.job(number) else { continue };
            let verdict = job.verdict.clone().unwrap_or_else(|| self.verdict_of_loss(job, text.to_owned()));
            if first_is(job, node) {
                // Nobody is left to report. Its other nodes end it by themselves: its origin is gone.
                self.finished(number, verdict, None, Used::default());
            } else if job.state != JobState::Ending {
                self.end(number, StopKind::AtOnce, 1, verdict);
            }
        }
    }
}

fn first_is(job: &Job, node: NodeId) -> bool {
    job.placed.first().is_some_and(|part| part.node == node)
}
