//! How a mesh is started: alone, as one of a local cluster, or from a state directory. Also its parameters. Called by the daemon and by
//! embedded psids; binds sockets and does nothing else.

use super::address::local_addresses;
use super::connection::Limits;
use crate::error::Error;
use crate::identity::{ClusterCa, NodeIdentity, Settings, StateDir, limit_addresses};
use crate::membership::{Member, Timing};
use pulc_base::clock::Nanos;
use pulc_base::param::Param;
use pulc_base::{NodeId, PROTOCOL_VERSION};
use std::net::{SocketAddr, TcpListener};

/// Version of what daemons say to each other: in steps of a hundred that of PULC's other protocols, and its own.
pub const VERSION: u32 = VERSIONS_OF_A_KIND * PROTOCOL_VERSION + 7;
/// The first that takes back files of several users.
pub const WITH_USERS_FILES: u32 = VERSIONS_OF_A_KIND * PROTOCOL_VERSION + 7;
/// Versions of one hundred may meet in a cluster.
pub(crate) const VERSIONS_OF_A_KIND: u32 = 100;
/// The oldest version that this one can still speak; of the same hundred.
pub(crate) const OLDEST_SPOKEN: u32 = VERSIONS_OF_A_KIND * PROTOCOL_VERSION + 6;
/// Where daemons listen unless told otherwise; if it is taken, a free port.
pub const DEFAULT_PORT: u16 = 7852;

static BEAT: Param = Param {
    name: "mesh_beat_ms",
    default: 1000,
    min: 10,
    max: 60_000,
    text: "time between two signs of life of a node and one that watches it",
};
static TORPID: Param = Param {
    name: "mesh_torpid_ms",
    default: 3000,
    min: 30,
    max: 600_000,
    text: "silence after which a node gets no new work",
};
static DEAD: Param = Param {
    name: "mesh_dead_ms",
    // What follows from it has to be done five seconds after the end of a node.
    default: 4500,
    min: 50,
    max: 600_000,
    text: "silence of daemon and host after which a node is down and its jobs end",
};
static STOPPED: Param = Param {
    name: "mesh_stopped_ms",
    default: 60_000,
    min: 100,
    max: 86_400_000,
    text: "silence of a daemon whose host still answers after which its node is down",
};
static FRAME_MAX: Param = Param {
    name: "mesh_frame_max_bytes",
    default: 16 << 20,
    min: 64 << 10,
    max: 1 << 30,
    text: "largest message between two daemons",
};
static QUEUE_MAX: Param = Param {
    name: "mesh_queue_max_bytes",
    default: 64 << 20,
    min: 1 << 20,
    max: 1 << 34,
    text: "bytes that may wait for one other daemon",
};
static MEMBERS_MAX: Param =
    Param { name: "mesh_members_max", default: 1024, min: 2, max: 65_536, text: "nodes of one cluster" };
static WATCH: Param = Param {
    name: "mesh_watch",
    default: 8,
    min: 2,
    max: 65_536,
    text: "other nodes that each node watches all the time; where there are no more, everybody watches all",
};
static ROUND: Param = Param {
    name: "mesh_round_ms",
    default: 30_000,
    min: 100,
    max: 600_000,
    text: "time after which something is wanted to be heard of nodes that are not watched too",
};

/// Everything about the mesh that can be set.
pub static PARAMS: &[&Param] = &[&BEAT, &TORPID, &DEAD, &STOPPED, &FRAME_MAX, &QUEUE_MAX, &MEMBERS_MAX, &WATCH, &ROUND];

pub struct MeshConfig {
    pub(super) me: Member,
    pub(super) identity: Option<NodeIdentity>,
    pub(super) listener: Option<TcpListener>,
    pub(super) members: Vec<Member>,
    /// Where members are remembered.
    pub(super) state: Option<StateDir>,
    /// Where tokens are looked up, if this node may admit others.
    pub(super) desk: Option<StateDir>,
    pub(super) timing: Timing,
    pub(super) limits: Limits,
}

impl MeshConfig {
    /// A mesh of one node that listens nowhere: the embedded psid of `pulc run`.
    pub fn alone(name: &str, id: NodeId) -> MeshConfig {
        MeshConfig::new(member(id, name.to_owned(), Vec::new(), cores()), None)
    }

    /// `count` nodes of a cluster that lives only in this process: own identities, an authority nobody keeps, loopback.
    ///
    /// # Errors
    /// If no port or no randomness is to be had.
    pub fn local_cluster(count: usize) -> Result<Vec<MeshConfig>, Error> {
        let ca = ClusterCa::new()?;
        let share = (cores() / u32::try_from(count).unwrap_or(u32::MAX).max(1)).max(1);
        let mut configs = Vec::with_capacity(count);
        for n in 0..count {
            let identity = ca.new_node()?;
            let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            let address = listener.local_addr().map_err(Error::io("cannot learn the port that was bound"))?;
            let me = member(identity.id(), format!("local-{n}"), vec![address], share);
            configs.push(MeshConfig { listener: Some(listener), ..MeshConfig::new(me, Some(identity)) });
        }
        let everybody: Vec<Member> = configs.iter().map(|config| config.me.clone()).collect();
        for config in &mut configs {
            config.members = everybody.iter().filter(|member| member.id != config.me.id).cloned().collect();
        }
        Ok(configs)
    }

    /// The node of a state directory, listening where its settings say.
    ///
    /// # Errors
    /// If the directory is damaged or the address is in use and was chosen by the user.
    pub fn of_state(state: &StateDir, identity: NodeIdentity, settings: &Settings) -> Result<MeshConfig, Error> {
        let listener = match bind(settings.listen) {
            Err(Error::AddressInUse { .. }) if !settings.listen_chosen => {
                bind(SocketAddr::new(settings.listen.ip(), 0))?
            }
            other => other?,
        };
        let bound = listener.local_addr().map_err(Error::io("cannot learn the port that was bound"))?;
        let me = member(identity.id(), settings.name.clone(), advertised(bound), cores());
        let desk = state.ca()?.map(|_| state.clone());
        Ok(MeshConfig {
            listener: Some(listener),
            members: state.members()?,
            state: Some(state.clone()),
            desk,
            ..MeshConfig::new(me, Some(identity))
        })
    }

    fn new(me: Member, identity: Option<NodeIdentity>) -> MeshConfig {
        let ms = |param: &Param| Nanos::from_ms(param.read().value);
        let bytes = |param: &Param| usize::try_from(param.read().value).unwrap_or(usize::MAX);
        let beat = ms(&BEAT);
        let timing = Timing {
            beat,
            tick: Nanos(beat.0 / 4),
            torpid_after: ms(&TORPID),
            dead_after: ms(&DEAD),
            stopped_after: ms(&STOPPED),
            redial_min: Nanos::from_ms(100),
            redial_max: Nanos::from_ms(5000),
            members_max: bytes(&MEMBERS_MAX),
            watch: bytes(&WATCH),
            round_max: ms(&ROUND),
        };
        let limits = Limits { frame_bytes: bytes(&FRAME_MAX), queue_bytes: bytes(&QUEUE_MAX) };
        MeshConfig { me, identity, listener: None, members: Vec::new(), state: None, desk: None, timing, limits }
    }

    /// Who this node will be.
    pub fn me(&self) -> &Member {
        &self.me
    }

    /// How this node will listen.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }
}

fn member(id: NodeId, name: String, addresses: Vec<SocketAddr>, cores: u32) -> Member {
    Member { id, name, addresses, cores, version: VERSION }
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// What others are told when this node listens on `bound`.
pub fn advertised(bound: SocketAddr) -> Vec<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound];
    }
    let usable = local_addresses().into_iter().filter(|ip| bound.is_ipv6() || ip.is_ipv4());
    limit_addresses(usable.map(|ip| SocketAddr::new(ip, bound.port())).collect())
}

/// Whether a daemon could listen there now.
///
/// # Errors
/// [`Error::AddressInUse`], or that the address is not one of this host.
pub fn check_free(address: SocketAddr) -> Result<(), Error> {
    bind(address).map(drop)
}

/// Callers that may wait to be accepted. While a daemon stands still others go on asking its kernel whether networks reach it.
const BACKLOG: i32 = 4096;

fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    });
    bound.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::AddressInUse { address },
        _ => Error::io(format!("cannot listen on {address}"))(error),
    })
}

pub(super) fn into_tokio(listener: TcpListener) -> Result<tokio::net::TcpListener, Error> {
    listener.set_nonblocking(true).map_err(Error::io("cannot use the listener"))?;
    tokio::net::TcpListener::from_std(listener).map_err(Error::io("cannot use the listener"))
}
