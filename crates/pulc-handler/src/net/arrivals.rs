//! Where the sockets put their frames: each goes to the link of the rank behind it, and what comes out of that to the floor.
//! Called by the devices while they are polled; never sends.

use super::{LinkSide, Maker, find_or_make, touch};
use crate::dispatch::Floor;
use crate::engine::Tally;
use crate::switch::Hand;
use crate::wire::{HEAD_BYTES, Head, Kind, TOTAL_BYTES};
use pulc_base::Rank;
use pulc_base::clock::Nanos;
use pulc_hal::device::{Frame, Peer, PeerFault, Sink};
use pulc_link::{PACKET_AT, Rail, TAG_BYTES};

/// A place for less is not worth a longer call: for the rest of a message, and for one that may come.
const PLACE_MIN: usize = 4096;
const FIRST_MIN: usize = 16 << 10;

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
        match link.receive(self.now, self.rail, frame) {
            Ok(Some(packet)) => {
                self.tally.messages_received += 1;
                self.tally.bytes_received += self.floor.private(rank, packet, self.hand) as u64;
                self.packets += 1;
            }
            Ok(None) => {}
            // It has been counted by the link and changed nothing.
            Err(_) => self.refused += 1,
        }
        self.deliver_waiting(rank, index);
    }

    /// Packets whose turn has come.
    fn deliver_waiting(&mut self, rank: Rank, index: u32) {
        while let Some(packet) = self.links[index as usize].link.next_packet() {
            self.tally.messages_received += 1;
            self.tally.bytes_received += self.floor.private(rank, packet, self.hand) as u64;
            self.packets += 1;
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

    fn place(&mut self, from: Peer) -> Option<(usize, &mut [u8])> {
        let rank = *self.rank_of.get(from.0 as usize)?;
        let link = &self.links.get(*self.link_of.get(rank.0 as usize)? as usize)?.link;
        if !link.may_land() {
            return None;
        }
        let whole_max = link.packet_max();
        let NetSink { floor, hand, .. } = self;
        let is_part = floor.place(rank, hand).is_some_and(|(_, place)| place.len() >= PLACE_MIN);
        if is_part {
            return floor.place(rank, hand).map(|(_, place)| (PACKET_AT + HEAD_BYTES, place));
        }
        let (header_len, place) = floor.place_of_first(rank, hand).filter(|(_, place)| place.len() >= FIRST_MIN)?;
        // Which of the two it begins with is told by its length, which mostly is that of the buffer.
        let whole = HEAD_BYTES + header_len;
        let front = if place.len() + whole + TOTAL_BYTES > whole_max { whole + TOTAL_BYTES } else { whole };
        Some((PACKET_AT + front, place))
    }

    fn landed(&mut self, from: Peer, front: &[u8], bytes: usize, rest: &[u8]) -> bool {
        let Some((rank, index)) = self.link_of(from) else { return false };
        let Some((mut head, header)) = front.get(PACKET_AT..).and_then(|packet| {
            let (head, at) = Head::parse(packet, packet.len())?;
            Some((head, packet.get(at..)?))
        }) else {
            return false;
        };
        // Else it has more in front, or behind, than where it was put.
        if usize::from(head.header_len) != header.len() || rest.len() > TAG_BYTES || bytes + rest.len() < TAG_BYTES {
            return false;
        }
        let body = bytes + rest.len() - TAG_BYTES;
        let place = match head.kind {
            Kind::Next => self.floor.place(rank, self.hand).filter(|(id, _)| *id == head.id).map(|(_, place)| place),
            Kind::Whole | Kind::First => {
                if head.kind == Kind::Whole {
                    head.total = body as u64;
                }
                let goes_there = self.floor.goes_there(rank, &head, header, self.hand);
                let first = if goes_there { self.floor.place_of_first(rank, self.hand) } else { None };
                first.map(|(_, place)| place)
            }
            _ => None,
        };
        let Some(landed) = place.and_then(|place| place.get(..bytes)) else { return false };
        let link = &mut self.links[index as usize].link;
        link.rail_looked(self.rail, self.looked);
        if !link.receive_landed(self.now, self.rail, front, [landed, rest]) {
            return false;
        }
        self.tally.messages_received += 1;
        self.tally.bytes_received += body as u64;
        self.packets += 1;
        match head.kind {
            Kind::Next => self.floor.part_landed(rank, head.id, body, self.hand),
            _ => self.floor.first_landed(rank, &head, header, body, self.hand),
        }
        self.deliver_waiting(rank, index);
        true
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        // One rail's trouble with one address is no end of a rank: the link goes on over time or other rails.
        if let Some(rank) = self.rank_of.get(from.0 as usize) {
            let rail = self.rail.0;
            pulc_base::log!(Info, "handler", "rail {rail} to or from rank {rank}: {why}; it is tried again");
        }
    }
}
