//! What the kernel offers between two processes: pipe, unix stream, TCP, UDP. On two cores and between nodes both sides
//! poll without ever sleeping, which is the kernel's best; on one core they block, which is its best there.

use crate::Error;
use crate::measure::Channel;
use crate::pair::{Side, Task};
use crate::row::Place;
use crate::worker::Line;
use pulc_hal::os::cpu;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

/// A byte stream that carries messages of a known length.
pub struct Stream {
    read: OwnedFd,
    write: OwnedFd,
}

impl Stream {
    fn new(read: OwnedFd, write: OwnedFd, task: &Task) -> Result<Stream, Error> {
        for fd in [&read, &write] {
            rustix::io::ioctl_fionbio(fd, task.place != Place::Core).map_err(Error::system("set blocking"))?;
        }
        Ok(Stream { read, write })
    }
}

impl Channel for Stream {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < message.len() {
            done += spin(|| rustix::io::write(&self.write, &message[done..]))?;
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < message.len() {
            match spin(|| rustix::io::read(&self.read, &mut message[done..]))? {
                0 => return Err(Error::Ended),
                bytes => done += bytes,
            }
        }
        Ok(())
    }
}

/// Repeats a call until it is not answered with "later".
fn spin(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Error> {
    loop {
        match call() {
            Ok(bytes) => return Ok(bytes),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => cpu::pause(),
            Err(error) => return Err(Error::system("move a message")(error)),
        }
    }
}

pub fn pipe(task: &Task, line: &Line) -> Result<Stream, Error> {
    if task.side == Side::A {
        let make = || rustix::pipe::pipe().map_err(Error::system("make a pipe"));
        let ((to_a, from_b), (to_b, from_a)) = (make()?, make()?);
        line.tell(b"pipes", &[to_b, from_b])?;
        Stream::new(to_a, from_a, task)
    } else {
        let (_, fds) = line.hear()?;
        let [read, write] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| Error::Nonsense("not two pipes".into()))?;
        Stream::new(read, write, task)
    }
}

pub fn unix(task: &Task, line: &Line) -> Result<Stream, Error> {
    let end = if task.side == Side::A {
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (mine, theirs) = pair.map_err(Error::system("make a socket pair"))?;
        line.tell(b"socket", &[theirs])?;
        mine
    } else {
        let (_, mut fds) = line.hear()?;
        fds.pop().ok_or_else(|| Error::Nonsense("no socket".into()))?
    };
    let copy = end.try_clone().map_err(Error::system("copy a socket"))?;
    Stream::new(end, copy, task)
}

pub fn tcp(task: &Task, line: &Line) -> Result<Stream, Error> {
    let stream = if task.side == Side::A {
        let listener = TcpListener::bind((task.ip, 0)).map_err(Error::system("listen"))?;
        let address = listener.local_addr().map_err(Error::system("ask for the address"))?;
        line.tell(address.to_string().as_bytes(), &[])?;
        listener.accept().map_err(Error::system("accept"))?.0
    } else {
        TcpStream::connect(address(&line.hear()?.0)?).map_err(Error::system("connect"))?
    };
    stream.set_nodelay(true).map_err(Error::system("switch delays off"))?;
    let copy = stream.try_clone().map_err(Error::system("copy a socket"))?;
    Stream::new(stream.into(), copy.into(), task)
}

pub fn address(word: &[u8]) -> Result<SocketAddr, Error> {
    let text = String::from_utf8_lossy(word);
    text.parse().map_err(|_| Error::Nonsense(text.into_owned()))
}

/// UDP with the least protocol that does not overrun the receiver: long messages go in pieces, and after a window the
/// sender waits for a word. Nothing is sent again: on a healthy machine nothing is lost.
pub struct Datagrams {
    socket: UdpSocket,
    piece_bytes: usize,
    window: usize,
    sent: usize,
    received: usize,
}

const PIECE_BYTES_MAX: usize = 32 << 10;
/// Pieces under way: what the kernel's default receive buffer of 208 KiB holds with its bookkeeping.
const WINDOW_SHORT: usize = 64;
const WINDOW_LONG: usize = 4;
const SHORT_BYTES_MAX: usize = 1024;
/// The word that opens the window again; messages have at least 8 bytes.
const WORD: &[u8] = b"go";

pub fn udp(task: &Task, line: &Line) -> Result<Datagrams, Error> {
    let socket = UdpSocket::bind((task.ip, 0)).map_err(Error::system("bind"))?;
    let mine = socket.local_addr().map_err(Error::system("ask for the address"))?;
    line.tell(mine.to_string().as_bytes(), &[])?;
    socket.connect(address(&line.hear()?.0)?).map_err(Error::system("connect"))?;
    socket.set_nonblocking(task.place != Place::Core).map_err(Error::system("set blocking"))?;
    let window = if task.bytes <= SHORT_BYTES_MAX { WINDOW_SHORT } else { WINDOW_LONG };
    Ok(Datagrams { socket, piece_bytes: PIECE_BYTES_MAX, window, sent: 0, received: 0 })
}

impl Datagrams {
    fn take(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let socket = self.socket.as_fd();
        spin(|| rustix::net::recv(socket, &mut *into, rustix::net::RecvFlags::empty()).map(|(bytes, _)| bytes))
    }
}

impl Channel for Datagrams {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        for piece in message.chunks(self.piece_bytes) {
            spin(|| rustix::net::send(&self.socket, piece, rustix::net::SendFlags::empty()))?;
            self.sent += 1;
            if self.sent == self.window {
                self.sent = 0;
                let mut word = [0; WORD.len()];
                self.take(&mut word)?;
                if word != WORD {
                    return Err(Error::Nonsense("a message instead of the word".into()));
                }
            }
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        for piece in message.chunks_mut(self.piece_bytes) {
            let bytes = self.take(piece)?;
            if bytes != piece.len() {
                return Err(Error::Nonsense(format!("{bytes} bytes instead of {}", piece.len())));
            }
            self.received += 1;
            if self.received == self.window {
                self.received = 0;
                spin(|| rustix::net::send(&self.socket, WORD, rustix::net::SendFlags::empty()))?;
            }
        }
        Ok(())
    }
}
