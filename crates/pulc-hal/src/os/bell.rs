//! A descriptor that wakes a process which waits for descriptors. Used beside the doorbell word of the board by ranks
//! that wait for the network as well; the peers get the ringing end with the channel.
//!
//! A socket pair and not an eventfd: whether a write to an eventfd blocks is a flag that its owner can change at any time,
//! a send with `MSG_DONTWAIT` never blocks whatever a hostile peer has passed. Whoever may ring may also ring without end, or shut
//! the socket for all: the first costs its owner a look now and then, after the second the bell is *mute* and its owner looks up
//! by itself.

use crate::error::HalError;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads of one silencing at most: what is left rings again.
const DRAIN_READS_MAX: usize = 16;

/// One process's bell: it waits and drains, its peers ring.
#[derive(Debug)]
pub struct Bell {
    wait_end: OwnedFd,
    ring_end: OwnedFd,
    mute: AtomicBool,
}

impl Bell {
    pub fn new() -> Result<Bell, HalError> {
        let (wait_end, ring_end) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(HalError::system("make a bell"))?;
        Ok(Bell { wait_end, ring_end, mute: AtomicBool::new(false) })
    }

    /// Silences the bell after waking; whether it had been rung.
    pub fn drain(&self) -> bool {
        let (mut bytes, mut rung) = ([0; 4096], false);
        for _ in 0..DRAIN_READS_MAX {
            match rustix::net::recv(&self.wait_end, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.silence();
                    break;
                }
                Ok((read, _)) => {
                    rung = true;
                    if read < bytes.len() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        rung
    }

    /// The end that this process's own threads ring.
    pub fn ring_end(&self) -> BorrowedFd<'_> {
        self.ring_end.as_fd()
    }

    #[cold]
    fn silence(&self) {
        if !self.mute.swap(true, Ordering::Relaxed) {
            pulc_base::log!(Warn, "hal", "a job-mate has shut this process's bell: it looks up by itself from now on");
        }
    }

    /// Nobody can ring any more: the waiting end would be readable for ever.
    pub fn is_mute(&self) -> bool {
        self.mute.load(Ordering::Relaxed)
    }

    /// A copy of the ringing end for a peer.
    pub fn share(&self) -> Result<OwnedFd, HalError> {
        self.ring_end.try_clone().map_err(HalError::system("copy a bell"))
    }
}

impl AsFd for Bell {
    /// The end that becomes readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait_end.as_fd()
    }
}

/// Rings a peer's bell. Never blocks. A full buffer means that it already rings; a peer that passed something else harms
/// only itself: so failures are dropped.
pub fn ring(bell: BorrowedFd<'_>) {
    let _ = rustix::net::send(bell, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
