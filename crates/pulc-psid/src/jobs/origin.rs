//! Jobs whose client is at this psid: placement, wire-up table, the verdict how the job ended, and the stream of output to
//! the client against its credit. What a node reports is believed only about its own ranks.

use super::Room;
use super::connection::ClientId;
use super::losses::News;
use super::message::{DeadNetwork, JobBody, JobOrder, OrderNode, PreparedNode};
use super::placement::place;
use super::queued::QueuedJob;
use pulc_base::boot::{Boot, BootNode, BootTask, Gone, JobSecret};
use pulc_base::{JobId, NodeId, PROTOCOL_VERSION, Rank, log};
use pulc_control::client::INPUT_WINDOW;
use pulc_control::network::{self, Network};
use pulc_control::{Ended, JobInfo, LaunchSpec, ProcessInfo, Reply, Request, RunSpec, StopKind};
use pulc_hal::os::signals;
use pulc_sched::{Cause, Report};
use std::time::Duration;
use tokio::time::Instant;

/// Exit status of a job that could not be started, as a shell's for a program that it does not find.
pub(super) const CODE_NOT_STARTED: u8 = 127;
/// Of a job whose ranks have ended well, but what it was to give back is not at its home.
const CODE_NOT_RETURNED: u8 = 1;
/// As timeout(1).
const CODE_TIMEOUT: u8 = 124;
pub(super) const CODE_STOPPED: u8 = 143;

pub struct OriginJob {
    pub(super) user: u32,
    pub(super) client: Option<ClientId>,
    pub(super) nodes: Vec<OriginNode>,
    pub(super) ranks: Vec<RankState>,
    pub(super) command: String,
    pub(super) since: Instant,
    pub(super) deadline: Option<Instant>,
    pub(super) timeout: Duration,
    pub(super) kill_delay: Duration,
    /// When all nodes have to have started their ranks.
    pub(super) started_by: Option<Instant>,
    /// When nodes that have not ended their ranks are given up.
    pub(super) given_up_at: Option<Instant>,
    /// Of a queued job: it waits for processes that SIGKILL does not end.
    pub(super) stuck: bool,
    pub(super) launched: bool,
    pub(super) stopping: bool,
    /// Output is thrown away: nobody reads it, or the daemon goes down.
    pub(super) discards: bool,
    pub(super) result: Option<Ended>,
    /// What is missing at its home of what it was to give back.
    not_returned: Option<String>,
    /// Of a job out of the queue.
    pub(super) queued: Option<Box<QueuedJob>>,
    /// The queued job in whose slots this one runs.
    pub(super) parent: Option<JobId>,
    pub(super) news: News,
    /// Those that it may use, the best one first; nothing where there is no choice.
    pub(super) networks: Vec<Network>,
}

pub struct OriginNode {
    pub(super) id: NodeId,
    pub(super) name: String,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) started: bool,
    pub(super) clean: bool,
    /// Output passed to the client and not yet written by it.
    pub(super) outstanding: u32,
}

#[derive(Clone, Copy, Default)]
pub struct RankState {
    pid: u32,
    pub(super) ended: Option<Gone>,
}

impl OriginJob {
    pub(super) fn new(placed: &[OrderNode], launch: &LaunchSpec, user: u32) -> OriginJob {
        let mut first = 0;
        let mut nodes = Vec::new();
        for node in placed {
            let (id, name) = (node.id, node.name.clone());
            nodes.push(OriginNode { id, name, first, count: node.ranks, started: false, clean: false, outstanding: 0 });
            first += node.ranks;
        }
        OriginJob {
            user,
            client: None,
            nodes,
            ranks: vec![RankState::default(); first as usize],
            command: launch.argv.iter().map(|arg| String::from_utf8_lossy(arg)).collect::<Vec<_>>().join(" "),
            since: Instant::now(),
            deadline: None,
            timeout: Duration::ZERO,
            kill_delay: Duration::from_millis(launch.kill_delay_ms),
            started_by: None,
            given_up_at: None,
            stuck: false,
            launched: false,
            stopping: false,
            discards: false,
            result: None,
            not_returned: None,
            queued: None,
            parent: None,
            news: News::default(),
            networks: network::decided(launch),
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let timeout = self.deadline.filter(|_| !self.stopping);
        let missing = self.queued.as_ref().and_then(|queued| queued.deadline());
        timeout.into_iter().chain(self.started_by).chain(self.given_up_at).chain(missing).chain(self.news.due()).min()
    }

    fn node_of(&self, rank: Rank) -> Option<&OriginNode> {
        self.nodes.iter().find(|node| (node.first..node.first + node.count).contains(&rank.0))
    }

    fn info(&self, job: JobId) -> JobInfo {
        let process = |(rank, state): (u32, &RankState)| ProcessInfo {
            rank: Rank(rank),
            node: self.node_of(Rank(rank)).map(|node| node.name.clone()).unwrap_or_default(),
            pid: state.pid,
            ended: state.ended,
        };
        JobInfo {
            job,
            user: self.user,
            command: self.command.clone(),
            ranks: self.ranks.len() as u32,
            nodes: self.nodes.iter().map(|node| node.name.clone()).collect(),
            age_ms: self.since.elapsed().as_millis() as u64,
            processes: (0..).zip(&self.ranks).map(process).collect(),
        }
    }
}

impl Room {
    pub(super) fn own_jobs(&self) -> Vec<JobInfo> {
        self.origin.iter().map(|(id, job)| job.info(*id)).collect()
    }

    pub(super) fn run_job(&mut self, client: ClientId, spec: RunSpec) {
        if spec.launch.argv.is_empty() {
            return self.reply(client, Reply::Refused { why: "no program given".to_owned() });
        }
        if spec.ranks > pulc_hal::board::SLOTS_MAX {
            let why = format!("{} ranks asked for, at most {} are possible", spec.ranks, pulc_hal::board::SLOTS_MAX);
            return self.reply(client, Reply::Refused { why });
        }
        let placed = match place(&self.nodes_for(spec.allocation), spec.ranks, spec.nodes, &spec.hosts) {
            Ok(placed) => placed,
            Err(why) => return self.reply(client, Reply::Refused { why }),
        };
        let mut bits = [0; 8];
        if let Err(error) = random(&mut bits) {
            return self.reply(client, Reply::Refused { why: format!("no random numbers: {error}") });
        }
        let id = JobId(u64::from_le_bytes(bits));
        let mut launch = spec.launch;
        let user = match self.own_launch(client, &mut launch) {
            Ok(user) => user,
            Err(why) => return self.reply(client, Reply::Refused { why }),
        };
        let mut job = OriginJob::new(&placed, &launch, user);
        job.client = Some(client);
        job.timeout = Duration::from_millis(spec.timeout_ms.unwrap_or_default());
        job.deadline = spec.timeout_ms.and_then(|_| Instant::now().checked_add(job.timeout));
        job.parent = spec.allocation;
        self.origin.insert(id, job);
        if let Some(client) = self.clients.get_mut(&client) {
            client.job = Some(id);
        }
        let order = JobOrder { nodes: placed, launch, user, queued: None, origin: self.me };
        self.dispatch(id, order);
    }

    /// The whole tree is ready: makes the wire-up table and gives the start order.
    pub(super) fn all_prepared(&mut self, id: JobId, mut prepared: Vec<PreparedNode>, dead: &[DeadNetwork]) {
        if let Err(why) = self.choose_network(id, &mut prepared, dead) {
            return self.end_job(id, StopKind::AtOnce, CODE_NOT_STARTED, &why);
        }
        let Some(job) = self.origin.get_mut(&id).filter(|job| !job.stopping && !job.launched) else { return };
        let mut tasks: Vec<Option<BootTask>> = vec![None; job.ranks.len()];
        for report in prepared {
            let Some(node) = job.nodes.get(report.node as usize) else { continue };
            for (rank, rails) in (node.first..node.first + node.count).zip(report.rails) {
                tasks[rank as usize] = Some(BootTask { node: report.node, rails });
            }
        }
        let Some(tasks) = tasks.into_iter().collect::<Option<Vec<_>>>() else {
            return self.end_job(
                id,
                StopKind::AtOnce,
                CODE_NOT_STARTED,
                "a node reported fewer ranks than it was given",
            );
        };
        let nodes = job.nodes.iter().map(|node| BootNode { id: node.id, name: node.name.clone() }).collect();
        let mut secret = JobSecret([0; 32]);
        if let Err(error) = random(&mut secret.0) {
            return self.end_job(id, StopKind::AtOnce, CODE_NOT_STARTED, &format!("no random numbers: {error}"));
        }
        job.launched = true;
        job.started_by = Some(self.patience.started_by());
        let boot = Boot { version: PROTOCOL_VERSION, job: id, nodes, tasks };
        let root = job.nodes[0].id;
        self.send(root, id, JobBody::Go { boot: Box::new(boot), secret });
    }

    /// What nodes report about a job.
    pub(super) fn origin_report(&mut self, from: NodeId, id: JobId, body: JobBody) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        let Some(index) = job.nodes.iter().position(|node| node.id == from) else {
            log!(Warn, "psid", "node {from} reported about job {id} in which it has no part");
            return;
        };
        let node = &mut job.nodes[index];
        let own = node.first..node.first + node.count;
        if let Some(queued) = &mut job.queued {
            queued.missing.remove(&index);
        }
        match body {
            JobBody::Returning => {
                // Its patience is with a daemon that says nothing.
                job.client.into_iter().for_each(|client| self.reply(client, Reply::Staging));
            }
            JobBody::NetworkLost { text } => self.end_without_network(id, &text),
            JobBody::Unfit { text } => {
                self.set_cause(id, Cause::Unfit);
                self.end_job(id, StopKind::AtOnce, CODE_NOT_STARTED, &text);
            }
            // Others may still be at work, and fail for a reason that says more.
            JobBody::NotReturned { text } => _ = job.not_returned.get_or_insert(text),
            JobBody::Failed { text } => self.end_job(id, StopKind::Gently, CODE_NOT_STARTED, &text),
            JobBody::Stuck { text } => self.told_stuck(id, index, text),
            JobBody::Started { pids } => {
                for (rank, pid) in own.zip(pids) {
                    job.ranks[rank as usize].pid = pid;
                }
                job.nodes[index].started = true;
                if !job.nodes.iter().all(|node| node.started) {
                    return;
                }
                job.started_by = None;
                self.tell_queue(id, Report::Started);
                let Some(job) = self.origin.get(&id) else { return };
                if let Some(client) = job.client {
                    let nodes = job.nodes.iter().map(|node| node.name.clone()).collect();
                    self.reply(client, Reply::Started { job: id, nodes });
                    self.reply(client, Reply::InputCredit { bytes: INPUT_WINDOW });
                }
            }
            JobBody::Output { at, rank, stream, bytes, .. } if job.queued.is_some() && own.contains(&rank.0) => {
                self.write_output(id, index as u32, at, stream, bytes);
            }
            JobBody::Output { rank, stream, more, bytes, .. } if own.contains(&rank.0) => {
                match job.client.filter(|_| !job.discards) {
                    Some(client) => {
                        node.outstanding = node.outstanding.saturating_add(bytes.len() as u32);
                        self.reply(client, Reply::Output { node: index as u32, rank, stream, more, bytes });
                    }
                    None => self.send(from, id, JobBody::Credit { bytes: bytes.len() as u32 }),
                }
            }
            JobBody::InputCredit { bytes } if own.contains(&0) => {
                job.client.into_iter().for_each(|client| self.reply(client, Reply::InputCredit { bytes }));
            }
            JobBody::InputClosed if own.contains(&0) => {
                job.client.into_iter().for_each(|client| self.reply(client, Reply::InputClosed));
            }
            JobBody::Exited { ranks } => {
                let ranks = ranks.into_iter().filter(|(rank, _)| own.contains(&rank.0)).collect();
                self.ranks_ended(id, index, ranks);
            }
            JobBody::Abort { rank, code, text } if own.contains(&rank.0) => {
                let text: String = text.replace(['\n', '\r'], " ").chars().take(400).collect();
                let text = format!("rank {rank} on node {} aborted the job: {text}", node.name);
                self.end_job(id, StopKind::Gently, code, &text);
            }
            JobBody::Clean => {
                node.clean = true;
                self.finish_if_clean(id);
            }
            JobBody::Frozen { still } => self.frozen(id, index, still),
            JobBody::Used(used) => self.used(id, index, used),
            other => log!(Warn, "psid", "node {from} sent what it may not about job {id}: {other:?}"),
        }
    }

    pub(super) fn ranks_ended(&mut self, id: JobId, index: usize, ranks: Vec<(Rank, Gone)>) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        // What was reported before a daemon was restarted is reported again.
        let ranks: Vec<(Rank, Gone)> =
            ranks.into_iter().filter(|(rank, _)| job.ranks[rank.0 as usize].ended.is_none()).collect();
        for (rank, how) in &ranks {
            job.ranks[rank.0 as usize].ended = Some(*how);
        }
        let name = &job.nodes[index].name;
        let verdict = ranks.iter().find_map(|(rank, how)| match how {
            Gone::Exited(0) => None,
            Gone::Exited(code) => Some((*code, format!("rank {rank} on node {name} exited with status {code}"))),
            Gone::Killed(signal) => Some((
                128 + (signal & 127),
                format!(
                    "rank {rank} on node {name} was killed by signal {signal} ({})",
                    signals::describe((*signal).into())
                ),
            )),
            Gone::Lost => Some((1, format!("rank {rank} on node {name} was lost"))),
        });
        job.news.add(index, &ranks);
        self.tell_news(id, Instant::now());
        if let Some((code, text)) = verdict {
            self.end_job(id, StopKind::Gently, code, &text);
        }
    }

    /// Ends a job; the first reason given is the one that is told.
    pub(super) fn end_job(&mut self, id: JobId, kind: StopKind, code: u8, text: &str) {
        let Some(job) = self.origin.get_mut(&id) else { return };
        if job.result.is_none() {
            job.result = Some(Ended { code, text: Some(text.to_owned()) });
        }
        if job.stopping && kind == StopKind::Gently {
            return;
        }
        job.stopping = true;
        job.started_by = None;
        let at = self.patience.ended_by(kind, job.kill_delay) + self.patience.end;
        job.given_up_at = Some(job.given_up_at.map_or(at, |earlier| earlier.min(at))).filter(|_| !job.stuck);
        let nodes: Vec<NodeId> = job.nodes.iter().filter(|node| !node.clean).map(|node| node.id).collect();
        for node in nodes {
            self.send(node, id, JobBody::Stop(kind));
        }
    }

    pub(super) fn finish_if_clean(&mut self, id: JobId) {
        if !self.origin.get(&id).is_some_and(|job| job.nodes.iter().all(|node| node.clean)) {
            return;
        }
        if let Some(job) = self.origin.get_mut(&id)
            && let Some(text) = job.not_returned.take()
        {
            job.result.get_or_insert(Ended { code: CODE_NOT_RETURNED, text: Some(text) });
        }
        if self.finish_queued(id) {
            return;
        }
        let Some(job) = self.origin.remove(&id) else { return };
        let ended = job.result.unwrap_or(Ended { code: 0, text: None });
        if let Some(client) = job.client {
            self.reply(client, Reply::Ended(ended));
            if let Some(client) = self.clients.get_mut(&client) {
                client.job = None;
            }
        }
    }

    /// Requests of the client about its own job.
    pub(super) fn job_request(&mut self, client: ClientId, request: Request) {
        let Some(id) = self.clients.get(&client).and_then(|client| client.job) else { return };
        let Some(job) = self.origin.get_mut(&id) else { return };
        let first = job.nodes[0].id;
        match request {
            Request::Input { bytes } => self.send(first, id, JobBody::Input { bytes }),
            Request::InputEnd => self.send(first, id, JobBody::InputEnd),
            Request::Credit { node, bytes } => {
                let Some(node) = job.nodes.get_mut(node as usize) else { return };
                let bytes = bytes.min(node.outstanding);
                node.outstanding -= bytes;
                let to = node.id;
                self.send(to, id, JobBody::Credit { bytes });
            }
            Request::Stop(kind) => self.end_job(id, kind, CODE_STOPPED, "the job was stopped by its user"),
            _ => {}
        }
    }

    pub(super) fn origin_deadlines(&mut self, time: Instant) {
        let due: Vec<(JobId, Duration)> = self
            .origin
            .iter()
            .filter(|(_, job)| !job.stopping && job.deadline.is_some_and(|deadline| deadline <= time))
            .map(|(id, job)| (*id, job.timeout))
            .collect();
        for (id, timeout) in due {
            let text = format!("the job did not end within {} s (--timeout)", timeout.as_secs_f64());
            self.end_job(id, StopKind::Gently, CODE_TIMEOUT, &text);
        }
    }
}

fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    if got < bytes.len() { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
