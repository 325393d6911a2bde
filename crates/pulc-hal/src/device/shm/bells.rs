//! Bells that are made after the channels: a process of a job on one node sleeps on its doorbell word, until somebody in it
//! waits for descriptors as well. Then it makes a bell and tells its peers; those who have not heard of it yet wake it by the
//! courier. Part of the device; its other half is in `mod`.

use super::{Offer, Shm};
use crate::device::Peer;
use crate::error::HalError;
use crate::os::bell::Bell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The plain-data half of a bell's own offer; its ringing end comes beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BellText {
    /// Slot of the process whose bell it is.
    pub slot: u32,
}

const MAGIC: [u8; 4] = *b"pBel";

impl BellText {
    pub fn encode(self) -> Vec<u8> {
        [MAGIC, self.slot.to_le_bytes()].concat()
    }

    /// `None` when it is an offer of another kind.
    pub fn decode(bytes: &[u8]) -> Result<Option<BellText>, HalError> {
        if !bytes.starts_with(&MAGIC) {
            return Ok(None);
        }
        let [_, _, _, _, slot @ ..] = *<&[u8; 8]>::try_from(bytes).map_err(|_| HalError::BadOffer("wrong length"))?;
        Ok(Some(BellText { slot: u32::from_le_bytes(slot) }))
    }
}

impl Shm {
    /// Gives the device a bell, if it has none. Later channels are offered with it, the peers of earlier ones are to be told
    /// by [`Shm::bell_offer`].
    pub fn set_bell(&mut self, bell: &Arc<Bell>) {
        if self.bell.is_none() {
            self.bell = Some(Arc::clone(bell));
        }
    }

    /// What to tell the peer in `slot` about our bell, once. `None`: it knows, or there is no channel to it.
    pub fn bell_offer(&mut self, slot: u32) -> Result<Option<Offer>, HalError> {
        let (Some(bell), Some(peer)) = (&self.bell, self.peer(slot)) else { return Ok(None) };
        let Some(Some(pair)) = self.pairs.get_mut(peer.0 as usize) else { return Ok(None) };
        if pair.bell_told {
            return Ok(None);
        }
        let fd = bell.share()?;
        pair.bell_told = true;
        Ok(Some(Offer { what: BellText { slot: self.my_slot }.encode(), fds: vec![fd] }))
    }

    /// Wakes the rank in `slot` if it sleeps, whether or not there is a channel to it.
    pub fn ring(&self, slot: u32) {
        match self.peer(slot).and_then(|peer| self.pair(peer)) {
            Some(pair) => pair.ring(&self.board),
            None => {
                let otherwise = || {
                    if let Some(courier) = &self.courier {
                        courier.wake(slot);
                    }
                };
                self.board.slot(slot).ring_or(None, otherwise);
            }
        }
    }

    pub(super) fn accept_bell(&mut self, slot: u32, text: BellText, fds: Vec<OwnedFd>) -> Result<Peer, HalError> {
        let peer = self.peer(slot).ok_or(HalError::BadOffer("a bell before its channel"))?;
        if text.slot != slot {
            return Err(HalError::BadOffer("it names another slot than its sender's"));
        }
        let [fd] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| HalError::BadOffer("wrong number of descriptors"))?;
        let Some(Some(pair)) = self.pairs.get_mut(peer.0 as usize) else {
            return Err(HalError::BadOffer("a bell before its channel"));
        };
        if pair.bell.is_some() {
            return Err(HalError::BadOffer("a second bell"));
        }
        pair.bell = Some(fd);
        // What was sent meanwhile may have been rung otherwise, and late.
        pair.ring(&self.board);
        Ok(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_of_bells_survive_the_round_trip_and_are_refused_when_cut() {
        let bytes = BellText { slot: 7 }.encode();
        assert_eq!(BellText::decode(&bytes).unwrap(), Some(BellText { slot: 7 }));
        assert!((4..bytes.len()).all(|len| BellText::decode(&bytes[..len]).is_err()));
        assert_eq!(BellText::decode(&bytes[..3]).unwrap(), None);
    }
}
