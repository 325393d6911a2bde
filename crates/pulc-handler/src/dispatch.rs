//! From a frame to the receive handler: checks the head, keeps the accounts of credit and of messages in parts, and calls the
//! protocol switch. Called by the engine's progress for every frame of every device. Must never trust a field of a frame,
//! and must never block or send.

mod parts;

use crate::error::End;
use crate::incoming::Incoming;
use crate::outbox::{Outbox, Post};
use crate::peers::{PeerState, Route};
use crate::switch::{Begin, Body, Fate, Hand, Handlers, Here, TransferId};
use crate::wire::{FREE, FRONT_MAX, HEAD_BYTES, Head, Kind, MESSAGE_COST};
use pulc_base::Rank;
use pulc_hal::device::{Frame, SharedFrame};

/// Everything a frame can change, apart from the devices themselves.
pub(crate) struct Floor {
    pub me: Rank,
    pub window: u64,
    /// Messages from this length on are copied past the caches.
    pub past_caches_min: u64,
    /// Messages in parts that one rank may have under way to this one.
    pub transfers_max: usize,
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
        if let Some(body) = hand.exact_body(src, bytes) {
            let result = self.landed(src, body, hand);
            return self.taken(src, body.len(), result);
        }
        // The usual way keeps its few fields in registers: a head that is built in memory from parts and copied as a whole
        // stalls until all of its parts have left the store buffer.
        let Some((proto, header_len, flags)) = Head::parse_whole(bytes) else {
            return self.not_whole(src, bytes, hand);
        };
        let end = HEAD_BYTES + header_len;
        let result = self.whole(src, proto, flags, &bytes[HEAD_BYTES..end], Body::private(bytes, end), hand);
        self.taken(src, bytes.len() - end, result)
    }

    /// A message that lands in the hand that wants it.
    #[inline(always)]
    fn landed(&mut self, src: Rank, body: &[u8], hand: &mut Hand<'_>) -> Result<(), Broken> {
        let cost = body.len() as u64 + MESSAGE_COST;
        self.charge(src, cost)?;
        hand.land(src, body);
        self.release(src, cost);
        Ok(())
    }

    /// Messages that have landed without the switch and cost so much together: an honest sender has the credit for all of them.
    #[inline]
    pub fn landed_together(&mut self, src: Rank, cost: u64) {
        match self.charge(src, cost) {
            Ok(()) => self.release(src, cost),
            Err(what) => self.broke(src, what),
        }
    }

    #[inline(never)]
    fn not_whole(&mut self, src: Rank, bytes: &[u8], hand: &mut Hand<'_>) -> usize {
        let Some((head, at)) = Head::parse(bytes, bytes.len()) else {
            self.broke(src, "a malformed head");
            return 0;
        };
        let end = at + usize::from(head.header_len);
        self.arrived(Arrived { src, head, header: &bytes[at..end], body: Body::private(bytes, end) }, hand)
    }

    #[inline(never)]
    fn shared(&mut self, src: Rank, frame: &SharedFrame<'_>, hand: &mut Hand<'_>) -> usize {
        // A head that came in cells is private already, and the body's first line is not fetched apart from the rest.
        if let Some((head, at)) = Head::parse(frame.head(), frame.len()) {
            let end = at + usize::from(head.header_len);
            let header = &frame.head()[at..end];
            return self.arrived(Arrived { src, head, header, body: Body::shared(frame, end) }, hand);
        }
        let mut front = [0; FRONT_MAX];
        let front = &mut front[..frame.len().min(FRONT_MAX)];
        frame.copy_range_to(0, front);
        let Some((head, at)) = Head::parse(front, frame.len()) else {
            self.broke(src, "a malformed head");
            return 0;
        };
        let end = at + usize::from(head.header_len);
        self.arrived(Arrived { src, head, header: &front[at..end], body: Body::shared(frame, end) }, hand)
    }

    /// Returns the bytes of message body that came.
    fn arrived(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> usize {
        let (src, len) = (arrived.src, arrived.body.len());
        let result = match arrived.head.kind {
            Kind::Whole => {
                let Arrived { src, head, header, body } = arrived;
                self.whole(src, head.proto, head.flags, header, body, hand)
            }
            Kind::First => self.first(arrived, hand),
            Kind::Ask => self.ask(arrived, hand),
            Kind::Next => self.next(arrived, hand),
            Kind::Withdraw => {
                self.withdraw(src, arrived.head.id, hand);
                Ok(())
            }
            Kind::Grant => {
                self.granted(src, arrived.head.id);
                Ok(())
            }
            Kind::Credit => self.credited(src, arrived.head.id),
        };
        self.taken(src, len, result)
    }

    #[inline(always)]
    fn taken(&mut self, src: Rank, len: usize, result: Result<(), Broken>) -> usize {
        match result {
            Ok(()) => len,
            Err(what) => {
                self.broke(src, what);
                0
            }
        }
    }

    /// Told once, however many frames of one poll are at fault.
    #[cold]
    fn broke(&mut self, src: Rank, what: Broken) {
        if self.broken.iter().all(|(rank, _)| *rank != src) {
            self.broken.push((src, End::BrokenRules(what)));
        }
    }

    #[inline(always)]
    fn whole(
        &mut self,
        src: Rank,
        proto: u8,
        flags: u8,
        header: &[u8],
        body: Body<'_>,
        hand: &mut Hand<'_>,
    ) -> Result<(), Broken> {
        let cost = if flags & FREE == 0 { body.len() as u64 + MESSAGE_COST } else { self.free(src, body.len())? };
        self.charge(src, cost)?;
        let Some(handler) = self.handlers.of(proto) else {
            let head = Head { proto, kind: Kind::Whole, header_len: header.len() as u8, flags, id: 0, total: 0 };
            return self.park(src, head, header, body);
        };
        match handler.message(src, header, body, cost, &mut Here { hand, outbox: &mut self.outbox }) {
            Fate::Done => self.release(src, cost),
            Fate::Kept => {}
        }
        Ok(())
    }

    fn granted(&mut self, src: Rank, id: u32) {
        let peer = &mut self.peers[src.0 as usize];
        // A grant may cross our withdrawal: then it is not in the list any more and means nothing.
        if let Some(at) = peer.asked.iter().position(|asked| *asked == id) {
            peer.asked.swap_remove(at);
            peer.granted.push(id);
        }
    }

    fn credited(&mut self, src: Rank, units: u32) -> Result<(), Broken> {
        let peer = &mut self.peers[src.0 as usize];
        peer.credit += u64::from(units) * crate::wire::CREDIT_UNIT;
        if peer.credit > self.window { Err("credit for more than it was sent") } else { Ok(()) }
    }

    fn first(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let Arrived { src, head, header, body } = arrived;
        let cost = if head.flags & FREE == 0 { head.total.saturating_add(MESSAGE_COST) } else { 0 };
        if cost == 0 && head.total > self.window {
            return Err("a long message outside its credit");
        }
        self.charge(src, cost)?;
        if self.handlers.of(head.proto).is_none() {
            return self.park(src, head, header, body);
        }
        self.room_for(src, head.id)?;
        let Some(handler) = self.handlers.of(head.proto) else { return Err("an unknown protocol") };
        let total = usize::try_from(head.total).map_err(|_| "a length beyond this machine")?;
        let id = TransferId { src, id: head.id };
        let here = &mut Here { hand, outbox: &mut self.outbox };
        let Begin::Take(number) = handler.begin(id, header, total, false, cost, here) else {
            out_of_promised_memory(src, total);
        };
        let incoming = Incoming { proto: head.proto, number, total: head.total, arrived: 0, cost, granted: true };
        self.peers[src.0 as usize].incoming.insert(head.id, incoming);
        self.part(src, head.id, body, hand)
    }

    fn ask(&mut self, arrived: Arrived<'_>, hand: &mut Hand<'_>) -> Result<(), Broken> {
        let Arrived { src, head, header, body } = arrived;
        if !body.is_empty() {
            return Err("a request with a body");
        }
        if self.handlers.of(head.proto).is_none() {
            return self.park(src, head, header, body);
        }
        self.room_for(src, head.id)?;
        let Some(handler) = self.handlers.of(head.proto) else { return Err("an unknown protocol") };
        let total = usize::try_from(head.total).map_err(|_| "a length beyond this machine")?;
        let id = TransferId { src, id: head.id };
        let (number, take) =
            match handler.begin(id, header, total, true, 0, &mut Here { hand, outbox: &mut self.outbox }) {
                Begin::Take(number) => (number, true),
                Begin::Hold(number) => (number, false),
            };
        let incoming = Incoming { proto: head.proto, number, total: head.total, arrived: 0, cost: 0, granted: false };
        self.peers[src.0 as usize].incoming.insert(head.id, incoming);
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

    fn withdraw(&mut self, src: Rank, id: u32, hand: &mut Hand<'_>) {
        if let Some(incoming) = self.peers[src.0 as usize].incoming.remove(id) {
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
        // Each rank by its own account, so that nobody who floods this process makes an honest one break the rules. What is
        // charged stays within the window; parts of a long message cost a little more than that.
        let peer = &mut self.peers[src.0 as usize];
        peer.parked = peer.parked.saturating_add(body.len() as u64 + MESSAGE_COST);
        if peer.parked > 2 * self.window {
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
        self.peers.iter_mut().for_each(|peer| peer.parked = 0);
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

    /// What a message outside all credit costs: nothing, but it may not be longer than all that its sender could fill.
    fn free(&self, src: Rank, len: usize) -> Result<u64, Broken> {
        if len as u64 > self.window && src != self.me { Err("a long message outside its credit") } else { Ok(0) }
    }

    /// Whether one more message in parts may begin: honest senders count theirs and wait.
    fn room_for(&self, src: Rank, id: u32) -> Result<(), Broken> {
        let incoming = &self.peers[src.0 as usize].incoming;
        if incoming.len() >= self.transfers_max {
            return Err("more messages in parts than may be under way at a time");
        }
        if incoming.contains(id) { Err("two messages in parts of one number") } else { Ok(()) }
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
            self.outbox.push(src, Post::Credit { units });
        }
    }

    /// Nothing more comes from this rank: ends what was under way and tells every handler.
    pub fn gone(&mut self, rank: Rank, end: End, hand: &mut Hand<'_>) {
        let peer = &mut self.peers[rank.0 as usize];
        peer.route = Route::Gone(end);
        peer.ending = None;
        peer.asked.clear();
        peer.granted.clear();
        for incoming in peer.incoming.take_all() {
            if let Some(handler) = self.handlers.of(incoming.proto) {
                handler.withdrawn(incoming.number, &mut Here { hand, outbox: &mut self.outbox });
            }
        }
        self.outbox.forget(rank);
        for handler in self.handlers.each() {
            handler.peer_gone(rank, end, &mut Here { hand, outbox: &mut self.outbox });
        }
    }
}

/// There is no memory for what this process has promised to keep, so its sender believes it delivered. Going on would lose it in
/// silence, so the process ends, as where any other allocation fails.
#[cold]
fn out_of_promised_memory(src: Rank, total: usize) -> ! {
    pulc_base::log!(
        Error,
        "handler",
        "no memory for a message of {total} bytes from rank {src}, which this process had room for by its own word: \
         give it more memory, or promise less with PULC_UNEXPECTED_MAX_BYTES"
    );
    std::process::abort()
}
