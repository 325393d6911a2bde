//! The one error type of this crate.

use pulc_base::NodeId;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("node {0} is not known here; `pulc nodes` lists the known ones")]
    UnknownNode(NodeId),
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    #[error(
        "{queued_bytes} bytes wait for node {to} already (limit {limit_bytes}, parameter mesh_queue_max_bytes); send later"
    )]
    QueueFull { to: NodeId, queued_bytes: usize, limit_bytes: usize },
    #[error("a message of {len} bytes is longer than a frame may be ({limit}); send it in parts")]
    MessageTooLong { len: usize, limit: usize },
    #[error("{limit} messages of this node to itself wait already; send later")]
    OwnQueueFull { limit: usize },
    #[error("the mesh of this node has been stopped")]
    MeshStopped,
    #[error("cannot listen on {address}: it is in use; choose another with --listen, or stop what listens there")]
    AddressInUse { address: SocketAddr },
    #[error("this is no token: {why}; copy the whole line that `pulc up` or `pulc token` printed")]
    BadToken { why: String },
    #[error("{limit} tokens live already, the limit; revoke some with `pulc token --revoke`")]
    TooManyTokens { limit: usize },
    #[error("not admitted: {why}")]
    JoinRefused { why: String },
    #[error("the daemon at {at} speaks protocol version {theirs}, this one {ours}; use the same PULC on both")]
    WrongVersion { theirs: u32, ours: u32, at: SocketAddr },
    #[error("the cluster can't be reached ({tried}); is its daemon up, and does a firewall let its port through?")]
    Unreachable { tried: String },
    #[error("{}: {why}", path.display())]
    BadState { path: PathBuf, why: String },
    #[error("unusable identity: {what}")]
    BadIdentity { what: String },
    #[error("the system gives no random numbers")]
    NoRandomness,
    #[error("certificate: {0}")]
    Certificate(#[source] rcgen::Error),
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    pub(crate) fn certificate(source: rcgen::Error) -> Error {
        Error::Certificate(source)
    }

    pub(crate) fn tls(source: rustls::Error) -> Error {
        Error::Tls(source)
    }
}
