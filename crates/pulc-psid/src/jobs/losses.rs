//! Jobs that lose their client, one of their nodes or some of their ranks: what the origin does then, and whom it tells. Part of the job
//! room. Never waits.

use super::Room;
use super::message::JobBody;
use super::origin::CODE_STOPPED;
use pulc_base::boot::Gone;
use pulc_base::{JobId, NodeId, Rank};
use pulc_control::StopKind;
use std::time::Duration;
use tokio::time::Instant;

/// Between two rounds in which all nodes are told which ranks have ended, for each node. Where many nodes end at once every one would
/// otherwise be told of every other one by itself.
const PAUSE_PER_NODE: Duration = Duration::from_micros(20);

/// Ranks that have ended and that the other nodes have not been told of.
#[derive(Default)]
pub struct News {
    /// With the node (position in the job) that knows it.
    ranks: Vec<(usize, Rank, Gone)>,
    /// When they may be told at the earliest.
    not_before: Option<Instant>,
}

impl News {
    pub(super) fn add(&mut self, node: usize, ranks: &[(Rank, Gone)]) {
        self.ranks.extend(ranks.iter().map(|(rank, how)| (node, *rank, *how)));
    }

    /// When there is something to tell.
    pub(super) fn due(&self) -> Option<Instant> {
        self.not_before.filter(|_| !self.ranks.is_empty())
    }

    /// What node `index` does not know yet.
    fn for_node(&self, index: usize) -> Vec<(Rank, Gone)> {
        self.ranks.iter().filter(|(node, ..)| *node != index).map(|(_, rank, how)| (*rank, *how)).collect()
    }
}

impl Room {
    /// Tells all nodes of a job which ranks have ended elsewhere, unless they were told something a moment ago.
    pub(super) fn tell_news(&mut self, id: JobId, time: Instant) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        if job.news.ranks.is_empty() || job.news.not_before.is_some_and(|at| at > time) {
            return;
        }
        let left = (0..).zip(&job.nodes).filter(|(_, node)| !node.clean);
        let orders: Vec<(NodeId, Vec<(Rank, Gone)>)> =
            left.map(|(index, node)| (node.id, job.news.for_node(index))).collect();
        let nodes = u32::try_from(orders.len()).unwrap_or(u32::MAX);
        job.news = News { ranks: Vec::new(), not_before: Some(time + PAUSE_PER_NODE * nodes) };
        for (node, ranks) in orders.into_iter().filter(|(_, ranks)| !ranks.is_empty()) {
            self.send(node, id, JobBody::Gone { ranks });
        }
    }

    pub(super) fn news_deadlines(&mut self, time: Instant) {
        let due = self.origin.iter().filter(|(_, job)| job.news.due().is_some_and(|at| at <= time));
        let due: Vec<JobId> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.tell_news(id, time));
    }

    /// Nobody reads its output any more: the job ends, and what it still prints is thrown away.
    pub(super) fn origin_client_gone(&mut self, id: JobId) {
        if let Some(job) = self.origin.get_mut(&id) {
            job.client = None;
        }
        self.discard_output(id);
        self.end_job(id, StopKind::Gently, CODE_STOPPED, "the client is gone");
    }

    /// From now on nothing waits for the client to read.
    pub(super) fn discard_output(&mut self, id: JobId) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        job.discards = true;
        let owed: Vec<(NodeId, u32)> =
            job.nodes.iter_mut().map(|node| (node.id, std::mem::take(&mut node.outstanding))).collect();
        for (node, bytes) in owed {
            self.send(node, id, JobBody::Credit { bytes });
        }
    }

    /// `soft`: its daemon has ended while its kernel answers, so that queued jobs wait for it.
    pub(super) fn origin_node_down(&mut self, node: NodeId, why: &str, soft: bool) {
        let affected: Vec<(JobId, usize)> = self
            .origin
            .iter()
            .filter_map(|(id, job)| {
                let index = job.nodes.iter().position(|part| part.id == node && !part.clean)?;
                Some((*id, index))
            })
            .collect();
        for (id, index) in affected {
            if !self.waits_for_node(id, index, soft) {
                self.lose_node_of(id, index, why);
            }
        }
    }

    /// A job ends without one of its nodes.
    pub(super) fn lose_node_of(&mut self, id: JobId, index: usize, why: &str) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        let part = &mut job.nodes[index];
        part.clean = true;
        let range = part.first..part.first + part.count;
        let ranks = if part.count == 1 {
            format!("rank {}", part.first)
        } else {
            format!("ranks {} to {}", part.first, part.first + part.count - 1)
        };
        let text = format!("node {} was lost ({why}) with {ranks}", part.name);
        let lost = range.filter(|rank| job.ranks[*rank as usize].ended.is_none()).map(|rank| (Rank(rank), Gone::Lost));
        let lost = lost.collect();
        self.end_job(id, StopKind::Gently, 1, &text);
        self.ranks_ended(id, index, lost);
        self.finish_if_clean(id);
    }
}
