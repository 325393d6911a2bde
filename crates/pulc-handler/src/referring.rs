//! Messages by reference: bytes that lie in this process's arena stay where they are, and the receiver copies them from there.
//! Called by `sending`, and by interfaces that lend memory. Must never let go of a token before the receiver has given it back
//! or is gone: until then it may be reading.

use crate::engine::{Engine, Outcome};
use crate::error::SendFault;
use crate::memory;
use crate::peers::Route;
use crate::wire::{FRONT_MAX, Head};
use pulc_base::Rank;
use pulc_hal::device::shm::{ArenaView, Reads, view_of};
use pulc_hal::device::{Device, SendError};

/// A token that nobody waits for: of all pieces of a message but the last.
const NOBODY: u64 = 0;

/// Tokens that somebody waits for, and whether they are back.
#[derive(Default)]
pub(crate) struct Tokens {
    next: u64,
    open: Vec<(u64, bool)>,
    /// Those that came back because the receiver could not read what they stand for.
    unread: Vec<u64>,
    buffer: Vec<u64>,
}

impl Engine {
    /// Whether a message to `dst` with these bytes goes by reference: they lie in our arena, are long enough, and `dst` reads it.
    #[inline]
    pub(crate) fn refers(&mut self, dst: Rank, body: &[u8]) -> bool {
        match memory::known() {
            Some(arena) if body.len() >= self.limits().reference_min_bytes && arena.offset_of(body).is_some() => {
                self.lends_to(dst) == Reads::Yes
            }
            _ => false,
        }
    }

    /// Whether `dst` reads our arena. The first question announces the arena to it; it answers when it next polls.
    pub fn lends_to(&mut self, dst: Rank) -> Reads {
        let Some(peer) = self.floor.peers.get(dst.0 as usize) else { return Reads::Never };
        let Route::Shm(to) = peer.route else {
            return match peer.route {
                Route::Unopened if self.boot.tasks[dst.0 as usize].node == self.node.0 => Reads::NotYet,
                _ => Reads::Never,
            };
        };
        let Some(arena) = memory::known() else { return Reads::NotYet };
        let reads = self.shm.device.reads_arena(to);
        if reads != Reads::NotYet {
            return reads;
        }
        self.shm.device.set_arena(arena);
        match self.shm.device.arena_offer(to) {
            Ok(Some(offer)) => {
                if let Some(broker) = &mut self.broker {
                    broker.pass(dst, offer.what, offer.fds);
                }
            }
            Ok(None) => {}
            // Out of descriptors: perhaps not for ever, and the bytes go otherwise meanwhile.
            Err(error) => self.failure = Some(error),
        }
        Reads::NotYet
    }

    /// A range of a job-mate's arena. `None`: it has none, or the range lies outside.
    pub fn borrowed_from(&self, src: Rank, offset: u64, len: u64) -> Option<ArenaView> {
        match self.floor.peers.get(src.0 as usize)?.route {
            Route::Shm(peer) => self.shm.device.view(peer, offset, len),
            Route::Gone(_) => view_of(self.left_arenas.get(&src)?, offset, len),
            _ => None,
        }
    }

    /// Sends a frame whose body stays in our arena. `last`: its return is waited for by the token in the answer.
    pub(crate) fn send_reference(
        &mut self,
        dst: Rank,
        head: Head,
        header: &[u8],
        body: &[u8],
        last: bool,
    ) -> Result<(Outcome, u64), SendFault> {
        let mut front = [0; FRONT_MAX];
        let len = head.write(header, &mut front);
        let Route::Shm(to) = self.floor.peers[dst.0 as usize].route else { return Err(SendFault::NoChannel(dst)) };
        let token = if last { self.tokens.next + 1 } else { NOBODY };
        match self.shm.device.send_zcopy(to, &front[..len], body, token) {
            Ok(()) => {
                if last {
                    self.tokens.next = token;
                    self.tokens.open.push((token, false));
                }
                Ok((Outcome::Sent, token))
            }
            Err(SendError::Again) => Ok((Outcome::Again, token)),
            Err(error) => self.device_error(dst, error).map(|outcome| (outcome, token)),
        }
    }

    /// Whether `dst` reads a message of so many bytes in this process's ordinary memory. The first question is passed on to it.
    pub(crate) fn reads_memory(&mut self, dst: Rank, bytes: usize) -> bool {
        let Route::Shm(to) = self.floor.peers[dst.0 as usize].route else { return false };
        if bytes < self.limits().memory_read_min_bytes {
            return false;
        }
        let (reads, offer) = self.shm.device.reads_memory(to);
        if let (Some(offer), Some(broker)) = (offer, &mut self.broker) {
            broker.pass(dst, offer.what, offer.fds);
        }
        reads == Reads::Yes
    }

    /// Sends a frame whose body the receiver reads where it lies; its return is waited for by the token in the answer.
    pub(crate) fn send_memory(&mut self, dst: Rank, head: Head, body: &[u8]) -> Result<(Outcome, u64), SendFault> {
        let mut front = [0; FRONT_MAX];
        let len = head.write(&[], &mut front);
        let Route::Shm(to) = self.floor.peers[dst.0 as usize].route else { return Err(SendFault::NoChannel(dst)) };
        let token = self.tokens.next + 1;
        match self.shm.device.send_memory(to, &front[..len], body, token) {
            Ok(()) => {
                self.tokens.next = token;
                self.tokens.open.push((token, false));
                Ok((Outcome::Sent, token))
            }
            Err(SendError::Again) => Ok((Outcome::Again, token)),
            Err(error) => self.device_error(dst, error).map(|outcome| (outcome, token)),
        }
    }

    /// Whether the receiver has read what the token stands for, or could not; `None` while it has not said.
    pub(crate) fn take_memory_token(&mut self, token: u64) -> Option<bool> {
        if self.take_token(token) {
            return Some(true);
        }
        let at = self.tokens.unread.iter().position(|unread| *unread == token)?;
        self.tokens.unread.swap_remove(at);
        Some(false)
    }

    /// Whether the receiver has read what the token stands for; then the token is forgotten.
    pub(crate) fn take_token(&mut self, token: u64) -> bool {
        self.collect_tokens();
        let open = &mut self.tokens.open;
        match open.iter().position(|entry| *entry == (token, true)) {
            Some(at) => {
                open.swap_remove(at);
                true
            }
            None => false,
        }
    }

    /// Notes which tokens have come back. To be called before a peer is closed: what it has read until then it has read.
    pub(crate) fn collect_tokens(&mut self) {
        let Tokens { open, unread, buffer, .. } = &mut self.tokens;
        self.shm.device.completed(buffer);
        self.shm.device.unread(unread);
        open.retain(|(token, _)| !unread.contains(token));
        for back in buffer.drain(..).filter(|back| *back != NOBODY) {
            if let Some((_, is_back)) = open.iter_mut().find(|(token, _)| *token == back) {
                *is_back = true;
            }
        }
    }

    /// Forgets the tokens of a peer that has just been closed: nobody has read what they stand for.
    pub(crate) fn lose_tokens(&mut self) {
        let Tokens { open, buffer, .. } = &mut self.tokens;
        self.shm.device.completed(buffer);
        self.shm.device.unread(buffer);
        for lost in buffer.drain(..) {
            open.retain(|(token, is_back)| *token != lost || *is_back);
        }
    }
}
