//! Networks between nodes, by their addresses, and which of them a job may use, in order of preference. Said by a user (`--network`), set for
//! a cluster (`pulc config`), or found by the job's psid. What that has decided travels as one variable of the job's environment, so that
//! logs and keepers of before can be read; ranks never see it. Decides nothing itself.

use crate::LaunchSpec;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// What a user wants: networks with commas between them, the best one first.
pub const ENV_NETWORK: &str = "PULC_NETWORK";
/// What the psid of a job has decided; not for users.
const ENV_DECIDED: &str = "PULC_JOB_NETWORKS";
/// Networks of one job or cluster, at most.
pub const NETWORKS_MAX: usize = 8;

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Network {
    /// Bits behind the prefix are zero.
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of so many bits in which this address is; none if an address has fewer bits.
    pub fn of(address: IpAddr, prefix: u8) -> Option<Network> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then(|| Network { address: cut(address, prefix), prefix })
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && cut(address, self.prefix) == self.address
    }

    /// The first of these addresses that is in it.
    pub fn choose(&self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        addresses.iter().copied().find(|address| self.contains(address.ip()))
    }
}

/// With all bits behind the first `prefix` ones cleared.
fn cut(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(prefix.into())).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(prefix.into())).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("{text:?} is no network; write it as 10.1.0.0/16");
        let (address, prefix) = text.trim().split_once('/').ok_or_else(wrong)?;
        let (address, prefix) = (address.parse().map_err(|_| wrong())?, prefix.parse().map_err(|_| wrong())?);
        let network = Network::of(address, prefix).ok_or_else(wrong)?;
        // Whoever writes an address where a network belongs may mean another one.
        if network.address != address {
            return Err(format!(
                "{text:?} is no network: its address has bits behind the first {prefix}; {network} is one"
            ));
        }
        Ok(network)
    }
}

/// Reads networks with commas between them.
///
/// # Errors
/// One line that names what is wrong.
pub fn parse(text: &str) -> Result<Vec<Network>, String> {
    let networks: Vec<Network> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    check(&networks)?;
    Ok(networks)
}

/// Whether they can be the networks of a job or cluster.
///
/// # Errors
/// One line that names what is wrong.
pub fn check(networks: &[Network]) -> Result<(), String> {
    if networks.len() > NETWORKS_MAX {
        return Err(format!("{} networks are named, at most {NETWORKS_MAX} may be", networks.len()));
    }
    match networks.iter().enumerate().find(|(at, network)| networks[..*at].contains(network)) {
        Some((_, twice)) => Err(format!("the network {twice} is named twice")),
        None => Ok(()),
    }
}

/// As [`parse`] reads them.
pub fn text(networks: &[Network]) -> String {
    networks.iter().map(Network::to_string).collect::<Vec<_>>().join(",")
}

/// What the user of a launch wants, if anything.
///
/// # Errors
/// One line that names what is wrong.
pub fn wanted(launch: &LaunchSpec) -> Result<Option<Vec<Network>>, String> {
    match variable(launch, ENV_NETWORK).filter(|text| !text.is_empty()) {
        Some(text) => parse(&text).map(Some).map_err(|why| format!("{ENV_NETWORK}: {why}")),
        None => Ok(None),
    }
}

/// What was decided for a launch; nothing where its nodes have no choice.
pub fn decided(launch: &LaunchSpec) -> Vec<Network> {
    variable(launch, ENV_DECIDED).and_then(|text| parse(&text).ok()).unwrap_or_default()
}

/// Makes it part of the launch, instead of what was there.
pub fn put(networks: &[Network], launch: &mut LaunchSpec) {
    take_out(launch);
    if !networks.is_empty() {
        launch.env.push((ENV_DECIDED.as_bytes().to_vec(), text(networks).into_bytes()));
    }
}

/// Takes it out again.
pub fn take_out(launch: &mut LaunchSpec) {
    launch.env.retain(|(name, _)| name != ENV_DECIDED.as_bytes());
}

fn variable(launch: &LaunchSpec, name: &str) -> Option<String> {
    // Of a name that comes twice the ranks see the last one.
    let found = launch.env.iter().rfind(|(known, _)| known == name.as_bytes());
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_they_are_written() {
        for text in ["10.1.0.0/16", "0.0.0.0/0", "192.168.7.9/32", "fd00:1::/32", "::/0", "fd00::1/128"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        for (nonsense, said) in [
            ("10.1.0.0", "write it as"),
            ("10.1.0.0/33", "is no network"),
            ("::/129", "is no network"),
            ("n1/8", "is no network"),
            ("10.1.0.7/16", "10.1.0.0/16 is one"),
            ("", "is no network"),
        ] {
            assert!(nonsense.parse::<Network>().unwrap_err().contains(said), "{nonsense}");
        }
        assert!(parse("10.0.0.0/8,10.0.0.0/8").unwrap_err().contains("named twice"));
        let many: Vec<String> = (0..9).map(|n| format!("10.{n}.0.0/16")).collect();
        assert!(parse(&many.join(",")).unwrap_err().contains("at most 8"));
    }

    #[test]
    fn an_address_is_in_the_networks_whose_bits_it_has() {
        let network: Network = "10.1.128.0/17".parse().unwrap();
        let within = |text: &str| network.contains(text.parse().unwrap());
        assert!(within("10.1.128.0") && within("10.1.255.255"));
        assert!(!within("10.1.127.255") && !within("10.2.128.1") && !within("::ffff:10.1.128.1"));
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.1.2.3".parse().unwrap()));
        let addresses = ["192.168.0.1:1", "10.1.130.2:7852"].map(|text| text.parse().unwrap());
        assert_eq!(network.choose(&addresses), Some(addresses[1]));
    }

    #[test]
    fn what_was_decided_travels_and_what_a_user_wants_is_checked() {
        let mut launch = LaunchSpec {
            argv: Vec::new(),
            env: vec![(ENV_NETWORK.into(), "10.2.0.0/16".into())],
            cwd: Vec::new(),
            umask: 0,
            limits: Vec::new(),
            pin: false,
            kill_delay_ms: 0,
        };
        let networks = parse("10.1.0.0/16,fd00::/8").unwrap();
        assert!(decided(&launch).is_empty());
        put(&networks, &mut launch);
        put(&networks, &mut launch);
        assert_eq!((decided(&launch), launch.env.len()), (networks, 2));
        assert_eq!(wanted(&launch).unwrap(), Some(parse("10.2.0.0/16").unwrap()));
        take_out(&mut launch);
        launch.env.push((ENV_NETWORK.into(), "x".into()));
        assert!(wanted(&launch).unwrap_err().starts_with("PULC_NETWORK: \"x\" is no network"));
        launch.env.push((ENV_NETWORK.into(), Vec::new()));
        assert_eq!(wanted(&launch), Ok(None));
    }
}
