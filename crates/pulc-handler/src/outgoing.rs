//! Sending, the engine's half of it: the way to a rank, made by its first message, and one try to put a frame on it. Called by
//! `process` for whole messages and by `sending` for the rest; never blocks and never waits for room.

use crate::engine::{Engine, Outcome};
use crate::error::{End, SendFault};
use crate::peers::Route;
use crate::switch::Hand;
use crate::wire::{FREE, FRONT_MAX, HEAD_BYTES, Head, Kind, MESSAGE_COST, TOTAL_BYTES};
use pulc_base::{Proto, Rank};
use pulc_hal::device::SendError;
use pulc_hal::device::shm::cell;

impl Engine {
    /// Sends a message that fits one frame, if credit and device have room. `flags` may hold [`FREE`].
    #[inline]
    pub(crate) fn try_whole(
        &mut self,
        dst: Rank,
        proto: Proto,
        flags: u8,
        header: &[u8],
        body: &[u8],
    ) -> Result<Outcome, SendFault> {
        let Some(peer) = self.floor.peers.get_mut(dst.0 as usize) else { return Err(SendFault::NoSuchRank(dst)) };
        let cost = if flags & FREE == 0 { body.len() as u64 + MESSAGE_COST } else { 0 };
        if peer.credit < cost {
            return Ok(Outcome::Again);
        }
        let Route::Shm(to) = peer.route else { return self.whole_elsewhere(dst, proto, flags, header, body, cost) };
        let head = Head { proto: proto.0, kind: Kind::Whole, header_len: header.len() as u8, flags, id: 0, total: 0 };
        match self.shm.send_whole(to, &head, header, body) {
            Ok(()) => {
                peer.credit -= cost;
                self.shm.tally.messages_sent += 1;
                self.shm.tally.bytes_sent += body.len() as u64;
                Ok(Outcome::Sent)
            }
            Err(error) => self.device_error(dst, error),
        }
    }

    /// Sends a message of at most eight bytes behind a header of one word, which are put into a cell as they are: whether it has
    /// left. Whatever hinders it is left to the usual way.
    #[inline(always)]
    pub(crate) fn try_word(&mut self, dst: Rank, proto: Proto, header: u64, body: &[u8]) -> bool {
        const HEADER_BYTES: usize = 8;
        let Some(peer) = self.floor.peers.get_mut(dst.0 as usize) else { return false };
        let Route::Shm(to) = peer.route else { return false };
        let (len, cost) = (body.len(), body.len() as u64 + MESSAGE_COST);
        if len > size_of::<u64>() || peer.credit < cost {
            return false;
        }
        let header_len = HEADER_BYTES as u8;
        let head = Head { proto: proto.0, kind: Kind::Whole, header_len, flags: 0, id: 0, total: 0 };
        let words = [head.word().to_le(), header.to_le(), cell::word(body), 0, 0, 0, 0];
        if self.shm.device.send_cell(to, HEAD_BYTES + HEADER_BYTES + len, &words).is_err() {
            return false;
        }
        peer.credit -= cost;
        self.shm.tally.messages_sent += 1;
        self.shm.tally.bytes_sent += len as u64;
        true
    }

    fn whole_elsewhere(
        &mut self,
        dst: Rank,
        proto: Proto,
        flags: u8,
        header: &[u8],
        body: &[u8],
        cost: u64,
    ) -> Result<Outcome, SendFault> {
        let head = Head { proto: proto.0, kind: Kind::Whole, header_len: header.len() as u8, flags, id: 0, total: 0 };
        let outcome = self.send_frame(dst, head, header, body)?;
        if outcome == Outcome::Sent {
            let peer = &mut self.floor.peers[dst.0 as usize];
            peer.credit = peer.credit.saturating_sub(cost);
            self.count_sent(dst, body.len());
        }
        Ok(outcome)
    }

    /// Puts on the wire what the links have ready.
    pub(crate) fn push_net(&mut self) {
        if let Some(net) = &mut self.net {
            net.push();
            self.alarm();
        }
    }

    /// The next progress looks at every device in any case.
    pub(crate) fn look_at_all(&mut self) {
        if let Some(net) = &mut self.net {
            net.look_next();
        }
    }

    /// Before a sleep: the descriptors tell of every frame from here on.
    pub(crate) fn prepare_sleep(&mut self) {
        if let Some(net) = &mut self.net {
            net.prepare_wait();
        }
        self.look_at_all();
    }

    /// Longest body that may be sent in one frame without asking, whoever it goes to.
    #[inline]
    pub(crate) fn whole_max(&self) -> usize {
        self.whole_max
    }

    /// Longest body that fits one frame to `dst` beside a header of `header_len` bytes.
    pub(crate) fn body_max(&mut self, dst: Rank, header_len: usize) -> Result<usize, SendFault> {
        let frame_max = match self.route(dst)? {
            // Whole pages, so that the parts of an aligned message stay aligned.
            Route::Shm(_) => {
                let room = self.shm.frame_max.saturating_sub(HEAD_BYTES + TOTAL_BYTES + header_len);
                return Ok(if room > 4096 { room & !4095 } else { room });
            }
            Route::Net(link) => self.net.as_ref().map_or(0, |net| net.packet_max(link)),
            _ => usize::MAX,
        };
        Ok(frame_max.saturating_sub(HEAD_BYTES + TOTAL_BYTES + header_len))
    }

    /// Sends any frame; the head says what it is.
    pub(crate) fn send_frame(
        &mut self,
        dst: Rank,
        head: Head,
        header: &[u8],
        body: &[u8],
    ) -> Result<Outcome, SendFault> {
        let mut front = [0; FRONT_MAX];
        let len = head.write(header, &mut front);
        let parts = [&front[..len], body];
        match self.route(dst)? {
            Route::Own => {
                let frame = parts.concat();
                self.floor.private(dst, &frame, &mut Hand::empty());
                Ok(Outcome::Sent)
            }
            Route::Shm(to) => match self.shm.send(to, parts) {
                Ok(()) => Ok(Outcome::Sent),
                Err(error) => self.device_error(dst, error),
            },
            Route::Net(link) => match self.net.as_mut().map(|net| net.send(link, parts)) {
                Some(Ok(())) => {
                    // Parts are pushed by the bunch.
                    if head.kind != Kind::Next {
                        self.push_net();
                    }
                    Ok(Outcome::Sent)
                }
                Some(Err(error)) => self.device_error(dst, error),
                None => Err(SendFault::NoChannel(dst)),
            },
            Route::Gone(end) => Err(SendFault::PeerGone(dst, end)),
            Route::Unopened => Err(SendFault::NoChannel(dst)),
        }
    }

    /// Sends the beginning of what is left of a message as its next part: `part_max` bytes, which fit a frame, or up to `bytes_max` where the
    /// device takes longer ones at the moment. How many; `None`: there is no room. Its receiver need not hear of it before
    /// [`Engine::tell_of_parts`].
    pub(crate) fn send_part(
        &mut self,
        dst: Rank,
        head: Head,
        header: &[u8],
        rest: &[u8],
        part_max: usize,
        bytes_max: usize,
    ) -> Result<Option<usize>, SendFault> {
        if let Route::Shm(to) = self.route(dst)?
            && rest.len() > self.shm.short_max
        {
            let mut front = [0; FRONT_MAX];
            let len = head.write(header, &mut front);
            return match self.shm.device.send_beginning_quietly(to, &front[..len], rest, bytes_max) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) => self.device_error(dst, error).map(|_| None),
            };
        }
        let part = &rest[..rest.len().min(part_max)];
        let outcome = self.send_frame(dst, head, header, part)?;
        Ok((outcome == Outcome::Sent).then_some(part.len()))
    }

    /// Parts have been sent, and no more will be for a moment.
    pub(crate) fn tell_of_parts(&mut self, dst: Rank) {
        match self.floor.peers[dst.0 as usize].route {
            Route::Shm(to) => self.shm.device.ring_peer(to),
            _ => self.push_net(),
        }
    }

    #[cold]
    pub(crate) fn device_error(&mut self, dst: Rank, error: SendError) -> Result<Outcome, SendFault> {
        match error {
            SendError::Again => Ok(Outcome::Again),
            SendError::TooLong { len, max } => Err(SendFault::TooLong { len, max }),
            SendError::PeerGone | SendError::Unsupported => {
                let end = self.end_of(dst).unwrap_or(End::BrokenRules("its channel is closed"));
                Err(SendFault::PeerGone(dst, end))
            }
        }
    }

    pub(crate) fn count_sent(&mut self, dst: Rank, bytes: usize) {
        let tally = match self.floor.peers[dst.0 as usize].route {
            Route::Own => &mut self.own_tally,
            Route::Net(_) => match &mut self.net {
                Some(net) => &mut net.tally,
                None => return,
            },
            _ => &mut self.shm.tally,
        };
        tally.messages_sent += 1;
        tally.bytes_sent += bytes as u64;
        if dst == self.floor.me {
            tally.messages_received += 1;
            tally.bytes_received += bytes as u64;
        }
    }

    /// Makes the channel to a rank if there is none, so that what is posted to it can go.
    pub fn connect(&mut self, dst: Rank) -> Result<(), SendFault> {
        self.route(dst).map(|_| ())
    }

    /// The way to a rank, made now if there is none.
    fn route(&mut self, dst: Rank) -> Result<Route, SendFault> {
        let peer = self.floor.peers.get(dst.0 as usize).ok_or(SendFault::NoSuchRank(dst))?;
        if peer.route != Route::Unopened {
            return Ok(peer.route);
        }
        self.open(dst)
    }

    #[cold]
    fn open(&mut self, dst: Rank) -> Result<Route, SendFault> {
        let route = if self.boot.tasks[dst.0 as usize].node == self.node.0 {
            let slot = self.shm.local.iter().position(|rank| *rank == dst).ok_or(SendFault::NoSuchRank(dst))? as u32;
            match self.shm.device.open(slot) {
                Ok((peer, offer)) => {
                    self.shm.name(peer, dst);
                    if let Some(broker) = &mut self.broker {
                        broker.pass(dst, offer.what, offer.fds);
                    }
                    Route::Shm(peer)
                }
                Err(error) => {
                    self.failure = Some(error);
                    return Err(SendFault::NoChannel(dst));
                }
            }
        } else {
            let net = self.net.as_mut().ok_or(SendFault::NoChannel(dst))?;
            Route::Net(net.link_to(dst).ok_or(SendFault::NoChannel(dst))?)
        };
        self.floor.peers[dst.0 as usize].route = route;
        Ok(route)
    }
}
