//! Receiver credits: how the kernel's receive buffer, which all peers of a process share, is divided into windows, and what a
//! packet costs of one. Called by the engine and by the owner of the links; knows no link.

/// What the kernel charges a queued datagram beyond its bytes, roughly (its buffer and bookkeeping).
const FRAME_COST_BYTES: u64 = 768;

/// What a frame of this length takes from a window, as if each of its datagrams, `frame_max` bytes long, waited for itself.
pub(crate) fn cost(frame_len: usize, frame_max: usize) -> u64 {
    (frame_len + frame_len.div_ceil(frame_max).max(1) * FRAME_COST_BYTES as usize) as u64
}

/// The window for one of `peers` peers that send at present, for a socket whose receive buffer the kernel reports as
/// `receive_buffer_bytes` (already doubled by it for bookkeeping). Never less than one frame of `frame_max` bytes: a link
/// that may send nothing could not start.
pub fn credit_share(receive_buffer_bytes: usize, peers: usize, frame_max: usize) -> u32 {
    let share = receive_buffer_bytes / 2 / peers.max(1);
    let least = frame_max + FRAME_COST_BYTES as usize;
    u32::try_from(share.max(least)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_all_peers_together_fit_the_receive_buffer() {
        for peers in 1..100 {
            let share = credit_share(425_984, peers, 1472) as usize;
            assert!(share * peers <= 425_984 / 2 || share == 1472 + FRAME_COST_BYTES as usize);
        }
        assert_eq!(credit_share(0, 0, 1472), 1472 + FRAME_COST_BYTES as u32);
    }
}
