//! What can go wrong below the handler outside the data path. On the data path the devices answer with the small `Copy`
//! enums of `device::` instead. Logged once, by whoever decides what to do about it.

use std::io;

/// Errors of the hardware abstraction layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HalError {
    #[error("{doing}: {source}")]
    System {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("shared memory of {found} bytes was offered where {expected} are needed; refused")]
    WrongSize { found: u64, expected: u64 },
    #[error("shared memory with seals {found:#x} was offered where {required:#x} are needed; refused")]
    NotSealed { found: u32, required: u32 },
    #[error("a descriptor that is not ordinary shared memory was offered; refused")]
    NotSharedMemory,
    #[error("the offer of a channel is malformed: {0}; refused")]
    BadOffer(&'static str),
    #[error("slot {slot} does not exist on a board of {slots}")]
    NoSuchSlot { slot: u32, slots: u32 },
    #[error("the channel to slot {slot} is already open; close it first")]
    AlreadyOpen { slot: u32 },
    #[error("a process opens no channel to itself (slot {slot})")]
    OwnSlot { slot: u32 },
    #[error("{what} is {value}, the limit is {max}")]
    Limit { what: &'static str, value: u64, max: u64 },
}

impl HalError {
    /// For `map_err`: what was being done when the system refused.
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> HalError {
        move |source| HalError::System { doing, source: source.into() }
    }
}
