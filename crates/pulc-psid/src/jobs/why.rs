//! What the ranks of a job at this node wait for: the question goes on to their keeper, which reads it from the board, and the answer back to
//! the node that asked. Part of the job room. A keeper that does not answer keeps nobody: the asker has a limit of its own.

use super::Room;
use super::local::LocalJob;
use super::message::JobBody;
use super::rights::Caller;
use crate::keeper::message::{ORDERS, Order};
use pulc_base::{JobId, NodeId, log};
use pulc_control::WaitInfo;
use std::collections::HashMap;

/// Questions that keepers have not answered, at most.
const LOOKS_MAX: usize = 1024;

/// Questions on their way to keepers, by the numbers that these were given.
#[derive(Default)]
pub struct Looks {
    asked: HashMap<u64, Look>,
    last: u64,
}

struct Look {
    asker: NodeId,
    number: u64,
    job: JobId,
}

impl Room {
    pub(super) fn look(&mut self, asker: NodeId, job: JobId, number: u64, sees: u32) {
        let foreign = |part: &&LocalJob| !Caller::may_touch(sees, part.order.user);
        if let Some(part) = self.local.get(&job).filter(foreign) {
            log!(Warn, "psid", "user {sees} was refused to look at job {job}, which is user {}'s", part.order.user);
            return self.send(asker, job, JobBody::Why { number, waits: Vec::new() });
        }
        let part = self.local.get(&job).filter(|part| part.keeper.is_some() && part.orders >= ORDERS);
        let Some(part) = part else { return self.send(asker, job, JobBody::Why { number, waits: Vec::new() }) };
        let Looks { asked, last } = &mut self.looks;
        *last += 1;
        part.tell_keeper(Order::Look { number: *last });
        asked.retain(|_, look| self.local.contains_key(&look.job));
        if asked.len() >= LOOKS_MAX {
            asked.clear();
        }
        asked.insert(*last, Look { asker, number, job });
    }

    pub(super) fn looked(&mut self, job: JobId, number: u64, waits: Vec<WaitInfo>) {
        if let Some(look) = self.looks.asked.remove(&number).filter(|look| look.job == job) {
            self.send(look.asker, job, JobBody::Why { number: look.number, waits });
        }
    }
}
