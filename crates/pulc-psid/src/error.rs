//! The one error type of this crate.

use pulc_base::NodeId;

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
    #[error("the mesh of this node has been stopped")]
    MeshStopped,
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
