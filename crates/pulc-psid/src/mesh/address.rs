//! Under which addresses this host can be reached, read from /proc. Called when a daemon listens on every interface. Never asks
//! a resolver: host names are no identity here.

use pulc_control::network::Network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of the interfaces that are up, the ordinary ones first; loopback only if there is nothing else.
pub fn local_addresses() -> Vec<IpAddr> {
    let v4 = parse_fib_trie(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default());
    let v6 = parse_if_inet6(&std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default());
    let mut addresses: Vec<IpAddr> = v4.into_iter().map(IpAddr::V4).chain(v6.into_iter().map(IpAddr::V6)).collect();
    addresses.retain(|address| !address.is_loopback());
    if addresses.is_empty() {
        addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    addresses
}

/// The networks that this host's interfaces are in, as its routes tell; of IPv6 as its addresses do.
pub fn local_networks() -> Vec<Network> {
    let v4 = networks_of_fib_trie(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default());
    let v6 = networks_of_if_inet6(&std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default());
    v4.into_iter().chain(v6).filter(|network| !network.contains(Ipv4Addr::LOCALHOST.into())).collect()
}

/// A network that is reached without a gateway is a leaf with a "/N link UNICAST" below the line that names it.
fn networks_of_fib_trie(text: &str) -> Vec<Network> {
    let (mut found, mut leaf) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<Ipv4Addr>().ok();
        } else if let Some(prefix) = line.strip_suffix(" link UNICAST").and_then(|line| line.strip_prefix('/'))
            && let Some(network) = leaf.zip(prefix.parse().ok()).and_then(|(leaf, bits)| Network::of(leaf.into(), bits))
            && !found.contains(&network)
        {
            found.push(network);
        }
    }
    found
}

fn networks_of_if_inet6(text: &str) -> Vec<Network> {
    let network = |line: &str| {
        let address = parse_if_inet6(line).into_iter().next()?;
        let prefix = u8::from_str_radix(line.split_ascii_whitespace().nth(2)?, 16).ok()?;
        Network::of(address.into(), prefix)
    };
    text.lines().filter_map(network).collect()
}

/// Each address of this host is a leaf marked "host LOCAL" below a line that names it.
fn parse_fib_trie(text: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut leaf = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(address) = leaf
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// Lines of address, index, prefix, scope, flags, name. Link-local ones need an interface to be of use and are left out.
fn parse_if_inet6(text: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let hex = line.split_ascii_whitespace().next()?;
        u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32).map(Ipv6Addr::from_bits)
    };
    text.lines().filter_map(address).filter(|address| !address.is_unicast_link_local()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_once_each() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.0.0\n        /24 link UNICAST\n     |-- 10.1.0.7\n        /32 host LOCAL\n\
                    Local:\n     |-- 10.1.0.7\n        /32 host LOCAL\n     |-- 10.1.0.255\n        /32 link BROADCAST\n";
        assert_eq!(parse_fib_trie(text), vec![Ipv4Addr::new(10, 1, 0, 7)]);
        assert!(parse_fib_trie("garbage |-- x\n/32 host LOCAL").is_empty());
    }

    #[test]
    fn link_local_addresses_are_left_out() {
        let text = "fe800000000000000000000000000001 02 40 20 80 eth0\nfd000000000000000000000000000001 02 40 00 80 eth0\nzz\n";
        assert_eq!(parse_if_inet6(text), vec!["fd00::1".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn networks_are_found_with_their_lengths() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/24 2 0 2\n        |-- 10.1.0.0\n\
                    \x20          /24 link UNICAST\n        |-- 10.1.0.7\n           /32 host LOCAL\nLocal:\n     |-- 10.1.0.0\n        /24 link UNICAST\n";
        let found = networks_of_fib_trie(text);
        assert_eq!(found, vec!["10.1.0.0/24".parse().unwrap()]);
        let text = "fd000000000000000000000000000001 02 40 00 80 eth0\nfe800000000000000000000000000001 02 40 20 80 eth0\nzz\n";
        assert_eq!(networks_of_if_inet6(text), vec!["fd00::/64".parse().unwrap()]);
    }

    #[test]
    fn this_host_has_an_address() {
        assert!(!local_addresses().is_empty());
    }
}
