//! What is done with bytes from elsewhere, for fuzz targets (`fuzz/`) and for the replay of their corpora. Not for programs.

use crate::board::notice::RANKS_MAX;
use crate::board::{Board, SLOT_BYTES, Sleep};
use crate::calibration;
use crate::device;
use crate::os::{elf, memfd};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A job-mate writes into its channel and pool, here eight bytes at a time, while the device is used.
pub fn shm_channel(bytes: &[u8]) {
    device::shm::fuzz::channel(bytes);
}

/// What a job-mate offers as a channel or an arena.
pub fn shm_offer(bytes: &[u8]) {
    device::shm::fuzz::offer(bytes);
}

/// A stream to the `tcp` device from whoever connects.
pub fn tcp_stream(bytes: &[u8]) {
    device::tcp_fuzz::stream(bytes);
}

/// Anything at all on the board: everybody may write there.
pub fn board(bytes: &[u8]) {
    const BYTES: usize = 3 * SLOT_BYTES;
    let (board, fd) = Board::create(3).expect("there is memory");
    let raw = memfd::map_common(fd.as_fd(), BYTES).expect("it has this size");
    for write in bytes.chunks_exact(9) {
        let (at, value) = (usize::from(write[0]) % (BYTES / 8) * 8, write[1..].try_into().expect("eight bytes"));
        raw.u64_at(at).store(u64::from_le_bytes(value), Ordering::Relaxed);
        let slot = board.slot(u32::from(write[0]) % 3);
        let _ = (slot.core(), slot.pinned(), slot.progress(), slot.sleeping(), slot.broker_waiting());
        slot.ring(None);
        slot.made_progress();
        if let Some((_, notice)) = slot.notice() {
            let is_printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            assert!(notice.ranks.len() <= RANKS_MAX && is_printable(&notice.call) && is_printable(&notice.place));
        }
        slot.prepare_sleep(Sleep::Futex);
        raw.u64_at(at).store(u64::from_le_bytes(value), Ordering::Relaxed);
        slot.sleep(Some(Duration::ZERO)).expect("a sleep of no time");
        slot.announce_broker_message();
    }
}

/// A program's file, as the launcher looks at it.
pub fn program(bytes: &[u8]) {
    elf::fuzz_program(bytes);
}

/// A calibration file.
pub fn calibration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = calibration::parse(text, "a machine");
    // Behind a right sum as well, which no garbling hits by chance.
    if let Ok(values) = calibration::parse(&calibration::summed(text), "a machine") {
        assert!(values.len() <= text.lines().count());
    }
}
