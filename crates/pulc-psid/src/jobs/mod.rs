//! The job room of psid: one task that owns all state about jobs, fed by one queue. `origin` holds the jobs whose client is
//! here, `local` this node's part of jobs (launch tree, keeper), `query` questions to all nodes. Messages to this node itself
//! take the same way as those to others, without the network. Never blocks; never touches a rank itself.

mod again;
mod beginning;
mod connection;
pub mod keepers;
mod link;
mod local;
mod losses;
pub mod message;
mod networks;
mod origin;
pub mod patience;
pub mod placement;
mod query;
mod queued;
mod returning;
mod rights;
#[cfg(test)]
mod scale;
mod staging;
mod stuck;
#[cfg(test)]
mod tests;
mod why;

use crate::health::Health;
use crate::keeper::message::{Back, Order};
use crate::mesh::DownWhy;
use crate::mesh::{Mesh, MeshEvent};
use crate::peer_message::PeerMsg;
use crate::stage::{Made, Staging};
use connection::ClientId;
pub use link::{QueueLink, QueueOrder};
use local::LocalJob;
use message::{DeadNetwork, JobBody, JobMsg, JobOrder};
use origin::OriginJob;
use patience::Patience;
use pulc_base::{JobId, NodeId, PROTOCOL_VERSION, log};
use pulc_control::frame::FrameError;
use pulc_control::network::Network;
use pulc_control::queue::{Desks, JobSpec, QueueRequest};
use pulc_control::stage::Stage;
use pulc_control::{Reply, Request, StopKind};
use query::Query;
pub use rights::{Caller, System};
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Stopped jobs whose launch order may still be under way to us, remembered at most.
const CANCELLED_MAX: usize = 1024;
/// Clients served at once.
const CLIENTS_MAX: usize = 256;
/// Events that wait for the room before their senders are held back.
const QUEUE: usize = 256;

pub struct JobsConfig {
    pub mesh: Mesh,
    /// The binary that is started as keeper with the argument `keeper`.
    pub keeper_program: CString,
    /// Who answers [`Request::Token`] and [`Request::Down`]; none for an embedded psid.
    pub admin: Option<mpsc::UnboundedSender<Admin>>,
    /// None for an embedded psid.
    pub queue: Option<QueueLink>,
    /// Who sees to files that jobs bring along.
    pub stage: Option<Staging>,
    /// Whether jobs of the queue may be started here.
    pub health: Option<Health>,
    /// What a daemon for several users has beyond that.
    pub system: Option<System>,
}

/// A request about the daemon itself, passed on to its owner.
pub struct Admin {
    pub request: Request,
    pub reply: mpsc::UnboundedSender<Reply>,
}

/// Handle on the room; clones share it.
#[derive(Clone)]
pub struct Jobs {
    events: mpsc::Sender<Event>,
}

/// What the room is told.
pub enum Event {
    /// In a daemon for several users with who it is.
    NewClient(UnixStream, Option<Caller>),
    Client(ClientId, Request),
    ClientClosed(ClientId, FrameError),
    Keeper(JobId, crate::keeper::message::Report),
    KeeperClosed(JobId),
    /// A keeper of a queued job has found this daemon.
    KeeperBack {
        back: Box<Back>,
        orders: mpsc::UnboundedSender<Order>,
        uid: u32,
        pid: i32,
        /// Used when it is believed.
        taken: oneshot::Sender<()>,
    },
    /// The helper has made a keeper for a job here, or has not.
    Became(JobId, Result<(keepers::KeeperProcess, std::os::unix::net::UnixStream), String>),
    /// From the queue room, about jobs of which this is the first node.
    Queue(QueueOrder),
    /// Something goes on with the files that a job brings along.
    Staging(JobId),
    /// The files of a job that is started here were looked at.
    Surveyed(JobId, Box<JobOrder>, Result<Stage, String>),
    /// The same of one for the queue.
    Submitted(ClientId, Box<JobSpec>, Result<Stage, String>),
    /// The health check of this node fails in front of a job.
    Unfit(JobId, String),
    /// What was found about the networks from here to the children in a job's launch tree.
    Probed(JobId, Vec<DeadNetwork>),
    /// The network of a job that runs does not reach this child any more.
    NetworkLost(JobId, u32, Network),
    /// All files of a job are on this node.
    Staged(JobId, Result<Made, String>),
    /// What a job gives back from this node is on its way.
    Returning(JobId),
    /// It is at its home, or is not.
    Returned(JobId, Result<(), String>),
    /// The keeper is reaped and nothing of the job is left on this node.
    Cleared(JobId),
    /// The daemon ends; with `leaves` it is started again, and queued jobs go on.
    Shutdown {
        done: oneshot::Sender<()>,
        leaves: bool,
    },
}

impl Jobs {
    /// From the queue room.
    pub async fn queue(&self, order: QueueOrder) {
        let _ = self.events.send(Event::Queue(order)).await;
    }

    /// Serves a keeper that has connected.
    pub fn keeper(&self, stream: UnixStream) {
        connection::keeper_back(stream, self.events.clone());
    }

    /// Starts the room. Must be called inside a tokio runtime.
    pub fn start(config: JobsConfig, mesh_events: mpsc::Receiver<MeshEvent>) -> std::io::Result<Jobs> {
        // Orphans of a killed keeper come to us.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (events, queue) = mpsc::channel(QUEUE);
        let room = Room::new(config, events.clone());
        tokio::spawn(room.run(queue, mesh_events));
        Ok(Jobs { events })
    }

    /// Serves a client that has connected. Another user's is refused.
    pub async fn client(&self, stream: UnixStream) {
        let _ = self.events.send(Event::NewClient(stream, None)).await;
    }

    /// Serves a client of a daemon for several users.
    pub async fn client_of(&self, stream: UnixStream, caller: Caller) {
        let _ = self.events.send(Event::NewClient(stream, Some(caller))).await;
    }

    /// Stops all jobs that this node has a part in, and returns when nothing of them is left here.
    pub async fn shutdown(&self) {
        self.end(false).await;
    }

    /// The same for all but queued jobs, which go on without this daemon.
    pub async fn leave(&self) {
        self.end(true).await;
    }

    async fn end(&self, leaves: bool) {
        let (done, finished) = oneshot::channel();
        if self.events.send(Event::Shutdown { done, leaves }).await.is_ok() {
            let _ = finished.await;
        }
    }
}

struct Client {
    sender: mpsc::UnboundedSender<Reply>,
    greeted: bool,
    job: Option<JobId>,
    caller: Caller,
}

struct Room {
    config: JobsConfig,
    me: NodeId,
    patience: Patience,
    events: mpsc::Sender<Event>,
    clients: HashMap<ClientId, Client>,
    next_client: ClientId,
    origin: HashMap<JobId, OriginJob>,
    local: HashMap<JobId, LocalJob>,
    cancelled: VecDeque<JobId>,
    queries: HashMap<JobId, Query>,
    looks: why::Looks,
    outboxes: HashMap<NodeId, mpsc::UnboundedSender<PeerMsg>>,
    /// Networks that messages of jobs may use, as they are set for the cluster.
    networks: Vec<Network>,
    /// Nodes at which somebody works, likewise.
    desks: Desks,
    /// Messages to this node itself.
    inbox: VecDeque<JobMsg>,
    shutdown: Option<oneshot::Sender<()>>,
    /// Queued jobs outlive this daemon.
    leaves: bool,
}

impl Room {
    fn new(config: JobsConfig, events: mpsc::Sender<Event>) -> Room {
        let me = config.mesh.me();
        Room {
            config,
            me,
            patience: Patience::read(),
            events,
            clients: HashMap::new(),
            next_client: 0,
            origin: HashMap::new(),
            local: HashMap::new(),
            cancelled: VecDeque::new(),
            queries: HashMap::new(),
            looks: why::Looks::default(),
            outboxes: HashMap::new(),
            networks: Vec::new(),
            desks: Desks::None,
            inbox: VecDeque::new(),
            shutdown: None,
            leaves: false,
        }
    }

    async fn run(mut self, mut queue: mpsc::Receiver<Event>, mut mesh: mpsc::Receiver<MeshEvent>) {
        loop {
            let deadline = self.next_deadline();
            tokio::select! {
                Some(event) = queue.recv() => self.event(event),
                Some(event) = mesh.recv() => self.mesh_event(event),
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
                else => return,
            }
            self.deadlines();
            while let Some(message) = self.inbox.pop_front() {
                self.peer(self.me, message);
            }
            if self.shutdown.is_some() && self.nothing_left() {
                if let Some(done) = self.shutdown.take() {
                    let _ = done.send(());
                }
                return;
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::NewClient(stream, caller) => self.new_client(stream, caller),
            Event::Client(id, request) => self.request(id, request),
            Event::ClientClosed(id, error) => self.client_closed(id, &error),
            Event::Keeper(job, report) => self.keeper_report(job, report),
            Event::KeeperClosed(job) => self.keeper_closed(job),
            Event::KeeperBack { back, orders, uid, pid, taken } => {
                if self.keeper_back(*back, orders, uid, pid) {
                    let _ = taken.send(());
                }
            }
            Event::Became(job, keeper) => self.became(job, keeper),
            Event::Queue(order) => self.queue_order(order),
            Event::Cleared(job) => self.cleared(job),
            Event::Staging(job) => self.staging_goes_on(job),
            Event::Surveyed(job, order, stage) => self.surveyed(job, *order, stage),
            Event::Submitted(client, spec, stage) => self.submitted(client, spec, stage),
            Event::Unfit(job, why) => self.unfit(job, &why),
            Event::Probed(job, dead) => self.probed(job, dead),
            Event::NetworkLost(job, child, network) => self.network_lost(job, child, network),
            Event::Returning(job) => self.returning_goes_on(job),
            Event::Returned(job, outcome) => self.returned(job, outcome),
            Event::Staged(job, made) => self.staged(job, made),
            Event::Shutdown { done, leaves } => {
                (self.shutdown, self.leaves) = (Some(done), leaves);
                let jobs: Vec<JobId> = self.origin_ending().collect();
                for job in jobs {
                    self.set_cause(job, pulc_sched::Cause::NodeLost);
                    self.end_job(job, StopKind::AtOnce, 143, "psid was taken down");
                    // A client that does not read must not keep the daemon.
                    self.discard_output(job);
                }
                let jobs: Vec<JobId> = self.local_ending().collect();
                jobs.into_iter().for_each(|job| self.abandon(job));
            }
        }
    }

    fn mesh_event(&mut self, event: MeshEvent) {
        match event {
            MeshEvent::Up(info) => self.node_back(info.id),
            MeshEvent::Down(node, why) => {
                let soft = matches!(why, DownWhy::Closed | DownWhy::Restarted);
                self.outboxes.remove(&node);
                self.origin_node_down(node, &format!("{why:?}").to_lowercase(), soft);
                self.local_node_down(node, soft);
                self.query_node_down(node);
                self.config.stage.iter().for_each(|stage| stage.lost(node));
            }
            MeshEvent::Message(from, PeerMsg::Job(message)) => self.peer(from, message),
            MeshEvent::Message(from, PeerMsg::Stage(message)) => {
                if let Some(stage) = &self.config.stage {
                    stage.peer(from, message);
                }
            }
            MeshEvent::Message(..) => {}
        }
    }

    fn peer(&mut self, from: NodeId, JobMsg { job, body }: JobMsg) {
        match body {
            JobBody::Prepare(order) => self.prepare(from, job, *order),
            JobBody::Prepared { nodes } => self.child_prepared(from, job, nodes, Vec::new()),
            JobBody::PreparedBut { nodes, dead } => self.child_prepared(from, job, nodes, dead),
            JobBody::Staging => self.child_stages(from, job),
            JobBody::Go { boot, secret } => self.go(from, job, *boot, &secret),
            JobBody::Stop(kind) => self.stop_order(from, job, kind),
            JobBody::Input { .. }
            | JobBody::InputEnd
            | JobBody::Credit { .. }
            | JobBody::Gone { .. }
            | JobBody::Acked { .. }
            | JobBody::Freeze { .. }
            | JobBody::Dismiss => {
                self.order_keeper(from, job, body);
            }
            JobBody::Again => self.asked_again(from, job),
            JobBody::AskJobs
            | JobBody::Kill { .. }
            | JobBody::AskWhy { .. }
            | JobBody::KillAs { .. }
            | JobBody::AskWhyAs { .. }
            | JobBody::Jobs { .. }
            | JobBody::Killed { .. }
            | JobBody::Why { .. } => self.question(from, job, body),
            report => self.origin_report(from, job, report),
        }
    }

    fn send(&mut self, to: NodeId, job: JobId, body: JobBody) {
        let message = JobMsg { job, body };
        if to == self.me {
            self.inbox.push_back(message);
        } else {
            self.post(to, PeerMsg::Job(message));
        }
    }

    /// Messages to one node keep their order and wait, if they must, outside of the room. What waits is bounded by the credit
    /// of its jobs.
    fn post(&mut self, to: NodeId, message: PeerMsg) {
        let mesh = &self.config.mesh;
        let outbox = self.outboxes.entry(to).or_insert_with(|| {
            let (sender, mut waiting) = mpsc::unbounded_channel();
            let mesh = mesh.clone();
            tokio::spawn(async move {
                while let Some(message) = waiting.recv().await {
                    if let Err(error) = mesh.send_wait(to, message).await {
                        // The loss of a node is reported as an event as well, and handled there.
                        log!(Info, "psid", "a message to node {to} was lost: {error}");
                    }
                }
            });
            sender
        });
        let _ = outbox.send(message);
    }

    fn new_client(&mut self, stream: UnixStream, caller: Option<Caller>) {
        let own = own_user();
        let peer = stream.peer_cred().map(|peer| peer.uid());
        let id = self.next_client;
        self.next_client += 1;
        let sender = connection::client(stream, id, self.events.clone());
        match peer {
            _ if self.clients.len() >= CLIENTS_MAX => {
                let _ = sender.send(Reply::Refused { why: format!("{CLIENTS_MAX} clients are served already") });
            }
            Ok(uid) if self.serves_several() => {
                let same = self.clients.values().filter(|client| client.caller.uid == uid && uid != 0).count();
                match caller.filter(|caller| caller.uid == uid) {
                    Some(caller) if same < rights::CLIENTS_OF_ONE_MAX => {
                        self.clients.insert(id, Client { sender, greeted: false, job: None, caller });
                    }
                    _ => {
                        let why = format!("{} clients of user {uid} are served already", rights::CLIENTS_OF_ONE_MAX);
                        let _ = sender.send(Reply::Refused { why });
                    }
                }
            }
            Ok(uid) if uid == own || uid == 0 => {
                self.clients.insert(id, Client { sender, greeted: false, job: None, caller: Caller::owner() });
            }
            other => {
                log!(Warn, "psid", "a client was refused: its user is {other:?}, this psid serves user {own}");
                let _ = sender.send(Reply::Refused { why: format!("this psid serves only user {own}") });
            }
        }
    }

    fn request(&mut self, id: ClientId, request: Request) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match request {
            Request::Hello { version } if version == PROTOCOL_VERSION => {
                client.greeted = true;
                let _ = client.sender.send(Reply::Welcome { version, node: self.me });
            }
            Request::Hello { version } => {
                let why = format!(
                    "this psid speaks protocol version {PROTOCOL_VERSION}, the client {version}; use the same pulc for both"
                );
                self.refuse(id, why);
            }
            _ if !client.greeted => self.refuse(id, "the first request must be a hello".to_owned()),
            request if !self.may_ask(id, &request) => {}
            Request::Run(spec) if self.clients.get(&id).is_some_and(|client| client.job.is_none()) => {
                self.run_job(id, *spec)
            }
            Request::Run(_) => self.reply(id, Reply::Refused { why: "one job for each connection".to_owned() }),
            Request::Input { .. } | Request::InputEnd | Request::Credit { .. } | Request::Stop(_) => {
                self.job_request(id, request);
            }
            Request::Ps => self.ask_jobs(id),
            Request::Why { job } => self.ask_why(id, job),
            Request::Kill { job, kind } => self.ask_kill(id, job, kind),
            Request::Nodes => self.reply(id, Reply::Nodes(self.config.mesh.nodes())),
            Request::Queue(request) => match *request {
                QueueRequest::Submit(spec) => self.submit(id, spec),
                request => self.ask_queue(id, request),
            },
            Request::Token | Request::Down { .. } | Request::Restart => {
                let Some(reply) = self.clients.get(&id).map(|client| client.sender.clone()) else { return };
                match &self.config.admin {
                    Some(admin) if admin.send(Admin { request, reply }).is_ok() => {}
                    _ => self.reply(id, Reply::Refused { why: "no daemon runs here".to_owned() }),
                }
            }
        }
    }

    /// Answers and closes the line.
    fn refuse(&mut self, id: ClientId, why: String) {
        log!(Warn, "psid", "a client was refused: {why}");
        if let Some(client) = self.clients.remove(&id) {
            let _ = client.sender.send(Reply::Refused { why });
        }
    }

    fn reply(&self, id: ClientId, reply: Reply) {
        if let Some(client) = self.clients.get(&id) {
            let _ = client.sender.send(reply);
        }
    }

    fn client_closed(&mut self, id: ClientId, error: &FrameError) {
        if !matches!(error, FrameError::Closed | FrameError::Io(_)) {
            self.reply(id, Reply::Refused { why: error.to_string() });
            log!(Info, "psid", "a client was cut off: {error}");
        }
        if let Some(job) = self.clients.remove(&id).and_then(|client| client.job) {
            self.origin_client_gone(job);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let jobs = self.origin.values().filter_map(OriginJob::deadline);
        let parts = self.local.values().filter_map(LocalJob::deadline);
        jobs.chain(parts).chain(self.queries.values().map(Query::deadline)).min()
    }

    fn deadlines(&mut self) {
        let time = Instant::now();
        self.origin_deadlines(time);
        self.origin_patience(time);
        self.news_deadlines(time);
        self.local_deadlines(time);
        self.queued_deadlines(time);
        self.query_deadlines(time);
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
