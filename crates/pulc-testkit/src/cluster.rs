//! A cluster of hosts on one machine: network namespaces on a bridge, each with its own address and state directory, in which
//! the real `pulc` runs. Called by whole-system tests. Dropping it ends everything it started, by pidfd and only after the
//! process proved by its environment that it belongs here.

use crate::finished::{Finished, run_within};
use crate::leftovers;
use crate::netns::Netns;
use pulc_base::boot::ENV_ENDS_WITH;
use pulc_hal::os::proctree;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// In the environment of every process of a cluster, so that it can be found again.
pub const ENV_TAG: &str = "PULC_TEST_TAG";

/// Guards against hanging tests; nothing passes or fails by how long it took.
pub const HANG: Duration = Duration::from_secs(120);

const BRIDGE: &str = "bridge";
/// Of a second network.
const SECOND_BRIDGE: &str = "bridge2";
/// Every host's way out where a router joins them.
const GATEWAY: &str = "10.78.0.1";

/// What joins the hosts.
#[derive(Clone, Copy)]
enum Wiring {
    Bridge,
    Router,
}

pub struct Cluster {
    // Fields are dropped in this order, after the processes: namespaces, then the directory.
    hosts: Vec<Host>,
    switch: Netns,
    tag: String,
    directory: PathBuf,
}

pub struct Host {
    netns: Netns,
    pub number: usize,
    pub address: Ipv4Addr,
    pub state_dir: PathBuf,
    program: PathBuf,
    tag: String,
    environment: Vec<(String, String)>,
}

impl Cluster {
    /// `count` hosts that reach each other as 10.77.0.1, 10.77.0.2, …, and the `pulc` they run.
    ///
    /// # Errors
    /// Why namespaces can't be made here: the test skips.
    pub fn new(count: usize, program: impl AsRef<Path>) -> io::Result<Cluster> {
        Cluster::wired(Wiring::Bridge, count, program.as_ref())
    }

    /// The same behind a router, for more hosts than the machine's kernel keeps neighbours for: it has one table for all namespaces,
    /// and on a bridge everybody is everybody's neighbour. Their links cannot be cut.
    ///
    /// # Errors
    /// As [`Cluster::new`].
    pub fn routed(count: usize, program: impl AsRef<Path>) -> io::Result<Cluster> {
        Cluster::wired(Wiring::Router, count, program.as_ref())
    }

    fn wired(wiring: Wiring, count: usize, program: &Path) -> io::Result<Cluster> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("cluster-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        remove_forgotten();
        let directory = std::env::temp_dir().join(format!("pulc-{tag}"));
        let switch = Netns::new()?;
        fs::create_dir_all(&directory)?;
        let mut cluster = Cluster { hosts: Vec::new(), switch, tag, directory };
        match wiring {
            Wiring::Bridge => {
                cluster.switch.ip(&["link", "add", BRIDGE, "type", "bridge"])?;
                cluster.switch.ip(&["link", "set", BRIDGE, "up"])?;
            }
            Wiring::Router => {
                let mut command = cluster.switch.command();
                command.args(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
                if !command.status()?.success() {
                    return Err(io::Error::other("a network namespace does not forward"));
                }
            }
        }
        for number in 0..count {
            let host = cluster.add_host(wiring, number, program)?;
            cluster.hosts.push(host);
        }
        Ok(cluster)
    }

    fn add_host(&self, wiring: Wiring, number: usize, program: &Path) -> io::Result<Host> {
        let netns = self.switch.sibling()?;
        let octet = u8::try_from(number + 1).map_err(|_| io::Error::other("at most 255 hosts"))?;
        let address = Ipv4Addr::new(10, 77, 0, octet);
        let port = port_of(number);
        let pid = netns.pid().to_string();
        self.switch.ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        netns.ip(&["link", "set", "lo", "up"])?;
        netns.ip(&["link", "set", "eth0", "up"])?;
        match wiring {
            Wiring::Bridge => {
                self.switch.ip(&["link", "set", &port, "master", BRIDGE, "up"])?;
                netns.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])?;
            }
            Wiring::Router => {
                self.switch.ip(&["link", "set", &port, "up"])?;
                self.switch.ip(&["address", "add", &format!("{GATEWAY}/32"), "dev", &port])?;
                self.switch.ip(&["route", "add", &format!("{address}/32"), "dev", &port])?;
                netns.ip(&["address", "add", &format!("{address}/32"), "dev", "eth0"])?;
                netns.ip(&["route", "add", "default", "via", GATEWAY, "dev", "eth0", "onlink"])?;
            }
        }
        let state_dir = self.directory.join(format!("host-{number}"));
        Ok(Host {
            netns,
            number,
            address,
            state_dir,
            program: program.to_owned(),
            tag: self.tag.clone(),
            environment: Vec::new(),
        })
    }

    /// The same with a second network, in which the hosts are 10.79.0.1, 10.79.0.2, … To be made before daemons are started.
    ///
    /// # Errors
    /// As [`Cluster::new`].
    pub fn with_second_network(self) -> io::Result<Cluster> {
        self.switch.ip(&["link", "add", SECOND_BRIDGE, "type", "bridge"])?;
        self.switch.ip(&["link", "set", SECOND_BRIDGE, "up"])?;
        for host in &self.hosts {
            let (port, pid) = (second_port_of(host.number), host.netns.pid().to_string());
            self.switch.ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth1", "netns", &pid])?;
            self.switch.ip(&["link", "set", &port, "master", SECOND_BRIDGE, "up"])?;
            host.netns.ip(&["link", "set", "eth1", "up"])?;
            host.netns.ip(&["address", "add", &format!("10.79.0.{}/24", host.number + 1), "dev", "eth1"])?;
        }
        Ok(self)
    }

    /// The same with more variables in the environment of everything that is started from now on.
    pub fn with_environment(mut self, variables: &[(&str, &str)]) -> Cluster {
        for host in &mut self.hosts {
            host.environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        }
        self
    }

    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A place for files of the test; goes with the cluster.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Everything from and to a host is lost from now on, and nobody is told.
    pub fn cut(&self, number: usize) -> io::Result<()> {
        self.switch.ip(&["link", "set", &port_of(number), "nomaster"])
    }

    /// Undoes [`Cluster::cut`].
    pub fn heal(&self, number: usize) -> io::Result<()> {
        self.switch.ip(&["link", "set", &port_of(number), "master", BRIDGE])
    }

    /// Everything from and to a host on the second network is lost from now on.
    pub fn cut_second(&self, number: usize) -> io::Result<()> {
        self.switch.ip(&["link", "set", &second_port_of(number), "nomaster"])
    }

    /// Undoes [`Cluster::cut_second`].
    pub fn heal_second(&self, number: usize) -> io::Result<()> {
        self.switch.ip(&["link", "set", &second_port_of(number), "master", SECOND_BRIDGE])
    }

    /// Starts the first host with `pulc up` and lets the others join it; returns when all see all.
    ///
    /// # Panics
    /// If any of it is refused.
    pub fn start(&self) {
        self.start_founder_and_join();
        for host in &self.hosts {
            host.wait_for_states("up", self.hosts.len());
        }
    }

    /// The same, but returns when all have been told: they may still be looking for each other.
    ///
    /// # Panics
    /// If any of it is refused.
    pub fn start_founder_and_join(&self) {
        let up = self.host(0).pulc(&["up"]).expect_success();
        let token = token_in(&up.stdout);
        for host in &self.hosts[1..] {
            host.pulc(&["join", &token]).expect_success();
        }
    }

    /// Processes, sockets and files that belong to this cluster and are still there.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found = leftovers::processes(ENV_TAG, &self.tag);
        found.extend(self.hosts.iter().flat_map(|host| leftovers::sockets_of(host.netns.pid())));
        found
    }

    /// Waits until so many processes of this cluster have `word` in their command line.
    ///
    /// # Panics
    /// After [`HANG`], with what runs instead.
    pub fn wait_for_processes(&self, word: &str, count: usize) {
        let running = || leftovers::processes(ENV_TAG, &self.tag).into_iter().filter(|line| line.contains(word));
        let right = wait_until(|| Some(()).filter(|()| running().count() == count));
        assert!(right.is_some(), "not {count} processes of {word:?}: {:?}", running().collect::<Vec<_>>());
    }

    /// Waits until nothing is left.
    ///
    /// # Panics
    /// With a list of what is still there after [`HANG`].
    pub fn expect_nothing_left(&self) {
        let left = wait_until(|| Some(self.leftovers()).filter(Vec::is_empty));
        assert!(left.is_some(), "still there:\n{}", self.leftovers().join("\n"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        leftovers::kill(ENV_TAG, &self.tag);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Host {
    /// `pulc` on this host, its arguments still to be added.
    pub fn command(&self) -> Command {
        let mut command = self.program_command("env");
        command.arg(&self.program);
        command
    }

    /// Any program on this host.
    pub fn program_command(&self, program: &str) -> Command {
        let mut command = self.netns.command();
        command.arg(program).env("PULC_STATE_DIR", &self.state_dir).env(ENV_TAG, &self.tag).env_remove("PULC_INSTANCE");
        command.env(ENV_ENDS_WITH, std::process::id().to_string());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `pulc` to its end.
    pub fn pulc(&self, arguments: &[&str]) -> Finished {
        let mut command = self.command();
        command.args(arguments);
        run_within(command, HANG)
    }

    /// Sockets of PULC on this host.
    pub fn sockets(&self) -> Vec<String> {
        leftovers::sockets_of(self.netns.pid())
    }

    /// Value of [`ENV_TAG`] in the environment of everything that runs here.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Process that is this host's daemon.
    pub fn daemon_pid(&self) -> Option<i32> {
        fs::read_to_string(self.state_dir.join("pid")).ok()?.parse().ok()
    }

    /// Sends a signal to this host's daemon.
    ///
    /// # Panics
    /// If there is none.
    pub fn signal_daemon(&self, signal: rustix::process::Signal) {
        let pid = self.daemon_pid().expect("a daemon has been started");
        assert!(leftovers::is_tagged(pid, ENV_TAG, &self.tag), "process {pid} is not a daemon of this cluster");
        let pid = rustix::process::Pid::from_raw(pid).expect("pids are positive");
        let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("the daemon lives");
        rustix::process::pidfd_send_signal(fd, signal).expect("the daemon can be signalled");
    }

    /// Processes of this cluster that run here.
    pub fn processes(&self) -> Vec<i32> {
        self.tagged().iter().map(|found| found.pid.as_raw_nonzero().get()).collect()
    }

    /// Kills everything of this cluster that runs here, as a loss of power does; unlike then, the host's kernel goes on and answers.
    pub fn kill_everything(&self) {
        for _ in 0..500 {
            let found = self.tagged();
            if found.is_empty() {
                return;
            }
            found.iter().for_each(proctree::Tagged::kill);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn tagged(&self) -> Vec<proctree::Tagged> {
        let namespace = |pid: String| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let here = namespace(self.netns.pid().to_string());
        let mut found = proctree::tagged(&[&format!("{ENV_TAG}={}", self.tag)]).unwrap_or_default();
        found.retain(|found| here.is_some() && namespace(found.pid.as_raw_nonzero().to_string()) == here);
        found
    }

    /// States of all nodes as this host sees them, by name; empty if its daemon does not answer.
    pub fn states(&self) -> Vec<(String, String)> {
        let finished = self.pulc(&["nodes", "--json"]);
        let Ok(serde_json::Value::Array(nodes)) = serde_json::from_str(&finished.stdout) else { return Vec::new() };
        let text = |node: &serde_json::Value, key: &str| node[key].as_str().unwrap_or_default().to_owned();
        nodes.iter().map(|node| (text(node, "name"), text(node, "state"))).collect()
    }

    /// Waits until so many nodes are in this state here.
    ///
    /// # Panics
    /// After [`HANG`], with what is seen instead.
    pub fn wait_for_states(&self, state: &str, count: usize) {
        let seen =
            wait_until(|| Some(self.states()).filter(|all| all.iter().filter(|(_, s)| s == state).count() == count));
        assert!(seen.is_some(), "host {} does not see {count} nodes {state}: {:?}", self.number, self.states());
    }
}

/// The token in what `pulc up` or `pulc token` prints.
///
/// # Panics
/// If there is none.
pub fn token_in(text: &str) -> String {
    text.split_whitespace().find(|word| word.starts_with("pulc1-")).expect("a token was printed").to_owned()
}

/// Asks again until there is an answer, at most for [`HANG`].
pub fn wait_until<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + HANG;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Directories of test processes that were killed: all else of theirs ends by itself.
fn remove_forgotten() {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix("pulc-cluster-")?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn port_of(number: usize) -> String {
    format!("port{number}")
}

fn second_port_of(number: usize) -> String {
    format!("second{number}")
}
