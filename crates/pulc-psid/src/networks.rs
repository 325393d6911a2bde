//! Networks between nodes: which ones the nodes of a job have in common, and whether one reaches from this node to another. Called by the
//! job room. What is asked is the other node's kernel, by the beginning of a connection to its daemon's port, so that neither a daemon that
//! stands still nor a busy machine makes a network look dead. Never decides what becomes of a job.

use crate::mesh::address::{local_addresses, local_networks};
use pulc_control::network::{NETWORKS_MAX, Network, text};
use rustix::net::sockopt::set_socket_linger;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a network may take to answer before a job is started on it.
pub const AT_START: Duration = Duration::from_millis(1500);
/// Silence after which the network of a job that runs is dead, and the pause between two looks: together less than the five seconds in which a
/// loss has to be noticed, and more than the two for which one changes nothing.
const SILENT: Duration = Duration::from_millis(3750);
const PAUSE: Duration = Duration::from_secs(1);
/// Between two attempts. Single packets may be lost.
const AGAIN: Duration = Duration::from_millis(250);

/// The networks that a job may use, the best one first: those that its user wants, else those that are set for the cluster, else what this
/// node has, as far as every node has an address of its own in them. Nothing where nobody has said anything and there is no choice.
///
/// # Errors
/// One line for the user when no network that was named joins the nodes.
pub fn in_common(
    wanted: Option<&[Network]>,
    configured: &[Network],
    nodes: &[(&str, &[SocketAddr])],
) -> Result<Vec<Network>, String> {
    let named = wanted.or(Some(configured).filter(|networks| !networks.is_empty()));
    let mut networks = named.map_or_else(|| own(&local_addresses(), &local_networks()), <[Network]>::to_vec);
    let candidates = networks.clone();
    networks.retain(|network| joins(*network, nodes));
    networks.truncate(NETWORKS_MAX);
    match named {
        None if networks.len() < 2 => Ok(Vec::new()),
        Some(_) if networks.is_empty() => Err(none_joins(&candidates, nodes)),
        _ => Ok(networks),
    }
}

/// Whether each of the nodes has an address there, and no two the same one, as the bridges of virtual machines have.
fn joins(network: Network, nodes: &[(&str, &[SocketAddr])]) -> bool {
    let addresses: Option<Vec<SocketAddr>> = nodes.iter().map(|(_, addresses)| network.choose(addresses)).collect();
    addresses.is_some_and(|mut addresses| {
        addresses.sort_unstable();
        addresses.windows(2).all(|two| two[0] != two[1])
    })
}

fn none_joins(networks: &[Network], nodes: &[(&str, &[SocketAddr])]) -> String {
    let outside = nodes.iter().find(|(_, own)| networks.iter().all(|network| network.choose(own).is_none()));
    let what = match outside {
        Some((name, _)) => format!("node {name} has no address in {}", text(networks)),
        None => format!("none of the networks {} joins all nodes of the job", text(networks)),
    };
    format!("{what}; daemons tell their addresses when they are started, `pulc nodes --json` shows them")
}

/// Of each address of this host the smallest network that it is in.
fn own(addresses: &[IpAddr], networks: &[Network]) -> Vec<Network> {
    let mut own = Vec::new();
    for address in addresses {
        let smallest = networks.iter().filter(|network| network.contains(*address)).max_by_key(|one| one.prefix());
        own.extend(smallest.filter(|network| !own.contains(*network)).copied());
    }
    own
}

/// Whether the kernel there answers within this time on the network in which both addresses are.
pub async fn reaches(from: IpAddr, to: SocketAddr, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let mut attempts = JoinSet::new();
    loop {
        attempts.spawn(answers(from, to));
        let next = (Instant::now() + AGAIN).min(until);
        loop {
            tokio::select! {
                Some(answer) = attempts.join_next(), if !attempts.is_empty() => {
                    if matches!(answer, Ok(true)) {
                        return true;
                    }
                }
                () = tokio::time::sleep_until(next) => break,
            }
        }
        if Instant::now() >= until {
            return false;
        }
    }
}

/// Returns when the network does not reach there any more.
pub async fn lost(from: IpAddr, to: SocketAddr) {
    while reaches(from, to, SILENT).await {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn answers(from: IpAddr, to: SocketAddr) -> bool {
    match connect(from, to).await {
        Ok(()) => true,
        // It says that nobody listens: the daemon is away, not the network.
        Err(error) => matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset),
    }
}

async fn connect(from: IpAddr, to: SocketAddr) -> io::Result<()> {
    let socket = if from.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(from, 0))?;
    let stream = socket.connect(to).await?;
    // Nothing of it is kept, here or there.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn networks(text: &str) -> Vec<Network> {
        pulc_control::network::parse(text).unwrap()
    }

    fn sockets(text: &str) -> Vec<SocketAddr> {
        text.split(' ').map(|word| format!("{word}:7852").parse().unwrap()).collect()
    }

    #[test]
    fn a_job_gets_the_networks_that_its_nodes_have_in_common_in_the_order_in_which_they_are_wanted() {
        let (one, two) = (sockets("10.1.0.1 10.2.0.1 172.17.0.1"), sockets("172.17.0.1 10.2.0.2 10.1.0.2"));
        let three = sockets("10.1.0.3");
        let of = |wanted: Option<&str>, configured: &str, nodes: &[(&str, &[SocketAddr])]| {
            let wanted = wanted.map(networks);
            let configured = if configured.is_empty() { Vec::new() } else { networks(configured) };
            in_common(wanted.as_deref(), &configured, nodes).map(|found| text(&found))
        };
        let both: [(&str, &[SocketAddr]); 2] = [("n1", &one), ("n2", &two)];
        let all: [(&str, &[SocketAddr]); 3] = [("n1", &one), ("n2", &two), ("n3", &three)];
        assert_eq!(of(None, "10.2.0.0/16,10.1.0.0/16", &both).unwrap(), "10.2.0.0/16,10.1.0.0/16");
        assert_eq!(of(None, "10.2.0.0/16,10.1.0.0/16", &all).unwrap(), "10.1.0.0/16");
        assert_eq!(of(Some("10.1.0.0/16"), "10.2.0.0/16,10.1.0.0/16", &both).unwrap(), "10.1.0.0/16");
        // An address that two of them have joins nobody.
        assert_eq!(of(None, "172.17.0.0/16,10.1.0.0/16", &both).unwrap(), "10.1.0.0/16");
        let why = of(Some("10.2.0.0/16"), "", &all).unwrap_err();
        assert!(why.starts_with("node n3 has no address in 10.2.0.0/16; "), "{why}");
        let why = of(None, "172.17.0.0/16", &both).unwrap_err();
        assert!(why.starts_with("none of the networks 172.17.0.0/16 joins"), "{why}");
    }

    #[test]
    fn a_node_is_in_the_smallest_network_that_has_its_address() {
        let addresses = ["10.1.2.3", "10.1.2.4", "192.168.7.1"].map(|text| text.parse().unwrap());
        let found = own(&addresses, &networks("10.0.0.0/8,10.1.2.0/24,192.168.0.0/16"));
        assert_eq!(text(&found), "10.1.2.0/24,192.168.0.0/16");
    }

    #[tokio::test]
    async fn a_kernel_answers_whether_or_not_its_daemon_does() {
        let here: IpAddr = [127, 0, 0, 1].into();
        let listener = TcpListener::bind((here, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        // Nobody accepts.
        assert!(reaches(here, address, AT_START).await);
        drop(listener);
        assert!(reaches(here, address, AT_START).await);
        // An address that this host does not have reaches nothing.
        assert!(!reaches([192, 0, 2, 1].into(), address, AGAIN).await);
    }
}
