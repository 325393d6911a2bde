//! Calling another daemon: TCP, TLS, preamble, first frames. Called by the hub. Accepts only the node it meant to call.

use super::connection::Stream;
use super::tls::{self, Tls};
use super::wire::{self, Answer, Opening, WireError};
use crate::identity::node_id_of;
use crate::membership::{Member, Refusal};
use pulc_base::NodeId;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// For one address to answer.
const CONNECT: Duration = Duration::from_millis(1500);
/// From the first byte to the welcome.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("it refuses: {0:?}")]
    Refused(Refusal),
    #[error("another node answers there ({0})")]
    WrongNode(NodeId),
    #[error("it did not finish the handshake within {} s", HANDSHAKE.as_secs())]
    Slow,
    #[error("no address is known")]
    NoAddress,
    #[error("it answered what no daemon answers")]
    BrokenRules,
}

impl From<std::io::Error> for DialError {
    fn from(error: std::io::Error) -> DialError {
        DialError::Wire(error.into())
    }
}

pub(crate) struct Dialed {
    pub(crate) stream: Stream,
    pub(crate) member: Member,
    pub(crate) session: u64,
}

/// Calls node `id` at each of its addresses until one works; the error of the most telling attempt otherwise.
pub(crate) async fn dial(
    tls: &Tls,
    me: &Member,
    session: u64,
    id: NodeId,
    addresses: &[SocketAddr],
) -> Result<Dialed, DialError> {
    let mut worst = DialError::NoAddress;
    for address in addresses {
        match tokio::time::timeout(HANDSHAKE, dial_one(tls, me, session, id, *address)).await {
            Ok(Ok(dialed)) => return Ok(dialed),
            Ok(Err(error @ (DialError::Refused(_) | DialError::Wire(WireError::Version { .. })))) => return Err(error),
            Ok(Err(error)) => worst = error,
            Err(_) => worst = DialError::Slow,
        }
    }
    Err(worst)
}

async fn dial_one(tls: &Tls, me: &Member, session: u64, id: NodeId, address: SocketAddr) -> Result<Dialed, DialError> {
    let mut stream = connect(&tls.client, address).await?;
    let there = peer_certificate(&stream).and_then(node_id_of).ok_or(DialError::BrokenRules)?;
    if there != id {
        return Err(DialError::WrongNode(there));
    }
    let opening = Opening::Mesh { session, member: me.clone() };
    stream.write_all(&wire::preamble_and(me.version, &opening)).await?;
    stream.flush().await?;
    wire::read_preamble(&mut stream, me.version).await?;
    match wire::read_first(&mut stream).await? {
        Answer::Welcome { session, member } if member.id == id => Ok(Dialed { stream, member, session }),
        Answer::Refused(why) => Err(DialError::Refused(why)),
        _ => Err(DialError::BrokenRules),
    }
}

/// TCP and TLS, nothing of PULC yet.
pub(crate) async fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> Result<Stream, DialError> {
    let timed_out = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, format!("{address} does not answer"));
    let tcp = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await.map_err(timed_out)??;
    tcp.set_nodelay(true)?;
    let stream = TlsConnector::from(config.clone()).connect(tls::server_name(), tcp).await?;
    Ok(Stream::Client(stream))
}

pub(crate) fn peer_certificate(stream: &Stream) -> Option<&CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first()
}
