//! The controller's desk in the founder's daemon: feeds `pulc_sched::Controller` with what happens and its own clock, hands its records
//! to the disk, and lets its effects out when the records before them are there. Never touches a job itself.

use super::clock::Clock;
use super::disk::Disk;
use super::message::{Facts, QueueMsg};
use super::{health, order};
use crate::error::Error;
use crate::mesh::{DownWhy, Mesh};
use pulc_base::{NodeId, log};
use pulc_control::NodeInfo;
use pulc_control::queue::{Millis, QueueReply, QueueRequest};
use pulc_sched::{Controller, Effect, Event, Health, Journal, NodeSeen, Step};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// After a pass over the queue that took long, the next one waits so many times as long: what comes meanwhile is accepted, and decided with
/// one pass. A short one makes nobody wait.
const REST: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(250);
const SHORT_PASS: Duration = Duration::from_millis(1);

pub struct Desk {
    core: Controller,
    disk: Disk,
    clock: Clock,
    /// What may happen when so many records are on disk.
    held: VecDeque<(u64, Effect)>,
    /// Whose request a ticket of the core is.
    tickets: HashMap<u64, Asked>,
    next_ticket: u64,
    facts: HashMap<NodeId, Facts>,
    /// Nodes whose daemons have ended while their kernels answer.
    gone: HashMap<NodeId, Instant>,
    /// Something has happened since the last pass.
    dirty: bool,
    wake_at: Option<Instant>,
    rests_until: Instant,
}

/// Whose request it is, and its number there.
#[derive(Clone, Copy)]
struct Asked {
    from: NodeId,
    ticket: u64,
    /// Gets more than one answer.
    follows: bool,
}

impl Desk {
    /// # Errors
    /// When the log can't be read, or is damaged.
    pub fn open(directory: &Path) -> Result<Desk, Error> {
        let failed = |error: pulc_sched::Error| match error {
            pulc_sched::Error::Io { path, what, source } => {
                Error::io(format!("cannot open the queue: {}: {what}", path.display()))(source)
            }
            other => Error::io("cannot open the queue")(std::io::Error::other(other)),
        };
        let (journal, state, word) = Journal::open(directory).map_err(failed)?;
        if let Some(word) = word {
            log!(Warn, "queue", "{word}");
        }
        let runs = state.jobs().any(|job| job.is_placed() || job.started.is_some() && !job.state.has_ended());
        let clock = Clock::open(directory, state.time(), runs)?;
        let seed = u64::from_le_bytes(crate::identity::random()?);
        Ok(Desk {
            core: Controller::recover(state, clock.now(), seed),
            disk: Disk::start(journal)?,
            clock,
            held: VecDeque::new(),
            tickets: HashMap::new(),
            next_ticket: 1,
            facts: HashMap::new(),
            gone: HashMap::new(),
            dirty: true,
            wake_at: None,
            rests_until: Instant::now(),
        })
    }

    fn now(&self) -> Millis {
        self.clock.now()
    }

    /// What a node that has come is told first.
    pub fn greeting(&self) -> [QueueMsg; 2] {
        [QueueMsg::Controller, QueueMsg::Config(self.core.state().config().clone())]
    }

    /// When [`Desk::settle`] has something to do though nothing happens.
    pub fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Returns when more records are on disk; never without a desk.
    pub async fn written(desk: &mut Option<Desk>) {
        match desk {
            Some(desk) => {
                if desk.disk.written.changed().await.is_err() {
                    std::future::pending().await
                }
            }
            None => std::future::pending().await,
        }
    }

    /// Decides what is due, and returns what may be told now.
    pub fn settle(&mut self) -> Vec<(NodeId, QueueMsg)> {
        let begin = Instant::now();
        if self.dirty || self.wake_at.is_some_and(|at| at <= begin) {
            if begin >= self.rests_until {
                self.pass();
                self.rests_until = rest_after(begin, Instant::now());
            } else {
                self.wake_at = Some(self.rests_until);
            }
        }
        let written = *self.disk.written.borrow_and_update();
        let mut orders = Vec::new();
        while self.held.front().is_some_and(|(number, _)| *number <= written) {
            let Some((_, effect)) = self.held.pop_front() else { break };
            match effect {
                Effect::Reply { ticket, reply } => orders.extend(self.answer(ticket, reply)),
                Effect::Drained(nodes) => {
                    let everybody = self.facts.keys().map(|node| (*node, QueueMsg::Drained(nodes.clone())));
                    orders.extend(everybody);
                }
                Effect::Configured(config) => {
                    orders.extend(self.facts.keys().map(|node| (*node, QueueMsg::Config(config.clone()))));
                }
                effect => orders.extend(order::of(effect)),
            }
        }
        orders
    }

    /// Decides what is due.
    fn pass(&mut self) {
        self.dirty = false;
        let now = self.now();
        let step = self.core.settle(now);
        self.keep(step);
        let next = self.core.next_deadline();
        // Not at once again for something that could not be done.
        let wait = next.map(|at| Duration::from_millis(at.saturating_sub(now).clamp(20, 3_600_000)));
        self.wake_at = wait.map(|wait| Instant::now() + wait);
    }

    fn step(&mut self, event: Event) {
        let step = self.core.step(self.now(), event);
        self.dirty = true;
        self.keep(step);
    }

    fn keep(&mut self, step: Step) {
        for record in &step.records {
            self.disk.put(pulc_sched::journal::body(record));
        }
        let number = self.disk.sent();
        self.held.extend(step.effects.into_iter().map(|effect| (number, effect)));
    }

    fn answer(&mut self, ticket: u64, reply: QueueReply) -> Option<(NodeId, QueueMsg)> {
        let asked = *self.tickets.get(&ticket)?;
        if !asked.follows {
            self.tickets.remove(&ticket);
        }
        Some((asked.from, QueueMsg::Answer { ticket: asked.ticket, reply }))
    }

    pub fn heard(&mut self, from: NodeId, message: QueueMsg) {
        match message {
            QueueMsg::Ask { ticket, user, request } => self.ask(from, ticket, user, request),
            QueueMsg::Hung { ticket } => {
                let is_it = |asked: &Asked| asked.from == from && asked.ticket == ticket;
                let hung = self.tickets.iter().find(|(_, asked)| is_it(asked)).map(|(own, _)| *own);
                if let Some(own) = hung {
                    self.tickets.remove(&own);
                    self.step(Event::Hung { ticket: own });
                }
            }
            QueueMsg::Facts(facts) => {
                self.facts.insert(from, facts);
            }
            QueueMsg::Report { job, report } => self.step(Event::Report { from, job, report }),
            QueueMsg::Checked { failure } => self.step(Event::Checked { from, failure }),
            QueueMsg::Roll(jobs) => self.step(Event::Roll { from, jobs }),
            other => log!(Warn, "queue", "node {from} sent what only the controller says: {other:?}"),
        }
    }

    fn ask(&mut self, from: NodeId, theirs: u64, user: u32, request: QueueRequest) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let follows = matches!(request, QueueRequest::Events { follow: true, .. });
        self.tickets.insert(ticket, Asked { from, ticket: theirs, follows });
        if self.disk.is_failing() && !reads_only(&request) {
            let why =
                "the controller's disk takes nothing at the moment (see daemon.log there); try again later".to_owned();
            let written = 0;
            self.held.push_front((written, Effect::Reply { ticket, reply: QueueReply::Refused { why } }));
            return;
        }
        self.step(Event::Ask { ticket, user, request });
    }

    /// What the mesh says of a node, once a second and when it comes.
    pub fn node_seen(&mut self, node: &NodeInfo) {
        let facts = self.facts.get(&node.id).copied().unwrap_or_default();
        let mut health = health(node.state);
        let is_there = health == Health::Up || health == Health::Torpid;
        if is_there {
            self.gone.remove(&node.id);
        } else if self.gone.contains_key(&node.id) && health != Health::Left {
            // The core knows how long it waits for such a node.
            health = Health::Gone;
        }
        let mut addresses: Vec<IpAddr> = node.addresses.iter().map(SocketAddr::ip).collect();
        // Their order changes with who calls whom, which means nothing here.
        addresses.sort_unstable();
        let seen = NodeSeen {
            node: node.id,
            name: node.name.clone(),
            health,
            cores: node.cores,
            memory_mib: facts.memory_mib,
            memory_free_mib: facts.memory_free_mib,
            // What the mesh knows may be half a minute old.
            load_milli: if is_there { facts.load_milli } else { node.load_milli },
            addresses,
        };
        if self.core.knows(&seen) {
            return;
        }
        self.step(Event::Node(seen));
    }

    pub fn node_lost(&mut self, mesh: &Mesh, node: NodeId, why: DownWhy) {
        let lost: Vec<u64> = self.tickets.iter().filter(|(_, asked)| asked.from == node).map(|(own, _)| *own).collect();
        for own in lost {
            self.tickets.remove(&own);
            self.step(Event::Away { ticket: own });
        }
        let Some(mut info) = mesh.nodes().into_iter().find(|info| info.id == node) else { return };
        match why {
            DownWhy::Closed | DownWhy::Restarted => {
                self.gone.insert(node, Instant::now());
                info.state = pulc_control::NodeState::Down;
            }
            DownWhy::Left => info.state = pulc_control::NodeState::Left,
            DownWhy::Silent | DownWhy::BrokenRules => {
                self.gone.remove(&node);
                info.state = pulc_control::NodeState::Down;
            }
        }
        self.node_seen(&info);
    }
}

/// When the pass after the one that took from `begin` until `end` may come.
fn rest_after(begin: Instant, end: Instant) -> Instant {
    let took = end - begin;
    if took < SHORT_PASS { end } else { end + (took * REST).min(REST_MAX) }
}

fn reads_only(request: &QueueRequest) -> bool {
    use QueueRequest::{Events, History, Job, Metrics, Nodes, Queue, Reservations, Wait};
    matches!(request, Queue | History { .. } | Job(_) | Nodes | Reservations | Wait(_) | Events { .. } | Metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_took_long_is_followed_by_a_rest_and_a_short_one_by_none() {
        let begin = Instant::now();
        let rest = |took_us: u64| {
            let end = begin + Duration::from_micros(took_us);
            (rest_after(begin, end) - end).as_micros()
        };
        assert_eq!([rest(900), rest(2000), rest(10_000), rest(5_000_000)], [0, 8000, 40_000, 250_000]);
    }
}
