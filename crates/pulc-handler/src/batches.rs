//! Many short messages of one protocol behind one and the same header, to or from one rank of this node: they go between cells and the
//! caller's memory without the switch, and the engine is locked and the doorbell looked at once for all of them. Called by interfaces;
//! whatever is not the usual case (a long message, no room, another way, other things to do) ends a batch and is left to the usual way.
//! Must never block, and never take a message whose receive handler would have given it to somebody else: the caller knows that.

use crate::engine::Engine;
use crate::error::SendFault;
use crate::peers::Route;
use crate::process::Process;
use crate::progress::HURRIED_MAX;
use crate::sending::Sending;
use crate::switch::ReceiveHandler;
use crate::wire::{HEAD_BYTES, Head, Kind, MESSAGE_COST};
use pulc_base::clock::Nanos;
use pulc_base::{Proto, Rank};
use pulc_hal::device::Peer;
use pulc_hal::device::shm::CELL_PAYLOAD;
use pulc_hal::device::shm::cell::{self, CELL_WORDS, Words};

/// The handler's head and the protocol's header, a word each.
const FRONT_WORDS: usize = 2;
const FRONT_BYTES: usize = FRONT_WORDS * 8;
/// Longest message of a batch; longer ones go by themselves.
pub const BATCHED_MAX: usize = CELL_PAYLOAD - FRONT_BYTES;

const _: () = assert!(HEAD_BYTES == 8 && FRONT_WORDS + BATCHED_MAX / 8 == CELL_WORDS);

fn head_of(proto: Proto) -> u64 {
    Head { proto: proto.0, kind: Kind::Whole, header_len: 8, flags: 0, id: 0, total: 0 }.word()
}

impl Engine {
    /// Sends the first of these messages, as long as they are short and there is room and credit; how many have left.
    #[inline]
    fn send_batch(&mut self, dst: Rank, proto: Proto, header: u64, messages: &[&[u8]]) -> usize {
        let Some(peer) = self.floor.peers.get_mut(dst.0 as usize) else { return 0 };
        let Route::Shm(to) = peer.route else { return 0 };
        let head = head_of(proto);
        let (mut messages, mut bytes) = (messages.iter(), 0);
        let sent = self.shm.device.send_cells(to, || {
            let message = messages.next()?;
            let cost = message.len() as u64 + MESSAGE_COST;
            if message.len() > BATCHED_MAX || peer.credit < cost {
                return None;
            }
            peer.credit -= cost;
            bytes += message.len();
            let mut words: Words = [head.to_le(), header.to_le(), 0, 0, 0, 0, 0];
            match message.len() {
                0..=8 => words[FRONT_WORDS] = cell::word(message),
                _ => _ = cell::put(&mut words, FRONT_WORDS, message),
            }
            Some((FRONT_BYTES + message.len(), words))
        });
        self.shm.tally.messages_sent += sent as u64;
        self.shm.tally.bytes_sent += bytes as u64;
        sent
    }

    /// Takes messages that have come behind just this header of one word, as long as `take` has room for them: it is given length and
    /// words, of which those behind the length mean nothing, and says whether it has taken them. How many. None when there is
    /// something else to do first.
    #[inline]
    pub fn take_batch(
        &mut self,
        src: Rank,
        proto: Proto,
        header: u64,
        mut take: impl FnMut(usize, &[u64]) -> bool,
    ) -> usize {
        let Some(from) = self.batch_peer(src) else { return 0 };
        let (front, mut bytes) = ([head_of(proto).to_le(), header.to_le()], 0);
        let taken = self.shm.device.take_cells(from, |len, words| {
            let is_taken = body_behind(front, len, words).is_some_and(|(len, body)| take(len, body));
            bytes += if is_taken { (len - FRONT_BYTES) as u64 } else { 0 };
            is_taken
        });
        self.batch_taken(src, taken, bytes);
        taken
    }

    /// The same for messages whose receives are posted with the protocol's own receive handler, which `take` is given.
    #[inline]
    pub fn take_batch_for<H: ReceiveHandler>(
        &mut self,
        src: Rank,
        proto: Proto,
        header: u64,
        mut take: impl FnMut(&mut H, usize, &[u64]) -> bool,
    ) -> usize {
        let Some(from) = self.batch_peer(src) else { return 0 };
        let (front, mut bytes) = ([head_of(proto).to_le(), header.to_le()], 0);
        let Some(handler) = self.floor.handlers.as_its_own::<H>(proto.0) else { return 0 };
        let taken = self.shm.device.take_cells(from, |len, words| {
            let is_taken = body_behind(front, len, words).is_some_and(|(len, body)| take(handler, len, body));
            bytes += if is_taken { (len - FRONT_BYTES) as u64 } else { 0 };
            is_taken
        });
        self.batch_taken(src, taken, bytes);
        taken
    }

    /// The peer that a batch may be taken from now; `None`: it is not on this node, or there is something else to do first.
    #[inline(always)]
    fn batch_peer(&self, src: Rank) -> Option<Peer> {
        let peer = self.floor.peers.get(src.0 as usize)?;
        let Route::Shm(from) = peer.route else { return None };
        let may_go_on = self.hurried < HURRIED_MAX && self.floor.outbox.is_empty() && peer.ending.is_none();
        may_go_on.then_some(from)
    }

    /// Enters a batch in the accounts.
    #[inline(always)]
    fn batch_taken(&mut self, src: Rank, taken: usize, bytes: u64) {
        if taken > 0 {
            self.hurried += 1;
            self.shm.tally.messages_received += taken as u64;
            self.shm.tally.bytes_received += bytes;
            self.floor.landed_together(src, bytes + taken as u64 * MESSAGE_COST);
        }
    }
}

/// Length and words of the body of a frame that begins with just these two words.
#[inline(always)]
fn body_behind(front: [u64; FRONT_WORDS], len: usize, words: &Words) -> Option<(usize, &[u64])> {
    let [first, second, body @ ..] = words;
    (len >= FRONT_BYTES && [*first, *second] == front).then_some((len.wrapping_sub(FRONT_BYTES), body))
}

impl Process {
    /// Sends messages behind a header of one word, waiting for room where there is none. How many have left: all of them, unless a fault
    /// came after the first, which the next call meets again. The bytes are free on return.
    ///
    /// # Blocks
    /// Until `deadline` at most, unless parts of a message are already under way.
    pub fn send_batch(
        &self,
        dst: Rank,
        proto: Proto,
        header: u64,
        messages: &[&[u8]],
        deadline: Option<Nanos>,
    ) -> Result<usize, SendFault> {
        let header_bytes = header.to_le_bytes();
        let mut sent = 0;
        loop {
            let mut guard = self.lock();
            sent += guard.engine.send_batch(dst, proto, header, &messages[sent..]);
            let Some(message) = messages.get(sent) else { return Ok(sent) };
            let sending = Sending::counted(dst, proto, &header_bytes, message);
            match self.send_unless(guard, sending, deadline, || false) {
                Ok(()) => sent += 1,
                Err(_) if sent > 0 => return Ok(sent),
                Err(fault) => return Err(fault),
            }
        }
    }
}
