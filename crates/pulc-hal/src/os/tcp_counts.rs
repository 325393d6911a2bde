//! How many bytes a TCP connection has carried, as the kernel counts them: whoever gave or took them, by whatever call, in whatever
//! process. Called by the sockets bypass and by its broker, which proves at its start that this kernel counts so. Must never go through
//! a function of the C library that the bypass itself stands in front of.
//! Source: tcp(7), RFC 4898 (`tcpi_bytes_acked`, `tcpi_bytes_received`).

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Error numbers of the C library.
pub type Errno = i32;

/// In `struct tcp_info`: the state, bytes that the other host has acknowledged, bytes that have arrived in order.
const AT_STATE: usize = 0;
const AT_ACKED: usize = 120;
const AT_RECEIVED: usize = 128;
const INFO_BYTES: usize = 136;

/// States after the other end's FIN, which the kernel counts as a byte (linux/net/tcp_states.h).
const AFTER_FIN: [u8; 4] = [6, 8, 9, 11];
const ESTABLISHED: u8 = 1;

/// Looks until two counts agree: what is acknowledged meanwhile moves from one to the other.
const LOOKS: u32 = 1000;

struct Info([u8; INFO_BYTES]);

impl Info {
    fn of(socket: BorrowedFd<'_>) -> Result<Info, Errno> {
        let mut info = [0; INFO_BYTES];
        let mut len = INFO_BYTES as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `info`, which is as long; the descriptor is borrowed.
        let status = unsafe {
            libc::syscall(
                libc::SYS_getsockopt,
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr(),
                &raw mut len,
            )
        };
        match status {
            0 if len as usize == INFO_BYTES => Ok(Info(info)),
            0 => Err(libc::EOPNOTSUPP),
            _ => Err(last_error()),
        }
    }

    fn number(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }
}

fn last_error() -> Errno {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() }
}

/// Whether both ends are open.
pub fn is_established(socket: BorrowedFd<'_>) -> bool {
    Info::of(socket).is_ok_and(|info| info.0[AT_STATE] == ESTABLISHED)
}

/// Bytes given to the kernel so far. `is_active`: this end called `connect`, whose SYN is counted as a byte.
///
/// # Errors
/// The kernel's, `EOPNOTSUPP` where it counts nothing.
pub fn sent(socket: BorrowedFd<'_>, is_active: bool) -> Result<u64, Errno> {
    let mut acked = Info::of(socket)?.number(AT_ACKED);
    for _ in 0..LOOKS {
        let queued = queued(socket)?;
        let again = Info::of(socket)?.number(AT_ACKED);
        if again == acked {
            return (acked + queued).checked_sub(u64::from(is_active)).ok_or(libc::EOPNOTSUPP);
        }
        acked = again;
    }
    Err(libc::EBUSY)
}

/// Bytes taken from the kernel so far.
///
/// # Errors
/// As for [`sent`].
pub fn taken(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut info = Info::of(socket)?;
    for _ in 0..LOOKS {
        let waiting = waiting(socket)?;
        let again = Info::of(socket)?;
        let (received, fin) = (again.number(AT_RECEIVED), AFTER_FIN.contains(&again.0[AT_STATE]));
        if received == info.number(AT_RECEIVED) && info.0[AT_STATE] == again.0[AT_STATE] {
            return received.checked_sub(waiting + u64::from(fin)).ok_or(libc::EOPNOTSUPP);
        }
        info = again;
    }
    Err(libc::EBUSY)
}

/// Bytes that wait to be read.
pub fn waiting(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    rustix::io::ioctl_fionread(socket).map_err(rustix::io::Errno::raw_os_error)
}

/// Bytes that the other host has not acknowledged.
///
/// # Errors
/// The kernel's.
pub fn queued(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    // SAFETY: SIOCOUTQ is this number for every socket, and writes one int.
    let asked = unsafe {
        rustix::ioctl::ioctl(
            socket,
            rustix::ioctl::Getter::<{ libc::TIOCOUTQ as rustix::ioctl::Opcode }, libc::c_int>::new(),
        )
    };
    asked.map(|queued| u64::try_from(queued).unwrap_or(0)).map_err(rustix::io::Errno::raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    #[test]
    fn the_kernel_counts_what_was_sent_and_taken_before_and_after_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut passive = listener.accept().unwrap().0;
        assert!(is_established(active.as_fd()));
        assert_eq!((sent(active.as_fd(), true), sent(passive.as_fd(), false)), (Ok(0), Ok(0)));
        active.write_all(&[1; 1000]).unwrap();
        passive.write_all(&[1; 77]).unwrap();
        assert_eq!((sent(active.as_fd(), true), sent(passive.as_fd(), false)), (Ok(1000), Ok(77)));
        assert_eq!((taken(active.as_fd()), taken(passive.as_fd())), (Ok(0), Ok(0)));
        passive.read_exact(&mut [0; 300]).unwrap();
        assert_eq!(taken(passive.as_fd()), Ok(300));
        active.shutdown(Shutdown::Write).unwrap();
        passive.read_exact(&mut [0; 600]).unwrap();
        assert_eq!(taken(passive.as_fd()), Ok(900));
        let mut rest = Vec::new();
        passive.read_to_end(&mut rest).unwrap();
        assert_eq!((rest.len(), taken(passive.as_fd())), (100, Ok(1000)));
    }

    #[test]
    fn another_kind_of_socket_counts_nothing() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(sent(one.as_fd(), true).is_err() && taken(one.as_fd()).is_err());
    }
}
