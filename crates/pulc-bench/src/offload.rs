//! Bare UDP as the kernel moves most with it: one `send` leaves as 44 datagrams (`UDP_SEGMENT`), one `recvmsg` takes what the kernel
//! has joined (`UDP_GRO`), straight into the message. What bulk over the `udp` device is compared with. Both sides poll for a moment and
//! then sleep: who polls on takes the core from the thread of the kernel that delivers what it has sent.
//!
//! There is no protocol but the one that keeps the receiver from being overrun: it says on a second socket how much has come. Nothing is
//! sent again: on a healthy machine nothing is lost.

use crate::Error;
use crate::kernel::address;
use crate::measure::Channel;
use crate::pair::Task;
use crate::worker::Line;
use pulc_hal::os::cpu;
use pulc_hal::os::udp_offload;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendFlags, sockopt};
use std::net::UdpSocket;
use std::os::fd::AsFd;

/// What a datagram holds over Ethernet, and what leaves with one call.
const SEGMENT_BYTES: usize = 1472;
const RUN_BYTES: usize = 44 * SEGMENT_BYTES;
/// Receive buffer that is asked for, as the `udp` device does.
const BUFFER_BYTES: usize = 4 << 20;
/// Datagrams under way at most: the kernel queues a thousand between two namespaces.
const WINDOW_MAX: usize = 512;
/// Looks at a socket before a sleep.
const LOOKS: u32 = 50;
/// Longest that a receive can take beyond the message it is made for.
const JOINED_MAX: usize = 64 << 10;

pub struct Runs {
    data: UdpSocket,
    /// Only words: how much has come.
    words: UdpSocket,
    /// Calls that may be under way, and after how many the receiver tells.
    window: usize,
    step: usize,
    /// Calls made and not told of, and calls received and not told.
    under_way: usize,
    untold: usize,
    /// Whether messages are long enough for it to pay that the kernel tears and joins.
    is_offloaded: bool,
    /// What came joined to the end of a message, and where its rest begins.
    joined: Vec<u8>,
    rest: std::ops::Range<usize>,
}

pub fn runs(task: &Task, line: &Line) -> Result<Runs, Error> {
    let make = || -> Result<UdpSocket, Error> {
        let socket = UdpSocket::bind((task.ip, 0)).map_err(Error::system("bind"))?;
        let mine = socket.local_addr().map_err(Error::system("ask for the address"))?;
        line.tell(mine.to_string().as_bytes(), &[])?;
        socket.connect(address(&line.hear()?.0)?).map_err(Error::system("connect"))?;
        socket.set_nonblocking(true).map_err(Error::system("set blocking"))?;
        Ok(socket)
    };
    let (data, words) = (make()?, make()?);
    // Asked for and not insisted on: what the kernel grants decides the window.
    let _ = sockopt::set_socket_recv_buffer_size(&data, BUFFER_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&data, BUFFER_BYTES);
    let is_offloaded = task.bytes > SEGMENT_BYTES;
    if is_offloaded {
        udp_offload::segment(&data, SEGMENT_BYTES as u16)?;
        udp_offload::join(&data)?;
    }
    let granted = sockopt::socket_recv_buffer_size(&data).map_err(Error::system("ask for the receive buffer"))?;
    // Torn into datagrams again a run takes half as much again, and each call some bookkeeping.
    let cost = task.bytes.min(RUN_BYTES) * 8 / 5 + 1024;
    let datagrams = task.bytes.min(RUN_BYTES).div_ceil(SEGMENT_BYTES);
    let window = (granted / 4 * 3 / cost).clamp(2, WINDOW_MAX / datagrams);
    let step = (window / 4).max(1);
    let joined = vec![0; JOINED_MAX];
    Ok(Runs { data, words, window, step, under_way: 0, untold: 0, is_offloaded, joined, rest: 0..0 })
}

const WORD: &[u8] = b"go";

/// Repeats a call on a socket until it is not answered with "later".
fn until_done(
    socket: &UdpSocket,
    what: PollFlags,
    mut call: impl FnMut() -> Result<usize, Errno>,
) -> Result<usize, Error> {
    let mut looks = 0;
    loop {
        match call() {
            Ok(bytes) => return Ok(bytes),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) if looks < LOOKS => {
                looks += 1;
                cpu::pause();
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {
                looks = 0;
                // Whatever comes of it, the call says more.
                let _ = poll(&mut [PollFd::new(socket, what)], None);
            }
            Err(error) => return Err(Error::system("move a message")(error)),
        }
    }
}

impl Runs {
    /// Waits until another call may be made.
    fn await_room(&mut self) -> Result<(), Error> {
        while self.under_way >= self.window {
            let mut word = [0; WORD.len()];
            let into = &mut word[..];
            until_done(&self.words, PollFlags::IN, || {
                rustix::net::recv(self.words.as_fd(), &mut *into, RecvFlags::empty()).map(|(bytes, _)| bytes)
            })?;
            if word != WORD {
                return Err(Error::Nonsense("something else instead of the word".into()));
            }
            self.under_way -= self.step;
        }
        Ok(())
    }

    /// Fills what was sent with one call.
    fn fill(&mut self, run: &mut [u8]) -> Result<(), Error> {
        let from_rest = run.len().min(self.rest.len());
        let start = self.rest.start;
        run[..from_rest].copy_from_slice(&self.joined[start..start + from_rest]);
        self.rest.start += from_rest;
        let mut done = from_rest;
        while done < run.len() {
            let room = run.len() - done;
            let bytes = if self.is_offloaded { self.take(&mut run[done..]) } else { self.take_one(&mut run[done..]) }?;
            if bytes == 0 {
                return Err(Error::Nonsense("a datagram without anything in it".into()));
            }
            done += bytes.min(room);
            self.rest = 0..bytes.saturating_sub(room);
        }
        Ok(())
    }

    /// A short message: nothing is joined to it.
    fn take_one(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        until_done(&self.data, PollFlags::IN, || {
            rustix::net::recv(self.data.as_fd(), &mut *into, RecvFlags::empty()).map(|(bytes, _)| bytes)
        })
    }

    /// What the kernel has joined: into the message, and what is beyond it beside.
    fn take(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let Runs { data, joined, .. } = self;
        until_done(data, PollFlags::IN, || -> Result<usize, Errno> {
            let mut parts = [IoSliceMut::new(&mut *into), IoSliceMut::new(&mut *joined)];
            let mut nothing = RecvAncillaryBuffer::new(&mut []);
            rustix::net::recvmsg(data.as_fd(), &mut parts, &mut nothing, RecvFlags::empty()).map(|got| got.bytes)
        })
    }
}

impl Channel for Runs {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        for run in message.chunks(RUN_BYTES) {
            self.await_room()?;
            until_done(&self.data, PollFlags::OUT, || rustix::net::send(&self.data, run, SendFlags::empty()))?;
            self.under_way += 1;
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        for run in message.chunks_mut(RUN_BYTES) {
            self.fill(run)?;
            self.untold += 1;
            if self.untold == self.step {
                self.untold = 0;
                until_done(&self.words, PollFlags::OUT, || rustix::net::send(&self.words, WORD, SendFlags::empty()))?;
            }
        }
        Ok(())
    }
}
