//! The queue room of a daemon: the way from clients to the controller, wherever it is, and from the controller to the job room of the
//! first node of a job. In the founder's daemon it also holds the controller itself (`controller`). One task, one queue of events.
//! Never decides about jobs; tells each end again until it is on record.

mod clock;
mod controller;
mod disk;
mod facts;
pub mod message;
pub(crate) mod order;

use crate::error::Error;
use crate::health::Health;
use crate::jobs::{Jobs, QueueOrder};
use crate::mesh::{Mesh, MeshEvent};
use crate::peer_message::PeerMsg;
use controller::Desk;
use message::{QueueMsg, QueueStart};
use pulc_base::{JobId, NodeId, log};
use pulc_control::queue::{QueueReply, QueueRequest};
use pulc_control::{NodeState, Reply};
pub use pulc_sched::FIXED;
use pulc_sched::Report;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Requests of this node's clients that wait for an answer.
const ASKED_MAX: usize = 4096;
/// Facts are told, gone clients looked for, and nodes looked at so often.
const TICK: Duration = Duration::from_secs(1);
/// A node that has come (back) is connected to all others within this time.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// Keepers of queued jobs find a daemon that was started again within this time; before, it can't say which jobs it has.
const ADOPTION: Duration = Duration::from_millis(1500);

/// What the room is told.
#[derive(Debug)]
pub enum Event {
    Client {
        user: u32,
        /// Whose jobs the client may look at closely; 0: everybody's.
        sees: u32,
        request: QueueRequest,
        reply: mpsc::UnboundedSender<Reply>,
    },
    Mesh(MeshEvent),
    /// About a job of which this is the first node.
    Job(JobId, Report),
    /// A job whose keeper has come back to this daemon.
    Adopted(JobId),
    /// What the health check here has said: why it fails, if it does.
    Checked {
        failure: Option<String>,
    },
}

pub struct QueueConfig {
    pub mesh: Mesh,
    pub jobs: Jobs,
    pub health: Health,
    /// Where the log is kept, if this daemon is the controller.
    pub controller: Option<PathBuf>,
}

/// Starts the room. Must be called inside a tokio runtime.
///
/// # Errors
/// When the log can't be read.
pub fn start(config: QueueConfig, events: mpsc::UnboundedReceiver<Event>) -> Result<(), Error> {
    let desk = config.controller.as_deref().map(Desk::open).transpose()?;
    let room = Room {
        me: config.mesh.me(),
        mesh: config.mesh,
        jobs: config.jobs,
        health: config.health,
        desk,
        controller: None,
        connected: BTreeSet::new(),
        asked: HashMap::new(),
        next_ticket: 1,
        mine: BTreeSet::new(),
        ends: BTreeMap::new(),
        drained: BTreeSet::new(),
        early: Vec::new(),
        inbox: VecDeque::new(),
        began: Instant::now(),
        roll_due: false,
    };
    tokio::spawn(room.run(events));
    Ok(())
}

/// Who waits for an answer.
struct Asked {
    reply: mpsc::UnboundedSender<Reply>,
    follows: bool,
    user: u32,
    sees: u32,
}

struct Room {
    me: NodeId,
    mesh: Mesh,
    jobs: Jobs,
    health: Health,
    desk: Option<Desk>,
    /// Who the controller is, while it is connected.
    controller: Option<NodeId>,
    /// Other nodes of which the mesh has told us that they are connected.
    connected: BTreeSet<NodeId>,
    asked: HashMap<u64, Asked>,
    next_ticket: u64,
    /// Queued jobs of which this is the first node.
    mine: BTreeSet<JobId>,
    /// Their ends that are not on record yet.
    ends: BTreeMap<JobId, Report>,
    drained: BTreeSet<NodeId>,
    /// Jobs whose other nodes are known to the controller but not yet connected to this one, and until when they wait.
    early: Vec<(Instant, Box<QueueStart>)>,
    /// Messages of this node to itself.
    inbox: VecDeque<QueueMsg>,
    began: Instant,
    roll_due: bool,
}

impl Room {
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut tick = tokio::time::interval(TICK);
        if let Some(greeting) = self.desk.as_ref().map(Desk::greeting) {
            self.see_nodes();
            for message in greeting {
                self.heard(self.me, message).await;
            }
        }
        loop {
            self.deliver().await;
            let wake = self.desk.as_ref().and_then(Desk::wake_at);
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => {
                        self.event(event).await;
                        // What has come together is decided, and written to disk, together.
                        while let Ok(event) = events.try_recv() {
                            self.event(event).await;
                        }
                    }
                    None => return,
                },
                _ = tick.tick() => {
                    self.tick();
                    self.start_early().await;
                }
                () = Desk::written(&mut self.desk) => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Messages to this node itself, the controller's decisions, and what they make happen, until all is quiet.
    async fn deliver(&mut self) {
        loop {
            while let Some(message) = self.inbox.pop_front() {
                self.heard(self.me, message).await;
            }
            let Some(desk) = &mut self.desk else { return };
            let orders = desk.settle();
            if orders.is_empty() {
                return;
            }
            for (to, message) in orders {
                self.send(to, message);
            }
        }
    }

    async fn event(&mut self, event: Event) {
        match event {
            Event::Client { user, sees, request, reply } => self.ask((user, sees), request, reply),
            Event::Mesh(MeshEvent::Message(from, PeerMsg::Queue(message))) => self.heard(from, *message).await,
            Event::Mesh(MeshEvent::Up(info)) => {
                self.connected.insert(info.id);
                if let Some(greeting) = self.desk.as_ref().map(Desk::greeting) {
                    self.see_nodes();
                    greeting.into_iter().for_each(|message| self.send(info.id, message));
                    self.send(info.id, QueueMsg::Drained(self.drained.iter().copied().collect()));
                }
                self.start_early().await;
            }
            Event::Mesh(MeshEvent::Down(node, why)) => {
                self.connected.remove(&node);
                if let Some(desk) = &mut self.desk {
                    desk.node_lost(&self.mesh, node, why);
                }
                if self.controller == Some(node) {
                    self.controller = None;
                    for (_, Asked { reply, .. }) in self.asked.drain() {
                        let why =
                            "the controller was lost before it answered; see `pulc queue` when it is back".to_owned();
                        let _ = reply.send(Reply::Refused { why });
                    }
                }
            }
            Event::Mesh(MeshEvent::Message(..)) => {}
            Event::Job(job, report) => {
                self.mine.insert(job);
                if matches!(report, Report::Ended { .. }) {
                    self.ends.insert(job, report.clone());
                }
                self.tell_controller(QueueMsg::Report { job, report });
            }
            Event::Checked { failure } => self.tell_controller(QueueMsg::Checked { failure }),
            Event::Adopted(job) => {
                self.mine.insert(job);
            }
        }
    }

    fn tick(&mut self) {
        self.tell_controller(QueueMsg::Facts(facts::read(self.mesh.load_milli())));
        if self.desk.is_some() {
            self.see_nodes();
        }
        let gone: Vec<u64> =
            self.asked.iter().filter(|(_, asked)| asked.reply.is_closed()).map(|(ticket, _)| *ticket).collect();
        for ticket in gone {
            self.asked.remove(&ticket);
            self.tell_controller(QueueMsg::Hung { ticket });
        }
        self.call_roll();
    }

    /// Nodes change their states and loads without a word. That one has come or gone counts when it is told: who is asked something before
    /// it knows its controller does not answer, and why a node is lost decides what becomes of its jobs.
    fn see_nodes(&mut self) {
        let Some(desk) = &mut self.desk else { return };
        for node in self.mesh.nodes() {
            let is_there = matches!(node.state, NodeState::Up | NodeState::Draining | NodeState::Torpid);
            if node.me || is_there == self.connected.contains(&node.id) {
                desk.node_seen(&node);
            }
        }
    }

    fn ask(&mut self, (user, sees): (u32, u32), request: QueueRequest, reply: mpsc::UnboundedSender<Reply>) {
        let refuse = |why: &str| {
            let _ = reply.send(Reply::Refused { why: why.to_owned() });
        };
        if self.controller.is_none() {
            return refuse(
                "the controller (the node where `pulc up` was said first) is not connected; jobs that run go on, try again \
                 when it is back",
            );
        }
        if self.asked.len() >= ASKED_MAX {
            return refuse("too many requests of this node wait for the controller; try again later");
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let follows = matches!(request, QueueRequest::Events { follow: true, .. });
        self.asked.insert(ticket, Asked { reply, follows, user, sees });
        self.tell_controller(QueueMsg::Ask { ticket, user, request });
    }

    async fn heard(&mut self, from: NodeId, message: QueueMsg) {
        match message {
            QueueMsg::Controller => {
                self.controller = Some(from);
                self.tell_controller(QueueMsg::Facts(facts::read(self.mesh.load_milli())));
                for (job, report) in self.ends.clone() {
                    self.tell_controller(QueueMsg::Report { job, report });
                }
            }
            QueueMsg::Answer { ticket, reply } if self.controller == Some(from) => self.answer(ticket, reply),
            // Orders are taken from the controller only.
            order if self.controller == Some(from) && order::is_one(&order) => self.obey(order).await,
            report => match &mut self.desk {
                Some(desk) => desk.heard(from, report),
                None => log!(Warn, "queue", "node {from} sent what is only for the controller, or only from it"),
            },
        }
    }

    fn answer(&mut self, ticket: u64, reply: QueueReply) {
        let Some(asked) = self.asked.get(&ticket) else { return };
        if let QueueReply::Refused { why } = &reply {
            log!(Warn, "queue", "user {} was refused: {why}", asked.user);
        }
        let _ = asked.reply.send(Reply::Queue(Box::new(order::veiled(reply, asked.sees))));
        if !asked.follows {
            self.asked.remove(&ticket);
        }
    }

    async fn obey(&mut self, order: QueueMsg) {
        match order {
            QueueMsg::Start(start) => {
                self.mine.insert(start.job);
                self.early.push((Instant::now() + CONNECTED_WITHIN, start));
                self.start_early().await;
            }
            QueueMsg::Stop { job, kind, code, text } => {
                // One that waits to be started ends by being started too late.
                if let Some(at) = self.early.iter().position(|(_, start)| start.job == job) {
                    let (_, start) = self.early.swap_remove(at);
                    self.jobs.queue(QueueOrder::Start(start)).await;
                }
                self.jobs.queue(QueueOrder::Stop { job, kind, code, text }).await;
            }
            QueueMsg::Freeze { job, still } => self.jobs.queue(QueueOrder::Freeze { job, still }).await,
            QueueMsg::Seen(job) => {
                self.mine.remove(&job);
                self.ends.remove(&job);
                self.jobs.queue(QueueOrder::Seen(job)).await;
            }
            QueueMsg::AskRoll => {
                self.roll_due = true;
                self.call_roll();
            }
            QueueMsg::Config(config) => {
                self.health.set(config.health.clone());
                self.jobs.queue(QueueOrder::Config(Box::new(config))).await;
            }
            QueueMsg::Drained(nodes) => {
                self.drained = nodes.into_iter().collect();
                self.mesh.set_drained(&self.drained);
            }
            _ => {}
        }
    }

    /// Starts the jobs all of whose nodes are connected, and those that have waited for that long enough.
    async fn start_early(&mut self) {
        if self.early.is_empty() {
            return;
        }
        let nodes = self.mesh.nodes();
        let is_up = |id: &NodeId| {
            let able = |state| matches!(state, NodeState::Up | NodeState::Draining | NodeState::Torpid);
            nodes.iter().any(|node| node.id == *id && able(node.state))
        };
        for (until, start) in std::mem::take(&mut self.early) {
            if until <= Instant::now() || start.nodes.iter().all(|node| is_up(&node.id)) {
                self.jobs.queue(QueueOrder::Start(start)).await;
            } else {
                self.early.push((until, start));
            }
        }
    }

    fn call_roll(&mut self) {
        if self.roll_due && self.began.elapsed() >= ADOPTION {
            self.roll_due = false;
            self.tell_controller(QueueMsg::Roll(self.mine.iter().copied().collect()));
        }
    }

    fn tell_controller(&mut self, message: QueueMsg) {
        if let Some(controller) = self.controller {
            self.send(controller, message);
        }
    }

    /// Messages that are lost are told again when their receiver is back.
    fn send(&mut self, to: NodeId, message: QueueMsg) {
        if to == self.me {
            return self.inbox.push_back(message);
        }
        match self.mesh.send(to, PeerMsg::Queue(Box::new(message))) {
            Ok(()) | Err(Error::NotConnected(_) | Error::UnknownNode(_)) => {}
            Err(error @ Error::QueueFull { .. }) => {
                log!(Warn, "queue", "a message to node {to} was given up: {error}");
            }
            Err(error) => log!(Info, "queue", "a message to node {to} was lost: {error}"),
        }
    }
}

/// What a node's state means for the queue.
pub(crate) fn health(state: NodeState) -> pulc_sched::Health {
    use pulc_sched::Health;
    match state {
        NodeState::Joining => Health::Joining,
        NodeState::Up | NodeState::Draining => Health::Up,
        NodeState::Torpid => Health::Torpid,
        NodeState::Down => Health::Down,
        NodeState::Left => Health::Left,
    }
}
