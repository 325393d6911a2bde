//! Datagrams with descriptors over abstract unix `SOCK_SEQPACKET` sockets: nothing in the file system, message borders
//! kept, the other end known by its credentials. Called by the keeper and by ranks to talk to it; knows no message type.
//!
//! Must never leak a descriptor into an exec'd child (close-on-exec on arrival) nor lose one silently (a truncated
//! message is an error).

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors in one datagram.
pub const FDS_MAX: usize = 16;

/// Room for [`FDS_MAX`] descriptors in a control message.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

/// Who is at the other end, as the kernel saw it when the connection was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerIdentity {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

/// A datagram that arrived.
#[derive(Debug)]
pub struct Received {
    /// Bytes written to the caller's buffer.
    pub bytes: usize,
    pub fds: Vec<OwnedFd>,
}

/// Accepts connections at an abstract name.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Binds the abstract `name` (without the leading NUL byte). Non-blocking.
    ///
    /// # Errors
    /// `AddrInUse` when the name is taken.
    pub fn bind(name: &[u8]) -> io::Result<Listener> {
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        rustix::net::listen(&socket, 4096)?;
        Ok(Listener(socket))
    }

    /// The next connection, non-blocking itself. `WouldBlock` when there is none.
    pub fn accept(&self) -> io::Result<Seqpacket> {
        Ok(Seqpacket(rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One connection.
#[derive(Debug)]
pub struct Seqpacket(OwnedFd);

impl Seqpacket {
    /// Connects to the abstract `name`. Blocking until [`Seqpacket::set_nonblocking`].
    pub fn connect(name: &[u8]) -> io::Result<Seqpacket> {
        let socket = socket(SocketFlags::CLOEXEC)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Seqpacket(socket))
    }

    /// Two connected ends, blocking.
    pub fn pair() -> io::Result<(Seqpacket, Seqpacket)> {
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Seqpacket(a), Seqpacket(b)))
    }

    /// The same connection by another descriptor.
    pub fn share(&self) -> io::Result<Seqpacket> {
        Ok(Seqpacket(self.0.try_clone()?))
    }

    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.0, on)?;
        Ok(())
    }

    /// Who connected (seen from the listener's side) or who listens (seen from the other side).
    pub fn peer(&self) -> io::Result<PeerIdentity> {
        let cred = rustix::net::sockopt::socket_peercred(&self.0)?;
        Ok(PeerIdentity { pid: cred.pid.as_raw_nonzero().get(), uid: cred.uid.as_raw(), gid: cred.gid.as_raw() })
    }

    /// Sends one datagram with at most [`FDS_MAX`] descriptors. Whole or not at all; never raises `SIGPIPE`.
    ///
    /// # Errors
    /// `InvalidInput` for an empty datagram (it could not be told from the end) or too many descriptors; `WouldBlock`.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.is_empty() || fds.len() > FDS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        retry(|| rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Receives one datagram; `None` when the other end is closed.
    ///
    /// # Errors
    /// `InvalidData` when the datagram or its descriptors did not fit (they are closed, the datagram is lost); `WouldBlock`.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut receive = || {
            retry(|| {
                rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
            })
        };
        let mut message = receive();
        // The other end was closed with words of ours unread. The kernel says so once, before it hands out what that end had sent.
        if message.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset) {
            message = receive();
        }
        let message = message?;
        let mut fds = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                fds.extend(rights);
            }
        }
        if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a datagram or its descriptors did not fit"));
        }
        if message.bytes == 0 && fds.is_empty() {
            return Ok(None);
        }
        Ok(Some(Received { bytes: message.bytes, fds }))
    }
}

impl AsFd for Seqpacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Seqpacket {
    fn from(fd: OwnedFd) -> Seqpacket {
        Seqpacket(fd)
    }
}

impl From<Seqpacket> for OwnedFd {
    fn from(socket: Seqpacket) -> OwnedFd {
        socket.0
    }
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_keeps_its_borders_and_brings_its_descriptors() {
        let (a, b) = Seqpacket::pair().unwrap();
        let (pipe_read, pipe_write) = rustix::pipe::pipe().unwrap();
        a.send(b"first", &[pipe_write.as_fd()]).unwrap();
        a.send(b"second", &[]).unwrap();
        drop(pipe_write);
        let mut buffer = [0; 64];
        let first = b.recv(&mut buffer).unwrap().unwrap();
        assert_eq!(&buffer[..first.bytes], b"first");
        rustix::io::write(&first.fds[0], b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&pipe_read, &mut byte).unwrap(), 1);
        let flags = rustix::io::fcntl_getfd(&first.fds[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "an arriving descriptor must not leak into children");
        assert_eq!(b.recv(&mut buffer).unwrap().unwrap().bytes, 6);
        drop(a);
        assert!(b.recv(&mut buffer).unwrap().is_none(), "a closed end is not an empty datagram");
    }

    #[test]
    fn an_end_that_is_closed_with_words_unread_has_still_said_what_it_sent() {
        let (a, b) = Seqpacket::pair().unwrap();
        b.send(b"never read", &[]).unwrap();
        a.send(b"last words", &[]).unwrap();
        a.send(b"very last", &[]).unwrap();
        drop(a);
        let mut buffer = [0; 64];
        assert_eq!(b.recv(&mut buffer).unwrap().unwrap().bytes, 10);
        assert_eq!(b.recv(&mut buffer).unwrap().unwrap().bytes, 9);
        assert!(b.recv(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn a_datagram_that_does_not_fit_is_an_error_and_leaks_no_descriptor() {
        let (a, b) = Seqpacket::pair().unwrap();
        let (pipe_read, pipe_write) = rustix::pipe::pipe().unwrap();
        a.send(b"too long for four", &[pipe_write.as_fd()]).unwrap();
        drop(pipe_write);
        assert_eq!(b.recv(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(rustix::io::read(&pipe_read, &mut [0]).unwrap(), 0, "the last writer must be closed");
    }

    #[test]
    fn an_abstract_listener_knows_who_connected() {
        let name = format!("pulc-test-{}-listener", std::process::id());
        let listener = Listener::bind(name.as_bytes()).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(Listener::bind(name.as_bytes()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let client = Seqpacket::connect(name.as_bytes()).unwrap();
        let server = listener.accept().unwrap();
        let identity = server.peer().unwrap();
        assert_eq!(identity.pid, std::process::id() as i32);
        assert_eq!(identity.uid, rustix::process::geteuid().as_raw());
        assert_eq!(server.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.send(b"hello", &[]).unwrap();
        assert_eq!(server.recv(&mut [0; 8]).unwrap().unwrap().bytes, 5);
        assert_eq!(client.send(b"", &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
