//! The one error type of this crate.

use pulc_base::NodeId;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{what}: {text}", text = shortage(source))]
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
    #[error(
        "the daemon at {at} speaks protocol version {theirs}, this one {ours}; use versions of PULC that go together on both"
    )]
    WrongVersion { theirs: u32, ours: u32, at: SocketAddr },
    #[error("the cluster can't be reached ({tried}); is its daemon up, and does a firewall let its port through?")]
    Unreachable { tried: String },
    #[error("{}: {why}", path.display())]
    BadState { path: PathBuf, why: String },
    #[error("unusable identity: {what}")]
    BadIdentity { what: String },
    #[error("a daemon is up here already (pid {pid}); `pulc nodes` shows its cluster, `pulc down` stops it")]
    AlreadyUp { pid: u32 },
    #[error("no daemon is up here; start one with `pulc up` or `pulc join TOKEN`")]
    NotUp,
    #[error("{}: no node is kept there; start with `pulc up` or `pulc join TOKEN`", path.display())]
    NoIdentity { path: PathBuf },
    #[error(
        "this node belongs to cluster {ours}, the token to another one; `pulc join --replace TOKEN` forgets the old one"
    )]
    OtherCluster { ours: String },
    #[error(
        "this node did not found its cluster and has no authority to admit others; ask on the node where `pulc up` was said first"
    )]
    NotFounder,
    #[error("the daemon did not start: {why}")]
    NotStarted { why: String, code: u8 },
    #[error("the daemon refuses: {why}")]
    DaemonRefused { why: String },
    #[error("the daemon does not answer: {why}; see daemon.log in its state directory")]
    DaemonSilent { why: String },
    #[error(
        "the daemon (pid {pid}) is still there after {seconds} s; see daemon.log in its state directory, or end it with kill -9"
    )]
    DaemonStays { pid: u32, seconds: u64 },
    #[error("the program asks for {asked:?}, which PMI-1 does not know; was it built for MPICH or a relative of it?")]
    NotPmi { asked: String },
    #[error("the program asks in a line that is longer than {limit} bytes, the limit of PMI-1")]
    PmiLineTooLong { limit: usize },
    #[error("the ranks left more than {limit} words for each other, the limit")]
    TooManyPmiWords { limit: usize },
    #[error(transparent)]
    Place(#[from] pulc_control::place::PlaceError),
    #[error("the system gives no random numbers")]
    NoRandomness,
    #[error("certificate: {0}")]
    Certificate(#[source] rcgen::Error),
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
}

/// A system's error with a word about which limit was met, if it is one.
pub fn shortage(error: &std::io::Error) -> String {
    use rustix::io::Errno;
    let hint = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "; raise the limit of open files (ulimit -n)",
        Some(Errno::NFILE) => "; the whole system has no file to open left",
        Some(Errno::AGAIN) => "; raise the limit of processes (ulimit -u) or of memory (ulimit -v)",
        Some(Errno::NOMEM) => "; there is no memory left",
        Some(Errno::NOSPC | Errno::DQUOT) => "; make room on that disk",
        _ => "",
    };
    format!("{error}{hint}")
}

/// Whether this process, or the system, has no descriptor left.
pub(crate) fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::MFILE | Errno::NFILE))
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// Exit status by which a script can tell the refusals apart.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::AlreadyUp { .. } => 10,
            Error::NotUp => 11,
            Error::AddressInUse { .. } => 12,
            Error::BadToken { .. } | Error::JoinRefused { .. } => 13,
            Error::WrongVersion { .. } => 14,
            Error::Unreachable { .. } => 15,
            Error::OtherCluster { .. } | Error::NotFounder => 16,
            Error::NotStarted { code, .. } => *code,
            _ => 1,
        }
    }

    pub(crate) fn certificate(source: rcgen::Error) -> Error {
        Error::Certificate(source)
    }

    pub(crate) fn tls(source: rustls::Error) -> Error {
        Error::Tls(source)
    }
}
