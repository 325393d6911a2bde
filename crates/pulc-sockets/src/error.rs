//! What can go wrong when a channel or a board is set up. On the data path there are error numbers, as programs expect them.

use pulc_hal::HalError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{0}; the connection stays on the kernel")]
    Memory(#[from] HalError),
    #[error("a message of {0} bytes from the sockets' broker is not understood; are both of the same version?")]
    Message(usize),
}
