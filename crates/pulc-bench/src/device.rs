//! The devices of `pulc-hal`, bare: no link, no protocol, no waiting ladder. Long messages go as several frames. Between
//! cores both sides poll; on one core the waiting side yields.

use crate::Error;
use crate::measure::{Channel, Figures};
use crate::pair::{Side, Task};
use crate::row::Place;
use crate::worker::{Line, both};
use pulc_hal::board::Board;
use pulc_hal::device::shm::{Shm, ShmConfig};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_hal::os::cpu;
use std::os::fd::AsFd;
use std::sync::Arc;

pub fn measure(task: &Task, line: &Line) -> Result<Option<Figures>, Error> {
    both(task, &mut shm(task, line)?)
}

/// Makes the channel as ranks do: an offer one way, which is answered with an offer.
fn shm(task: &Task, line: &Line) -> Result<Frames<Shm>, Error> {
    let (my_slot, their_slot) = if task.side == Side::A { (0, 1) } else { (1, 0) };
    let board = if task.side == Side::A {
        let (board, fd) = Board::create(2)?;
        line.tell(b"board", &[fd])?;
        board
    } else {
        let (_, fds) = line.hear()?;
        let fd = fds.first().ok_or_else(|| Error::Nonsense("no board".into()))?;
        Board::attach(fd.as_fd(), 2)?
    };
    let mut device = Shm::new(ShmConfig::read(), Arc::new(board), my_slot)?;
    let peer = if task.side == Side::A {
        let (peer, offer) = device.open(their_slot)?;
        line.tell(&offer.what, &offer.fds)?;
        let (what, fds) = line.hear()?;
        device.accept(their_slot, &what, fds)?;
        peer
    } else {
        let (what, fds) = line.hear()?;
        let (peer, offer) = device.accept(their_slot, &what, fds)?;
        let offer = offer.ok_or_else(|| Error::Nonsense("no offer".into()))?;
        line.tell(&offer.what, &offer.fds)?;
        peer
    };
    let wait = if task.place == Place::Core { cpu::yield_now } else { cpu::pause };
    Ok(Frames { device, peer, wait })
}

/// Messages over one peer of an ordered, reliable device.
struct Frames<D> {
    device: D,
    peer: Peer,
    wait: fn(),
}

impl<D: Device> Channel for Frames<D> {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let limits = self.device.limits();
        for piece in message.chunks(limits.frame_max) {
            loop {
                let sent = if piece.len() <= limits.short_max {
                    self.device.send_short(self.peer, [piece, &[]])
                } else {
                    self.device.send_bulk(self.peer, [piece, &[]])
                };
                match sent {
                    Ok(()) => break,
                    Err(SendError::Again) => (self.wait)(),
                    Err(error) => return Err(Error::Worker(error.to_string())),
                }
            }
        }
        self.device.flush();
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        let mut sink = Into { message, filled: 0, fault: None };
        while sink.filled < sink.message.len() {
            if self.device.poll(&mut sink, 1) == 0 {
                (self.wait)();
            }
            if let Some(fault) = sink.fault {
                return Err(Error::Worker(fault));
            }
        }
        Ok(())
    }
}

/// Puts frames one behind the other into a message.
struct Into<'a> {
    message: &'a mut [u8],
    filled: usize,
    fault: Option<String>,
}

impl Sink for Into<'_> {
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        let room = &mut self.message[self.filled..];
        let len = match &frame {
            Frame::Private(bytes) => bytes.len(),
            Frame::Shared(bytes) => bytes.len(),
        };
        let Some(room) = room.get_mut(..len) else {
            self.fault = Some(format!("a frame of {len} bytes where {} are missing", room.len()));
            return;
        };
        match frame {
            Frame::Private(bytes) => room.copy_from_slice(bytes),
            Frame::Shared(bytes) => bytes.copy_to(room),
        }
        self.filled += len;
    }

    fn is_full(&self) -> bool {
        self.filled == self.message.len()
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        self.fault = Some(why.to_string());
    }
}
