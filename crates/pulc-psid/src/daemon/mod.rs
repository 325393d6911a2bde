//! The daemon's life: `pulc up` and `pulc join` start it in the background ([`start`]), [`main`] is what then runs, and it ends by
//! `pulc down`, SIGTERM, or violence. One daemon per state directory, guarded by a lock that the kernel frees whatever happens. Nothing
//! of it lies in the file system but the state directory: clients come over an abstract socket.

mod clients;
mod start;
mod system;

pub(crate) use clients::accept;
pub use start::{Admission, Start, Started, client, down, join, nodes, restart, start, stop_to_restart, token};
pub use system::{SystemStart, forget_state, keep_state, start as start_system};

use crate::error::Error;
use crate::event_loop;
use crate::health::Health;
use crate::identity::{DaemonLock, StateDir};
use crate::jobs::{Jobs, JobsConfig, QueueLink, System};
use crate::mesh::{Mesh, MeshConfig, MeshEvent};
use crate::peer_message::PeerMsg;
use crate::queue::{self, QueueConfig};
use crate::sockets;
use crate::stage::{Several, Staging};
use clients::Clients;
use pulc_base::log;
use pulc_control::Tie;
use pulc_control::place::Place;
use pulc_hal::os::process::inherited_fd;
use pulc_helper::Line;
use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

/// Events that may wait for the daemon before the mesh holds the peers back.
const EVENTS: usize = 1024;

/// First word of the only line a daemon writes to its standard output.
const READY: &str = "ready";

/// The whole life of a daemon. Its standard output is a pipe to whoever starts it, closed when it is ready. With `users`, root's file of who may
/// have processes here, it serves several users and was started by the helper.
pub fn main(place: &Place, users: Option<&Path>) -> ExitCode {
    // Before anything else opens descriptors.
    let inherited = users.map(Inherited::take).transpose();
    // Away from the terminal of whoever started us. Fails only for a process-group leader: someone runs it by hand.
    let _ = rustix::process::setsid();
    match inherited.and_then(|inherited| Daemon::prepare(place, inherited)).and_then(|daemon| daemon.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log!(Error, "psid", "{error}");
            // Whoever starts us may have gone.
            let _ = writeln!(std::io::stdout(), "{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

struct Daemon {
    state: StateDir,
    config: MeshConfig,
    clients: UnixListener,
    keepers: UnixListener,
    keepers_socket: String,
    system: Option<System>,
    _lock: DaemonLock,
}

/// What the helper leaves open for a daemon that serves several users.
struct Inherited {
    helper: Line,
    clients: UnixListener,
    keepers: UnixListener,
    users: PathBuf,
}

impl Inherited {
    fn take(users: &Path) -> Result<Inherited, Error> {
        let take = |number| inherited_fd(number).map_err(Error::io("only `pulc up --system` starts this"));
        let (helper, clients, keepers) = (take(3)?, take(4)?, take(5)?);
        let helper = Line::new(helper).map_err(Error::io("cannot use the line to the helper"))?;
        Ok(Inherited { helper, clients: clients.into(), keepers: keepers.into(), users: users.to_owned() })
    }
}

fn listen(socket: &str, whom: &str) -> Result<UnixListener, Error> {
    SocketAddr::from_abstract_name(socket)
        .and_then(|name| UnixListener::bind_addr(&name))
        .map_err(Error::io(format!("cannot listen for {whom} on the abstract socket {socket:?}")))
}

/// Known to this node's daemon alone, and the same after a restart.
fn identity_key(state: &StateDir) -> Result<Vec<u8>, Error> {
    let missing = || Error::NoIdentity { path: state.path().to_owned() };
    Ok(state.identity()?.ok_or_else(missing)?.key_der().to_vec())
}

impl Daemon {
    /// Everything that can be refused.
    fn prepare(place: &Place, inherited: Option<Inherited>) -> Result<Daemon, Error> {
        let state = StateDir::open(&place.state_dir)?;
        let lock = state.lock()?.ok_or_else(|| Error::AlreadyUp { pid: state.daemon_pid() })?;
        let missing = || Error::NoIdentity { path: state.path().to_owned() };
        let identity = state.identity()?.ok_or_else(missing)?;
        let settings = state.settings()?.ok_or_else(missing)?;
        let config = MeshConfig::of_state(&state, identity, &settings)?;
        let keepers_socket = place.keepers_socket();
        let (clients, keepers, system) = match inherited {
            Some(Inherited { helper, clients, keepers, users }) => {
                let seal = blake3::derive_key("pulc psid: what keepers bring back", identity_key(&state)?.as_slice());
                (clients, keepers, Some(System { helper: Arc::new(helper), users, seal }))
            }
            None => (listen(&place.socket, "clients")?, listen(&keepers_socket, "keepers")?, None),
        };
        if system.is_none() {
            sockets::start_if_wanted()?;
        }
        state.keep_daemon_pid()?;
        Ok(Daemon { state, config, clients, keepers, keepers_socket, system, _lock: lock })
    }

    fn run(self) -> Result<(), Error> {
        event_loop::start()?.block_on(self.serve())
    }

    async fn serve(self) -> Result<(), Error> {
        let (sender, events) = mpsc::channel(EVENTS);
        let mesh = Mesh::start(self.config, sender)?;
        let (down, mut going_down) = watch::channel(None);
        let (admin, requests) = mpsc::unbounded_channel();
        let (for_jobs, job_events) = mpsc::channel(EVENTS);
        let keeper_program = c"/proc/self/exe".to_owned();
        let (queue, queue_events) = mpsc::unbounded_channel();
        let link = QueueLink { sender: queue.clone(), keepers_socket: self.keepers_socket };
        let rooms = pulc_helper::rooms(self.state.path());
        let several = self.system.as_ref().map(|system| Several::new(system.helper.clone(), rooms));
        let staging = Staging::new(mesh.clone(), self.state.path().join("staged"), several);
        staging.sweep_users();
        let stage = Some(staging.clone());
        tokio::spawn(staging.clone().forget_kept());
        let health = Health::start(queue.clone());
        let config = JobsConfig {
            mesh: mesh.clone(),
            keeper_program,
            admin: Some(admin),
            queue: Some(link),
            stage,
            health: Some(health.clone()),
            system: self.system.clone(),
        };
        let jobs = Jobs::start(config, job_events).map_err(Error::io("cannot start the job room"))?;
        let controller = self.state.ca()?.map(|_| self.state.path().to_owned());
        queue::start(QueueConfig { mesh: mesh.clone(), jobs: jobs.clone(), health, controller }, queue_events)?;
        let clients = Clients { mesh: mesh.clone(), state: self.state, down: down.clone() };
        tokio::spawn(clients.serve(requests));
        let accepting = match &self.system {
            Some(system) => clients::accept_users(self.clients, jobs.clone(), system.clone())?,
            None => clients::accept(self.clients, jobs.clone())?,
        };
        let finding = clients::accept_keepers(self.keepers, jobs.clone())?;
        let hearing = tokio::spawn(hear(mesh.clone(), events, for_jobs, queue, staging, down));
        let (mut terminate, mut interrupt) = (on_signal(SignalKind::terminate())?, on_signal(SignalKind::interrupt())?);
        // Whoever closes a terminal does not mean us.
        let _hangup = on_signal(SignalKind::hangup())?;
        // A limit on the size of files fails a write, as a full disk does, and is no reason to die.
        let _file_size = on_signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
        let tie = tie()?;
        let helper_ends = watch_helper(self.system.as_ref())?;
        tell_ready()?;
        let mut leaving = false;
        tokio::select! {
            () = cut(tie) => log!(Info, "psid", "the process that this daemon was started for has ended: going down"),
            () = cut(helper_ends) => {
                // Nothing can be started or cleared away any more; queued jobs go on and find the next daemon.
                log!(Error, "psid", "the privileged helper has ended: leaving");
                leaving = true;
            }
            _ = terminate.recv() => log!(Info, "psid", "SIGTERM: going down"),
            _ = interrupt.recv() => log!(Info, "psid", "SIGINT: going down"),
            all = going_down.wait_for(Option::is_some) => {
                match all.map(|how| *how) {
                    Ok(Some(Down::All)) => tell_all(&mesh),
                    Ok(Some(Down::Restart)) => leaving = true,
                    _ => {}
                }
            }
        }
        accepting.abort();
        finding.abort();
        if leaving {
            jobs.leave().await;
        } else {
            jobs.shutdown().await;
            mesh.stop().await;
        }
        hearing.abort();
        Ok(())
    }
}

/// What `pulc down` asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    Here,
    All,
    /// Only this daemon, which is started again: queued jobs stay, and nobody is told good-bye.
    Restart,
}

fn tell_all(mesh: &Mesh) {
    for node in mesh.nodes().iter().filter(|node| !node.me) {
        match mesh.send(node.id, PeerMsg::GoDown) {
            Ok(()) | Err(Error::NotConnected(_)) => {}
            Err(error) => log!(Warn, "psid", "{} ({}) was not told to go down: {error}", node.name, node.id),
        }
    }
}

/// Takes what comes from the other daemons; what is about jobs goes on to their room.
async fn hear(
    mesh: Mesh,
    mut events: mpsc::Receiver<MeshEvent>,
    jobs: mpsc::Sender<MeshEvent>,
    queue: mpsc::UnboundedSender<queue::Event>,
    staging: Staging,
    down: watch::Sender<Option<Down>>,
) {
    while let Some(event) = events.recv().await {
        match &event {
            MeshEvent::Up(info) => log!(Info, "psid", "node {} ({}) is up", info.name, info.id),
            MeshEvent::Down(id, why) => log!(Info, "psid", "node {id} is down: {why:?}"),
            MeshEvent::Message(from, PeerMsg::Probe(number)) => {
                if let Err(error) = mesh.send(*from, PeerMsg::ProbeAnswer(*number)) {
                    log!(Debug, "psid", "probe of {from} not answered: {error}");
                }
                continue;
            }
            MeshEvent::Message(from, PeerMsg::GoDown) => {
                log!(Info, "psid", "node {from} takes the cluster down");
                let _ = down.send(Some(Down::Here));
                continue;
            }
            MeshEvent::Message(_, PeerMsg::ProbeAnswer(_)) => continue,
            MeshEvent::Message(from, PeerMsg::Stage(_)) => {
                // Neither this loop nor the job room waits for files.
                let from = *from;
                if let MeshEvent::Message(_, PeerMsg::Stage(message)) = event {
                    staging.peer(from, message);
                }
                continue;
            }
            MeshEvent::Message(_, PeerMsg::Queue(_)) => {
                let _ = queue.send(queue::Event::Mesh(event));
                continue;
            }
            MeshEvent::Message(_, PeerMsg::Job(_)) => {}
        }
        if !matches!(event, MeshEvent::Message(..)) {
            let _ = queue.send(queue::Event::Mesh(event.clone()));
        }
        // While the daemon goes down the job room has ended already; peers are heard until they are told good-bye.
        let _ = jobs.send(event).await;
    }
}

/// Tells when the process has ended with which this daemon ends, if its environment names one.
fn tie() -> Result<Option<oneshot::Receiver<()>>, Error> {
    let failed = Error::io("cannot start");
    let Some(tie) = Tie::of_environment().map_err(|why| failed(std::io::Error::other(why)))? else { return Ok(None) };
    let (sender, ended) = oneshot::channel();
    let wait = move || {
        tie.wait();
        let _ = sender.send(());
    };
    std::thread::Builder::new().name("tie".to_owned()).spawn(wait).map_err(Error::io("cannot start a thread"))?;
    Ok(Some(ended))
}

/// Tells the helper that this daemon has begun, and us when the helper has ended.
fn watch_helper(system: Option<&System>) -> Result<Option<oneshot::Receiver<()>>, Error> {
    let Some(system) = system else { return Ok(None) };
    let failed = |why: String| Error::io("cannot start")(std::io::Error::other(why));
    system.helper.ready().map_err(failed)?;
    let (sender, ended) = oneshot::channel();
    let helper = system.helper.clone();
    let wait = move || {
        helper.wait_for_its_end();
        let _ = sender.send(());
    };
    std::thread::Builder::new().name("helper".to_owned()).spawn(wait).map_err(Error::io("cannot start a thread"))?;
    Ok(Some(ended))
}

/// Returns when the process has ended; never without one.
async fn cut(tie: Option<oneshot::Receiver<()>>) {
    let ended = match tie {
        Some(tie) => tie.await.is_ok(),
        None => false,
    };
    if !ended {
        std::future::pending().await
    }
}

fn on_signal(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Error> {
    signal(kind).map_err(Error::io("cannot watch signals"))
}

/// Writes the line that [`start`] waits for and lets go of its pipe.
fn tell_ready() -> Result<(), Error> {
    // Nobody may be listening any more, which is no reason not to run.
    let _ = writeln!(std::io::stdout(), "{READY}");
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").map_err(Error::io("cannot open /dev/null"))?;
    rustix::stdio::dup2_stdout(&null).map_err(|e| Error::io("cannot let go of standard output")(e.into()))
}
