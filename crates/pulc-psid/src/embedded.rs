//! A psid inside the process of its client: no daemon, no root, no configuration, nothing on disk. One node without any
//! network, or several nodes of a *local cluster* that are connected like real ones. Runs in one thread of its own and
//! ends with the process; when the process is killed, the keepers notice and end the job.

use crate::daemon::accept;
use crate::error::Error;
use crate::event_loop;
use crate::jobs::{Jobs, JobsConfig};
use crate::mesh::{Mesh, MeshConfig, MeshEvent, NodeState};
use crate::stage::{self, Staging};
use pulc_base::{NodeId, log};
use pulc_control::{Client, embedded_name};
use std::ffi::CString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;
use tokio::sync::mpsc;

/// Mesh events that may wait for the job room.
const EVENTS: usize = 64;
/// How long the nodes of a local cluster may take to find each other: sixty-four of them are two thousand handshakes, on a
/// machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a client waits for the first answer.
const GREETING: Duration = Duration::from_secs(120);

/// Starts an embedded psid with `nodes` nodes and returns a client of the first one. `keeper_program` is a `pulc`
/// binary, normally `/proc/self/exe`.
///
/// # Errors
/// When no thread, socket or identity can be had.
pub fn start(nodes: u32, keeper_program: CString) -> Result<Client, Error> {
    let (client, server) = UnixStream::pair().map_err(Error::io("cannot make a socket pair"))?;
    server.set_nonblocking(true).map_err(Error::io("cannot make a socket pair"))?;
    let runtime = event_loop::start()?;
    std::thread::Builder::new()
        .name("psid".to_owned())
        .spawn(move || {
            // Dropping `server` on failure is what the client notices.
            if let Err(error) = runtime.block_on(serve(nodes, keeper_program, server)) {
                log!(Error, "psid", "{error}");
            }
        })
        .map_err(Error::io("cannot start the embedded psid"))?;
    let failed = |error| Error::io("the embedded psid does not answer")(std::io::Error::other(error));
    Client::greet(client, GREETING).map_err(failed)
}

async fn serve(nodes: u32, keeper_program: CString, server: UnixStream) -> Result<(), Error> {
    let configs = if nodes > 1 { MeshConfig::local_cluster(nodes as usize)? } else { vec![alone()?] };
    stage::sweep_passing();
    let mut rooms = Vec::new();
    let mut meshes = Vec::new();
    for (number, config) in configs.into_iter().enumerate() {
        let (events, incoming) = mpsc::channel::<MeshEvent>(EVENTS);
        let mesh = Mesh::start(config, events)?;
        let stage = Some(Staging::new(mesh.clone(), stage::passing().join(number.to_string()), None));
        let keeper_program = keeper_program.clone();
        let config = JobsConfig {
            mesh: mesh.clone(),
            keeper_program,
            admin: None,
            queue: None,
            stage,
            health: None,
            system: None,
        };
        rooms.push(Jobs::start(config, incoming).map_err(Error::io("cannot start the job room"))?);
        meshes.push(mesh);
    }
    let everybody_up =
        |mesh: &Mesh| mesh.nodes().iter().filter(|node| node.me || node.state == NodeState::Up).count() == meshes.len();
    let begin = tokio::time::Instant::now();
    while !meshes.iter().all(everybody_up) && begin.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let stream = tokio::net::UnixStream::from_std(server).map_err(Error::io("cannot use the client's line"))?;
    rooms[0].client(stream).await;
    let accepting = listen().and_then(|listener| accept(listener, rooms[0].clone()));
    if let Err(error) = accepting {
        log!(Warn, "psid", "{error}; `pulc ps` will not see this job");
    }
    // The rooms run until the process ends.
    std::future::pending().await
}

/// For `pulc ps` and `pulc kill`.
fn listen() -> Result<UnixListener, Error> {
    let mut number = [0; 8];
    random(&mut number)?;
    let name = embedded_name(rustix::process::geteuid().as_raw(), u64::from_le_bytes(number));
    SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixListener::bind_addr(&address))
        .map_err(Error::io("cannot listen for other commands"))
}

fn random(bytes: &mut [u8]) -> Result<(), Error> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty()).map(drop).map_err(|_| Error::NoRandomness)
}

fn alone() -> Result<MeshConfig, Error> {
    let mut id = [0; 16];
    random(&mut id)?;
    let uname = rustix::system::uname();
    Ok(MeshConfig::alone(&uname.nodename().to_string_lossy(), NodeId(id)))
}
