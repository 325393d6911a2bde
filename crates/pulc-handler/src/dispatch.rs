//! From a frame to the receive handler: checks the head, keeps the accounts of credit and of messages in parts, and calls the
//! protocol switch. Called by the engine's progress for every frame of every device. Must never trust a field of a frame,
//! and must never block or send.

use crate::error::End;
use crate::peers::{Incoming, PeerState, Route};
use crate::switch::{Begin, Body, Fate, Hand, Handlers, Here, Outbox, Post, TransferId};
use crate::wire::{FREE, FRONT_MAX, Head, Kind, MESSAGE_COST};
use pulc_base::Rank;
use pulc_hal::device::{Frame, SharedFrame};

/// Messages of protocols that no door of this process has registered yet, at most.
const PARKED_MAX: usize = 4096;

/// Everything a frame can change, apart from the devices themselves.
pub(crate) struct Floor {
    pub me: Rank,
    pub window: u64,
    pub peers: Vec<PeerState>,
    pub handlers: Handlers,
    pub outbox: Outbox,
    /// Frames for protocols without a handler, in order.
    pub parked: Vec<(Rank, Vec<u8>)>,
    /// Ranks whose frames broke the rules; the engine closes them after the poll.
    pub broken: Vec<(Rank, End)>,
}

/// Why a frame is not taken; the pair is given up.
type Broken = &'static str;

/// A frame whose front has been copied out of reach of its sender.
struct Arrived<'a> {
    src: Rank,
    head: Head,
    header: &'a [u8],
    body: Body<'a>,
}

impl Floor {
    /// Takes a frame as a device hands it over.
    #[inline(always)]
    pub fn frame(&mut self, src: Rank, frame: Frame<'_>, hand: &mut Hand<'_>) -> usize {
        match frame {
            Frame::Private(bytes) => self.private(src, bytes, hand),
            Frame::Shared(frame) => self.shared(src, &frame, hand),
        }
    }

    #[inline(always)]
    pub fn private(&mut self, src: Rank, bytes: &[u8], hand: &mut Hand<'_>) -> usize {
        let Some((head, at)) = Head::parse(bytes, bytes.len()) else {
            self.broken.push((src, End::BrokenRules("a malformed head")));
            return 0;
        };
        let end = at + usize::from(head.header_len);
        self.arrived(Arrived { src, head, header: &bytes[at..end], body: Body::private(bytes, end) }, hand)
    }

    #[inline(never)]
    fn shared(&mut self, src: Rank, frame: &SharedFrame<'_>, hand: &mut Hand<'_>) -> usize {
        let mut front = [0; FRONT_MAX];
        let front = &mut front[..frame.len().min(FRONT_MAX)];
        frame.copy_range_to(0, front);
        let Some((head, at)) = Head::parse(front, frame.len()) else {
            self.broken.push((src, End::BrokenRules("a malformed head")));
            return 0;
        };
        let end = at + usize::from(head.header_len);
        self.arrived(Arrived { src, head, header: &front[at..end], body: Body::shared(frame, end) }, hand)
    }

    /// Returns the bytes of message body that came.
    #[inline(always)]
    fn arrived(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> usize {
        let src = arrived.src;
        let bytes = arrived.body.len();
        let result = match arrived.head.kind {
            Kind::Whole => self.whole(arrived, hand),
            _ => self.other(arrived, hand),
        };
        match result {
            Ok(()) => bytes,
            Err(what) => {
                self.broken.push((src, End::BrokenRules(what)));
                0
            }
        }
    }

    #[inline(always)]
    fn whole(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let Arrived { src, head, header, body } = arrived;
        let cost = if head.flags & FREE == 0 { body.len() as u64 + MESSAGE_COST } else { 0 };
        self.charge(src, cost)?;
        let Some(handler) = self.handlers.of(head.proto) else { return self.park(src, head, header, body) };
        match handler.message(src, header, body, cost, &mut Here { hand, outbox: &mut self.outbox }) {
            Fate::Done => self.release(src, cost),
            Fate::Kept => {}
        }
        Ok(())
    }

    #[inline(never)]
    fn other(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        match arrived.head.kind {
            Kind::Whole => self.whole(arrived, hand),
            Kind::First => self.first(arrived, hand),
            Kind::Ask => self.ask(arrived, hand),
            Kind::Next => self.next(arrived, hand),
            Kind::Withdraw => {
                self.withdraw(arrived.src, arrived.head.id, hand);
                Ok(())
            }
            Kind::Grant => {
                let peer = &mut self.peers[arrived.src.0 as usize];
                // A grant may cross our withdrawal: then it is not in the list any more and means nothing.
                if let Some(at) = peer.asked.iter().position(|id| *id == arrived.head.id) {
                    peer.asked.swap_remove(at);
                    peer.granted.push(arrived.head.id);
                }
                Ok(())
            }
            Kind::Credit => {
                let peer = &mut self.peers[arrived.src.0 as usize];
                peer.credit += u64::from(arrived.head.id) * crate::wire::CREDIT_UNIT;
                if peer.credit > self.window { Err("credit for more than it was sent") } else { Ok(()) }
            }
        }
    }

    fn first(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let Arrived { src, head, header, body } = arrived;
        let cost = if head.flags & FREE == 0 { head.total.saturating_add(MESSAGE_COST) } else { 0 };
        if cost == 0 && head.total > self.window {
            return Err("a long message outside its credit");
        }
        self.charge(src, cost)?;
        let Some(handler) = self.handlers.of(head.proto) else { return self.park(src, head, header, body) };
        let total = usize::try_from(head.total).map_err(|_| "a length beyond this machine")?;
        let id = TransferId { src, id: head.id };
        let here = &mut Here { hand, outbox: &mut self.outbox };
        let Begin::Take(number) = handler.begin(id, header, total, false, cost, here) else {
            return Err("a message that its protocol only takes after asking");
        };
        let incoming =
            Incoming { id: head.id, proto: head.proto, number, total: head.total, arrived: 0, cost, granted: true };
        self.peers[src.0 as usize].incoming.push(incoming);
        self.part(src, head.id, body, hand)
    }

    fn ask(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let Arrived { src, head, header, body } = arrived;
        if !body.is_empty() {
            return Err("a request with a body");
        }
        let Some(handler) = self.handlers.of(head.proto) else { return self.park(src, head, header, body) };
        let total = usize::try_from(head.total).map_err(|_| "a length beyond this machine")?;
        let id = TransferId { src, id: head.id };
        let (number, take) =
            match handler.begin(id, header, total, true, 0, &mut Here { hand, outbox: &mut self.outbox }) {
                Begin::Take(number) => (number, true),
                Begin::Hold(number) => (number, false),
            };
        let incoming =
            Incoming { id: head.id, proto: head.proto, number, total: head.total, arrived: 0, cost: 0, granted: false };
        self.peers[src.0 as usize].incoming.push(incoming);
        if take {
            self.outbox.grant(id);
        }
        Ok(())
    }

    fn next(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let Arrived { src, head, body, header } = arrived;
        if !header.is_empty() {
            return Err("a part with a header");
        }
        if self.handlers.of(head.proto).is_none() {
            return self.park(src, head, header, body);
        }
        self.part(src, head.id, body, hand)
    }

    fn part(&mut self, src: Rank, id: u32, body: Body<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let list = &mut self.peers[src.0 as usize].incoming;
        let at = list.iter().position(|incoming| incoming.id == id).ok_or("a part of no message")?;
        let incoming = &mut list[at];
        if !incoming.granted {
            return Err("a part that was not granted");
        }
        let len = body.len() as u64;
        if len > incoming.total - incoming.arrived {
            return Err("more parts than the message has");
        }
        incoming.arrived += len;
        let Incoming { proto, number, total, arrived, cost, .. } = *incoming;
        if arrived == total {
            list.swap_remove(at);
        }
        let handler = self.handlers.of(proto).ok_or("a part of an unknown protocol")?;
        let here = &mut Here { hand, outbox: &mut self.outbox };
        handler.part(number, body, here);
        if arrived == total && handler.end(number, here) == Fate::Done {
            self.release(src, cost);
        }
        Ok(())
    }

    fn withdraw(&mut self, src: Rank, id: u32, hand: &mut Hand<'_>) {
        let list = &mut self.peers[src.0 as usize].incoming;
        if let Some(at) = list.iter().position(|incoming| incoming.id == id) {
            let incoming = list.swap_remove(at);
            if let Some(handler) = self.handlers.of(incoming.proto) {
                handler.withdrawn(incoming.number, &mut Here { hand, outbox: &mut self.outbox });
            }
            self.release(src, incoming.cost);
        }
    }

    /// Keeps a frame until its protocol's door is opened in this process.
    #[cold]
    fn park(&mut self, src: Rank, head: Head, header: &[u8], body: Body<'_>) -> Result<(), Broken> {
        if usize::from(head.proto) >= pulc_base::Proto::COUNT || head.proto == pulc_base::Proto::CONTROL.0 {
            return Err("an unknown protocol");
        }
        if self.parked.len() >= PARKED_MAX {
            return Err("too many messages of a protocol that this process has not opened");
        }
        let mut front = [0; FRONT_MAX];
        let len = head.write(header, &mut front);
        let mut frame = front[..len].to_vec();
        body.append_to(&mut frame);
        self.parked.push((src, frame));
        Ok(())
    }

    /// Delivers what was parked for a protocol that has just got its handler.
    pub fn unpark(&mut self) {
        for (src, frame) in std::mem::take(&mut self.parked) {
            // What it was charged at first is charged again in a moment.
            if let Some((head, at)) = Head::parse(&frame, frame.len()) {
                let peer = &mut self.peers[src.0 as usize];
                let body = (frame.len() - at - usize::from(head.header_len)) as u64;
                let again = match head.kind {
                    Kind::Whole if head.flags & FREE == 0 => body + MESSAGE_COST,
                    Kind::First if head.flags & FREE == 0 => head.total.saturating_add(MESSAGE_COST),
                    _ => 0,
                };
                peer.charged = peer.charged.saturating_sub(again);
            }
            self.private(src, &frame, &mut Hand::empty());
        }
    }

    #[inline]
    fn charge(&mut self, src: Rank, cost: u64) -> Result<(), Broken> {
        let fits = self.peers[src.0 as usize].charge(cost, self.window);
        if fits || src == self.me { Ok(()) } else { Err("more than its credit") }
    }

    /// Frees the room of a received message; the sender is told when enough has come together.
    #[inline]
    pub fn release(&mut self, src: Rank, cost: u64) {
        let peer = &mut self.peers[src.0 as usize];
        if src == self.me {
            peer.charged = peer.charged.saturating_sub(cost);
            peer.credit += cost;
        } else if let Some(units) = peer.release(cost, self.window) {
            self.outbox.posts.push_back(Post::Credit { dst: src, units });
        }
    }

    /// Nothing more comes from this rank: ends what was under way and tells every handler.
    pub fn gone(&mut self, rank: Rank, end: End, hand: &mut Hand<'_>) {
        let peer = &mut self.peers[rank.0 as usize];
        peer.route = Route::Gone(end);
        peer.ending = None;
        peer.asked.clear();
        peer.granted.clear();
        for incoming in std::mem::take(&mut peer.incoming) {
            if let Some(handler) = self.handlers.of(incoming.proto) {
                handler.withdrawn(incoming.number, &mut Here { hand, outbox: &mut self.outbox });
            }
        }
        for handler in self.handlers.each() {
            handler.peer_gone(rank, end, &mut Here { hand, outbox: &mut self.outbox });
        }
    }
}
