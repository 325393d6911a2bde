//! Questions of one client to all nodes: which jobs are there (`pulc ps`), stop that one (`pulc kill`), what do its ranks wait
//! for (`pulc why`). Answered when
//! every node has answered, is down, or has had time enough.

use super::Room;
use super::connection::ClientId;
use super::message::JobBody;
use super::rights::Caller;
use pulc_base::{JobId, NodeId};
use pulc_control::{JobInfo, NodeState, Reply, StopKind, WaitInfo};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(3);

pub struct Query {
    client: ClientId,
    waiting: BTreeSet<NodeId>,
    deadline: Instant,
    answer: Answer,
    /// Whose jobs it may see; 0: everybody's.
    sees: u32,
}

enum Answer {
    Jobs(Vec<JobInfo>),
    Why(Vec<WaitInfo>),
    Killed { job: JobId, found: bool },
}

impl Query {
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Room {
    fn others(&self) -> BTreeSet<NodeId> {
        let nodes = self.config.mesh.nodes();
        let able = |state| matches!(state, NodeState::Up | NodeState::Draining | NodeState::Torpid);
        nodes.into_iter().filter(|node| !node.me && able(node.state)).map(|node| node.id).collect()
    }

    pub(super) fn ask_jobs(&mut self, client: ClientId) {
        // Answers come back under this number, which only has to differ from other open questions.
        let number = JobId(client);
        let waiting = self.others();
        for node in &waiting {
            self.send(*node, number, JobBody::AskJobs);
        }
        let answer = Answer::Jobs(self.own_jobs());
        let sees = self.caller(client).sees();
        self.queries.insert(number, Query { client, waiting, deadline: Instant::now() + PATIENCE, answer, sees });
        self.finish_query(number);
    }

    pub(super) fn ask_kill(&mut self, client: ClientId, job: JobId, kind: StopKind) {
        if self.queries.contains_key(&job) {
            return self.reply(client, Reply::Refused { why: format!("job {job} is being stopped already") });
        }
        let sees = self.caller(client).sees();
        let found = self.kill(job, kind, self.me, sees);
        let waiting = if found { BTreeSet::new() } else { self.others() };
        for node in &waiting {
            let body =
                if self.serves_several() { JobBody::KillAs { kind, user: sees } } else { JobBody::Kill { kind } };
            self.send(*node, job, body);
        }
        let answer = Answer::Killed { job, found };
        self.queries.insert(job, Query { client, waiting, deadline: Instant::now() + PATIENCE, answer, sees });
        self.finish_query(job);
    }

    /// A question of another node's, or its answer to one of ours.
    pub(super) fn question(&mut self, from: NodeId, job: JobId, body: JobBody) {
        match body {
            JobBody::AskJobs => {
                let jobs = self.own_jobs();
                self.send(from, job, JobBody::Jobs { jobs });
            }
            JobBody::Kill { kind } => {
                let found = self.kill(job, kind, from, 0);
                self.send(from, job, JobBody::Killed { found });
            }
            JobBody::KillAs { kind, user } => {
                let found = self.kill(job, kind, from, user);
                self.send(from, job, JobBody::Killed { found });
            }
            JobBody::AskWhy { number } => self.look(from, job, number, 0),
            JobBody::AskWhyAs { number, user } => self.look(from, job, number, user),
            JobBody::Jobs { jobs } => self.answer_jobs(from, job, jobs),
            JobBody::Killed { found } => self.answer_killed(from, job, found),
            JobBody::Why { number, waits } => self.answer_why(from, number, waits),
            _ => {}
        }
    }

    fn answer_jobs(&mut self, from: NodeId, number: JobId, more: Vec<JobInfo>) {
        if let Some(query) = self.queries.get_mut(&number)
            && let Answer::Jobs(jobs) = &mut query.answer
            && query.waiting.remove(&from)
        {
            jobs.extend(more);
            self.finish_query(number);
        }
    }

    fn answer_killed(&mut self, from: NodeId, number: JobId, here: bool) {
        if let Some(query) = self.queries.get_mut(&number)
            && let Answer::Killed { found, .. } = &mut query.answer
            && query.waiting.remove(&from)
        {
            *found |= here;
            if here {
                query.waiting.clear();
            }
            self.finish_query(number);
        }
    }

    /// All nodes are asked, this one as well: which of them have a part in the job is known to its origin only.
    pub(super) fn ask_why(&mut self, client: ClientId, job: JobId) {
        let mut waiting = self.others();
        waiting.insert(self.me);
        let sees = self.caller(client).sees();
        for node in &waiting {
            let (number, user) = (client, sees);
            let body =
                if self.serves_several() { JobBody::AskWhyAs { number, user } } else { JobBody::AskWhy { number } };
            self.send(*node, job, body);
        }
        let answer = Answer::Why(Vec::new());
        let deadline = Instant::now() + PATIENCE;
        self.queries.insert(JobId(client), Query { client, waiting, deadline, answer, sees });
    }

    fn answer_why(&mut self, from: NodeId, number: u64, more: Vec<WaitInfo>) {
        if let Some(query) = self.queries.get_mut(&JobId(number))
            && let Answer::Why(waits) = &mut query.answer
            && query.waiting.remove(&from)
        {
            waits.extend(more);
            self.finish_query(JobId(number));
        }
    }

    pub(super) fn query_node_down(&mut self, node: NodeId) {
        let asked: Vec<JobId> =
            self.queries.iter_mut().filter_map(|(id, query)| query.waiting.remove(&node).then_some(*id)).collect();
        asked.into_iter().for_each(|number| self.finish_query(number));
    }

    pub(super) fn query_deadlines(&mut self, time: Instant) {
        let due: Vec<JobId> =
            self.queries.iter().filter(|(_, query)| query.deadline <= time).map(|(number, _)| *number).collect();
        for number in due {
            if let Some(query) = self.queries.get_mut(&number) {
                query.waiting.clear();
            }
            self.finish_query(number);
        }
    }

    fn finish_query(&mut self, number: JobId) {
        if !self.queries.get(&number).is_some_and(|query| query.waiting.is_empty()) {
            return;
        }
        let Some(query) = self.queries.remove(&number) else { return };
        let reply = match query.answer {
            Answer::Jobs(mut jobs) => {
                jobs.retain(|job| Caller::may_touch(query.sees, job.user));
                jobs.sort_by_key(|job| std::cmp::Reverse(job.age_ms));
                Reply::Jobs(jobs)
            }
            Answer::Why(mut waits) => {
                waits.sort_by_key(|wait| wait.rank);
                Reply::Why(waits)
            }
            Answer::Killed { found: true, .. } => Reply::Done,
            Answer::Killed { job, .. } => {
                let whose = if query.sees == 0 { "" } else { " of yours" };
                Reply::Refused { why: format!("no node knows a running job {job}{whose}; see `pulc ps`") }
            }
        };
        self.reply(query.client, reply);
    }
}
