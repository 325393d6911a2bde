//! Processes that do not end even by SIGKILL, since they wait in the kernel for a disk or a server that does not answer. Part of the job room.
//!
//! A queued job is not over before they have ended: its slots on that node stay taken, and the controller keeps the node from new work meanwhile.
//! A command in the foreground does not wait for that: its keeper is killed as a silent one is, and what is left is named in the log.

use super::Room;
use super::local::LocalJob;
use super::message::JobBody;
use pulc_base::{JobId, log};
use pulc_control::Reply;
use pulc_sched::Report;

impl LocalJob {
    /// The keeper does what it can.
    pub(super) fn waits_for_stuck(&self) -> bool {
        self.stuck.is_some() && self.order.queued.is_some()
    }
}

impl Room {
    pub(super) fn stuck(&mut self, job: JobId, text: String) {
        let Some(part) = self.local.get_mut(&job) else { return };
        log!(Error, "psid", "job {job}: {text}");
        part.stuck = Some(text.clone());
        if part.waits_for_stuck() {
            part.ended_by = None;
        }
        let origin = part.origin();
        self.send(origin, job, JobBody::Stuck { text });
    }

    /// To the origin of a job, about its part on one of its nodes.
    pub(super) fn told_stuck(&mut self, id: JobId, index: usize, text: String) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        let (node, name) = (job.nodes[index].id, job.nodes[index].name.clone());
        if job.queued.is_some() {
            job.stuck = true;
            job.given_up_at = None;
        }
        let note = format!("node {name}: {text}");
        job.client.into_iter().for_each(|client| self.reply(client, Reply::Note { text: note.clone() }));
        self.tell_queue(id, Report::Stuck { node, text });
    }
}
