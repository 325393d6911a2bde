//! Saying again: what a node has reported about its part of a queued job, for an origin that was away or restarted. Every word may come
//! twice; the origin counts it once. Part of the job room.

use super::Room;
use super::local::LocalJob;
use super::message::JobBody;
use super::queued::BACK;
use crate::keeper::message::{Order, Report};
use pulc_base::{JobId, NodeId};
use tokio::time::Instant;

impl LocalJob {
    /// Keeps what a daemon that is away now, or this one after its restart, has to be told again.
    pub(super) fn remember(&mut self, report: &Report) {
        if self.order.queued.is_none() {
            return;
        }
        match report {
            Report::Started { pids } => self.told.pids.clone_from(pids),
            Report::Exited { ranks } => self.told.ended.extend_from_slice(ranks),
            Report::Failed { text } => self.told.failed = Some(text.clone()),
            Report::Abort { rank, code, text } => self.told.abort = Some((*rank, *code, text.clone())),
            Report::Frozen { still } => self.told.still = *still,
            Report::Used(used) => self.told.used = *used,
            Report::Clean => self.told.clean = true,
            _ => {}
        }
    }
}

impl Room {
    /// A node is connected (again): what it may have missed is said again.
    pub(super) fn node_back(&mut self, node: NodeId) {
        let parts: Vec<JobId> = self
            .local
            .iter()
            .filter(|(_, part)| part.origin() == node && part.order.queued.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in parts {
            self.say_again(id);
        }
        // A child of a job that was running before this daemon was started again.
        let has = |part: &super::local::LocalJob| part.order.nodes.iter().any(|other| other.id == node);
        let found = self.local.iter().filter(|(_, part)| part.reached_at.is_some() && has(part)).map(|(id, _)| *id);
        for id in found.collect::<Vec<JobId>>() {
            self.watch_network_again(id);
        }
        for job in self.origin.values_mut() {
            let Some(index) = job.nodes.iter().position(|part| part.id == node) else { continue };
            if let Some(until) = job.queued.as_mut().and_then(|queued| queued.missing.get_mut(&index)) {
                *until = (*until).min(Instant::now() + BACK);
            }
        }
    }

    /// What was said while the origin did not know its job yet was said in vain.
    pub(super) fn asked_again(&mut self, from: NodeId, id: JobId) {
        if self.local.get(&id).is_some_and(|part| part.origin() == from && part.order.queued.is_some()) {
            self.say_again(id);
        }
    }

    pub(super) fn say_again(&mut self, id: JobId) {
        // An earlier life of this daemon may have begun to give back what the job leaves.
        let clean = self.local.get(&id).is_some_and(|part| part.told.clean);
        let returned = if clean { self.return_or_not(id) } else { None };
        let Some(part) = self.local.get_mut(&id) else { return };
        part.origin_back_by = None;
        part.tell_keeper(Order::Resend);
        let (to, told) = (part.origin(), part.told.clone());
        let mut bodies = vec![JobBody::Started { pids: told.pids }];
        bodies.extend(told.failed.map(|text| JobBody::Failed { text }));
        bodies.extend(told.abort.map(|(rank, code, text)| JobBody::Abort { rank, code, text }));
        bodies.push(JobBody::Exited { ranks: told.ended });
        if told.clean {
            bodies.push(JobBody::Used(told.used));
            // It is not over before that is at its home.
            bodies.extend(returned.into_iter().flatten());
        } else {
            bodies.push(JobBody::Frozen { still: told.still });
            bodies.extend(part.stuck.clone().map(|text| JobBody::Stuck { text }));
        }
        for body in bodies {
            self.send(to, id, body);
        }
    }
}
