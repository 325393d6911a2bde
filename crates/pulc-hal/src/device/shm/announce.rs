//! Arenas that are made after the channel: announced to a peer by an offer of their own, and used towards it only after it has
//! said in its channel's first word that it reads them, or that it never will. And views: what a peer's arena holds, read for as
//! long as somebody holds the view. Part of the device; its other half is in `mod`.

use super::layout::{ARENA_WORD_AT, ArenaText};
use super::pair::Pair;
use super::{Arena, Offer, Shm};
use crate::board::Board;
use crate::device::Peer;
use crate::error::HalError;
use crate::os::memfd::{self, ReadMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a peer has said about our arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    NotYet,
    Yes,
    /// It cannot map it, or what it said makes no sense.
    Never,
}

impl Reads {
    pub(super) fn word(self) -> u64 {
        match self {
            Reads::NotYet => 0,
            Reads::Yes => 1,
            Reads::Never => 2,
        }
    }

    pub(super) fn of_word(word: u64) -> Reads {
        match word {
            0 => Reads::NotYet,
            1 => Reads::Yes,
            _ => Reads::Never,
        }
    }
}

/// A range of a peer's arena. It stays readable as long as this value lives, whatever becomes of the peer; what it holds is the
/// peer's to change at any time, so it is only ever copied.
#[derive(Clone)]
pub struct ArenaView {
    map: Arc<ReadMap>,
    offset: u64,
    len: usize,
}

impl ArenaView {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `to.len()` bytes from `offset`.
    ///
    /// # Panics
    /// When the range lies outside of the view.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) {
        self.map.shared(self.offset, self.len as u64).expect("checked when the view was made").copy_to(offset, to);
    }

    /// Where the bytes are. Whoever reads there without copying must bear that they change under his hands.
    pub fn as_ptr(&self) -> *const u8 {
        self.map.shared(self.offset, self.len as u64).expect("checked when the view was made").as_ptr()
    }
}

impl std::fmt::Debug for ArenaView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArenaView of {} bytes", self.len)
    }
}

impl Shm {
    /// Gives the device an arena, if it has none yet. Peers learn of it by [`Shm::arena_offer`].
    pub fn set_arena(&mut self, arena: &Arc<Arena>) {
        if self.arena.is_none() {
            self.arena = Some(Arc::clone(arena));
        }
    }

    /// What to tell a peer about our arena, once.
    pub fn arena_offer(&mut self, to: Peer) -> Result<Option<Offer>, HalError> {
        let Some(arena) = &self.arena else { return Ok(None) };
        let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return Ok(None) };
        if pair.arena_told {
            return Ok(None);
        }
        let fd = arena.fd().try_clone_to_owned().map_err(HalError::system("copy a descriptor"))?;
        pair.arena_told = true;
        let text = ArenaText { slot: self.my_slot, bytes: arena.bytes() as u64 };
        Ok(Some(Offer { what: text.encode(), fds: vec![fd] }))
    }

    /// Whether a peer reads our arena.
    #[inline]
    pub fn reads_arena(&mut self, peer: Peer) -> Reads {
        match self.pairs.get_mut(peer.0 as usize) {
            Some(Some(pair)) => pair.reads_arena(),
            _ => Reads::Never,
        }
    }

    /// Takes a peer's word about its arena. A mapping that fails is no fault of the peer's: it is told, and sends otherwise.
    pub(super) fn accept_arena(&mut self, slot: u32, text: ArenaText, fds: Vec<OwnedFd>) -> Result<Peer, HalError> {
        let peer = self.peer(slot).ok_or(HalError::BadOffer("an arena before its channel"))?;
        if text.slot != slot {
            return Err(HalError::BadOffer("it names another slot than its sender's"));
        }
        let [fd] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| HalError::BadOffer("wrong number of descriptors"))?;
        let Some(Some(pair)) = self.pairs.get_mut(peer.0 as usize) else {
            return Err(HalError::BadOffer("an arena before its channel"));
        };
        match memfd::map_produced(fd, text.bytes as usize) {
            Ok(map) => pair.take_arena(Arc::new(map))?,
            Err(error @ HalError::System { .. }) => {
                pulc_base::log!(
                    Warn,
                    "shm",
                    "the arena of slot {slot} is not mapped, its bytes come otherwise: {error}"
                );
                pair.answer_arena(Reads::Never, &self.board);
                return Ok(peer);
            }
            Err(error) => return Err(error),
        }
        pair.answer_arena(Reads::Yes, &self.board);
        Ok(peer)
    }

    /// A range of a peer's arena; `None` when it lies outside or there is no such arena.
    pub fn view(&self, from: Peer, offset: u64, len: u64) -> Option<ArenaView> {
        view_of(self.pair(from)?.peer_arena()?, offset, len)
    }

    /// A peer's arena as it is mapped here. It stays readable after the peer's end, as long as somebody keeps it.
    pub fn arena_of(&self, from: Peer) -> Option<Arc<ReadMap>> {
        self.pair(from)?.peer_arena().map(Arc::clone)
    }
}

/// A range of an arena; `None` when it lies outside.
pub fn view_of(map: &Arc<ReadMap>, offset: u64, len: u64) -> Option<ArenaView> {
    map.shared(offset, len)?;
    Some(ArenaView { map: Arc::clone(map), offset, len: len as usize })
}

impl Pair {
    /// Whether the peer reads our arena. Once it has answered its answer stays.
    #[inline]
    pub fn reads_arena(&mut self) -> Reads {
        if self.reads == Reads::NotYet
            && let Some(incoming) = &self.incoming
        {
            self.reads = answered(&incoming.channel);
        }
        self.reads
    }

    /// The peer has made an arena.
    pub fn take_arena(&mut self, arena: Arc<ReadMap>) -> Result<(), HalError> {
        let incoming = self.incoming.as_mut().ok_or(HalError::BadOffer("an arena before its channel"))?;
        if incoming.arena.is_some() {
            return Err(HalError::AlreadyOpen { slot: self.slot });
        }
        incoming.arena = Some(arena);
        Ok(())
    }

    /// Says whether the peer's arena is read.
    pub fn answer_arena(&self, reads: Reads, board: &Board) {
        answer(&self.channel, reads);
        self.ring(board);
    }

    pub fn peer_arena(&self) -> Option<&Arc<ReadMap>> {
        self.incoming.as_ref()?.arena.as_ref()
    }
}

/// Where the answer stands in the channel that the answering side produces.
pub(super) fn answer(channel: &memfd::WriteMap, reads: Reads) {
    // Release: pairs with the acquire of `answered`.
    channel.u64_at(ARENA_WORD_AT).store(reads.word(), Ordering::Release);
}

/// What the other side has answered.
pub(super) fn answered(channel: &ReadMap) -> Reads {
    Reads::of_word(channel.load_u64(ARENA_WORD_AT, Ordering::Acquire))
}
