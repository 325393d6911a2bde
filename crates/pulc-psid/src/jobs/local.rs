//! This node's part of jobs: its place in the launch tree and its keeper. Orders are taken only from the job's origin or
//! the parent in the tree, reports only from children.

use super::keepers::{self, End};
use super::message::{DeadNetwork, JobBody, JobOrder, PreparedNode};
use super::networks::{Findings, Watch};
use super::returning::Returning;
use super::{CANCELLED_MAX, Event, Room};
use crate::keeper::message::{Back, ORDERS, Order, Report};
use crate::stage::{self, Placed};
use pulc_base::boot::{Boot, Gone, JobSecret};
use pulc_base::{JobId, NodeId, Rank, log};
use pulc_control::StopKind;
use pulc_control::owner::Owner;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Children of each node in the launch tree.
pub(super) const FAN_OUT: u32 = 16;

pub struct LocalJob {
    pub(super) order: JobOrder,
    /// Our position in the order.
    pub(super) index: u32,
    pub(super) keeper: Option<(keepers::KeeperProcess, mpsc::UnboundedSender<Order>)>,
    /// Positions (children, and ourselves) that have not answered the first phase.
    pub(super) missing: BTreeSet<u32>,
    pub(super) prepared: Vec<PreparedNode>,
    pub(super) findings: Findings,
    /// Of the job's network while it runs.
    pub(super) watch: Option<Watch>,
    /// Where its first rank here is reached, as its keeper has told a daemon that was started again.
    pub(super) reached_at: Option<IpAddr>,
    /// Ranks here that have not been reported as ended.
    pub(super) unreported: BTreeSet<Rank>,
    /// When the first phase has to be over.
    pub(super) prepared_by: Option<Instant>,
    /// When the keeper has to have done what it was told: to stop.
    pub(super) ended_by: Option<Instant>,
    /// When the keeper, which has nothing left to do, has to have closed its line.
    pub(super) closed_by: Option<Instant>,
    pub(super) gone: bool,
    pub(super) clean: bool,
    /// Of a queued job: what was reported of it, to be told again; and until when its origin may be away.
    pub(super) told: Back,
    pub(super) origin_back_by: Option<Instant>,
    /// Nobody is left to dismiss its keeper but this daemon.
    pub(super) orphan: bool,
    /// Files that it brings along are on their way; what was made of them.
    pub(super) staging: Option<AbortHandle>,
    pub(super) placed: Placed,
    /// How far what it gives back is.
    pub(super) returning: Option<Returning>,
    /// When the node above was told last that they are.
    pub(super) told_at: Option<Instant>,
    /// Which orders its keeper knows; of one that has found this daemon, once it has said so.
    pub(super) orders: u32,
    /// Processes of it here that SIGKILL does not end: nobody is to be hurried any more.
    pub(super) stuck: Option<String>,
}

impl LocalJob {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let own = [self.prepared_by, self.ended_by, self.closed_by, self.origin_back_by];
        own.into_iter().flatten().min()
    }

    pub(super) fn origin(&self) -> NodeId {
        self.order.origin
    }

    /// Who passes orders on to us; to the root of the tree the origin gives them.
    pub(super) fn parent(&self) -> NodeId {
        match self.index.checked_sub(1) {
            Some(before) => self.order.nodes[(before / FAN_OUT) as usize].id,
            None => self.order.origin,
        }
    }

    /// Steps from the root of the launch tree.
    pub(super) fn depth(&self) -> u32 {
        std::iter::successors(Some(self.index), |at| at.checked_sub(1).map(|at| at / FAN_OUT)).count() as u32 - 1
    }

    pub(super) fn name(&self) -> &str {
        &self.order.nodes[self.index as usize].name
    }

    pub(super) fn children(&self) -> impl Iterator<Item = u32> + use<> {
        let first = self.index * FAN_OUT + 1;
        let count = self.order.nodes.len() as u32;
        first..(first + FAN_OUT).min(count).max(first)
    }

    pub(super) fn tell_keeper(&self, order: Order) {
        if let Some((_, sender)) = &self.keeper {
            let _ = sender.send(order);
        }
    }
}

impl Room {
    pub(super) fn prepare(&mut self, from: NodeId, job: JobId, order: JobOrder) {
        if self.cancelled.contains(&job) || self.local.contains_key(&job) {
            return;
        }
        let Some(index) = order.nodes.iter().position(|node| node.id == self.me) else {
            log!(Warn, "psid", "node {from} sent a launch order that does not name this node");
            return;
        };
        let index = index as u32;
        let first: u32 = order.nodes[..index as usize].iter().map(|node| node.ranks).sum();
        let ranks = (first..first + order.nodes[index as usize].ranks).map(Rank).collect();
        let missing = BTreeSet::from([index]);
        let mut part = LocalJob {
            order,
            index,
            keeper: None,
            missing,
            prepared: Vec::new(),
            findings: Findings::default(),
            watch: None,
            reached_at: None,
            unreported: ranks,
            prepared_by: None,
            ended_by: None,
            closed_by: None,
            gone: false,
            clean: false,
            told: Back::default(),
            origin_back_by: None,
            orphan: false,
            staging: None,
            placed: Placed::default(),
            returning: None,
            told_at: None,
            orders: ORDERS,
            stuck: None,
        };
        part.prepared_by = Some(self.patience.prepared_by(part.depth()));
        if part.parent() != from {
            log!(Warn, "psid", "node {from} sent a launch order though it is not the parent of this node in its tree");
            return;
        }
        let wanted = self.wanted(&part);
        for child in part.children() {
            part.missing.insert(child);
            let to = part.order.nodes[child as usize].id;
            self.send(to, job, JobBody::Prepare(Box::new(part.order.clone())));
        }
        self.begin_probing(job, &mut part);
        match wanted {
            Ok(None) if !self.checks(&part) => self.begin_keeper(job, part),
            Ok(wanted) => {
                self.begin_staging(job, &mut part, wanted);
                self.local.insert(job, part);
            }
            Err(text) => self.not_begun(job, part, &text),
        }
    }

    pub(super) fn not_begun(&mut self, job: JobId, part: LocalJob, text: &str) {
        let text = format!("node {}: {text}", part.name());
        self.send(part.origin(), job, JobBody::Failed { text });
        self.local.insert(job, part);
        self.cleared(job);
    }

    pub(super) fn child_prepared(
        &mut self,
        from: NodeId,
        job: JobId,
        nodes: Vec<PreparedNode>,
        dead: Vec<DeadNetwork>,
    ) {
        if self.origin.get(&job).is_some_and(|own| own.nodes[0].id == from) {
            return self.all_prepared(job, nodes, &dead);
        }
        let Some(part) = self.local.get_mut(&job) else { return };
        let child = part.children().find(|child| part.order.nodes[*child as usize].id == from);
        if child.is_some_and(|child| part.missing.remove(&child)) {
            part.prepared.extend(nodes);
            part.findings.add(dead);
            self.pass_up_prepared(job);
        } else {
            log!(Warn, "psid", "node {from} reported a part of job {job} that it does not have");
        }
    }

    fn own_prepared(&mut self, job: JobId, rails: Vec<Vec<SocketAddr>>) {
        let Some(part) = self.local.get_mut(&job) else { return };
        let node = part.index;
        if part.missing.remove(&node) {
            part.prepared.push(PreparedNode { node, rails });
            self.pass_up_prepared(job);
        }
    }

    pub(super) fn pass_up_prepared(&mut self, job: JobId) {
        let ready = |part: &&mut LocalJob| part.missing.is_empty() && !part.findings.is_probing();
        let Some(part) = self.local.get_mut(&job).filter(ready) else { return };
        let nodes = std::mem::take(&mut part.prepared);
        part.prepared_by = None;
        let (parent, answer) = (part.parent(), part.findings.answer(nodes));
        self.send(parent, job, answer);
    }

    pub(super) fn go(&mut self, from: NodeId, job: JobId, boot: Boot, secret: &JobSecret) {
        let Some(part) = self.local.get_mut(&job) else { return };
        if part.parent() != from || part.gone {
            return;
        }
        part.gone = true;
        let children: Vec<NodeId> = part.children().map(|child| part.order.nodes[child as usize].id).collect();
        part.tell_keeper(Order::Go { boot: Box::new(boot.clone()), secret: secret.clone() });
        self.watch_network(job, &boot);
        for child in children {
            self.send(child, job, JobBody::Go { boot: Box::new(boot.clone()), secret: secret.clone() });
        }
    }

    /// From the origin, directly: it may overtake the launch order, which then must not start anything.
    pub(super) fn stop_order(&mut self, from: NodeId, job: JobId, kind: StopKind) {
        match self.local.get(&job) {
            Some(part) if part.origin() == from => self.stop_local(job, kind),
            Some(_) => log!(Warn, "psid", "node {from} may not stop job {job}"),
            None => {
                if self.cancelled.len() >= CANCELLED_MAX {
                    self.cancelled.pop_front();
                }
                if !self.cancelled.contains(&job) {
                    self.cancelled.push_back(job);
                }
                self.send(from, job, JobBody::Clean);
            }
        }
    }

    pub(super) fn stop_local(&mut self, job: JobId, kind: StopKind) {
        if let Some(part) = self.local.get_mut(&job) {
            part.tell_keeper(Order::Stop(kind));
            part.prepared_by = None;
            if let Some(staging) = part.staging.take() {
                staging.abort();
                return self.cleared(job);
            }
            if part.waits_for_stuck() {
                return;
            }
            let at = self.patience.ended_by(kind, Duration::from_millis(part.order.launch.kill_delay_ms));
            part.ended_by = Some(part.ended_by.map_or(at, |earlier| earlier.min(at)));
        }
    }

    /// Orders from the origin that go straight on to the keeper.
    pub(super) fn order_keeper(&mut self, from: NodeId, job: JobId, body: JobBody) {
        let Some(part) = self.local.get(&job).filter(|part| part.origin() == from) else { return };
        part.tell_keeper(match body {
            JobBody::Input { bytes } => Order::Input { bytes },
            JobBody::InputEnd => Order::InputEnd,
            JobBody::Credit { bytes } => Order::Credit { bytes },
            JobBody::Gone { ranks } => Order::Gone { ranks },
            JobBody::Acked { upto } => Order::Acked { upto },
            JobBody::Freeze { still } => Order::Freeze { still },
            JobBody::Dismiss => Order::Dismiss,
            _ => return,
        });
    }

    pub(super) fn keeper_report(&mut self, job: JobId, report: Report) {
        let Some(part) = self.local.get_mut(&job) else { return };
        part.remember(&report);
        let origin = part.origin();
        let body = match report {
            Report::Prepared { rails } => return self.own_prepared(job, rails),
            Report::Failed { text } => {
                JobBody::Failed { text: format!("node {}: {text}", part.order.nodes[part.index as usize].name) }
            }
            Report::Started { pids } => JobBody::Started { pids },
            Report::Output { at, rank, stream, more, bytes } => JobBody::Output { at, rank, stream, more, bytes },
            Report::InputCredit { bytes } => JobBody::InputCredit { bytes },
            Report::InputClosed => JobBody::InputClosed,
            Report::Exited { ranks } => {
                for (rank, _) in &ranks {
                    part.unreported.remove(rank);
                }
                JobBody::Exited { ranks }
            }
            Report::Abort { rank, code, text } => JobBody::Abort { rank, code, text },
            Report::Clean => return self.processes_gone(job),
            Report::Wrote { node, upto } => return self.wrote(job, node, upto),
            Report::Frozen { still } => JobBody::Frozen { still },
            Report::Used(used) => JobBody::Used(used),
            Report::Looked { number, waits } => return self.looked(job, number, waits),
            Report::Knows { orders } => {
                part.orders = orders;
                return;
            }
            Report::Reached { at } => {
                part.reached_at = Some(at);
                return self.watch_network_again(job);
            }
            Report::Stuck { text } => return self.stuck(job, text),
            Report::Back(_) => return,
        };
        self.send(origin, job, body);
    }

    /// The keeper's line is closed: after [`Report::Clean`] it exits, else it has died.
    pub(super) fn keeper_closed(&mut self, job: JobId) {
        let Some(part) = self.local.get_mut(&job) else { return };
        let Some((process, sender)) = part.keeper.take() else { return };
        drop(sender);
        let (clean, index, node, origin) = (part.clean, part.index, self.me, part.origin());
        let name = part.order.nodes[index as usize].name.clone();
        if !clean {
            self.send(origin, job, JobBody::Failed { text: format!("node {name}: the keeper of the job died") });
        }
        let (events, helper) = (self.events.clone(), self.helper());
        let how = if clean { End::Orderly } else { End::Violent };
        tokio::spawn(async move {
            let nothing_left = process.end(how).await;
            if !clean || !nothing_left {
                keepers::clear(job, node, index, helper).await;
            }
            let _ = events.send(Event::Cleared(job)).await;
        });
    }

    pub(super) fn cleared(&mut self, job: JobId) {
        // What it gives back is in that directory.
        if self.local.get_mut(&job).is_some_and(LocalJob::still_returns) {
            return;
        }
        let Some(mut part) = self.local.remove(&job) else { return };
        if let Some(room) = part.placed.room.take() {
            let owner = Owner::of(&part.order.launch);
            // Then again, without it.
            self.local.insert(job, part);
            let (events, staging) = (self.events.clone(), self.config.stage.clone());
            tokio::spawn(async move {
                match staging {
                    Some(staging) => staging.remove(room, owner).await,
                    None => _ = tokio::task::spawn_blocking(move || stage::remove(&room)).await,
                }
                let _ = events.send(Event::Cleared(job)).await;
            });
            return;
        }
        let origin = part.origin();
        if part.gone && !part.clean && !part.unreported.is_empty() {
            let ranks = part.unreported.iter().map(|rank| (*rank, Gone::Killed(9))).collect();
            self.send(origin, job, JobBody::Exited { ranks });
        }
        self.send(origin, job, JobBody::Clean);
    }

    /// `soft`: its daemon has ended while its kernel answers, so that queued jobs wait for it.
    pub(super) fn local_node_down(&mut self, node: NodeId, soft: bool) {
        let orphaned: Vec<JobId> =
            self.local.iter().filter(|(_, part)| part.origin() == node).map(|(job, _)| *job).collect();
        for job in orphaned {
            if self.waits_for_origin(job, soft) {
                continue;
            }
            log!(Warn, "psid", "job {job} ends here: its origin, node {node}, is lost");
            self.abandon(job);
        }
    }
}
