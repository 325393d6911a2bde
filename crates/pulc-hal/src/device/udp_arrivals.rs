//! Receiving, the `udp` device's half of it that looks at sockets: a quick look where one peer is all that is heard of, batches
//! otherwise. Called by `udp` only; never blocks.

use super::udp::Udp;
use super::udp_paths::Glance;
use super::udp_socket::BATCH_MAX;
use super::{Peer, Sink};
use std::net::SocketAddr;

/// What counts as small, and how many of them are fetched singly before the next ones are fetched by the batch.
const SMALL_MAX: usize = 4096;
const SMALL_ONES_MAX: u32 = 4;

impl Udp {
    /// Fills the inbox if all of it has been handed out. False: nothing there.
    pub(super) fn refill(&mut self) -> bool {
        if self.current < self.received {
            return true;
        }
        (self.received, self.current, self.offset) = (0, 0, 0);
        let asked = self.batch;
        let got = self.paths.receive(&mut self.inbox, asked, &mut self.counters.system_calls);
        self.received = got;
        // Ask for more when many small datagrams came; one merged train is best worked off while it is in the cache.
        let small = (0..got).all(|index| self.inbox.shape(index).0 < SMALL_MAX);
        self.batch = if got == asked && small { (asked * 2).min(BATCH_MAX) } else { got.clamp(1, BATCH_MAX) };
        got > 0
    }

    /// What the quick look brings, for a sink that finds frames itself. `None`: look properly.
    pub(super) fn poll_quickly(&mut self, sink: &mut impl Sink) -> Option<usize> {
        let is_empty = self.current == self.received;
        if !is_empty || self.batch > 1 {
            return None;
        }
        let (inbox, calls) = (&mut self.inbox, &mut self.counters.system_calls);
        let place = self.paths.glances_at().and_then(|peer| sink.place(peer));
        let (glance, around) = match place {
            Some((front, place)) => {
                let room = place.len();
                (self.paths.glance(calls, |socket| inbox.receive_around(socket, front, place)), Some((front, room)))
            }
            None => (self.paths.glance(calls, |socket| inbox.receive_plainly(socket)), None),
        };
        match glance {
            Glance::Got(peer, len) => {
                let frames = match around {
                    Some((front, room)) if len > front => self.hand_around(sink, peer, front, room, len),
                    _ => sink.run(peer, self.inbox.bytes(0, 0, len)),
                };
                self.counters.frames_received += frames as u64;
                self.counters.bytes_received += len as u64;
                // Many small ones in a row are better fetched by the batch.
                self.small_ones = if len < SMALL_MAX { self.small_ones + 1 } else { 0 };
                if self.small_ones >= SMALL_ONES_MAX {
                    (self.small_ones, self.batch) = (0, 2);
                }
                Some(frames)
            }
            Glance::Nothing => {
                self.small_ones = 0;
                Some(0)
            }
            Glance::LookProperly => None,
        }
    }

    /// Hands over what was received around a place of `room` bytes, behind the first `front` ones.
    fn hand_around(&mut self, sink: &mut impl Sink, from: Peer, front: usize, room: usize, len: usize) -> usize {
        let there = (len - front).min(room);
        let whole = self.inbox.bytes(0, 0, len);
        if sink.landed(from, &whole[..front], there, &whole[front + there..]) {
            return 1;
        }
        if let Some((_, place)) = sink.place(from) {
            whole[front..front + there].copy_from_slice(&place[..there]);
        }
        sink.run(from, whole)
    }

    /// Hands over what lies in the inbox, piece by piece as it came.
    pub(super) fn hand_runs(&mut self, sink: &mut impl Sink, budget: usize) -> usize {
        let mut handed = 0;
        while handed < budget && self.current < self.received {
            let (len, _) = self.inbox.shape(self.current);
            match self.inbox.sender(self.current).and_then(|sender| self.peer_of(sender)) {
                Some(peer) => {
                    let frames = sink.run(peer, self.inbox.bytes(self.current, self.offset, len));
                    self.counters.frames_received += frames as u64;
                    self.counters.bytes_received += (len - self.offset) as u64;
                    handed += frames.max(1);
                }
                None => self.counters.frames_refused += 1,
            }
            (self.current, self.offset) = (self.current + 1, 0);
        }
        handed
    }

    pub(super) fn peer_of(&mut self, sender: SocketAddr) -> Option<Peer> {
        if let Some((address, peer)) = self.last_sender
            && address == sender
        {
            return Some(peer);
        }
        let peer = *self.by_address.get(&sender)?;
        self.last_sender = Some((sender, peer));
        Some(peer)
    }
}
