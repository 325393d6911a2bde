//! The interfaces, and memcpy beside them. Used by `main`.

use super::{Floor, Result};
use pulc::am::{Bundle, Endpoint, Mode, Peer, Reply, Short};
use pulc::rawdata::Channel;
use pulc::{Address, Block, Error, From, Match, Port, Pulc, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PING: Short<(u64,)> = Short::new(1);
const PONG: Reply<(u64,)> = Reply::new(2);
const NOTE: Short<(u64,)> = Short::new(3);
/// Messages of one call.
const BATCH: usize = 64;

pub struct Raw(pub Channel);

impl Floor for Raw {
    fn name(&self) -> &'static str {
        "rawdata"
    }

    fn put(&mut self, block: &[u8]) -> Result<()> {
        Ok(self.0.send(block)?)
    }

    fn get(&mut self, block: &mut [u8]) -> Result<()> {
        self.0.recv(block)?;
        Ok(())
    }

    fn send(&mut self, n: u64) -> Result<()> {
        Ok(self.0.send(&n.to_ne_bytes())?)
    }

    fn recv(&mut self) -> Result<()> {
        self.0.recv(&mut [0; 8])?;
        Ok(())
    }
}

/// Rawdata with several messages a call.
pub struct Batches {
    channel: Channel,
    buffer: [u8; 8 * BATCH],
    lens: [usize; BATCH],
}

impl Batches {
    pub fn new(channel: Channel) -> Batches {
        Batches { channel, buffer: [0; 8 * BATCH], lens: [0; BATCH] }
    }
}

impl Floor for Batches {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn does(&self) -> (bool, bool) {
        (false, true)
    }

    fn moves(&self) -> bool {
        false
    }

    fn send(&mut self, n: u64) -> Result<()> {
        Ok(self.channel.send(&n.to_ne_bytes())?)
    }

    fn recv(&mut self) -> Result<()> {
        self.channel.recv(&mut [0; 8])?;
        Ok(())
    }

    fn pour(&mut self, count: u64) -> Result<()> {
        for first in (0..count).step_by(BATCH) {
            let numbers: [[u8; 8]; BATCH] = std::array::from_fn(|at| (first + at as u64).to_ne_bytes());
            let messages: [&[u8]; BATCH] = std::array::from_fn(|at| &numbers[at][..]);
            let mut left = &messages[..BATCH.min((count - first) as usize)];
            while !left.is_empty() {
                left = &left[self.channel.send_batch(left)?..];
            }
        }
        Ok(())
    }

    fn drain(&mut self, count: u64) -> Result<()> {
        let mut there = 0;
        while there < count {
            let room = BATCH.min((count - there) as usize);
            let received = self.channel.recv_batch(&mut self.buffer, &mut self.lens[..room])?;
            for number in self.buffer.as_chunks::<8>().0.iter().take(received) {
                assert_eq!(u64::from_ne_bytes(*number), there, "a message is missing");
                there += 1;
            }
        }
        Ok(())
    }
}

/// Rawdata out of memory that job-mates read, which rests.
pub struct Referred {
    channel: Channel,
    block: Block,
}

impl Referred {
    pub fn new(pulc: &Pulc, peer: Rank) -> std::result::Result<Referred, Error> {
        let mut block = pulc::alloc(1 << 20)?;
        block.fill(1);
        Ok(Referred { channel: pulc.open_channel(peer, 3)?, block })
    }
}

impl Floor for Referred {
    fn name(&self) -> &'static str {
        "arena"
    }

    fn does(&self) -> (bool, bool) {
        (false, false)
    }

    fn send(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn recv(&mut self) -> Result<()> {
        Ok(())
    }

    fn put(&mut self, block: &[u8]) -> Result<()> {
        Ok(self.channel.send(&self.block[..block.len()])?)
    }

    fn get(&mut self, block: &mut [u8]) -> Result<()> {
        self.channel.recv(block)?;
        Ok(())
    }
}

/// The yardstick of the first rank.
pub struct Memcpy {
    pub asks: bool,
    pub other: Vec<u8>,
}

impl Floor for Memcpy {
    fn name(&self) -> &'static str {
        "memcpy"
    }

    fn does(&self) -> (bool, bool) {
        (false, false)
    }

    fn send(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn recv(&mut self) -> Result<()> {
        Ok(())
    }

    fn put(&mut self, block: &[u8]) -> Result<()> {
        if self.asks {
            self.other[..block.len()].copy_from_slice(std::hint::black_box(block));
            std::hint::black_box(&mut self.other);
        }
        Ok(())
    }

    fn get(&mut self, block: &mut [u8]) -> Result<()> {
        if self.asks {
            block.copy_from_slice(std::hint::black_box(&self.other[..block.len()]));
            std::hint::black_box(block);
        }
        Ok(())
    }
}

pub struct Ports {
    pub port: Port,
    pub to: Address,
    pub peer: Rank,
}

impl Floor for Ports {
    fn name(&self) -> &'static str {
        "port"
    }

    fn put(&mut self, block: &[u8]) -> Result<()> {
        Ok(self.port.send(&self.to, 0, block)?)
    }

    fn get(&mut self, block: &mut [u8]) -> Result<()> {
        self.port.recv(From::Rank(self.peer), Match::Tag(0), block)?;
        Ok(())
    }

    fn send(&mut self, n: u64) -> Result<()> {
        Ok(self.port.send(&self.to, 0, &n.to_ne_bytes())?)
    }

    fn recv(&mut self) -> Result<()> {
        self.port.recv(From::Rank(self.peer), Match::Tag(0), &mut [0; 8])?;
        Ok(())
    }
}

/// Requests and replies; what answers is a handler, so the asked side only waits.
pub struct Active {
    bundle: Bundle,
    _endpoint: Endpoint,
    peer: Peer,
    seen: Arc<AtomicU64>,
    taken: u64,
    asks: bool,
    name: &'static str,
}

impl Active {
    /// With handlers that are leaves, or not.
    pub fn new(pulc: &Pulc, peer: Rank, leaves: bool) -> std::result::Result<Active, Error> {
        let name = if leaves { "leaf" } else { "am" };
        let bundle = Bundle::new(pulc, Mode::Sequential)?;
        let endpoint = bundle.endpoint(name, 1)?;
        let seen = Arc::new(AtomicU64::new(0));
        // Counted by one thread only.
        let count = || {
            let seen = Arc::clone(&seen);
            move || seen.store(seen.load(Ordering::Relaxed) + 1, Ordering::Relaxed)
        };
        let (ping, pong, note) = (count(), count(), count());
        if leaves {
            endpoint.on_leaf(PING, move |token, (n,)| {
                ping();
                token.reply(PONG, (n,));
            })?;
            endpoint.on_leaf_reply(PONG, move |_, (_,)| pong())?;
            endpoint.on_leaf(NOTE, move |_, (_,)| note())?;
        } else {
            endpoint.on(PING, move |token, (n,)| {
                ping();
                token.reply(PONG, (n,));
            })?;
            endpoint.on_reply(PONG, move |_, (_,)| pong())?;
            endpoint.on(NOTE, move |_, (_,)| note())?;
        }
        let peer = endpoint.map(&bundle, peer, name, 1, 64)?;
        Ok(Active { bundle, _endpoint: endpoint, peer, seen, taken: 0, asks: pulc.rank().0 == 0, name })
    }
}

impl Floor for Active {
    fn name(&self) -> &'static str {
        self.name
    }

    fn moves(&self) -> bool {
        false
    }

    fn send(&mut self, n: u64) -> Result<()> {
        if self.asks {
            return Ok(self.peer.request(&self.bundle, PING, (n,))?);
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<()> {
        self.taken += 1;
        while self.seen.load(Ordering::Relaxed) < self.taken {
            self.bundle.wait(None)?;
        }
        Ok(())
    }

    fn note(&mut self, n: u64) -> Result<()> {
        Ok(self.peer.request(&self.bundle, NOTE, (n,))?)
    }

    fn end(&mut self) -> Result<()> {
        self.note(0)
    }
}
