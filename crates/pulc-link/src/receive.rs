//! What arrives: frames are verified, trains that came in pieces put together, packets ordered and handed out. Called by the owner
//! with frames as they come; nothing of one is believed before its tag verified.

use crate::arrivals::Arrival;
use crate::glue::Glue;
use crate::keys::Seal;
use crate::link::{Link, Rail, Refused};
use crate::wire::{
    self, ASK, BESIEGED, DATA, ENCRYPTED, HEADER_BYTES, Header, PART, PART_OVERHEAD, Place, SACK, TAG_BYTES,
    begins_frame, whole_train,
};
use pulc_base::clock::Nanos;

/// How long it is believed that a peer's sockets are flooded: its word comes ten times a second, and most of it may get lost.
const SIEGE_BELIEVED: Nanos = Nanos::from_ms(3000);

impl Link {
    /// To be called before frames of a rail are given to [`Link::receive`] by an owner that does not look at its rails all the
    /// time: when it looked before. What comes may have waited since; that is not taken for a queue in the network.
    pub fn rail_looked(&mut self, rail: Rail, before: Nanos) {
        if let Some(state) = self.rails.get_mut(usize::from(rail.0)) {
            state.looked_before = before;
        }
    }

    /// How many of these bytes, which the rail's device handed over in one piece, are to be given to [`Link::receive`] first.
    pub fn next_frame_len(&self, rail: Rail, bytes: &[u8]) -> usize {
        match &self.glue {
            Some(glue) if glue.rail == rail && !begins_frame(bytes, self.keys.peer, self.keys.here) => {
                glue.missing().clamp(1, bytes.len().max(1)).min(bytes.len())
            }
            _ => wire::frame_len(bytes),
        }
    }

    /// Takes a frame from a rail, or a piece of a train. The packet in it is returned at once, without a copy, if it is the next
    /// one in order; afterwards [`Link::next_packet`] has those that were waiting for it. The frame may be decrypted in place.
    ///
    /// # Errors
    /// [`Refused`], which is counted; nothing needs to be done about it.
    pub fn receive<'f>(&mut self, now: Nanos, rail: Rail, frame: &'f mut [u8]) -> Result<Option<&'f [u8]>, Refused> {
        let header = match self.verify(rail, frame) {
            Ok(header) => header,
            Err(why) => return self.piece(now, rail, frame, why),
        };
        if self.glue.as_ref().is_some_and(|glue| glue.rail == rail) {
            // What is missing was lost: nothing overtakes on one rail without it.
            self.give_train_up();
        }
        self.take_in(now, &header, &frame[HEADER_BYTES..frame.len() - TAG_BYTES], false)
    }

    /// What is no frame may be a piece of a train that the network tore apart.
    #[cold]
    fn piece<'f>(&mut self, now: Nanos, rail: Rail, piece: &[u8], why: Refused) -> Result<Option<&'f [u8]>, Refused> {
        let is_unknown = matches!(why, Refused::Malformed { .. }) && usize::from(rail.0) < self.rails.len();
        if is_unknown
            && begins_frame(piece, self.keys.peer, self.keys.here)
            && let Some(whole) = whole_train(piece)
        {
            self.give_train_up();
            self.glue = Some(Glue::begin(rail, whole, piece));
            return Ok(None);
        }
        if !is_unknown || !self.glue.as_mut().is_some_and(|glue| glue.add(rail, piece)) {
            self.count(why);
            return Err(why);
        }
        let Some(glue) = self.glue.take_if(|glue| glue.missing() == 0) else { return Ok(None) };
        let mut train = glue.bytes;
        let Ok(header) = self.verify(rail, &mut train) else {
            self.counters.trains_broken += 1;
            return Ok(None);
        };
        self.take_in(now, &header, &train[HEADER_BYTES..train.len() - TAG_BYTES], true).map(|_| None)
    }

    /// The rest of the train is not waited for any more; its sender repeats it in parts.
    fn give_train_up(&mut self) {
        if self.glue.take().is_some() {
            self.counters.trains_broken += 1;
        }
    }

    /// Works off a verified frame. `keep`: its packet cannot be lent.
    fn take_in<'f>(
        &mut self,
        now: Nanos,
        header: &Header,
        inside: &'f [u8],
        keep: bool,
    ) -> Result<Option<&'f [u8]>, Refused> {
        let sack = if header.has(SACK) { inside } else { &[] };
        let place = if header.has(PART) { Place::read(inside).map(Some) } else { Some(None) };
        let Some(place) = place.filter(|_| self.acknowledges_only_what_was_sent(header, sack)) else {
            let why = Refused::Malformed { len: inside.len() + HEADER_BYTES + TAG_BYTES };
            self.count(why);
            return Err(why);
        };
        self.note(now, header);
        self.on_acknowledgement(now, header, sack);
        if !header.has(DATA) {
            return Ok(None);
        }
        let (packet, arrival) = match place {
            None => (inside, self.arrivals.packet(now, header.packet, inside, keep)),
            Some((place, packet)) if packet.len() == place.total as usize => {
                (packet, self.arrivals.packet(now, header.packet, packet, keep))
            }
            Some((place, bytes)) => (bytes, self.arrivals.part(now, header.packet, place, bytes)),
        };
        match arrival {
            Arrival::Next => {
                self.counters.packets_delivered += 1;
                Ok(Some(packet))
            }
            Arrival::Kept => Ok(None),
            Arrival::Duplicate => {
                self.counters.duplicates_dropped += 1;
                Ok(None)
            }
            Arrival::OutsideWindow => {
                self.count(Refused::OutsideWindow);
                Err(Refused::OutsideWindow)
            }
        }
    }

    /// Takes a train that lies in several pieces because its packet went where it belongs: `front` is its header, the packet's place
    /// and as much of the packet as its owner wanted to see. Whether it was that, and the packet the next in order; then it is the owner's,
    /// and [`Link::next_packet`] has those that waited for it. Else nothing has changed, and it is to be given to [`Link::receive`] in one piece.
    pub fn receive_landed(&mut self, now: Nanos, rail: Rail, front: &[u8], rest: [&[u8]; 2]) -> bool {
        let len = front.len() + rest[0].len() + rest[1].len();
        let Ok(header) = self.check(rail, front, len) else { return false };
        let is_train = header.has(PART) && !header.has(ENCRYPTED) && !self.config.encrypt && wire::is_whole(front, len);
        if !is_train || self.glue.is_some() || !self.arrivals.is_next(header.packet) {
            return false;
        }
        let Some((pieces, tag)) = without_tag(rest) else { return false };
        let mut train = self.keys.train_from_peer();
        [&front[HEADER_BYTES..], pieces[0], pieces[1]].iter().for_each(|piece| train.over(piece));
        if !train.ends_with(&front[..HEADER_BYTES], &tag) || !self.acknowledges_only_what_was_sent(&header, &[]) {
            return false;
        }
        self.note(now, &header);
        self.on_acknowledgement(now, &header, &[]);
        self.arrivals.landed(now, header.packet, len - PART_OVERHEAD);
        self.counters.packets_delivered += 1;
        self.counters.packets_landed += 1;
        true
    }

    /// Whether what comes next may land outside of one piece: [`Link::receive_landed`] may take it.
    pub fn may_land(&self) -> bool {
        !self.config.encrypt && !self.closed && self.glue.is_none() && !self.arrivals.has_gap()
    }

    /// What is checked of a frame of `len` bytes without its tag.
    fn check(&self, rail: Rail, front: &[u8], len: usize) -> Result<Header, Refused> {
        if self.closed {
            return Err(Refused::Dead);
        }
        let header = Header::read_front(front, len).ok_or(Refused::Malformed { len })?;
        if header.src != self.keys.peer
            || header.dst != self.keys.here
            || header.rail != rail.0
            || usize::from(rail.0) >= self.rails.len()
        {
            return Err(Refused::NotOurs);
        }
        if !self.replay.is_fresh(header.counter) {
            return Err(Refused::Replayed);
        }
        Ok(header)
    }

    /// Everything that is checked before a frame is believed. Changes nothing but the frame.
    fn verify(&self, rail: Rail, frame: &mut [u8]) -> Result<Header, Refused> {
        let header = self.check(rail, frame, frame.len())?;
        let (encrypt, part) = (header.has(ENCRYPTED), header.has(PART));
        let seal = Seal { encrypt, part, train: part && !encrypt && wire::is_whole(frame, frame.len()) };
        if seal.encrypt != self.config.encrypt || !self.keys.open(header.counter, frame, seal) {
            return Err(Refused::Tag);
        }
        Ok(header)
    }

    fn count(&mut self, why: Refused) {
        match why {
            Refused::Tag => self.counters.tags_refused += 1,
            Refused::Replayed => self.counters.replays_refused += 1,
            _ => self.counters.malformed_refused += 1,
        }
    }

    /// Notes that a verified frame has come, and the window it brings if nothing newer has come before it.
    fn note(&mut self, now: Nanos, header: &Header) {
        if self.replay.note(header.counter) {
            self.peer_window_bytes = header.window_bytes;
        }
        let index = usize::from(header.rail);
        self.rails[index].last_heard = now;
        if header.has(BESIEGED) {
            self.peer_besieged_until = now + SIEGE_BELIEVED;
        }
        let came = self.rails[index].came_from(now);
        let heard = &mut self.heard[index];
        if heard.newest.is_none_or(|(counter, _)| counter < header.counter) {
            heard.newest = Some((header.counter, came));
        }
        heard.asked |= header.has(ASK);
        if header.has(DATA) {
            self.ack_rail = header.rail;
        }
    }
}

/// The pieces without the tag they end with, and the tag. `None`: they are shorter.
fn without_tag(rest: [&[u8]; 2]) -> Option<([&[u8]; 2], [u8; TAG_BYTES])> {
    let [first, second] = rest;
    let mut tag = [0; TAG_BYTES];
    let in_second = second.len().min(TAG_BYTES);
    let in_first = TAG_BYTES - in_second;
    let cut = first.len().checked_sub(in_first)?;
    tag[..in_first].copy_from_slice(&first[cut..]);
    tag[in_first..].copy_from_slice(&second[second.len() - in_second..]);
    Some(([&first[..cut], &second[..second.len() - in_second]], tag))
}
