//! Everything that can go wrong at this door, in one enum. Texts say the value, the limit and what to do next.

use pulc_base::Rank;
use pulc_hal::error::HalError;
use pulc_handler::{Process, SendFault};
use std::io::ErrorKind;
use std::time::Duration;

/// Why a call failed.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The process could not join its job.
    #[error("cannot attach: {0}")]
    Attach(String),
    /// This process is a fork of the one that attached; an engine is never shared across fork.
    #[error(
        "process {child} is a fork of attached process {parent}: attach before the fork only, or exec in the child"
    )]
    Forked { parent: u32, child: u32 },
    #[error("rank {rank} does not exist: this job has ranks 0..{size}")]
    NoSuchRank { rank: Rank, size: u32 },
    #[error("port name of {len} bytes: a name has 1 to {max} bytes")]
    BadName { len: usize, max: usize },
    #[error("port {name:?} is already open in this process: close it first or choose another name")]
    NameTaken { name: String },
    #[error("{limit} ports are open: close one, or raise PULC_PORTS_MAX")]
    TooManyPorts { limit: usize },
    #[error("channel {number} to rank {rank} is already open in this process: close it first or choose another number")]
    ChannelTaken { rank: Rank, number: u16 },
    #[error("{limit} buffers are posted to this channel: take some back first, or raise PULC_RAW_POSTS_MAX")]
    TooManyPosts { limit: usize },
    #[error("rank {rank} has opened no port {name:?} within {waited:?}: check the name, or raise PULC_PORT_LOOKUP_MS")]
    UnknownPort { rank: Rank, name: String, waited: Duration },
    #[error("message of {len} bytes exceeds the limit of {max}: split it, or raise {parameter}")]
    MessageTooLarge { len: usize, max: usize, parameter: &'static str },
    /// The message is kept and can be received again with a larger buffer.
    #[error(
        "message of {needed} bytes does not fit the buffer of {len}: it is kept, receive it again with room enough"
    )]
    BufferTooSmall { needed: usize, len: usize },
    #[error("rank {rank} is gone ({how})")]
    PeerGone { rank: Rank, how: String },
    #[error("nothing came in time")]
    Timeout,
    /// Which members, and why, is told by the members.
    #[error("{failed} of {of} members did not get the message, first {first}")]
    SomeFailed { failed: usize, of: usize, first: String },
    #[error("a set of members needs at least one")]
    NoMembers,
    #[error("rank {rank} does not take port {name:?}: it has it already, or too many offers that wait there")]
    NotTaken { rank: Rank, name: String },
    #[error("out of memory: {0}")]
    NoMemory(String),
    #[error("out of descriptors: {0}")]
    NoDescriptors(String),
    #[error("a wait needs at least one thing to wait for; a wake-up is armed for ports, channels and bundles only")]
    BadSelect,
    #[error("{fd} is no open descriptor: take it out of the items before closing it")]
    BadDescriptor { fd: i32 },
    #[error(
        "rank {rank} has opened no endpoint {name:?} within {waited:?}: check the name, or raise PULC_AM_LOOKUP_MS"
    )]
    UnknownEndpoint { rank: Rank, name: String, waited: Duration },
    #[error("endpoint {name:?} of rank {rank} has another tag: map it with the tag it was opened with")]
    TagRefused { rank: Rank, name: String },
    /// An index of a handler table is used once.
    #[error("endpoint {name:?} has handler {index:?} already: choose another index")]
    HandlerTaken { name: String, index: Option<u8> },
    #[error("handlers of active messages must not block: reply through the token, or leave it to the program")]
    InHandler,
    #[error("messages of this kind are not sent by this call")]
    BadOpcode,
    #[error("{0}")]
    System(String),
}

impl From<pulc_handler::Error> for Error {
    fn from(error: pulc_handler::Error) -> Error {
        match error {
            pulc_handler::Error::Forked { parent, child } => Error::Forked { parent, child },
            pulc_handler::Error::Hal(error) => of_hal(&error),
            pulc_handler::Error::ForkedMemory => Error::NoMemory(error.to_string()),
            pulc_handler::Error::System { ref source, .. } if is_out_of_descriptors(source) => {
                Error::NoDescriptors(format!("{error}; raise the limit (`ulimit -n`)"))
            }
            other => Error::Attach(other.to_string()),
        }
    }
}

pub(crate) fn no_memory(bytes: usize) -> Error {
    Error::NoMemory(format!("a message of {bytes} bytes finds no room in this process"))
}

/// The rank must be one of the job.
pub(crate) fn check_rank(process: &Process, rank: Rank) -> Result<(), Error> {
    let size = process.boot().tasks.len() as u32;
    if rank.0 < size { Ok(()) } else { Err(Error::NoSuchRank { rank, size }) }
}

/// What a failed send means to the user.
pub(crate) fn of_send(process: &Process, fault: SendFault) -> Error {
    match fault {
        SendFault::NoSuchRank(rank) => Error::NoSuchRank { rank, size: process.boot().tasks.len() as u32 },
        SendFault::PeerGone(rank, end) => Error::PeerGone { rank, how: end.to_string() },
        SendFault::TooLong { len, max } => Error::MessageTooLarge { len, max, parameter: "PULC_MESSAGE_MAX_BYTES" },
        SendFault::Timeout => Error::Timeout,
        SendFault::SelfFull { .. } => {
            Error::NoMemory(format!("{fault}; receive some first, or raise PULC_UNEXPECTED_MAX_BYTES"))
        }
        other => match process.lock().engine.take_failure() {
            Some(failure) => of_hal(&failure),
            None => Error::System(other.to_string()),
        },
    }
}

/// EMFILE and ENFILE have no kind of their own.
fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23))
}

impl From<HalError> for Error {
    fn from(error: HalError) -> Error {
        of_hal(&error)
    }
}

fn of_hal(error: &HalError) -> Error {
    let text = error.to_string();
    match error {
        HalError::System { source, .. } if is_out_of_descriptors(source) => {
            Error::NoDescriptors(format!("{text}; raise the limit (`ulimit -n`)"))
        }
        HalError::System { source, .. } if source.kind() == ErrorKind::OutOfMemory => Error::NoMemory(text),
        _ => Error::System(text),
    }
}
