//! The network of a job: decided by the origin as a list, probed by every node towards its children in the launch tree while keepers get
//! ready, chosen when all have answered, and watched along the same tree while the job runs. Part of the job room; never waits.

use super::local::LocalJob;
use super::message::{DeadNetwork, JobBody, OrderNode, PreparedNode};
use super::origin::OriginJob;
use super::{Event, Room};
use crate::networks::{AT_START, in_common, lost, reaches};
use pulc_base::boot::Boot;
use pulc_base::{JobId, log};
use pulc_control::network::{self, NETWORKS_MAX, Network};
use pulc_control::{LaunchSpec, NodeInfo, NodeState, Reply, StopKind};
use pulc_sched::{Cause, Report};
use std::net::{IpAddr, SocketAddr};
use tokio::task::{AbortHandle, JoinSet};

/// Ends with the part of the job that it watches for.
pub struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What nodes have found out about a job's networks, one entry for each that is dead.
#[derive(Default)]
pub struct Findings {
    dead: Vec<DeadNetwork>,
    /// Probes are under way here.
    probing: bool,
}

impl Findings {
    pub(super) fn is_probing(&self) -> bool {
        self.probing
    }

    /// The first place of each network counts.
    pub(super) fn add(&mut self, dead: Vec<DeadNetwork>) {
        for one in dead {
            let is_new = self.dead.iter().all(|known| known.network != one.network);
            if is_new && usize::from(one.network) < NETWORKS_MAX {
                self.dead.push(one);
            }
        }
    }

    /// The answer of the subtree.
    pub(super) fn answer(&mut self, nodes: Vec<PreparedNode>) -> JobBody {
        match std::mem::take(&mut self.dead) {
            dead if dead.is_empty() => JobBody::Prepared { nodes },
            dead => JobBody::PreparedBut { nodes, dead },
        }
    }
}

/// The choice of a network.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    network: usize,
    /// What the user should know.
    note: Option<String>,
}

impl Room {
    /// Makes the networks that the nodes of a job have in common part of its launch.
    ///
    /// # Errors
    /// One line when what was said about networks can't be done.
    pub(super) fn decide_networks(&self, nodes: &[OrderNode], launch: &mut LaunchSpec) -> Result<(), String> {
        network::take_out(launch);
        let wanted = network::wanted(launch)?;
        if nodes.len() < 2 {
            return Ok(());
        }
        let known = self.config.mesh.nodes();
        let of = |node: &OrderNode| known.iter().find(|info| info.id == node.id);
        // Of one that is not known the launch will say so.
        let Some(infos) = nodes.iter().map(of).collect::<Option<Vec<&NodeInfo>>>() else { return Ok(()) };
        let addresses: Vec<(&str, &[SocketAddr])> =
            infos.iter().map(|info| (info.name.as_str(), info.addresses.as_slice())).collect();
        network::put(&in_common(wanted.as_deref(), &self.networks, &addresses)?, launch);
        Ok(())
    }

    /// Addresses at which ranks of this node can be reached: one in each network of the job, or the usual one where there is no choice.
    ///
    /// # Errors
    /// When this node has none in one of them.
    pub(super) fn own_rails(&self, part: &LocalJob) -> Result<Vec<IpAddr>, String> {
        if part.order.nodes.len() < 2 {
            return Ok(Vec::new());
        }
        let Some(me) = self.config.mesh.nodes().into_iter().find(|node| node.me) else { return Ok(Vec::new()) };
        let networks = network::decided(&part.order.launch);
        if networks.is_empty() {
            return Ok(vec![me.ip()]);
        }
        let address = |network: &Network| {
            let found = network.choose(&me.addresses).map(|address| address.ip());
            found.ok_or_else(|| format!("it has no address in {network} any more"))
        };
        networks.iter().map(address).collect()
    }

    /// From here to a child in the launch tree, on this network.
    fn way(&self, part: &LocalJob, child: u32, network: Network) -> Option<(IpAddr, SocketAddr)> {
        let nodes = self.config.mesh.nodes();
        let there = part.order.nodes[child as usize].id;
        let find = |is_it: &dyn Fn(&NodeInfo) -> bool| {
            nodes.iter().find(|node| is_it(node)).and_then(|node| network.choose(&node.addresses))
        };
        Some((find(&|node| node.me)?.ip(), find(&|node| node.id == there)?))
    }

    /// Asks on all networks of the job whether they reach from here to the children.
    pub(super) fn begin_probing(&mut self, job: JobId, part: &mut LocalJob) {
        let networks = network::decided(&part.order.launch);
        if networks.is_empty() || part.children().next().is_none() {
            return;
        }
        part.findings.probing = true;
        let from = part.index;
        let mut probes = JoinSet::new();
        for child in part.children() {
            for (number, network) in (0..).zip(&networks) {
                let (way, dead) = (self.way(part, child, *network), DeadNetwork { network: number, from, to: child });
                probes.spawn(async move {
                    let reached = match way {
                        Some((from, to)) => reaches(from, to, AT_START).await,
                        None => false,
                    };
                    (!reached).then_some(dead)
                });
            }
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            let mut dead: Vec<DeadNetwork> = probes.join_all().await.into_iter().flatten().collect();
            dead.sort_unstable_by_key(|dead| (dead.network, dead.to));
            let _ = events.send(Event::Probed(job, dead)).await;
        });
    }

    pub(super) fn probed(&mut self, job: JobId, dead: Vec<DeadNetwork>) {
        if let Some(part) = self.local.get_mut(&job) {
            part.findings.probing = false;
            part.findings.add(dead);
            self.pass_up_prepared(job);
        }
    }

    /// Leaves of all rails those of the network that the job will use, and says so where it is not the best one.
    ///
    /// # Errors
    /// One line when none of them reaches everybody, or a node has told nonsense.
    pub(super) fn choose_network(
        &mut self,
        id: JobId,
        nodes: &mut [PreparedNode],
        dead: &[DeadNetwork],
    ) -> Result<(), String> {
        let wanted = |job: &&OriginJob| !job.stopping && !job.launched && !job.networks.is_empty();
        let Some(job) = self.origin.get(&id).filter(wanted) else { return Ok(()) };
        let names: Vec<&str> = job.nodes.iter().map(|node| node.name.as_str()).collect();
        let choice = choose(&job.networks, dead, &names)?;
        for node in nodes {
            keep(&mut node.rails, choice.network, job.networks.len())
                .ok_or_else(|| format!("node {} reported addresses that do not fit", node.node))?;
        }
        let Some(text) = choice.note else { return Ok(()) };
        log!(Warn, "psid", "job {id}: {text}");
        job.client.into_iter().for_each(|client| self.reply(client, Reply::Note { text: text.clone() }));
        self.tell_queue(id, Report::Noted { text });
        Ok(())
    }

    /// Watches the network that a job uses from here to the children, if there is another one.
    pub(super) fn watch_network(&mut self, job: JobId, boot: &Boot) {
        let Some(part) = self.local.get(&job) else { return };
        let first: u32 = part.order.nodes[..part.index as usize].iter().map(|node| node.ranks).sum();
        if let Some(own) = boot.tasks.get(first as usize).and_then(|task| task.rails.first()) {
            self.watch_network_at(job, own.ip());
        }
    }

    /// The same after this daemon was started again, as far as the children are known already.
    pub(super) fn watch_network_again(&mut self, job: JobId) {
        let part = self.local.get(&job).filter(|part| !part.clean);
        if let Some(at) = part.and_then(|part| part.reached_at) {
            self.watch_network_at(job, at);
        }
    }

    /// `own`: where the first rank here is reached.
    fn watch_network_at(&mut self, job: JobId, own: IpAddr) {
        let Some(part) = self.local.get(&job) else { return };
        let networks = network::decided(&part.order.launch);
        let used = networks.iter().find(|network| network.contains(own));
        let Some(used) = used.copied().filter(|_| networks.len() > 1) else { return };
        let mut watches = JoinSet::new();
        for child in part.children() {
            if let Some((from, to)) = self.way(part, child, used) {
                watches.spawn(async move {
                    lost(from, to).await;
                    child
                });
            }
        }
        if watches.is_empty() {
            return;
        }
        let events = self.events.clone();
        let watch = tokio::spawn(async move {
            while let Some(lost) = watches.join_next().await {
                if let Ok(child) = lost {
                    let _ = events.send(Event::NetworkLost(job, child, used)).await;
                }
            }
        });
        let watch = Watch(watch.abort_handle());
        if let Some(part) = self.local.get_mut(&job) {
            part.watch = Some(watch);
        }
    }

    /// The network of a job that runs here does not reach a child any more.
    pub(super) fn network_lost(&mut self, job: JobId, child: u32, network: Network) {
        let Some(part) = self.local.get(&job) else { return };
        let Some(there) = part.order.nodes.get(child as usize) else { return };
        // A node that is lost altogether is told otherwise.
        let is_up = |state| matches!(state, NodeState::Up | NodeState::Draining | NodeState::Torpid);
        if self.config.mesh.nodes().iter().any(|node| node.id == there.id && is_up(node.state)) {
            let text = format!("network {network} is dead between nodes {} and {}", part.name(), there.name);
            log!(Warn, "psid", "job {job}: {text}");
            let origin = part.origin();
            self.send(origin, job, JobBody::NetworkLost { text });
        }
    }

    /// A node says that the network of a job is dead: it ends as if a node were lost, and may be started again on another network.
    pub(super) fn end_without_network(&mut self, id: JobId, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_control()).take(400).collect();
        self.set_cause(id, Cause::NodeLost);
        self.end_job(id, StopKind::Gently, 1, &text);
    }
}

fn choose(networks: &[Network], dead: &[DeadNetwork], names: &[&str]) -> Result<Choice, String> {
    let found = |network: usize| dead.iter().find(|dead| usize::from(dead.network) == network);
    let name = |position: u32| names.get(position as usize).copied().unwrap_or("?");
    let gap = |network: usize| {
        let ends = found(network).map_or((u32::MAX, u32::MAX), |dead| (dead.from, dead.to));
        format!("network {} does not reach from node {} to node {}", networks[network], name(ends.0), name(ends.1))
    };
    match (0..networks.len()).find(|network| found(*network).is_none()) {
        Some(0) => Ok(Choice { network: 0, note: None }),
        Some(network) => {
            let gaps: Vec<String> = (0..network).map(gap).collect();
            let note = format!("{}; the job uses {}", gaps.join(", "), networks[network]);
            Ok(Choice { network, note: Some(note) })
        }
        None => Err((0..networks.len()).map(gap).collect::<Vec<_>>().join(", ")),
    }
}

/// Leaves of each rank's rails those of one network; none if they are not as many for each.
fn keep(ranks: &mut [Vec<SocketAddr>], network: usize, networks: usize) -> Option<()> {
    for rails in ranks {
        let each = rails.len() / networks;
        if each == 0 || each * networks != rails.len() {
            return None;
        }
        *rails = rails[network * each..(network + 1) * each].to_vec();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_network_that_reaches_everybody_is_chosen_and_why_is_said() {
        let networks = network::parse("10.1.0.0/16,10.2.0.0/16,10.3.0.0/16").unwrap();
        let names = ["n0", "n1", "n2"];
        let dead = |network, from, to| DeadNetwork { network, from, to };
        let none = choose(&networks, &[], &names).unwrap();
        assert_eq!(none, Choice { network: 0, note: None });
        let worse = choose(&networks, &[dead(2, 0, 1)], &names).unwrap();
        assert_eq!(worse, Choice { network: 0, note: None }, "nobody cares");
        let other = choose(&networks, &[dead(0, 0, 2)], &names).unwrap();
        assert_eq!(other.network, 1);
        let said = "network 10.1.0.0/16 does not reach from node n0 to node n2; the job uses 10.2.0.0/16";
        assert_eq!(other.note.unwrap(), said);
        // Also where positions make no sense.
        let why = choose(&networks, &[dead(2, 7, 9), dead(1, 0, 1), dead(0, 0, 1)], &names).unwrap_err();
        assert!(why.ends_with("network 10.3.0.0/16 does not reach from node ? to node ?"), "{why}");
    }

    #[test]
    fn of_each_network_the_first_gap_that_was_found_is_told() {
        let mut findings = Findings::default();
        let dead = |network, to| DeadNetwork { network, from: 0, to };
        findings.add(vec![dead(1, 3), dead(200, 4)]);
        findings.add(vec![dead(1, 5), dead(0, 6)]);
        let told = findings.answer(Vec::new());
        assert_eq!(told, JobBody::PreparedBut { nodes: Vec::new(), dead: vec![dead(1, 3), dead(0, 6)] });
        assert_eq!(findings.answer(Vec::new()), JobBody::Prepared { nodes: Vec::new() });
    }

    #[test]
    fn rails_of_the_other_networks_are_left_out() {
        let rails =
            |ports: &[u16]| ports.iter().map(|port| SocketAddr::from(([10, 1, 0, 1], *port))).collect::<Vec<_>>();
        let mut ranks = [rails(&[1, 2, 3, 4]), rails(&[5, 6, 7, 8])];
        assert_eq!(keep(&mut ranks, 1, 2), Some(()));
        assert_eq!(ranks, [rails(&[3, 4]), rails(&[7, 8])]);
        assert_eq!(keep(&mut [rails(&[1, 2, 3])], 0, 2), None);
        assert_eq!(keep(&mut [rails(&[])], 0, 2), None);
    }
}
