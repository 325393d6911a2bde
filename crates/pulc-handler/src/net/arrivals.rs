//! Where the sockets put their frames: each goes to the link of the rank behind it, and what comes out of that to the floor.
//! Called by the devices while they are polled; never sends.

use super::{LinkSide, Maker, find_or_make, touch};
use crate::dispatch::Floor;
use crate::engine::Tally;
use crate::switch::Hand;
use pulc_base::Rank;
use pulc_base::clock::Nanos;
use pulc_hal::device::{Frame, Peer, PeerFault, Sink};
use pulc_link::Rail;

/// Where the sockets put their frames.
pub(super) struct NetSink<'a, 'h> {
    pub floor: &'a mut Floor,
    pub hand: &'a mut Hand<'h>,
    pub links: &'a mut Vec<LinkSide>,
    pub link_of: &'a mut [u32],
    pub maker: &'a Maker,
    pub tally: &'a mut Tally,
    pub touched: &'a mut Vec<u32>,
    pub now: Nanos,
    pub rail: Rail,
    /// When the rail was looked at before.
    pub looked: Nanos,
    pub rank_of: &'a [Rank],
    pub packets: usize,
    pub refused: u64,
}

impl NetSink<'_, '_> {
    /// The rank behind a peer and the index of its link, unless it is gone.
    fn link_of(&mut self, from: Peer) -> Option<(Rank, u32)> {
        let rank = *self.rank_of.get(from.0 as usize)?;
        if self.floor.peers[rank.0 as usize].end().is_some() {
            return None;
        }
        let index = find_or_make(self.links, self.link_of, self.maker, rank)?;
        touch(self.links, self.touched, index);
        Some((rank, index))
    }

    fn take(&mut self, rank: Rank, index: u32, frame: &mut [u8]) {
        let link = &mut self.links[index as usize].link;
        link.rail_looked(self.rail, self.looked);
        let mut deliver = |packet: &[u8]| {
            self.tally.messages_received += 1;
            self.tally.bytes_received += self.floor.private(rank, packet, self.hand) as u64;
            self.packets += 1;
        };
        match link.receive(self.now, self.rail, frame) {
            Ok(Some(packet)) => deliver(packet),
            Ok(None) => {}
            // It has been counted by the link and changed nothing.
            Err(_) => self.refused += 1,
        }
        while let Some(packet) = link.next_packet() {
            deliver(packet);
        }
    }
}

impl Sink for NetSink<'_, '_> {
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        let Frame::Private(bytes) = frame else { return };
        if let Some((rank, index)) = self.link_of(from) {
            self.take(rank, index, bytes);
        }
    }

    fn takes_runs(&self) -> bool {
        true
    }

    fn run(&mut self, from: Peer, run: &mut [u8]) -> usize {
        let Some((rank, index)) = self.link_of(from) else { return 1 };
        let (mut at, mut frames) = (0, 0);
        while at < run.len() {
            let len = self.links[index as usize].link.next_frame_len(self.rail, &run[at..]);
            self.take(rank, index, &mut run[at..at + len]);
            (at, frames) = (at + len, frames + 1);
        }
        frames
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        // One rail's trouble with one address is no end of a rank: the link goes on over time or other rails.
        if let Some(rank) = self.rank_of.get(from.0 as usize) {
            let rail = self.rail.0;
            pulc_base::log!(Info, "handler", "rail {rail} to or from rank {rank}: {why}; it is tried again");
        }
    }
}
