//! Frames whose body is copied to the sender's pool: one slot each, also for those that would fit the cells and are not short, or, for parts of long messages, as many slots as are free next to each
//! other. Part of the device; `pool` lends the slots. Must never wait for a slot.

use super::cells::Out;
use super::layout::{CELLS_BODY_MAX, HEAD_MAX, Kind, REFERENCE_BYTES, Reference};
use super::pair::{Home, Lent, Pair};
use super::ring::header;
use super::{Shm, cell};
use crate::board::Board;
use crate::device::{Peer, SendError};

const PAGE: usize = 4096;

impl Shm {
    /// As [`crate::device::Device::send_bulk`] of the beginning of a body, up to `bytes_max`: a frame longer than all others where slots of the pool are free
    /// next to each other; how much of it. The peer is not told: that is done by [`Shm::ring_peer`] behind several frames. To look at a doorbell all
    /// stores before it must have left this core, and while they do nothing further is copied.
    ///
    /// # Errors
    /// As [`crate::device::Device::send_bulk`], where the head and one byte of the body do not fit a frame.
    pub fn send_beginning_quietly(
        &mut self,
        to: Peer,
        head: &[u8],
        body: &[u8],
        bytes_max: usize,
    ) -> Result<usize, SendError> {
        let slot_bytes = self.home.pool.slot_bytes();
        if head.len() >= slot_bytes {
            return Err(SendError::TooLong { len: head.len() + 1, max: slot_bytes });
        }
        let body = &body[..body.len().min(bytes_max)];
        let wanted = (head.len() + body.len()).div_ceil(slot_bytes) as u32;
        self.send_pool(to, [head, body], wanted, false)
    }

    /// Tells a peer of frames that were sent quietly.
    pub fn ring_peer(&self, to: Peer) {
        if let Some(pair) = self.pair(to) {
            pair.ring(&self.board);
        }
    }

    pub(super) fn send_pool(
        &mut self,
        to: Peer,
        parts: [&[u8]; 2],
        wanted: u32,
        rings: bool,
    ) -> Result<usize, SendError> {
        let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return Err(SendError::PeerGone) };
        let board = rings.then_some(&*self.board);
        let mut result = pair.send_pool(board, &mut self.home, parts, wanted);
        if result == Err(SendError::Again) && self.collect_credit() {
            let Some(Some(pair)) = self.pairs.get_mut(to.0 as usize) else { return Err(SendError::PeerGone) };
            result = pair.send_pool(rings.then_some(&*self.board), &mut self.home, parts, wanted);
        }
        let bytes = parts[0].len() + *result.as_ref().unwrap_or(&0);
        self.sent(result.map(|_| ()), bytes)?;
        result
    }
}

impl Pair {
    /// Sends a frame that fits the cells: in them if its body is short or no slot of the pool is free, else through the pool.
    #[inline(always)]
    pub(super) fn send_short_or_pool(
        &mut self,
        board: &Board,
        home: &mut Home,
        parts: [&[u8]; 2],
    ) -> Result<(), SendError> {
        if parts[1].len() > CELLS_BODY_MAX {
            match self.send_pool(Some(board), home, parts, 1) {
                Err(SendError::Again) => {}
                other => return other.map(|_| ()),
            }
        }
        self.send_short(board, home, parts)
    }

    /// Sends a frame whose body is copied to the pool: as much of `parts[1]` as lies in `wanted` slots, or in fewer where no more are free
    /// next to each other, but at least one slot's; how much. The first part goes into the cells if it fits there. Without a `board`
    /// nobody is rung.
    #[inline]
    pub fn send_pool(
        &mut self,
        board: Option<&Board>,
        home: &mut Home,
        parts: [&[u8]; 2],
        wanted: u32,
    ) -> Result<usize, SendError> {
        let (head, front) = if parts[0].len() <= HEAD_MAX { (parts[0], &[][..]) } else { (&[][..], parts[0]) };
        let header = header(Kind::Pool, REFERENCE_BYTES + head.len());
        self.make_room(header, home)?;
        let slots = match home.pool.take_run(self.slots_held, wanted) {
            Some(slots) => slots,
            None => {
                self.take_credit(home)?;
                home.pool.take_run(self.slots_held, wanted).ok_or(SendError::Again)?
            }
        };
        let room = home.pool.bytes_of(slots) - front.len();
        // Where it is cut it is at a page's end, so that what follows is as aligned as this.
        let cut = if room >= PAGE { room & !(PAGE - 1) } else { room };
        let body = if parts[1].len() > room { &parts[1][..cut] } else { parts[1] };
        let len = front.len() + body.len();
        let offset = home.pool.place_of(slots, len);
        let reference = Reference { offset, len: len as u32 };
        // Gathered and its cell asked for before the copy: what is loaded in one piece right behind the stores of its pieces waits until all
        // stores have left the core, and behind a copy those are the stores of a whole slot, whose lines are still on their way.
        let words = (header.cells == 1).then(|| cell::gather([&reference.encode(), head]));
        self.producer.claim_next(&Out(&self.channel));
        home.pool.fill(offset, [front, body], &mut self.chooser);
        match &words {
            Some(words) => self.producer.push_cell(&Out(&self.channel), header, words, false),
            None => self.push_reference(header, &reference.encode(), head),
        }
        self.slots_held += slots.len();
        self.lent.push_back(Lent::Slots(slots));
        if let Some(board) = board {
            self.ring(board);
        }
        home.pool.claim_next(len);
        Ok(body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::ShmConfig;
    use super::super::layout::CELLS_PAYLOAD_MAX;
    use super::super::tests::{Inbox, joined};
    use super::*;
    use crate::device::{Device, Frame, PeerFault, Sink};

    /// What arrives, in order: whether it was in shared memory, and its bytes.
    #[derive(Default)]
    struct Places(Vec<(bool, Vec<u8>)>);

    impl Sink for Places {
        fn frame(&mut self, _: Peer, frame: Frame<'_>) {
            let is_shared = matches!(frame, Frame::Shared(_));
            let mut bytes = vec![0; frame.len()];
            match frame {
                Frame::Private(private) => bytes.copy_from_slice(private),
                Frame::Shared(shared) => shared.copy_range_to(0, &mut bytes),
            }
            self.0.push((is_shared, bytes));
        }

        fn peer_failed(&mut self, _: Peer, why: PeerFault) {
            panic!("an honest peer was given up: {why}");
        }
    }

    #[test]
    fn frames_that_fit_the_cells_go_through_the_pool_if_they_are_long_and_it_has_a_slot() {
        let config = ShmConfig { pool_bytes: 16 << 10, slot_bytes: 4096, ..ShmConfig::default() };
        let (mut a, mut b, b_at_a, _) = joined(config);
        let (all, head) = (a.home.pool.free(), [7; 16]);
        for len in [0, 1, CELLS_BODY_MAX, CELLS_BODY_MAX + 1, CELLS_PAYLOAD_MAX - head.len()] {
            let body: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (mut sent, mut places) = (0, Places::default());
            // One peer never gets all slots, and the cells have room for a frame more than the slots that it gets.
            while sent <= all && a.send_short(b_at_a, [&head, &body]).is_ok() {
                sent += 1;
            }
            while b.poll(&mut places, 64) > 0 {}
            let whole = [&head[..], &body].concat();
            assert!(sent > 0 && places.0.len() == sent, "{len} bytes: {sent} sent, {} arrived", places.0.len());
            assert!(places.0.iter().all(|(_, bytes)| *bytes == whole), "{len} bytes");
            let by_pool = places.0.iter().take_while(|(is_shared, _)| *is_shared).count();
            let goes_by_pool = len > CELLS_BODY_MAX;
            assert_eq!(by_pool > 0, goes_by_pool, "{len} bytes");
            assert!(by_pool < sent, "{len} bytes: without a slot they go in cells");
            assert!(places.0[by_pool..].iter().all(|(is_shared, _)| !*is_shared), "{len} bytes");
            a.collect_credit();
            assert_eq!(a.home.pool.free(), all, "every slot is home again");
        }
    }

    #[test]
    fn a_body_sent_in_beginnings_of_any_length_arrives_whole_and_every_slot_comes_home() {
        let config = ShmConfig { pool_bytes: 64 << 10, slot_bytes: 4096, ..ShmConfig::default() };
        let (mut a, mut b, b_at_a, _) = joined(config);
        let all = a.home.pool.free();
        let body: Vec<u8> = (0..200_000_u32).map(|i| (i / 7) as u8).collect();
        let heads = [vec![9; 8], vec![9; HEAD_MAX + 1]];
        for (bytes_max, head) in [1, 4000, 4096, 9000, 16_384, 200_000].into_iter().zip(heads.iter().cycle()) {
            let (mut sent, mut longest, mut inbox) = (0, 0, Inbox::default());
            // Of the shortest parts not all: each takes a slot.
            let until = body.len().min(bytes_max * 500);
            while sent < until {
                match a.send_beginning_quietly(b_at_a, head, &body[sent..until], bytes_max) {
                    Ok(bytes) => {
                        assert!((1..=bytes_max).contains(&bytes), "{bytes} bytes of {bytes_max} at most");
                        (sent, longest) = (sent + bytes, longest.max(bytes));
                    }
                    Err(error) => {
                        assert_eq!(error, SendError::Again);
                        assert!(b.poll(&mut inbox, 3) > 0, "what is lent has arrived");
                    }
                }
            }
            while b.poll(&mut inbox, 64) > 0 {}
            let arrived: Vec<u8> = inbox.frames.iter().flat_map(|frame| &frame[head.len()..]).copied().collect();
            assert!(arrived == body[..until], "parts of {bytes_max} bytes at most");
            assert!(bytes_max < 9000 || longest > 8192, "none was longer than one slot: {longest}");
            a.collect_credit();
            assert_eq!(a.home.pool.free(), all, "every slot is home again");
        }
        assert!(matches!(a.send_beginning_quietly(b_at_a, &[0; 9000], &body, 1), Err(SendError::TooLong { .. })));
    }
}
