//! One stream of the `tcp` device in either direction, and the watch over all of them. Called by `tcp` only; never blocks, and
//! believes no length that a stream brings before it is checked.

use super::Peer;
use super::tcp::{FRAME_MAX, Token};
use pulc_base::clock::{Nanos, now};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes before every frame.
const LENGTH_BYTES: usize = 4;
/// One read.
const READ_BYTES: usize = 128 << 10;
/// What a stream that is not open yet, or is full, holds of what was taken for it.
const WAITING_MAX_BYTES: usize = 64 << 10;
/// Pieces in one write.
const SLICES_MAX: usize = 256;
/// Between two attempts to open a stream, doubled with each.
const RETRY_FIRST: Nanos = Nanos::from_ms(1);
const RETRY_MAX: Nanos = Nanos::from_ms(1000);
/// A stream whose bytes nobody takes for so long is given up and opened anew.
const SILENCE_MAX_MS: u32 = 30_000;
const NEWS_MAX: usize = 32;

/// All sockets of the device in one descriptor.
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub fn new() -> io::Result<Watch> {
        Ok(Watch(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    pub fn readable(&self, socket: impl AsFd, name: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, socket, epoll::EventData::new_u64(name), epoll::EventFlags::IN)?)
    }

    fn writable(&self, socket: impl AsFd, name: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, socket, epoll::EventData::new_u64(name), epoll::EventFlags::OUT)?)
    }

    fn leave(&self, socket: impl AsFd) {
        // Only what is watched is left; the error would say no more.
        let _ = epoll::delete(&self.0, socket);
    }

    /// The names of sockets with news.
    pub fn look(&self) -> impl Iterator<Item = u64> + use<> {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; NEWS_MAX];
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut names = [0; NEWS_MAX];
        let count = epoll::wait(&self.0, &mut room, Some(&nothing)).map_or(0, |(news, _)| {
            names.iter_mut().zip(&*news).for_each(|(name, event)| *name = event.data.u64());
            news.len()
        });
        names.into_iter().take(count)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What became of frames given to a stream.
pub(super) enum Put {
    Taken,
    /// None of them; later.
    Full,
    /// The stream broke with this error; what it held is lost.
    Broken(i32),
}

enum State {
    /// Not before this time.
    Closed(Nanos),
    Connecting(OwnedFd),
    Open(OwnedFd),
}

/// The stream to a peer.
pub(super) struct Leaving {
    address: SocketAddr,
    token: Token,
    state: State,
    patience: Nanos,
    /// Taken and not yet written; watched while there is any.
    waiting: Vec<u8>,
}

impl Leaving {
    pub fn new(address: SocketAddr, token: Token) -> Leaving {
        Leaving { address, token, state: State::Closed(Nanos(0)), patience: RETRY_FIRST, waiting: Vec::new() }
    }

    pub fn holds_back(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes all frames or none.
    pub fn put(&mut self, frames: &[[&[u8]; 2]], watch: &Watch, name: u64, calls: &mut u64) -> Put {
        if let State::Closed(not_before) = self.state {
            let at = now();
            if at < not_before {
                // As good as lost on the way.
                return Put::Taken;
            }
            if let Err(error) = self.connect(watch, name, calls) {
                return self.broken(error);
            }
        }
        if !self.waiting.is_empty() || !matches!(self.state, State::Open(_)) {
            let bytes: usize = frames.iter().map(|[one, two]| LENGTH_BYTES + one.len() + two.len()).sum();
            if self.waiting.len() > self.token.len() && self.waiting.len() + bytes > WAITING_MAX_BYTES {
                return Put::Full;
            }
            frames.iter().for_each(|frame| self.keep(frame));
            return Put::Taken;
        }
        self.write(frames, watch, name, calls)
    }

    fn connect(&mut self, watch: &Watch, name: u64, calls: &mut u64) -> Result<(), Errno> {
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_tcp_user_timeout(&socket, SILENCE_MAX_MS)?;
        *calls += 4;
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        watch.writable(&socket, name).map_err(|_| Errno::NOMEM)?;
        self.waiting.clear();
        self.waiting.extend_from_slice(&self.token);
        self.state = State::Connecting(socket);
        Ok(())
    }

    fn broken(&mut self, error: Errno) -> Put {
        self.state = State::Closed(now() + self.patience);
        self.patience = Nanos(self.patience.0 * 2).min(RETRY_MAX);
        self.waiting = Vec::new();
        Put::Broken(error.raw_os_error())
    }

    fn keep(&mut self, [one, two]: &[&[u8]; 2]) {
        self.waiting.extend_from_slice(&((one.len() + two.len()) as u32).to_le_bytes());
        self.waiting.extend_from_slice(one);
        self.waiting.extend_from_slice(two);
    }

    /// Writes frames to an open stream that holds nothing back; what it takes a part of is kept whole.
    fn write(&mut self, frames: &[[&[u8]; 2]], watch: &Watch, name: u64, calls: &mut u64) -> Put {
        let mut first = 0;
        while first < frames.len() {
            let State::Open(socket) = &self.state else { return Put::Taken };
            let group = &frames[first..(first + SLICES_MAX / 3).min(frames.len())];
            let lengths: Vec<[u8; LENGTH_BYTES]> =
                group.iter().map(|[one, two]| ((one.len() + two.len()) as u32).to_le_bytes()).collect();
            let slices: Vec<IoSlice<'_>> = lengths
                .iter()
                .zip(group)
                .flat_map(|(length, [one, two])| [IoSlice::new(length), IoSlice::new(one), IoSlice::new(two)])
                .collect();
            let total: usize = slices.iter().map(|slice| slice.len()).sum();
            *calls += 1;
            match send(socket, &slices) {
                Ok(written) if written == total => first += group.len(),
                Ok(written) => {
                    let joined = slices.iter().flat_map(|slice| slice.iter());
                    self.waiting.extend(joined.skip(written));
                    frames[first + group.len()..].iter().for_each(|frame| self.keep(frame));
                    return self.await_room(watch, name);
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) if first == 0 => return Put::Full,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {
                    frames[first..].iter().for_each(|frame| self.keep(frame));
                    return self.await_room(watch, name);
                }
                Err(error) => return self.broken(error),
            }
        }
        Put::Taken
    }

    fn await_room(&mut self, watch: &Watch, name: u64) -> Put {
        if let State::Open(socket) = &self.state
            && watch.writable(socket, name).is_err()
        {
            return self.broken(Errno::NOMEM);
        }
        Put::Taken
    }

    /// The watch says that there is room, or that the attempt to connect has ended.
    pub fn go_on(&mut self, watch: &Watch, name: u64, calls: &mut u64) -> Put {
        if let State::Connecting(socket) = &self.state {
            *calls += 1;
            match sockopt::socket_error(socket) {
                Ok(Ok(())) => {
                    let State::Connecting(socket) = std::mem::replace(&mut self.state, State::Closed(Nanos(0))) else {
                        return Put::Taken;
                    };
                    self.state = State::Open(socket);
                    self.patience = RETRY_FIRST;
                }
                Ok(Err(error)) | Err(error) => return self.broken(error),
            }
        }
        let State::Open(socket) = &self.state else { return Put::Taken };
        while !self.waiting.is_empty() {
            *calls += 1;
            match send(socket, &[IoSlice::new(&self.waiting)]) {
                Ok(written) => drop(self.waiting.drain(..written)),
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => return Put::Taken,
                Err(error) => return self.broken(error),
            }
        }
        // Nothing waits: the watch would tell of room for ever.
        watch.leave(socket);
        let _ = name;
        Put::Taken
    }
}

fn send(socket: &OwnedFd, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut nothing = SendAncillaryBuffer::default();
    rustix::net::sendmsg(socket, slices, &mut nothing, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// A stream to us.
pub(super) struct Arriving {
    stream: TcpStream,
    /// Whose it is, once it has said so.
    pub peer: Option<Peer>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    breaks_rules: bool,
}

impl Arriving {
    pub fn new(stream: TcpStream) -> io::Result<Arriving> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // A stranger gets no more room than its token takes.
        let buffer = vec![0; size_of::<Token>()];
        Ok(Arriving { stream, peer: None, buffer, start: 0, end: 0, breaks_rules: false })
    }

    /// The token, when all of it is here; from then on there is room for frames.
    pub fn take_token(&mut self) -> Option<Token> {
        let token = self.buffer[..self.end].first_chunk::<{ size_of::<Token>() }>().copied()?;
        self.buffer = vec![0; READ_BYTES];
        self.end = 0;
        Some(token)
    }

    /// Reads what is there, once. False: the stream has ended.
    pub fn fill(&mut self) -> bool {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match rustix::net::recv(&self.stream, &mut self.buffer[self.end..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok((bytes, _)) => {
                self.end += bytes;
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Length of the next frame, if it is known and obeys the limit.
    fn next_len(&self) -> Option<usize> {
        let length = self.buffer[self.start..self.end].first_chunk::<LENGTH_BYTES>()?;
        Some(u32::from_le_bytes(*length) as usize)
    }

    pub fn has_frame(&self) -> bool {
        self.peer.is_some()
            && self.next_len().is_some_and(|len| len <= FRAME_MAX && self.end - self.start >= LENGTH_BYTES + len)
    }

    pub fn next_frame(&mut self) -> Option<&mut [u8]> {
        let len = self.next_len()?;
        if len > FRAME_MAX {
            self.breaks_rules = true;
            return None;
        }
        if self.end - self.start < LENGTH_BYTES + len {
            return None;
        }
        let at = self.start + LENGTH_BYTES;
        self.start = at + len;
        Some(&mut self.buffer[at..at + len])
    }

    pub fn breaks_rules(&self) -> bool {
        self.breaks_rules
    }
}

impl AsFd for Arriving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
