//! Between nodes: the bare udp device, and the reliable link over it, authenticated or encrypted, driven the way the handler
//! drives them. Both sides poll. The bare device has no flow control, so its receiver says now and then how much has come.

use crate::Error;
use crate::measure::Channel;
use crate::pair::{Side, Task};
use crate::worker::Line;
use pulc_base::clock::{Nanos, now};
use pulc_base::{JobId, Rank};
use pulc_hal::device::udp::Udp;
use pulc_hal::device::{Device, Frame, Peer, PeerFault, SendError, Sink};
use pulc_link::{Config, Full, Link, LinkError, LinkKeys, Outlet, Rail, credit_share};
use std::net::{SocketAddr, UdpSocket};

/// Any key does: what is measured is its use.
const KEY: [u8; 32] = [7; 32];
const JOB: JobId = JobId(1);
/// Frames between two looks at the link.
const POLL_FRAMES: usize = 64;
/// Frames under way between bare devices at most, and the part of the kernel's receive buffer that they may take.
const WINDOW_FRAMES_MAX: usize = 512;
const BUFFER_PART: usize = 4;
/// What the kernel counts for a frame beside its bytes, roughly.
const FRAME_COST: usize = 768;
/// Frames in one call.
const RUN_FRAMES: usize = 44;
/// Longest packet of one datagram over Ethernet; a longer one leaves as a train.
const FRAME_BYTES: usize = 1472;
/// Says that a quarter of the window has come. No message ends in a frame like it, because messages begin with another byte and
/// go on with zeros.
const WORD: &[u8] = b"go";

fn device(task: &Task, line: &Line) -> Result<(Udp, Peer), Error> {
    let socket = UdpSocket::bind((task.ip, 0)).map_err(Error::system("bind"))?;
    let mut device = Udp::new(socket).map_err(Error::system("make the udp device"))?;
    line.tell(device.local_address().to_string().as_bytes(), &[])?;
    let text = String::from_utf8_lossy(&line.hear()?.0).into_owned();
    let theirs: SocketAddr = text.parse().map_err(|_| Error::Nonsense(text))?;
    let peer = device.open(theirs);
    Ok((device, peer))
}

/// Messages as frames of the bare device.
pub struct Frames {
    device: Udp,
    peer: Peer,
    frame_bytes: usize,
    /// Frames that a word stands for; four words make the window.
    step: usize,
    sent: usize,
    told: usize,
    inbox: Inbox,
}

pub fn frames(task: &Task, line: &Line) -> Result<Frames, Error> {
    let (device, peer) = device(task, line)?;
    let frame_bytes = device.frame_max(peer);
    let window = device.receive_buffer_bytes() / BUFFER_PART / (frame_bytes + FRAME_COST);
    let step = window.clamp(8, WINDOW_FRAMES_MAX) / 4;
    Ok(Frames { device, peer, frame_bytes, step, sent: 0, told: 0, inbox: Inbox::default() })
}

impl Frames {
    fn put(&mut self, run: &[u8]) -> Result<(), Error> {
        while let Err(error) = self.device.send_run(self.peer, &[run], self.frame_bytes) {
            if error != SendError::Again {
                return Err(Error::Worker(error.to_string()));
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), Error> {
        self.device.poll(&mut self.inbox, POLL_FRAMES);
        while self.inbox.frames - self.told >= self.step {
            self.told += self.step;
            self.put(WORD)?;
        }
        Ok(())
    }
}

impl Channel for Frames {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        for run in message.chunks(self.frame_bytes * RUN_FRAMES.min(self.step)) {
            self.sent += run.len().div_ceil(self.frame_bytes);
            while self.sent > (self.inbox.words + 4) * self.step {
                self.poll()?;
            }
            self.put(run)?;
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        while !self.inbox.fill(message)? {
            self.poll()?;
        }
        Ok(())
    }
}

/// Bytes that have arrived in order.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
    /// Frames of messages, and words.
    frames: usize,
    words: usize,
    fault: Option<PeerFault>,
}

impl Inbox {
    /// Fills `into` if enough is there.
    fn fill(&mut self, into: &mut [u8]) -> Result<bool, Error> {
        if let Some(fault) = self.fault {
            return Err(Error::Worker(fault.to_string()));
        }
        let Some(found) = self.bytes.get(self.taken..self.taken + into.len()) else { return Ok(false) };
        into.copy_from_slice(found);
        self.taken += into.len();
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
        Ok(true)
    }
}

impl Sink for Inbox {
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        match frame {
            Frame::Private(bytes) if *bytes == *WORD => self.words += 1,
            Frame::Private(bytes) => {
                self.frames += 1;
                self.bytes.extend_from_slice(bytes);
            }
            Frame::Shared(_) => self.fault = Some(PeerFault::BrokenRules("a shared frame from the network")),
        }
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        self.fault = Some(why);
    }
}

/// What the tag of one frame costs at either end, in nanoseconds: of a frame around so many bytes, authenticated or encrypted.
pub fn tag_price_ns(packet_bytes: usize, encrypt: bool) -> f64 {
    let part = packet_bytes > FRAME_BYTES;
    const FRAMES: u32 = 200;
    let keys = LinkKeys::derive(&KEY, JOB, Rank(0), Rank(0));
    let mut frame = vec![1; packet_bytes + pulc_link::OVERHEAD];
    let mut best = f64::MAX;
    for _ in 0..20 {
        let start = now();
        (0..FRAMES).for_each(|counter| assert!(keys.seal_and_open(u64::from(counter), &mut frame, encrypt, part)));
        best = best.min(now().since(start).0 as f64 / f64::from(2 * FRAMES));
    }
    best
}

/// Messages as packets of a reliable link.
pub struct Links {
    link: Link,
    rail: OneRail,
    inbox: Inbox,
}

/// The link's one rail.
struct OneRail {
    device: Udp,
    peer: Peer,
}

/// How long the end of a stream may take to get through.
const LINGER: Nanos = Nanos::from_ms(1000);
const RAIL: Rail = Rail(0);

pub fn links(task: &Task, line: &Line, encrypt: bool) -> Result<Links, Error> {
    let (device, peer) = device(task, line)?;
    let frame_max = device.frame_max(peer);
    let window = credit_share(device.receive_buffer_bytes(), 1, frame_max);
    let (here, there) = if task.side == Side::A { (Rank(0), Rank(1)) } else { (Rank(1), Rank(0)) };
    let keys = LinkKeys::derive(&KEY, JOB, here, there);
    let config = Config { encrypt, ..Config::from_params(frame_max, 1, window) };
    let link = Link::new(config, keys, now());
    Ok(Links { link, rail: OneRail { device, peer }, inbox: Inbox::default() })
}

impl Links {
    /// Takes what has come, then sends what is due.
    fn progress(&mut self) {
        let mut sink = Packets { link: &mut self.link, inbox: &mut self.inbox };
        let came = self.rail.device.poll(&mut sink, POLL_FRAMES);
        let now = now();
        if came > 0 || self.link.deadline().is_some_and(|deadline| deadline <= now) {
            self.link.transmit_runs(now, &mut self.rail);
        }
    }
}

impl Outlet for OneRail {
    fn send_run(&mut self, _: Rail, pieces: &[&[u8]], segment: usize) -> Result<(), Full> {
        self.device.send_run(self.peer, pieces, segment).map_err(|_| Full)
    }
}

/// Gives frames to the link and keeps the packets that come out.
struct Packets<'a> {
    link: &'a mut Link,
    inbox: &'a mut Inbox,
}

impl Sink for Packets<'_> {
    fn frame(&mut self, _: Peer, frame: Frame<'_>) {
        let Frame::Private(bytes) = frame else { return };
        // A refused frame is counted by the link; what it carried is sent again.
        if let Ok(Some(packet)) = self.link.receive(now(), RAIL, bytes) {
            self.inbox.bytes.extend_from_slice(packet);
        }
        while let Some(packet) = self.link.next_packet() {
            self.inbox.bytes.extend_from_slice(packet);
        }
    }

    fn takes_runs(&self) -> bool {
        true
    }

    fn run(&mut self, from: Peer, run: &mut [u8]) -> usize {
        let (mut at, mut frames) = (0, 0);
        while at < run.len() {
            let len = self.link.next_frame_len(RAIL, &run[at..]);
            self.frame(from, Frame::Private(&mut run[at..at + len]));
            (at, frames) = (at + len, frames + 1);
        }
        frames
    }

    fn peer_failed(&mut self, _: Peer, why: PeerFault) {
        self.inbox.fault = Some(why);
    }
}

impl Channel for Links {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        for packet in message.chunks(self.link.packet_max()) {
            loop {
                match self.link.send(now(), [packet, &[]]) {
                    Ok(()) => {
                        if self.link.has_a_run() {
                            self.link.transmit_runs(now(), &mut self.rail);
                        }
                        break;
                    }
                    Err(LinkError::Again) => self.progress(),
                    Err(error) => return Err(Error::Worker(error.to_string())),
                }
            }
        }
        self.link.transmit_runs(now(), &mut self.rail);
        self.rail.device.flush();
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> Result<(), Error> {
        while !self.inbox.fill(message)? {
            self.progress();
        }
        Ok(())
    }

    /// Nothing that was sent is left behind, and no acknowledgement is owed; a peer that has gone already is not waited for.
    fn finish(&mut self) {
        let deadline = now() + LINGER;
        while (self.link.unacknowledged() > 0 || self.link.deadline().is_some()) && now() < deadline {
            self.progress();
        }
    }
}
