//! The daemon's local clients: connections go to the job room, which hands back what is about the daemon itself (`pulc token`,
//! `pulc down`). Only this user (and root) is served, which the job room checks: the kernel says who calls.

use super::Down;
use crate::error::Error;
use crate::identity::StateDir;
use crate::jobs::{Admin, Caller, Jobs, System};
use crate::mesh::Mesh;
use pulc_base::log;
use pulc_control::{Reply, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

/// Life of a token made on request.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct Clients {
    pub(crate) mesh: Mesh,
    pub(crate) state: StateDir,
    pub(crate) down: watch::Sender<Option<Down>>,
}

/// Hands clients to the job room until the handle is aborted.
pub(crate) fn accept(listener: std::os::unix::net::UnixListener, jobs: Jobs) -> Result<JoinHandle<()>, Error> {
    listener.set_nonblocking(true).map_err(Error::io("cannot use the clients' socket"))?;
    let listener = UnixListener::from_std(listener).map_err(Error::io("cannot use the clients' socket"))?;
    Ok(tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => jobs.client(stream).await,
                Err(error) => {
                    log!(Warn, "psid", "cannot accept a client: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }))
}

/// The same for a daemon of several users: who calls is looked up first, outside of the rooms.
pub(crate) fn accept_users(
    listener: std::os::unix::net::UnixListener,
    jobs: Jobs,
    system: System,
) -> Result<JoinHandle<()>, Error> {
    listener.set_nonblocking(true).map_err(Error::io("cannot use the clients' socket"))?;
    let listener = UnixListener::from_std(listener).map_err(Error::io("cannot use the clients' socket"))?;
    let turns = Arc::new(Semaphore::new(LOOKED_UP_AT_ONCE));
    Ok(tokio::spawn(async move {
        loop {
            let Ok(turn) = turns.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (jobs, system) = (jobs.clone(), system.clone());
                    tokio::spawn(async move {
                        let looked_up = tokio::task::spawn_blocking(move || {
                            let caller = Caller::at_the_other_end(&stream, &system);
                            (stream, caller)
                        });
                        let Ok((stream, caller)) = looked_up.await else { return };
                        drop(turn);
                        match caller {
                            Ok(caller) => jobs.client_of(stream, caller).await,
                            Err(why) => log!(Warn, "psid", "a client was refused: {why}"),
                        }
                    });
                }
                Err(error) => {
                    log!(Warn, "psid", "cannot accept a client: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }))
}

/// Clients that are looked up in the system's user database at once.
const LOOKED_UP_AT_ONCE: usize = 32;

/// Hands keepers that have found this daemon to the job room.
pub(crate) fn accept_keepers(listener: std::os::unix::net::UnixListener, jobs: Jobs) -> Result<JoinHandle<()>, Error> {
    listener.set_nonblocking(true).map_err(Error::io("cannot use the keepers' socket"))?;
    let listener = UnixListener::from_std(listener).map_err(Error::io("cannot use the keepers' socket"))?;
    Ok(tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => jobs.keeper(stream),
                Err(error) => {
                    log!(Warn, "psid", "cannot accept a keeper: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }))
}

impl Clients {
    /// Answers what the job room passes on.
    pub(crate) async fn serve(self, mut requests: mpsc::UnboundedReceiver<Admin>) {
        while let Some(Admin { request, reply }) = requests.recv().await {
            let _ = reply.send(self.reply(&request));
        }
    }

    fn reply(&self, request: &Request) -> Reply {
        match request {
            Request::Token => self.token().map_or_else(|error| refused(error.to_string()), Reply::Token),
            Request::Down { all } => {
                let _ = self.down.send(Some(if *all { Down::All } else { Down::Here }));
                Reply::Done
            }
            Request::Restart => {
                let _ = self.down.send(Some(Down::Restart));
                Reply::Done
            }
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
