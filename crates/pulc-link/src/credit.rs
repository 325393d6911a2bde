//! Receiver credits: how the kernel's receive buffer, which all peers of a process share, is divided into windows. Called
//! by the owner of the links; knows no link.

/// What the kernel charges a queued datagram beyond its bytes, roughly (its buffer and bookkeeping).
pub(crate) const FRAME_COST_BYTES: u32 = 768;

/// The window for one of `peers` peers that send at present, for a socket whose receive buffer the kernel reports as
/// `receive_buffer_bytes` (already doubled by it for bookkeeping). Never less than one frame of `frame_max` bytes: a link
/// that may send nothing could not start.
pub fn credit_share(receive_buffer_bytes: usize, peers: usize, frame_max: usize) -> u32 {
    let share = receive_buffer_bytes / 2 / peers.max(1);
    let least = frame_max + FRAME_COST_BYTES as usize;
    u32::try_from(share.max(least)).unwrap_or(u32::MAX)
}
