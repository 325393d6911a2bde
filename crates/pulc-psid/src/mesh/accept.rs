//! Being called: accepts connections, runs the handshake of each in a task of its own with a deadline and a size limit, and
//! hands members to the hub and hosts with a token to the join desk. Whatever comes from the network before that is garbage until
//! proven otherwise: it costs one of a bounded number of slots, and the oldest unfinished caller makes room for the next.

use super::connection::Stream;
use super::dial::{HANDSHAKE, peer_certificate};
use super::hub::Input;
use super::join::Desk;
use super::shared::Shared;
use super::tls::Tls;
use super::wire::{self, Answer, Opening, WireError};
use crate::identity::node_id_of;
use crate::membership::{Member, Refusal};
use pulc_base::log;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

/// Unfinished handshakes at once, from one address and in all.
const PENDING_PER_IP: usize = 64;
const PENDING_MAX: usize = 256;

/// Longest name of a node, in bytes.
const NAME_MAX: usize = 64;

/// What every handshake needs.
pub(crate) struct Host {
    pub(crate) tls: Tls,
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: u64,
    pub(crate) version: u32,
    pub(crate) desk: Option<Desk>,
    pub(crate) hub: mpsc::Sender<Input>,
}

/// Runs until it is aborted.
pub(crate) async fn accept(listener: TcpListener, host: Arc<Host>) {
    let mut pending = Pending::default();
    let complaints = Arc::new(Throttle::default());
    loop {
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or the caller is gone already: neither ends the daemon.
                complaints.say(format_args!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (host, complaints) = (host.clone(), complaints.clone());
        let handshake = tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, greet(&host, tcp, from, &complaints)).await {
                Ok(Ok(())) => {}
                // Whoever only looks whether this host answers, as daemons do, says nothing.
                Ok(Err(error)) if error.is_silence() => log!(Debug, "mesh", "caller from {from} said nothing"),
                Ok(Err(error)) => log!(Info, "mesh", "caller from {from} turned away: {error}"),
                Err(_) => log!(
                    Info,
                    "mesh",
                    "caller from {from} did not finish its handshake within {} s",
                    HANDSHAKE.as_secs()
                ),
            }
        });
        pending.add(from.ip(), handshake.abort_handle());
    }
}

/// Warnings that strangers can cause; so many a minute, so that they can't fill the disk with them.
struct Throttle(Mutex<(Instant, u32)>);

const COMPLAINTS_PER_MINUTE: u32 = 20;

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle(Mutex::new((Instant::now(), 0)))
    }
}

impl Throttle {
    fn say(&self, text: std::fmt::Arguments<'_>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.elapsed() > Duration::from_secs(60) {
            *state = (Instant::now(), 0);
        }
        state.1 = state.1.saturating_add(1);
        match state.1 {
            1..COMPLAINTS_PER_MINUTE => log!(Warn, "mesh", "{text}"),
            COMPLAINTS_PER_MINUTE => log!(Warn, "mesh", "{text}; no more of this for a minute"),
            _ => {}
        }
    }
}

/// Handshakes under way, oldest first.
#[derive(Default)]
struct Pending(VecDeque<(IpAddr, AbortHandle)>);

impl Pending {
    fn add(&mut self, ip: IpAddr, handshake: AbortHandle) {
        self.0.retain(|(_, handshake)| !handshake.is_finished());
        let of_ip = self.0.iter().filter(|(other, _)| *other == ip).count();
        let victim = if of_ip >= PENDING_PER_IP {
            self.0.iter().position(|(other, _)| *other == ip)
        } else {
            (self.0.len() >= PENDING_MAX).then_some(0)
        };
        if let Some((_, oldest)) = victim.and_then(|at| self.0.remove(at)) {
            oldest.abort();
        }
        self.0.push_back((ip, handshake));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, handshake)| handshake.abort());
    }
}

async fn greet(host: &Host, tcp: TcpStream, from: SocketAddr, complaints: &Throttle) -> Result<(), WireError> {
    tcp.set_nodelay(true)?;
    let mut stream = Stream::Server(TlsAcceptor::from(host.tls.server.clone()).accept(tcp).await?);
    match wire::read_preamble(&mut stream, host.version).await {
        Ok(()) => {}
        Err(error @ WireError::Version { .. }) => {
            wire::write_preamble(&mut stream, host.version).await?;
            let _ = stream.shutdown().await;
            return Err(error);
        }
        Err(error) => return Err(error),
    }
    let opening: Opening = wire::read_first(&mut stream).await?;
    match opening {
        Opening::Mesh { session, mut member } => {
            if peer_certificate(&stream).and_then(node_id_of) != Some(member.id) {
                return refuse(host, stream, Refusal::Stranger).await;
            }
            prefer(&mut member, from.ip());
            // The hub answers it. If there is no hub any more, dropping the stream is the answer.
            let _ = host.hub.send(Input::Incoming { stream: Box::new(stream), member, session }).await;
            Ok(())
        }
        Opening::Join { secret, public_key, proof, mut member } => {
            prefer(&mut member, from.ip());
            let Some(desk) = &host.desk else { return refuse(host, stream, Refusal::NotFounder).await };
            match desk.admit(host, &stream, secret, public_key, &proof, &member) {
                Ok(answer) => {
                    write_first(host, &mut stream, &answer).await?;
                    let _ = stream.shutdown().await;
                    Ok(())
                }
                Err(why) => {
                    complaints.say(format_args!("{from} may not join: {why:?}"));
                    refuse(host, stream, why).await
                }
            }
        }
    }
}

/// The address a caller really comes from is the best one to call it back.
pub(crate) fn prefer(member: &mut Member, ip: IpAddr) {
    member.addresses.sort_by_key(|address| address.ip() != ip);
    member.addresses.truncate(crate::identity::ADDRESSES_MAX);
    if member.name.len() > NAME_MAX {
        member.name = member.name.chars().take(NAME_MAX / 4).collect();
    }
}

pub(crate) async fn refuse(host: &Host, mut stream: Stream, why: Refusal) -> Result<(), WireError> {
    write_first(host, &mut stream, &Answer::Refused(why)).await?;
    let _ = stream.shutdown().await;
    Ok(())
}

async fn write_first(host: &Host, stream: &mut Stream, answer: &Answer) -> Result<(), WireError> {
    stream.write_all(&wire::preamble_and(host.version, answer)).await?;
    stream.flush().await?;
    Ok(())
}
