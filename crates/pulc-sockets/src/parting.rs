//! Handing a connection to code that knows nothing of channels: another image, another process, the C library's streams. Both directions
//! go to the kernel for good, and what is left unread in the ring is put where such code reads it: into the kernel's queue, which only
//! a copy of the *other* end's descriptor can do.

use crate::channel::End;
use crate::incoming::Incoming;
use crate::kernel::Kernel;
use crate::layout::{RING_BYTES, is_ring, rx, tx};
use crate::memory::yield_now;
use crate::ring;
use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

/// Whether the connection is an ordinary one now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    Done,
    /// Bytes stand in the ring, and nobody could put them into the kernel's queue.
    Unread(usize),
    /// Bells are on their way; ask again.
    Soon,
    Failed(i32),
}

/// Times that a kernel with room takes nothing.
const PATIENCE: u32 = 100;
/// Bytes moved from the ring into the kernel's queue at a time.
const PIECE: usize = 4096;
/// A kernel that has no room for so much is not asked to take what stands in a ring.
const FLUSHED_BYTES: usize = 64 << 10;

impl End {
    /// Leaves the channel. `give` sends bytes as if the other end had sent them: whole, or not at all.
    pub fn part(&self, kernel: &impl Kernel, reason: u32, mut give: impl FnMut(&[u8]) -> bool) -> Parting {
        self.bar(reason);
        if let Err(number) = self.send_by_kernel(kernel) {
            return Parting::Failed(number);
        }
        self.kernel_done();
        let _reading = match self.hold(self.in_rx(rx::LOCK), kernel) {
            Ok(held) => held,
            Err(number) => return Parting::Failed(number),
        };
        if let Some(result) = self.end_their_ring(kernel, &mut give) {
            return result;
        }
        // Up to the end of the bells, with a look that takes nothing else.
        let mut byte = [0];
        for _ in 0..2 {
            let looked = self.receive_locked(kernel, &mut [IoSliceMut::new(&mut byte)], true);
            let is_there = self.in_rx(rx::SEEN).load(Ordering::Relaxed) == self.in_tx(tx::EPOCH).load(Ordering::SeqCst);
            match looked {
                _ if is_there => return Parting::Done,
                Incoming::Failed(number) => {
                    self.keep_error(number);
                    return Parting::Done;
                }
                Incoming::Ended => return Parting::Done,
                // Bytes of the kernel before a ring that nobody has used: they are where they should be.
                Incoming::Got(_) if self.unread() == 0 => return Parting::Done,
                Incoming::Got(_) | Incoming::Empty => {}
            }
        }
        Parting::Soon
    }

    /// Before the kernel's stream ends: puts what stands in the ring into it, if it surely takes all of that at once. Otherwise the bytes
    /// stay where they are, for an end that knows of rings. `give` sends by the kernel, without waiting, and says how much went.
    pub fn flush(&self, kernel: &impl Kernel, mut give: impl FnMut(&[u8]) -> usize) {
        let Ok(_sending) = self.hold(self.out_tx(tx::LOCK), kernel) else { return };
        let epoch = self.out_tx(tx::EPOCH).load(Ordering::Relaxed);
        if !is_ring(epoch) || self.unheard_bytes() == 0 || !kernel.has_room(self.unheard_bytes().max(FLUSHED_BYTES)) {
            return;
        }
        let Ok(_reading) = self.hold(self.out_rx(rx::LOCK), kernel) else { return };
        let Ok(from) = kernel.sent() else { return };
        let base = self.out_tx64(tx::BASE).load(Ordering::Relaxed);
        let put = self.out_tx64(tx::PUT).load(Ordering::Relaxed);
        let mut got = self.out_rx64(rx::GOT).load(Ordering::Relaxed);
        let mut bytes = [0; PIECE];
        let mut patience = PATIENCE;
        while put.wrapping_sub(got) > 0 && put.wrapping_sub(got) <= RING_BYTES as u64 && patience > 0 {
            let len = (put.wrapping_sub(got) as usize).min(PIECE);
            ring::get(&self.map, self.me, got, base, &mut bytes[..len]);
            let sent = give(&bytes[..len]).min(len);
            got = got.wrapping_add(sent as u64);
            self.out_rx64(rx::GOT).store(got, Ordering::SeqCst);
            if sent == 0 {
                // The connection is broken, or the kernel has no memory: then it is broken soon.
                patience -= 1;
                yield_now();
            }
        }
        self.out_tx64(tx::KERNEL_FROM).store(from, Ordering::Relaxed);
        self.out_tx(tx::EPOCH).store(epoch.wrapping_add(1), Ordering::SeqCst);
    }

    /// Does for the other end what it does itself when it goes back to the kernel, while it cannot send.
    fn end_their_ring(&self, kernel: &impl Kernel, give: &mut impl FnMut(&[u8]) -> bool) -> Option<Parting> {
        let _sending = match self.hold(self.in_tx(tx::LOCK), kernel) {
            Ok(held) => held,
            Err(number) => return Some(Parting::Failed(number)),
        };
        let epoch = self.in_tx(tx::EPOCH).load(Ordering::SeqCst);
        let unread = self.unread();
        if is_ring(epoch) {
            let rung = self.in_tx(tx::RUNG).load(Ordering::SeqCst);
            let bells = rung.wrapping_sub(self.in_tx(tx::RUNG_BEFORE).load(Ordering::Relaxed));
            let from = self.in_tx64(tx::RING_FROM).load(Ordering::Relaxed).wrapping_add(u64::from(bells));
            // Bells behind bytes that nobody has read yet: who does not know of them would take them for bytes.
            let is_behind = self.in_rx(rx::SEEN).load(Ordering::SeqCst) != epoch
                && bells > 0
                && self.in_rx64(rx::TAKEN).load(Ordering::SeqCst) < self.in_tx64(tx::RING_FROM).load(Ordering::Relaxed);
            if is_behind {
                return Some(Parting::Unread(unread));
            }
            if !self.move_unread(give) {
                return Some(Parting::Unread(unread));
            }
            self.in_tx64(tx::KERNEL_FROM).store(from, Ordering::Relaxed);
            self.in_tx(tx::EPOCH).store(epoch.wrapping_add(1), Ordering::SeqCst);
        } else if unread > 0 {
            // Left already, with bytes in the ring that come before what the kernel has by now.
            return Some(Parting::Unread(unread));
        }
        None
    }

    /// Empties the ring into the kernel's queue.
    fn move_unread(&self, give: &mut impl FnMut(&[u8]) -> bool) -> bool {
        let base = self.in_tx64(tx::BASE).load(Ordering::Acquire);
        let mut got = self.in_rx64(rx::GOT).load(Ordering::Relaxed);
        // Who sends is locked out.
        let put = self.arrived();
        while got != put {
            let there = put.wrapping_sub(got);
            if there > RING_BYTES as u64 {
                return false;
            }
            let mut piece = [0; PIECE];
            let piece = &mut piece[..(there as usize).min(PIECE)];
            ring::get(&self.map, self.me.other(), got, base, piece);
            if !give(piece) {
                return false;
            }
            got = got.wrapping_add(piece.len() as u64);
            self.in_rx64(rx::GOT).store(got, Ordering::SeqCst);
        }
        true
    }
}
