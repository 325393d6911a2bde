//! The daemon's local clients: `pulc nodes`, `pulc down`, `pulc token`, and whatever jobs ask. Only this user (and root) is served: the kernel says who
//! calls. A client that writes nonsense, too much, or nothing loses its connection and bothers nobody else.

use super::Down;
use crate::error::Error;
use crate::identity::StateDir;
use crate::mesh::Mesh;
use pulc_base::{PROTOCOL_VERSION, log};
use pulc_control::frame::Deframer;
use pulc_control::{FrameError, Reply, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Clients served at once.
const CLIENTS_MAX: usize = 256;
/// For a client to say what it wants.
const GREETING: Duration = Duration::from_secs(10);
/// Life of a token made on request.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct Clients {
    pub(crate) mesh: Mesh,
    pub(crate) state: StateDir,
    pub(crate) down: watch::Sender<Option<Down>>,
}

/// Serves clients until the handle is aborted.
pub(crate) fn accept(
    listener: std::os::unix::net::UnixListener,
    clients: Arc<Clients>,
) -> Result<JoinHandle<()>, Error> {
    listener.set_nonblocking(true).map_err(Error::io("cannot use the clients' socket"))?;
    let listener = UnixListener::from_std(listener).map_err(Error::io("cannot use the clients' socket"))?;
    let seats = Arc::new(tokio::sync::Semaphore::new(CLIENTS_MAX));
    Ok(tokio::spawn(async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    log!(Warn, "psid", "cannot accept a client: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(seat) = seats.clone().acquire_owned().await else { return };
            let clients = clients.clone();
            tokio::spawn(async move {
                if let Err(error) = clients.serve(stream).await {
                    log!(Info, "psid", "a client's connection ended: {error}");
                }
                drop(seat);
            });
        }
    }))
}

impl Clients {
    async fn serve(&self, mut stream: UnixStream) -> Result<(), FrameError> {
        let caller = stream.peer_cred()?.uid();
        let mine = rustix::process::geteuid().as_raw();
        if caller != mine && caller != 0 {
            return answer(&mut stream, &refused(format!("this daemon serves user {mine}, not {caller}"))).await;
        }
        let mut frames = Deframer::default();
        let Some(Request::Hello { version }) = read(&mut stream, &mut frames).await? else {
            return answer(&mut stream, &refused("say Hello first".to_owned())).await;
        };
        if version != PROTOCOL_VERSION {
            let why = format!(
                "this daemon speaks protocol version {PROTOCOL_VERSION}, the command {version}; use the same PULC"
            );
            return answer(&mut stream, &refused(why)).await;
        }
        answer(&mut stream, &Reply::Welcome { version: PROTOCOL_VERSION, node: self.mesh.me() }).await?;
        while let Some(request) = read(&mut stream, &mut frames).await? {
            let reply = self.reply(request);
            answer(&mut stream, &reply).await?;
        }
        Ok(())
    }

    fn reply(&self, request: Request) -> Reply {
        match request {
            Request::Nodes => Reply::Nodes(self.mesh.nodes()),
            Request::Token => self.token().map_or_else(|error| refused(error.to_string()), Reply::Token),
            Request::Down { all } => {
                let _ = self.down.send(Some(if all { Down::All } else { Down::Here }));
                Reply::Done
            }
            Request::Ps => Reply::Jobs(Vec::new()),
            _ => refused("this daemon does not know what to do with that request".to_owned()),
        }
    }

    fn token(&self) -> Result<String, Error> {
        let ca = self.state.ca()?.ok_or(Error::NotFounder)?;
        let me = self.mesh.nodes().into_iter().find(|node| node.me).map(|node| node.addresses).unwrap_or_default();
        let (token, _) = self.state.new_token(me, ca.fingerprint(), TOKEN_LIFE)?;
        Ok(token.to_string())
    }
}

fn refused(why: String) -> Reply {
    Reply::Refused { why }
}

async fn read(stream: &mut UnixStream, frames: &mut Deframer) -> Result<Option<Request>, FrameError> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(request) = frames.next()? {
            return Ok(Some(request));
        }
        let late = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, "it asked nothing for too long");
        match tokio::time::timeout(GREETING, stream.read(&mut bytes)).await.map_err(late)?? {
            0 => return Ok(None),
            len => frames.feed(&bytes[..len]),
        }
    }
}

async fn answer(stream: &mut UnixStream, reply: &Reply) -> Result<(), FrameError> {
    stream.write_all(&pulc_control::frame::encode(reply)?).await?;
    Ok(())
}
