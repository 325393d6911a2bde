//! How long a part of a job may be silent: a node or keeper that does not get ready, does not start its ranks, or does not
//! end them, fails the job with a word that names it. Called by the job room when its clock says so. Never hurries a node
//! that only has output left to deliver.

use super::keepers::{self, End};
use super::message::JobBody;
use super::{Event, Room};
use pulc_base::boot::Gone;
use pulc_base::param::{Fixed, Param};
use pulc_base::{JobId, Rank, log};
use pulc_control::StopKind;
use std::time::Duration;
use tokio::time::Instant;

static LAUNCH_TIMEOUT_MS: Param = Param {
    name: "launch_timeout_ms",
    default: 30_000,
    min: 100,
    max: 3_600_000,
    text: "time that a node may take to get ready for a job, and again to start its ranks",
};
static END_TIMEOUT_MS: Param = Param {
    name: "end_timeout_ms",
    default: 15_000,
    min: 100,
    max: 3_600_000,
    text: "time that a keeper may take to end its ranks, beyond the kill delay; its node may take twice as long",
};

pub static PARAMS: &[&Param] = &[&LAUNCH_TIMEOUT_MS, &END_TIMEOUT_MS, &crate::keeper::staying::KEEPER_ALONE_S];

/// What nobody sets.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "job_clients_max",
        value: super::CLIENTS_MAX as u64,
        text: "commands that one daemon serves at a time",
    },
    Fixed {
        name: "output_line_max_bytes",
        value: crate::keeper::output::LINE_MAX as u64,
        text: "longest part of a line that is held back until the line ends",
    },
    Fixed {
        name: "output_window_bytes",
        value: crate::keeper::output::WINDOW as u64,
        text: "output of one node that may be under way before its ranks wait",
    },
    Fixed {
        name: "client_frame_max_bytes",
        value: pulc_control::FRAME_MAX as u64,
        text: "largest request or reply between a command and its daemon",
    },
];

/// Deeper nodes of a launch tree give up earlier, so that the one next to the silent one names it.
const DEPTHS: u32 = 8;

/// The time limits of a room, read once.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub launch: Duration,
    pub end: Duration,
}

impl Patience {
    pub fn read() -> Patience {
        let read = |param: &Param| Duration::from_millis(param.read().value);
        Patience { launch: read(&LAUNCH_TIMEOUT_MS), end: read(&END_TIMEOUT_MS) }
    }

    /// Until when a node `depth` steps below the root of the tree waits for its subtree.
    pub fn prepared_by(&self, depth: u32) -> Instant {
        Instant::now() + self.launch * (DEPTHS - depth.min(DEPTHS / 2)) / DEPTHS
    }

    /// Until when a root on another node has to have said something.
    pub fn root_prepared_by(&self) -> Instant {
        Instant::now() + self.launch + self.launch / 4
    }

    pub fn started_by(&self) -> Instant {
        Instant::now() + self.launch
    }

    /// Until when a keeper that is told to stop has to have ended its ranks.
    pub fn ended_by(&self, kind: StopKind, kill_delay: Duration) -> Instant {
        let gently = if kind == StopKind::Gently { kill_delay } else { Duration::ZERO };
        Instant::now() + gently + self.end
    }

    /// Until when a keeper that has nothing left to do has to have closed its line.
    pub fn closed_by(&self) -> Instant {
        Instant::now() + self.end
    }

    /// After so long without a word from its psid, a client may take it for dead.
    pub fn of_client(&self, kill_delay: Duration) -> Duration {
        2 * self.launch + kill_delay + 4 * self.end
    }
}

impl Room {
    /// Parts on this node whose time is over.
    pub(super) fn local_deadlines(&mut self, time: Instant) {
        let due: Vec<JobId> = self
            .local
            .iter()
            .filter(|(_, part)| part.deadline().is_some_and(|at| at <= time))
            .map(|(id, _)| *id)
            .collect();
        for job in due {
            let Some(part) = self.local.get_mut(&job) else { continue };
            if part.prepared_by.is_some_and(|at| at <= time) {
                part.prepared_by = None;
                self.not_prepared(job);
            } else if part.ended_by.is_some_and(|at| at <= time) {
                part.ended_by = None;
                // With all ranks ended it may be waiting for a reader of its output, which is no fault.
                if !part.unreported.is_empty() {
                    self.silent_keeper(job, "did not end the ranks when it was told to");
                }
            } else if part.closed_by.is_some_and(|at| at <= time) {
                part.closed_by = None;
                log!(Warn, "psid", "job {job} is over, and its keeper has not ended; it is killed");
                self.keeper_closed(job);
            }
        }
    }

    fn not_prepared(&mut self, job: JobId) {
        let seconds = self.patience.launch.as_secs_f64();
        let Some(part) = self.local.get(&job) else { return };
        let (origin, index) = (part.origin(), part.index);
        let others: Vec<&str> = part
            .missing
            .iter()
            .filter(|position| **position != index)
            .map(|position| part.order.nodes[*position as usize].name.as_str())
            .collect();
        if !others.is_empty() {
            let text = format!(
                "node {} did not get ready within {seconds} s; is its daemon stopped or its machine overloaded?",
                others.join(", node ")
            );
            self.send(origin, job, JobBody::Failed { text });
        }
        if self.local.get(&job).is_some_and(|part| part.missing.contains(&index)) {
            self.silent_keeper(job, &format!("did not get ready within {seconds} s"));
        }
    }

    /// A keeper that does not do what it is told is killed, with all that it has started.
    fn silent_keeper(&mut self, job: JobId, what: &str) {
        let Some(part) = self.local.get_mut(&job) else { return };
        let Some((process, sender)) = part.keeper.take() else { return };
        drop(sender);
        let (index, node, origin) = (part.index, self.me, part.origin());
        let text =
            format!("node {}: the keeper of the job {what}; it was killed", part.order.nodes[index as usize].name);
        log!(Error, "psid", "job {job}: {text}");
        self.send(origin, job, JobBody::Failed { text });
        let (events, helper) = (self.events.clone(), self.helper());
        tokio::spawn(async move {
            process.end(End::Silent).await;
            keepers::clear(job, node, index, helper).await;
            let _ = events.send(Event::Cleared(job)).await;
        });
    }

    /// Nodes that have not started, or not ended, their ranks in time.
    pub(super) fn origin_patience(&mut self, time: Instant) {
        let late = |at: Option<Instant>| at.is_some_and(|at| at <= time);
        let due: Vec<JobId> = self
            .origin
            .iter()
            .filter(|(_, job)| late(job.started_by) || late(job.given_up_at))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let Some(job) = self.origin.get_mut(&id) else { continue };
            if late(job.started_by) {
                job.started_by = None;
                let names: Vec<&str> =
                    job.nodes.iter().filter(|node| !node.started).map(|node| node.name.as_str()).collect();
                let seconds = self.patience.launch.as_secs_f64();
                let text = format!("node {} did not start its ranks within {seconds} s", names.join(", node "));
                self.end_job(id, StopKind::AtOnce, super::origin::CODE_NOT_STARTED, &text);
            } else {
                job.given_up_at = None;
                self.give_up_nodes(id);
            }
        }
    }

    /// Goes on without the nodes that have not ended their ranks. They are told to already and do so when they can.
    fn give_up_nodes(&mut self, id: JobId) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        let ended = |rank: u32| job.ranks[rank as usize].ended.is_some();
        let silent: Vec<usize> = (0..job.nodes.len())
            .filter(|index| {
                let node = &job.nodes[*index];
                !node.clean && !(node.first..node.first + node.count).all(ended)
            })
            .collect();
        for index in silent {
            let Some(job) = self.origin.get_mut(&id) else { return };
            let node = &mut job.nodes[index];
            node.clean = true;
            let name = node.name.clone();
            let ranks = node.first..node.first + node.count;
            let lost: Vec<(Rank, Gone)> = ranks
                .filter(|rank| job.ranks[*rank as usize].ended.is_none())
                .map(|rank| (Rank(rank), Gone::Lost))
                .collect();
            log!(Error, "psid", "job {id} ends without node {name}, which does not answer");
            if let Some(text) = job.result.as_mut().and_then(|result| result.text.as_mut()) {
                text.push_str(&format!(
                    "; node {name} does not answer, what it has of the job ends when it comes back or is declared dead"
                ));
            }
            self.ranks_ended(id, index, lost);
        }
        self.finish_if_clean(id);
    }
}
