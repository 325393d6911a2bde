//! What one process tells another to open a channel: a few numbers, and the descriptors of its memory. Part of the device; what
//! comes from others is checked here, entirely, before anything is mapped or changed.

use super::Shm;
use super::layout::{CHANNEL_BYTES, OfferText};
use super::pair::Incoming;
use crate::error::HalError;
use crate::os::memfd;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Goes to the other rank through the keeper (`boot::ToKeeper::Pass`). The descriptors may be closed after sending.
#[derive(Debug)]
pub struct Offer {
    pub what: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Shm {
    pub(super) fn offer(&self, channel: OwnedFd) -> Result<Offer, HalError> {
        let text = OfferText {
            slot: self.my_slot,
            pool_bytes: self.home.pool.bytes() as u64,
            arena_bytes: self.arena.as_ref().map_or(0, |arena| arena.bytes() as u64),
            has_bell: self.bell.is_some(),
        };
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(HalError::system("copy a descriptor"));
        let mut fds = vec![channel, copy(self.home.pool.fd())?];
        if let Some(bell) = &self.bell {
            fds.push(bell.share()?);
        }
        if let Some(arena) = &self.arena {
            fds.push(copy(arena.fd())?);
        }
        Ok(Offer { what: text.encode(), fds })
    }
}

/// Checks and maps what another rank offers. All descriptors end here.
pub(super) fn map_offer(slot: u32, what: &[u8], fds: Vec<OwnedFd>) -> Result<(Incoming, Option<OwnedFd>), HalError> {
    let text = OfferText::decode(what)?;
    if text.slot != slot {
        return Err(HalError::BadOffer("it names another slot than its sender's"));
    }
    if fds.len() != text.fds() {
        return Err(HalError::BadOffer("wrong number of descriptors"));
    }
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or(HalError::BadOffer("wrong number of descriptors"));
    let channel = memfd::map_produced(next()?, CHANNEL_BYTES)?;
    let pool = memfd::map_produced(next()?, text.pool_bytes as usize)?;
    let bell = if text.has_bell { Some(next()?) } else { None };
    let arena = match text.arena_bytes {
        0 => None,
        bytes => Some(Arc::new(memfd::map_produced(next()?, bytes as usize)?)),
    };
    Ok((Incoming { channel, pool, arena }, bell))
}
