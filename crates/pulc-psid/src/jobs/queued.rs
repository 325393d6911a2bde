//! Jobs out of the queue, in the job room: started by the queue room's order on their first node, with files instead of a client, and
//! alive through the restart of any daemon. While a daemon is away its keepers go on; when it is back they find it, and everybody says
//! again what had been said. Part of the job room; decides nothing about the queue.

use super::local::LocalJob;
use super::message::{JobBody, JobOrder, OrderNode};
use super::networks::Findings;
use super::origin::OriginJob;
use super::rights::unsealed;
use super::{QueueOrder, Room, connection, keepers, own_user};
use crate::keeper::message::{Back, Order};
use crate::queue;
use crate::queue::message::QueueStart;
use pulc_base::{JobId, NodeId, Rank, log};
use pulc_control::owner::Owner;
use pulc_control::queue::{QueueRequest, Used};
use pulc_control::{NodeInfo, NodeState, Reply, StopKind, Stream};
use pulc_sched::{Cause, Report};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a job waits for a daemon of one of its nodes to come back, and then to say what it knows of the job.
const AWAY: Duration = Duration::from_secs(60);
pub(super) const BACK: Duration = Duration::from_secs(15);

/// What the origin knows of a queued job beyond what it knows of every job.
#[derive(Default)]
pub struct QueuedJob {
    pub allocation: Vec<OrderNode>,
    /// Nodes (positions in the job) whose daemons are away, and until when they may be.
    pub missing: HashMap<usize, Instant>,
    /// What was ordered last, and who has done it.
    still: bool,
    frozen: BTreeSet<usize>,
    used: HashMap<usize, Used>,
    cause: Option<Cause>,
    began: bool,
    /// What was told to the controller and is not on record yet.
    ended: Option<Report>,
}

impl QueuedJob {
    pub fn deadline(&self) -> Option<Instant> {
        self.missing.values().min().copied()
    }
}

impl Room {
    pub(super) fn queue_order(&mut self, order: QueueOrder) {
        match order {
            QueueOrder::Start(start) => self.start_queued(*start),
            QueueOrder::Stop { job, kind, code, text } => {
                self.end_job(job, kind, code, &text);
                if !self.origin.contains_key(&job) {
                    self.abandon(job);
                }
            }
            QueueOrder::Freeze { job, still } => self.freeze(job, still),
            QueueOrder::Seen(job) => self.seen(job),
            QueueOrder::Config(config) => (self.networks, self.desks) = (config.networks, config.desk),
        }
    }

    fn start_queued(&mut self, start: QueueStart) {
        if self.origin.contains_key(&start.job) {
            return;
        }
        let QueueStart { job: id, queued, nodes, mut launch } = start;
        let owner = Owner::of(&launch);
        let user = match (&owner, self.serves_several()) {
            (Some(owner), true) => owner.uid,
            _ => own_user(),
        };
        let decided = self.decide_networks(&nodes, &mut launch);
        let mut job = OriginJob::new(&nodes, &launch, user);
        job.queued = Some(Box::new(QueuedJob { allocation: queued.allocation.clone(), ..QueuedJob::default() }));
        self.origin.insert(id, job);
        let first = nodes.first().is_some_and(|node| node.id == self.me);
        let down = self.shutdown.is_some();
        if !first || down {
            self.origin.entry(id).and_modify(|job| job.nodes.iter_mut().for_each(|node| node.clean = true));
            self.end_job(id, StopKind::AtOnce, super::origin::CODE_NOT_STARTED, "its first node goes down");
            self.set_cause(id, Cause::NodeLost);
            return self.finish_if_clean(id);
        }
        if let Err(why) = decided {
            return self.end_job(id, StopKind::AtOnce, super::origin::CODE_NOT_STARTED, &why);
        }
        let order = JobOrder { nodes, launch, user, queued: Some(Box::new(queued)), origin: self.me };
        self.send(self.me, id, JobBody::Prepare(Box::new(order)));
    }

    /// Jobs of which this is the origin, and parts of jobs here, that end when the daemon does.
    pub(super) fn origin_ending(&self) -> impl Iterator<Item = JobId> {
        self.origin.iter().filter(|(_, job)| !self.leaves || job.queued.is_none()).map(|(id, _)| *id)
    }

    pub(super) fn local_ending(&self) -> impl Iterator<Item = JobId> {
        self.local.iter().filter(|(_, part)| !self.leaves || part.order.queued.is_none()).map(|(id, _)| *id)
    }

    pub(super) fn nothing_left(&self) -> bool {
        self.origin_ending().next().is_none() && self.local_ending().next().is_none()
    }

    pub(super) fn tell_queue(&mut self, id: JobId, report: Report) {
        let Some(queued) = self.origin.get_mut(&id).and_then(|job| job.queued.as_mut()) else { return };
        queued.began |= report == Report::Started;
        if let Some(link) = &self.config.queue {
            let _ = link.sender.send(queue::Event::Job(id, report));
        }
    }

    pub(super) fn set_cause(&mut self, id: JobId, cause: Cause) {
        if let Some(queued) = self.origin.get_mut(&id).and_then(|job| job.queued.as_mut()) {
            queued.cause.get_or_insert(cause);
        }
    }

    /// Nothing is left of a queued job: its end is told until it is on record. Returns whether it was one.
    pub(super) fn finish_queued(&mut self, id: JobId) -> bool {
        let Some(job) = self.origin.get_mut(&id) else { return false };
        let Some(queued) = &mut job.queued else { return false };
        let ended = job.result.clone().unwrap_or(pulc_control::Ended { code: 0, text: None });
        let cause = queued.cause.unwrap_or(if queued.began { Cause::Exited } else { Cause::NotStarted });
        let cpu_ms = queued.used.values().map(|used| used.cpu_ms).sum();
        let memory_peak_kib = queued.used.values().map(|used| used.memory_peak_kib).sum();
        let used = Used { cpu_ms, memory_peak_kib };
        let report = Report::Ended { cause, code: ended.code, text: ended.text, used };
        queued.ended = Some(report.clone());
        self.tell_queue(id, report);
        if self.shutdown.is_some() && !self.leaves {
            // The controller learns from our good-bye.
            self.seen(id);
        }
        true
    }

    /// The end of a job is on record: its keepers may go.
    fn seen(&mut self, id: JobId) {
        if self.origin.get(&id).and_then(|job| job.queued.as_ref()).is_none_or(|queued| queued.ended.is_none()) {
            return;
        }
        let Some(job) = self.origin.remove(&id) else { return };
        for node in job.nodes {
            self.send(node.id, id, JobBody::Dismiss);
        }
    }

    /// Steps in the slots of a job stand still with it.
    fn freeze(&mut self, id: JobId, still: bool) {
        let jobs = self.origin.iter().filter(|(own, job)| **own == id || job.parent == Some(id));
        let orders: Vec<(JobId, Vec<NodeId>)> = jobs
            .map(|(own, job)| (*own, job.nodes.iter().filter(|node| !node.clean).map(|node| node.id).collect()))
            .collect();
        if let Some(queued) = self.origin.get_mut(&id).and_then(|job| job.queued.as_mut()) {
            queued.still = still;
            queued.frozen.clear();
        }
        for (job, nodes) in orders {
            for node in nodes {
                self.send(node, job, JobBody::Freeze { still });
            }
        }
    }

    pub(super) fn frozen(&mut self, id: JobId, index: usize, still: bool) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        let (node, all) = (job.nodes[index].id, job.nodes.iter().filter(|node| !node.clean).count());
        let Some(queued) = &mut job.queued else { return };
        if queued.still != still {
            // A node that was away when it was told.
            let still = queued.still;
            return self.send(node, id, JobBody::Freeze { still });
        }
        queued.frozen.insert(index);
        if still && queued.frozen.len() >= all {
            self.tell_queue(id, Report::Still);
        }
    }

    pub(super) fn used(&mut self, id: JobId, index: usize, used: Used) {
        if let Some(queued) = self.origin.get_mut(&id).and_then(|job| job.queued.as_mut()) {
            queued.used.insert(index, used);
        }
    }

    /// Output of another node: the keeper here writes it.
    pub(super) fn write_output(&mut self, id: JobId, node: u32, at: u64, stream: Stream, bytes: Vec<u8>) {
        if let Some(part) = self.local.get(&id) {
            part.tell_keeper(Order::Write { node, at, stream, bytes });
        }
    }

    pub(super) fn wrote(&mut self, id: JobId, node: u32, upto: u64) {
        let Some(part) = self.local.get(&id) else { return };
        let Some(to) = part.order.nodes.get(node as usize).map(|node| node.id) else { return };
        self.send(to, id, JobBody::Acked { upto });
    }

    /// The daemon of one of its nodes has ended: a queued job waits for it. Returns whether it does.
    pub(super) fn waits_for_node(&mut self, id: JobId, index: usize, soft: bool) -> bool {
        let Some(job) = self.origin.get_mut(&id) else { return false };
        let launching = !job.nodes.iter().all(|node| node.started);
        let Some(queued) = &mut job.queued else { return false };
        if soft && !launching && !job.stopping {
            queued.missing.insert(index, Instant::now() + AWAY);
            return true;
        }
        queued.cause.get_or_insert(Cause::NodeLost);
        false
    }

    pub(super) fn waits_for_origin(&mut self, id: JobId, soft: bool) -> bool {
        let Some(part) = self.local.get_mut(&id) else { return false };
        if part.order.queued.is_none() || !soft || !part.gone {
            return false;
        }
        part.origin_back_by = Some(Instant::now() + AWAY);
        true
    }

    /// A keeper has found this daemon, which knows nothing of its job: it was started again. Returns whether it is believed.
    pub(super) fn keeper_back(&mut self, back: Back, orders: mpsc::UnboundedSender<Order>, uid: u32, pid: i32) -> bool {
        let id = JobId(back.job);
        let system = self.config.system.as_ref();
        let memo = unsealed(&back.memo, id, system).map(pulc_base::boot::decode::<(JobOrder, u32)>);
        let (Some(Ok((order, index))), false) = (memo, self.local.contains_key(&id)) else {
            log!(Warn, "psid", "a keeper of job {id} was turned away: its job is known, or its word makes no sense");
            return false;
        };
        let own = if system.is_some() { order.user } else { own_user() };
        if uid != own {
            log!(Warn, "psid", "a process of user {uid} was turned away that said to be the keeper of job {id}");
            return false;
        }
        let process = match system {
            Some(system) => keepers::found_of_user(pid, &system.helper),
            None => keepers::found(pid),
        };
        let Some(process) = process.ok().filter(|_| order.nodes.get(index as usize).is_some()) else {
            return false;
        };
        log!(Info, "psid", "the keeper of job {id} is back");
        let first: u32 = order.nodes[..index as usize].iter().map(|node| node.ranks).sum();
        let ended: BTreeSet<Rank> = back.ended.iter().map(|(rank, _)| *rank).collect();
        let ranks = (first..first + order.nodes[index as usize].ranks).map(Rank);
        let part = LocalJob {
            index,
            keeper: Some((process, orders)),
            missing: BTreeSet::new(),
            prepared: Vec::new(),
            findings: Findings::default(),
            watch: None,
            reached_at: None,
            unreported: ranks.filter(|rank| !ended.contains(rank)).collect(),
            prepared_by: None,
            ended_by: None,
            closed_by: None,
            gone: true,
            clean: back.clean,
            told: back,
            origin_back_by: None,
            orphan: false,
            staging: None,
            placed: self.config.stage.as_ref().map(|stage| stage.room_of(id)).unwrap_or_default(),
            returning: None,
            told_at: None,
            orders: 0,
            stuck: None,
            order,
        };
        let origin = part.origin();
        if index == 0 {
            self.adopt(id, &part);
        }
        self.local.insert(id, part);
        let is_up = |state| matches!(state, NodeState::Up | NodeState::Draining);
        let up = self.config.mesh.nodes().iter().any(|node| node.id == origin && is_up(node.state));
        if origin == self.me || up {
            self.say_again(id);
        } else if let Some(part) = self.local.get_mut(&id) {
            part.origin_back_by = Some(Instant::now() + AWAY);
        }
        true
    }

    /// This node was the origin of the job before the daemon was started again.
    fn adopt(&mut self, id: JobId, part: &LocalJob) {
        let mut job = OriginJob::new(&part.order.nodes, &part.order.launch, part.order.user);
        let allocation = part.order.queued.as_ref().map(|queued| queued.allocation.clone()).unwrap_or_default();
        let until = Instant::now() + BACK;
        let missing = (1..job.nodes.len()).map(|index| (index, until)).collect();
        job.launched = true;
        job.queued = Some(Box::new(QueuedJob { allocation, missing, still: part.told.still, ..QueuedJob::default() }));
        let others: Vec<NodeId> = job.nodes.iter().skip(1).map(|node| node.id).collect();
        self.origin.insert(id, job);
        // Those that are not connected yet say it when they are.
        for node in others {
            self.send(node, id, JobBody::Again);
        }
        if let Some(link) = &self.config.queue {
            let _ = link.sender.send(queue::Event::Adopted(id));
        }
    }

    pub(super) fn queued_deadlines(&mut self, time: Instant) {
        let due: Vec<(NodeId, JobId, usize)> = self
            .origin
            .iter()
            .flat_map(|(id, job)| {
                let missing = job.queued.iter().flat_map(|queued| &queued.missing);
                missing.filter(|(_, until)| **until <= time).map(|(index, _)| (job.nodes[*index].id, *id, *index))
            })
            .collect();
        for (node, id, index) in due {
            if let Some(queued) = self.origin.get_mut(&id).and_then(|job| job.queued.as_mut()) {
                queued.missing.remove(&index);
            }
            self.lose_part(id, index, node);
        }
        let orphans: Vec<JobId> = self
            .local
            .iter_mut()
            .filter(|(_, part)| part.origin_back_by.is_some_and(|at| at <= time))
            .map(|(id, part)| {
                part.origin_back_by = None;
                *id
            })
            .collect();
        for id in orphans {
            log!(Warn, "psid", "job {id} ends here: the daemon of its origin has not come back");
            self.abandon(id);
        }
    }

    /// This node's part of a job ends, and nobody else will let its keeper go.
    pub(super) fn abandon(&mut self, id: JobId) {
        let Some(part) = self.local.get_mut(&id) else { return };
        part.orphan = true;
        if part.clean && !part.is_returning() {
            part.tell_keeper(Order::Dismiss);
        }
        self.stop_local(id, StopKind::AtOnce);
    }

    fn lose_part(&mut self, id: JobId, index: usize, node: NodeId) {
        self.set_cause(id, Cause::NodeLost);
        self.send(node, id, JobBody::Stop(StopKind::AtOnce));
        self.lose_node_of(id, index, "its daemon has not come back");
    }

    /// Nodes on which a job may be started: inside of a queued one those that it was given, as far as they are known here (its client
    /// names them, too).
    pub(super) fn nodes_for(&self, allocation: Option<JobId>) -> Vec<NodeInfo> {
        let nodes = self.config.mesh.nodes();
        let queued = allocation.and_then(|id| self.origin.get(&id)).and_then(|job| job.queued.as_ref());
        let Some(queued) = queued else { return nodes };
        let given = |node: NodeInfo| {
            let part = queued.allocation.iter().find(|part| part.id == node.id)?;
            Some(NodeInfo { cores: part.ranks, ..node })
        };
        nodes.into_iter().filter_map(given).collect()
    }

    /// A client's request for the controller.
    pub(super) fn ask_queue(&mut self, id: connection::ClientId, request: QueueRequest) {
        let Some(client) = self.clients.get(&id) else { return };
        let (reply, caller) = (client.sender.clone(), &client.caller);
        // The controller lets root change everybody's jobs; what an operator submits is the operator's own.
        let own = matches!(request, QueueRequest::Submit(_) | QueueRequest::Tie(_));
        let user = if self.serves_several() && caller.is_operator && !own { 0 } else { caller.uid };
        let sees = if self.serves_several() { caller.sees() } else { 0 };
        let event = queue::Event::Client { user, sees, request, reply };
        if self.config.queue.as_ref().is_none_or(|link| link.sender.send(event).is_err()) {
            let why = "there is no queue without a daemon; start one with `pulc up`".to_owned();
            self.reply(id, Reply::Refused { why });
        }
    }
}
