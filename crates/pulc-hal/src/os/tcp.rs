//! What the kernel knows about a TCP connection that a read or write does not tell: whether the other host acknowledges. Called by
//! the daemon's failure detection to tell a stopped daemon from a lost host.

use crate::error::HalError;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProgress {
    /// Segments sent and not yet acknowledged.
    pub unacknowledged: u32,
    /// Probes of a closed window, or keep-alives, in a row without an answer.
    pub probes: u8,
    /// Time since anything was acknowledged.
    pub last_ack: Duration,
}

impl TcpProgress {
    /// Whether an answer of the other host's kernel is due.
    pub fn is_waiting(&self) -> bool {
        self.unacknowledged > 0 || self.probes > 1
    }
}

/// Asks about a connected TCP socket.
///
/// # Errors
/// If it is no TCP socket.
pub fn progress(socket: BorrowedFd<'_>) -> Result<TcpProgress, HalError> {
    // SAFETY: tcp_info is plain old data for which all zeroes is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the pointers name a live tcp_info and its length; the kernel writes at most `len` bytes. The descriptor is
    // valid because it is borrowed.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len)
    };
    if status != 0 {
        return Err(HalError::System { doing: "getsockopt TCP_INFO", source: std::io::Error::last_os_error() });
    }
    Ok(TcpProgress {
        unacknowledged: info.tcpi_unacked,
        probes: info.tcpi_probes,
        last_ack: Duration::from_millis(u64::from(info.tcpi_last_ack_recv)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    #[test]
    fn a_living_host_acknowledges_even_if_nobody_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(&[1; 100]).unwrap();
        for _ in 0..1000 {
            if !progress(stream.as_fd()).unwrap().is_waiting() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("100 bytes over loopback were not acknowledged: {:?}", progress(stream.as_fd()));
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_an_error() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(progress(one.as_fd()).is_err());
    }
}
