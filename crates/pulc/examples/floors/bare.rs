//! The floors below all interfaces: the hand-over of a line, and the device. Used by `main`. Both ranks reach each other's memory through
//! `/proc`, so that no launcher has to help.

use super::{Floor, Result};
use pulc::{Address, From, Match, Port, Rank};
use pulc_hal::board::Board;
use pulc_hal::device::shm::{Shm, ShmConfig};
use pulc_hal::device::{self, Device, Frame, PeerFault, SendError, Sink};
use pulc_hal::os::cpu;
use pulc_hal::os::memfd::{self, WriteMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const TAG: u64 = 1;

/// Hands a descriptor to the other rank of this example.
fn hand_over(port: &Port, to: &Address, fd: &OwnedFd, text: &[u8]) -> Result<()> {
    let mut message = format!("/proc/{}/fd/{}\0", std::process::id(), fd.as_raw_fd()).into_bytes();
    message.extend(text);
    port.send(to, TAG, &message)?;
    port.recv_vec(From::Any, Match::Tag(TAG + 1))?;
    Ok(())
}

fn take_over(port: &Port, to: &Address, writes: bool) -> Result<(OwnedFd, Vec<u8>)> {
    let (_, message) = port.recv_vec(From::Any, Match::Tag(TAG))?;
    let at = message.iter().position(|byte| *byte == 0).ok_or("no path")?;
    let path = std::str::from_utf8(&message[..at])?;
    let file = File::options().read(true).write(writes).open(path)?;
    port.send(to, TAG + 1, &[])?;
    Ok((file.into(), message[at + 1..].to_vec()))
}

/// A line that is handed to and fro.
pub struct Line {
    map: WriteMap,
    mine: usize,
    theirs: usize,
    seen: u64,
    said: u64,
}

impl Line {
    pub fn new(port: &Port, to: &Address, me: Rank) -> Result<Line> {
        let map = if me.0 == 0 {
            let (map, fd) = memfd::create_common("floors", 4096)?;
            hand_over(port, to, &fd, &[])?;
            map
        } else {
            memfd::map_common(take_over(port, to, true)?.0.as_fd(), 4096)?
        };
        let (mine, theirs) = if me.0 == 0 { (0, 512) } else { (512, 0) };
        Ok(Line { map, mine, theirs, seen: 0, said: 0 })
    }
}

impl Floor for Line {
    fn name(&self) -> &'static str {
        "hop"
    }

    fn does(&self) -> (bool, bool) {
        (true, false)
    }

    fn moves(&self) -> bool {
        false
    }

    fn send(&mut self, _: u64) -> Result<()> {
        self.said += 1;
        self.map.u64_at(self.mine).store(self.said, Ordering::Release);
        Ok(())
    }

    fn recv(&mut self) -> Result<()> {
        while self.map.u64_at(self.theirs).load(Ordering::Acquire) == self.seen {
            cpu::pause();
        }
        self.seen += 1;
        Ok(())
    }
}

/// The device.
pub struct Bare {
    device: Shm,
    peer: device::Peer,
}

impl Bare {
    pub fn new(port: &Port, to: &Address, me: Rank) -> Result<Bare> {
        let board = if me.0 == 0 {
            let (board, fd) = Board::create(2)?;
            hand_over(port, to, &fd, &[])?;
            board
        } else {
            Board::attach(take_over(port, to, true)?.0.as_fd(), 2)?
        };
        let mut device = Shm::new(ShmConfig::read(), Arc::new(board), me.0)?;
        let (peer, offer) = device.open(1 - me.0)?;
        let give = || offer.fds.iter().try_for_each(|fd| hand_over(port, to, fd, &offer.what));
        let take = || -> Result<(Vec<OwnedFd>, Vec<u8>)> {
            let mut fds = Vec::new();
            let mut what = Vec::new();
            for _ in &offer.fds {
                let (fd, text) = take_over(port, to, false)?;
                fds.push(fd);
                what = text;
            }
            Ok((fds, what))
        };
        let (fds, what) = if me.0 == 0 {
            give()?;
            take()?
        } else {
            let taken = take()?;
            give()?;
            taken
        };
        device.accept(1 - me.0, &what, fds)?;
        Ok(Bare { device, peer })
    }
}

struct One(bool);

impl Sink for One {
    fn frame(&mut self, _: device::Peer, frame: Frame<'_>) {
        self.0 = true;
        if let Frame::Private(bytes) = frame {
            std::hint::black_box(bytes.first());
        }
    }

    fn is_full(&self) -> bool {
        self.0
    }

    fn peer_failed(&mut self, _: device::Peer, why: PeerFault) {
        panic!("{why}");
    }
}

/// Puts frames one behind the other into a block.
struct Into<'a>(&'a mut [u8], usize);

impl Sink for Into<'_> {
    fn frame(&mut self, _: device::Peer, frame: Frame<'_>) {
        let to = &mut self.0[self.1..self.1 + frame.len()];
        self.1 += to.len();
        match frame {
            Frame::Private(bytes) => to.copy_from_slice(bytes),
            Frame::Shared(bytes) => bytes.copy_to(to),
        }
    }

    fn is_full(&self) -> bool {
        self.1 == self.0.len()
    }

    fn peer_failed(&mut self, _: device::Peer, why: PeerFault) {
        panic!("{why}");
    }
}

impl Floor for Bare {
    fn name(&self) -> &'static str {
        "device"
    }

    fn put(&mut self, block: &[u8]) -> Result<()> {
        let limits = self.device.limits();
        for piece in block.chunks(limits.frame_max) {
            loop {
                let sent = match piece.len() {
                    len if len <= limits.short_max => self.device.send_short(self.peer, [piece, &[]]),
                    _ => self.device.send_bulk(self.peer, [piece, &[]]),
                };
                match sent {
                    Ok(()) => break,
                    Err(SendError::Again) => cpu::pause(),
                    Err(error) => return Err(error.to_string().into()),
                }
            }
        }
        Ok(())
    }

    fn get(&mut self, block: &mut [u8]) -> Result<()> {
        let mut sink = Into(block, 0);
        while !sink.is_full() {
            if self.device.poll(&mut sink, 1) == 0 {
                cpu::pause();
            }
        }
        Ok(())
    }

    fn send(&mut self, n: u64) -> Result<()> {
        loop {
            match self.device.send_short(self.peer, [&n.to_ne_bytes(), &[]]) {
                Ok(()) => return Ok(()),
                Err(SendError::Again) => cpu::pause(),
                Err(error) => return Err(error.to_string().into()),
            }
        }
    }

    fn recv(&mut self) -> Result<()> {
        let mut sink = One(false);
        while self.device.poll(&mut sink, 1) == 0 {
            cpu::pause();
        }
        Ok(())
    }
}
