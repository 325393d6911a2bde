//! Jobs that lose their client or one of their nodes: what the origin does then. Part of the job room. Never waits.

use super::Room;
use super::message::JobBody;
use super::origin::CODE_STOPPED;
use pulc_base::boot::Gone;
use pulc_base::{JobId, NodeId, Rank};
use pulc_control::StopKind;

impl Room {
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
