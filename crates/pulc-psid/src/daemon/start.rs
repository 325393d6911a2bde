//! What `pulc up`, `pulc join`, `pulc down` and `pulc token` do, apart from talking to people: found or join a cluster, start the daemon in
//! the background and wait until it is ready, stop it and wait until it is gone. Called by pulc-cli; blocking, every wait has a deadline.

use super::READY;
use super::clients::TOKEN_LIFE;
use crate::error::Error;
use crate::event_loop;
use crate::identity::{Settings, StateDir, Token, TokenEntry};
use crate::membership::Member;
use crate::mesh::{self, DEFAULT_PORT};
use pulc_base::{NodeId, boot, log};
use pulc_control::place::Place;
use pulc_control::{Client, NodeInfo, NodeState, Reply, Request};
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// For the daemon to be ready, and to be gone.
const READY_WITHIN: Duration = Duration::from_secs(20);
pub(super) const GONE_WITHIN: Duration = Duration::from_secs(60);
/// For a running daemon to answer.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// For a node that has joined to be connected.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// Log of earlier lives is moved aside beyond this.
const LOG_MAX_BYTES: u64 = 1 << 20;
/// What a rank has and a daemon must not.
const RANK_VARIABLES: [&str; 8] = [
    boot::ENV_KEEPER,
    boot::ENV_COOKIE,
    boot::ENV_RANK,
    boot::ENV_SIZE,
    boot::ENV_JOBID,
    boot::ENV_NODE,
    boot::ENV_LOCAL_RANK,
    boot::ENV_LOCAL_SIZE,
];

/// How to start.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub listen: Option<SocketAddr>,
    pub name: Option<String>,
}

/// How a node gets into its cluster.
#[derive(Clone, Debug)]
pub struct Admission {
    pub token: Token,
    /// Forget the cluster this node belongs to now.
    pub replace: bool,
}

#[derive(Clone, Debug)]
pub struct Started {
    pub id: NodeId,
    pub name: String,
    pub nodes: Vec<NodeInfo>,
    /// With which others can join, if this node founded the cluster.
    pub token: Option<String>,
}

/// Starts the daemon of this place; founds a cluster if it belongs to none.
pub fn start(place: &Place, options: &Start) -> Result<Started, Error> {
    let state = not_running(place)?;
    let founds = state.identity()?.is_none();
    let founded = if founds { state.found().map(drop) } else { Ok(()) };
    let started =
        founded.and_then(|()| settings(place, &state, options)).and_then(|settings| launch(place, &state, &settings));
    if founds && started.is_err() {
        // A cluster that never was must not stand in the way of joining another one.
        state.forget()?;
    }
    started
}

/// Gets a certificate with a token and starts the daemon.
pub fn join(place: &Place, options: &Start, admission: &Admission) -> Result<Started, Error> {
    let state = not_running(place)?;
    let settings = admitted(place, &state, options, admission)?;
    let mut started = launch(place, &state, &settings)?;
    // Whoever joined wants to be seen: by the founder at least, when this returns.
    let deadline = Instant::now() + CONNECTED_WITHIN;
    while !started.nodes.iter().any(|node| !node.me && node.state == NodeState::Up) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
        started.nodes = nodes(place)?;
    }
    Ok(started)
}

/// Gets a certificate with a token, unless the node is in that cluster already, and keeps it.
pub(super) fn admitted(
    place: &Place,
    state: &StateDir,
    options: &Start,
    admission: &Admission,
) -> Result<Settings, Error> {
    if let Some(identity) = state.identity()? {
        if identity.cluster() == admission.token.ca {
            let settings = settings(place, state, options)?;
            state.keep_settings(&settings)?;
            return Ok(settings);
        }
        if !admission.replace {
            return Err(Error::OtherCluster { ours: identity.cluster().to_string() });
        }
    }
    let mut settings = settings(place, state, options)?;
    if settings.listen_chosen {
        mesh::check_free(settings.listen)?;
    }
    let runtime = event_loop::start()?;
    let me = Member {
        id: NodeId([0; 16]),
        name: settings.name.clone(),
        addresses: Vec::new(),
        cores: 0,
        version: mesh::VERSION,
    };
    let joined = runtime.block_on(mesh::join(&admission.token, me))?;
    state.forget()?;
    settings.name = joined.name;
    state.keep_members(&joined.members)?;
    state.keep_identity(&joined.identity)?;
    state.keep_settings(&settings)?;
    Ok(settings)
}

/// A token of the cluster that the node of this place founded.
pub fn token(place: &Place, life: Duration) -> Result<(Token, TokenEntry), Error> {
    let state = StateDir::open(&place.state_dir)?;
    let ca = state.ca()?.ok_or(Error::NotFounder)?;
    let me = nodes(place)?.into_iter().find(|node| node.me).map(|node| node.addresses).unwrap_or_default();
    state.new_token(me, ca.fingerprint(), life)
}

/// Stops the daemon of this place (with `all`, every daemon of the cluster) and waits until it is gone.
///
/// Returns the nodes that were not connected and so were not told.
pub fn down(place: &Place, all: bool) -> Result<Vec<NodeInfo>, Error> {
    let mut untold = if all { nodes(place)? } else { Vec::new() };
    untold.retain(|node| {
        !matches!(node.state, NodeState::Up | NodeState::Draining | NodeState::Torpid | NodeState::Left)
    });
    let request = Request::Down { all };
    if place.is_system() {
        super::system::stop(place, &request)?;
    } else {
        stop(place, &StateDir::open(&place.state_dir)?, &request)?;
    }
    Ok(untold)
}

/// Stops the daemon of this place without a good-bye and starts it again; queued jobs go on meanwhile.
pub fn restart(place: &Place) -> Result<Started, Error> {
    stop_to_restart(place)?;
    start(place, &Start::default())
}

/// Stops the daemon of this place without a good-bye, for one that is started in its stead.
pub fn stop_to_restart(place: &Place) -> Result<(), Error> {
    if place.is_system() {
        return super::system::stop(place, &Request::Restart);
    }
    stop(place, &StateDir::open(&place.state_dir)?, &Request::Restart)
}

/// Tells the daemon to end and waits until it has.
fn stop(place: &Place, state: &StateDir, request: &Request) -> Result<(), Error> {
    match client(place)?.ask(request, ANSWER_WITHIN) {
        Ok(Reply::Done) => {}
        Ok(Reply::Refused { why }) => return Err(Error::DaemonRefused { why }),
        Ok(_) => return Err(Error::DaemonRefused { why: "it gave an answer that does not fit".to_owned() }),
        Err(error) => return Err(Error::DaemonSilent { why: error.to_string() }),
    }
    let deadline = Instant::now() + GONE_WITHIN;
    while state.is_locked()? {
        if Instant::now() > deadline {
            return Err(Error::DaemonStays { pid: state.daemon_pid(), seconds: GONE_WITHIN.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Connects to the daemon of this place.
pub fn client(place: &Place) -> Result<Client, Error> {
    match Client::connect(&place.socket) {
        Ok(Some(client)) => Ok(client),
        Ok(None) => Err(Error::NotUp),
        Err(error) => Err(Error::DaemonSilent { why: error.to_string() }),
    }
}

/// The nodes as the daemon of this place sees them.
pub fn nodes(place: &Place) -> Result<Vec<NodeInfo>, Error> {
    match client(place)?.ask(&Request::Nodes, ANSWER_WITHIN) {
        Ok(Reply::Nodes(nodes)) => Ok(nodes),
        Ok(Reply::Refused { why }) => Err(Error::DaemonRefused { why }),
        Ok(_) => Err(Error::DaemonRefused { why: "it gave an answer that does not fit".to_owned() }),
        Err(error) => Err(Error::DaemonSilent { why: error.to_string() }),
    }
}

pub(super) fn not_running(place: &Place) -> Result<StateDir, Error> {
    let state = StateDir::open(&place.state_dir)?;
    if state.is_locked()? {
        return Err(Error::AlreadyUp { pid: state.daemon_pid() });
    }
    Ok(state)
}

/// What was said now, or what was kept from last time, or the defaults.
pub(super) fn settings(place: &Place, state: &StateDir, options: &Start) -> Result<Settings, Error> {
    let kept = state.settings()?;
    let host = || {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        place.instance.as_ref().map_or(host.clone(), |instance| format!("{host}-{instance}"))
    };
    let name = options.name.clone().or_else(|| kept.as_ref().map(|kept| kept.name.clone())).unwrap_or_else(host);
    let (listen, listen_chosen) = match (options.listen, &kept) {
        (Some(listen), _) => (listen, true),
        (None, Some(kept)) => (kept.listen, kept.listen_chosen),
        (None, None) => (SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)), false),
    };
    Ok(Settings { name, listen, listen_chosen })
}

fn launch(place: &Place, state: &StateDir, settings: &Settings) -> Result<Started, Error> {
    state.keep_settings(settings)?;
    let program = std::env::current_exe().map_err(Error::io("cannot find this program again"))?;
    let mut command = Command::new(program);
    command.arg("daemon").stderr(open_log(&state.log_path())?);
    spawned(&mut command, &state.log_path())?;
    // Who is told that it failed must not have a daemon.
    describe(place, state, settings).inspect_err(|_| {
        let _ = down(place, false);
    })
}

/// A daemon is no rank, even if a rank starts it.
pub(super) fn without_rank(command: &mut Command) {
    RANK_VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
}

/// Starts a daemon and waits until it says that it is ready.
pub(super) fn spawned(command: &mut Command, log: &Path) -> Result<(), Error> {
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
    without_rank(command);
    let mut child = command.spawn().map_err(Error::io("cannot start the daemon"))?;
    let said = child.stdout.take().map(wait_for_line).transpose()?.unwrap_or_default();
    if said.trim_end() != READY {
        let code = end_of(&mut child);
        let said = said.trim();
        let why = if said.is_empty() { format!("it said nothing; see {}", log.display()) } else { said.to_owned() };
        return Err(Error::NotStarted { why, code });
    }
    Ok(())
}

/// What the daemon that has just been started is.
fn describe(place: &Place, state: &StateDir, settings: &Settings) -> Result<Started, Error> {
    let nodes = nodes(place)?;
    let id = nodes.iter().find(|node| node.me).map_or(NodeId([0; 16]), |node| node.id);
    let token = match state.ca()?.map(|_| token(place, TOKEN_LIFE)).transpose() {
        Ok(token) => token.map(|(token, _)| token.to_string()),
        // The node is up all the same.
        Err(error @ Error::TooManyTokens { .. }) => {
            log!(Warn, "pulc", "no new token was made: {error}");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(Started { id, name: settings.name.clone(), nodes, token })
}

/// Exit status of a daemon that did not get ready; one that hangs is killed, so that none is left behind.
fn end_of(child: &mut Child) -> u8 {
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => {
                return status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1);
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    1
}

pub(super) fn open_log(path: &Path) -> Result<File, Error> {
    if fs::metadata(path).is_ok_and(|log| log.len() > LOG_MAX_BYTES) {
        fs::rename(path, path.with_extension("log.old"))
            .map_err(Error::io(format!("cannot move {} aside", path.display())))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io(format!("cannot open {}", path.display())))
}

/// Everything the daemon says until it lets go of its standard output or time is up.
fn wait_for_line(mut from: ChildStdout) -> Result<String, Error> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut said = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout =
            rustix::event::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(from.as_fd(), rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => break,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(Error::io("cannot wait for the daemon")(error.into())),
        }
        let mut bytes = [0; 1024];
        match from.read(&mut bytes).map_err(Error::io("cannot hear the daemon"))? {
            0 => break,
            len => said.extend_from_slice(&bytes[..len]),
        }
        if said.contains(&b'\n') || said.len() > 64 << 10 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}
