//! Progress: takes what has arrived on every device, pushes what waits, listens to the keeper, and ends ranks that are gone.
//! Called by `process` between polls, with the engine locked; never blocks.

use crate::broker::Heard;
use crate::dispatch::Floor;
use crate::engine::{Engine, Outcome};
use crate::error::{End, SendFault};
use crate::net::Net;
use crate::outbox::{Answer, Post};
use crate::peers::Route;
use crate::switch::Hand;
use crate::uncounted::HEADER_WORDS;
use crate::wire::{FREE, Head, Kind};
use pulc_base::boot::ToRank;
use pulc_base::clock::{self, Nanos};
use pulc_base::{Proto, Rank};
use pulc_hal::device::{Device, Frame, Peer, PeerFault, Sink};
use pulc_hal::error::HalError;
use pulc_hal::segment::SegmentText;
use std::os::fd::OwnedFd;

/// Frames taken from a device in one go.
const POLL_BUDGET: usize = 64;
/// How long after a remote rank's end its last packets may still be under way.
const NET_GRACE: Nanos = Nanos::from_ms(200);

/// Polls in a row that end with the one frame they were made for.
pub(crate) const HURRIED_MAX: u32 = 16;
/// Messages of the keeper taken in one go.
const NEWS_BUDGET: usize = 64;
/// Polls with frames after which the keeper is listened to whatever the board says: everyone can write there, and a process that
/// always has something to do never looks up by itself. Some seconds of messages at full rate: a look is a system call, and a million
/// messages make none.
const DEAF_POLLS_MAX: u32 = 1 << 24;

impl Engine {
    /// Whether the peer that sent last has sent again. Looks at one line.
    #[inline(always)]
    pub(crate) fn hot_peer_waits(&self) -> bool {
        self.shm.device.hot_peer_waits()
    }

    /// The same, to be asked again and again.
    #[inline(always)]
    pub(crate) fn awaited_of_hot(&self) -> Option<impl Fn() -> bool> {
        self.shm.device.awaited_of_hot()
    }

    /// Whether the last frame came from another node.
    #[inline(always)]
    pub(crate) fn net_is_hot(&self) -> bool {
        self.net.as_ref().is_some_and(Net::is_hot)
    }

    /// Takes what has arrived on every device and pushes what waits; returns the number of frames taken. What belongs to the
    /// receive in `hand` lands there.
    #[inline]
    pub fn progress(&mut self, hand: &mut Hand<'_>) -> usize {
        let mut sink = ShmSink { floor: &mut self.floor, rank_of: &self.shm.rank_of, hand, messages: 0, bytes: 0 };
        let mut frames = self.shm.device.poll(&mut sink, POLL_BUDGET);
        let (messages, bytes) = (sink.messages, sink.bytes);
        self.shm.tally.messages_received += messages;
        self.shm.tally.bytes_received += bytes;
        if self.floor.outbox.is_pressed() {
            self.answer();
        }
        // What was waited for has come: the rest can wait for the next poll, but not for ever.
        let is_done = frames == 1 && hand.landed.is_some() && self.floor.outbox.is_empty();
        if is_done && self.hurried < HURRIED_MAX {
            self.hurried += 1;
            return frames;
        }
        self.hurried = 0;
        if let Some(net) = &mut self.net {
            if frames > 0 {
                net.cool();
            }
            frames += net.progress(&mut self.floor, hand);
            if self.floor.outbox.is_pressed() {
                self.answer();
            }
            self.alarm();
        }
        if !self.floor.outbox.is_empty() {
            frames += self.push_outbox();
        }
        if self.errands.wanted(frames) {
            frames += self.run_errands();
        }
        self.deaf_polls += u32::from(frames > 0);
        if let Some(broker) = &self.broker
            && (broker.has_news(self.board.slot(self.my_slot).broker_waiting()) || self.deaf_polls >= DEAF_POLLS_MAX)
        {
            frames += self.hear_broker(hand);
        }
        if !self.ending.is_empty() || !self.floor.broken.is_empty() {
            frames += self.finish_ended(hand);
        }
        frames
    }

    /// Sends what answers the frames of a poll, and lets handlers add to it that have asked for that.
    #[inline]
    fn answer(&mut self) {
        if self.floor.outbox.after_poll != 0 {
            self.call_after_poll();
        }
        let mut at = 0;
        while let Some(answer) = self.floor.outbox.answers.get(at) {
            at += 1;
            // Word by word, as they were stored: a load that spans two stores waits for both.
            let Answer { dst, proto, count, words: [a, b, c, d] } = answer;
            let (dst, proto, count, words) = (*dst, *proto, *count, [*a, *b, *c, *d]);
            // To those that are gone nothing goes.
            if let Ok(false) | Err(SendFault::NoChannel(_)) = self.try_uncounted_words(dst, proto, words, count) {
                self.answer_later(dst, proto, words, count);
            }
        }
        self.floor.outbox.answers.clear();
    }

    #[cold]
    fn answer_later(&mut self, dst: Rank, proto: Proto, words: [u64; HEADER_WORDS], count: usize) {
        let words: [[u8; 8]; HEADER_WORDS] = words.map(u64::to_ne_bytes);
        self.floor.outbox.post(dst, proto, &words.as_flattened()[..8 * count], &[]);
    }

    #[inline(never)]
    fn call_after_poll(&mut self) {
        let asked = std::mem::take(&mut self.floor.outbox.after_poll);
        for proto in (0..Proto::COUNT as u8).filter(|proto| asked & 1 << proto != 0) {
            if let Some(handler) = self.floor.handlers.of(proto) {
                handler.after_poll(&mut self.floor.outbox);
            }
        }
    }

    /// Whether messages of the engine itself wait for room.
    pub(crate) fn has_posts(&self) -> bool {
        !self.floor.outbox.is_empty() || self.errands.want_room()
    }

    /// Returns how many parcels have left: their senders may wait for that.
    #[cold]
    fn push_outbox(&mut self) -> usize {
        for (src, cost) in self.floor.outbox.take_releases() {
            self.floor.release(src, cost);
        }
        for _ in 0..self.floor.outbox.destinations() {
            let Some((dst, mut queue)) = self.floor.outbox.take_first() else { break };
            while let Some(post) = queue.front() {
                // A channel that cannot be made now may be made later; to those that are gone nothing goes.
                if matches!(self.push(dst, post), Ok(Outcome::Again) | Err(SendFault::NoChannel(_))) {
                    break;
                }
                queue.pop_front();
            }
            self.floor.outbox.put_back(dst, queue);
        }
        for dst in self.floor.outbox.take_overfull() {
            self.floor.broken.push((dst, End::BrokenRules("it takes no answers and asks for more")));
        }
        let mut left = 0;
        // Ranks to which a parcel in order has found no room.
        let mut held_up: Vec<Rank> = Vec::new();
        for _ in 0..self.floor.outbox.parcels.len() {
            let Some(mut parcel) = self.floor.outbox.parcels.pop_front() else { break };
            let lane = parcel.lane();
            if !lane.is_some_and(|dst| held_up.contains(&dst)) && parcel.step(self) {
                left += 1;
            } else {
                held_up.extend(lane);
                self.floor.outbox.parcels.push_back(parcel);
            }
        }
        left
    }

    /// Sends one message of the engine or a handler.
    fn push(&mut self, dst: Rank, post: &Post) -> Result<Outcome, SendFault> {
        let control = |kind, id| Head { proto: Proto::CONTROL.0, kind, header_len: 0, flags: FREE, id, total: 0 };
        match post {
            Post::Message { proto, header, body } => {
                let header_len = header.len() as u8;
                let head = Head { proto: proto.0, kind: Kind::Whole, header_len, flags: FREE, id: 0, total: 0 };
                self.send_frame(dst, head, header, body)
            }
            Post::Grant { id } => {
                let outcome = self.send_frame(dst, control(Kind::Grant, *id), &[], &[])?;
                let peer = &mut self.floor.peers[dst.0 as usize];
                if let (Outcome::Sent, Some(incoming)) = (outcome, peer.incoming.get_mut(*id)) {
                    incoming.granted = true;
                }
                Ok(outcome)
            }
            Post::Credit { units } => self.send_frame(dst, control(Kind::Credit, *units), &[], &[]),
            Post::Withdraw { id } => {
                let outcome = self.send_frame(dst, control(Kind::Withdraw, *id), &[], &[])?;
                if outcome == Outcome::Sent {
                    self.floor.peers[dst.0 as usize].left();
                }
                Ok(outcome)
            }
        }
    }

    /// Reads everything the keeper has written.
    #[cold]
    pub(crate) fn hear_broker(&mut self, hand: &mut Hand<'_>) -> usize {
        let written = self.board.slot(self.my_slot).broker_waiting();
        self.deaf_polls = 0;
        for heard in 0..NEWS_BUDGET {
            let Some(broker) = &mut self.broker else { return heard };
            broker.flush();
            broker.open_reserve();
            match broker.next() {
                Heard::Message(ToRank::Passed { from, what }, fds) => self.accept(from, &what, fds),
                Heard::Message(ToRank::Gone { rank, how }, _) => self.rank_ended(rank, End::Gone(how)),
                Heard::Message(ToRank::Welcome { .. } | ToRank::Refused { .. }, _) => {}
                Heard::Lost => {}
                Heard::Nothing => {
                    broker.refill();
                    broker.caught_up(written);
                    return heard;
                }
                Heard::Closed => {
                    self.broker = None;
                    for rank in (0..self.size()).map(Rank) {
                        self.rank_ended(rank, End::KeeperGone);
                    }
                    return heard + 1 + self.finish_ended(hand);
                }
            }
        }
        if let Some(broker) = &mut self.broker {
            broker.refill();
        }
        NEWS_BUDGET
    }

    fn accept(&mut self, from: Rank, what: &[u8], fds: Vec<OwnedFd>) {
        // Only to wake this process.
        if what.is_empty() {
            return;
        }
        let Some(slot) = self.shm.local.iter().position(|rank| *rank == from) else { return };
        // Whoever has broken the rules or has ended does not come back by offering a new channel.
        if self.floor.peers.get(from.0 as usize).is_none_or(|peer| peer.end().is_some() || peer.ending.is_some()) {
            return;
        }
        match SegmentText::decode(what) {
            Ok(None) => {}
            Ok(Some(text)) => return self.accept_segment(from, text, fds),
            Err(error) => return self.refuse_offer(from, error),
        }
        match self.shm.device.accept(slot as u32, what, fds) {
            Ok((peer, answer)) => {
                self.shm.name(peer, from);
                let state = &mut self.floor.peers[from.0 as usize];
                if state.route == Route::Unopened {
                    state.route = Route::Shm(peer);
                }
                if let (Some(offer), Some(broker)) = (answer, &mut self.broker) {
                    broker.pass(from, offer.what, offer.fds);
                }
            }
            Err(error) => self.refuse_offer(from, error),
        }
    }

    pub(crate) fn refuse_offer(&mut self, from: Rank, error: HalError) {
        pulc_base::log!(Warn, "handler", "what rank {from} offers is refused: {error}");
        self.failure = Some(error);
        self.floor.broken.push((from, End::BrokenRules("its channel was refused")));
    }

    /// A rank has ended; what it sent before is still to be received.
    fn rank_ended(&mut self, rank: Rank, end: End) {
        let Some(peer) = self.floor.peers.get_mut(rank.0 as usize) else { return };
        if rank == self.floor.me || peer.end().is_some() || peer.ending.is_some() {
            return;
        }
        // What it sent may be under way even if this process never answered.
        let is_remote = self.boot.tasks[rank.0 as usize].node != self.node.0;
        let until = if is_remote { clock::now() + NET_GRACE } else { Nanos(0) };
        peer.ending = Some((end, until));
        self.ending.push(rank);
    }

    /// Closes those that have ended and whose last frames have been received, and those that broke the rules; returns how
    /// many.
    #[cold]
    fn finish_ended(&mut self, hand: &mut Hand<'_>) -> usize {
        let mut closed = self.floor.broken.len();
        for (rank, end) in std::mem::take(&mut self.floor.broken) {
            pulc_base::log!(Warn, "handler", "nothing more is taken from rank {rank}: {end}");
            self.close(rank, end, hand);
        }
        let mut still = Vec::new();
        for rank in std::mem::take(&mut self.ending) {
            match self.floor.peers[rank.0 as usize].ending {
                Some((end, until)) if self.is_drained(rank) && (until == Nanos(0) || clock::now() >= until) => {
                    self.close(rank, end, hand);
                    closed += 1;
                }
                Some(_) => still.push(rank),
                None => {}
            }
        }
        self.ending = still;
        closed
    }

    /// Whether nothing of a local rank waits in its ring. Asked after its end is known: it has written everything by then.
    fn is_drained(&self, rank: Rank) -> bool {
        match self.floor.peers[rank.0 as usize].route {
            Route::Shm(peer) => !self.shm.device.peer_waits(peer),
            _ => true,
        }
    }

    fn close(&mut self, rank: Rank, end: End, hand: &mut Hand<'_>) {
        // Found at fault again before it was closed: its end is told once.
        if self.end_of(rank).is_some() {
            return;
        }
        if let Route::Shm(peer) = self.floor.peers[rank.0 as usize].route {
            self.collect_tokens();
            if self.floor.handlers.each().any(|handler| handler.borrows_from(rank))
                && let Some(arena) = self.shm.device.arena_of(peer)
            {
                self.left_arenas.insert(rank, arena);
            }
            self.shm.device.close_peer(peer);
            self.lose_tokens();
        }
        if let Some(net) = &mut self.net {
            net.close(rank);
        }
        self.floor.gone(rank, end, hand);
    }
}

/// Where the shm device puts its frames.
struct ShmSink<'a, 'h> {
    floor: &'a mut Floor,
    rank_of: &'a [Rank],
    hand: &'a mut Hand<'h>,
    messages: u64,
    bytes: u64,
}

impl Sink for ShmSink<'_, '_> {
    #[inline]
    fn frame(&mut self, from: Peer, frame: Frame<'_>) {
        let Some(&src) = self.rank_of.get(from.0 as usize) else { return };
        self.messages += 1;
        self.bytes += self.floor.frame(src, frame, self.hand) as u64;
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.hand.landed.is_some()
    }

    fn peer_failed(&mut self, from: Peer, why: PeerFault) {
        if let Some(&src) = self.rank_of.get(from.0 as usize) {
            self.floor.broken.push((src, End::Broken(why)));
        }
    }
}
