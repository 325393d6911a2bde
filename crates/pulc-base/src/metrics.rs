//! Counters as plain structs: owned by whoever counts, copied out by whoever shows them. No global state.

use serde::{Deserialize, Serialize};

/// What one device of one process has moved. Kept by the device, shown by `--stats`, the demo and the benchmarks.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    pub frames_sent: u64,
    pub frames_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Sends answered with `Again`.
    pub again: u64,
    /// Frames thrown away: truncated, wrong tag, foreign job, or a peer's ring that broke its rules.
    pub frames_refused: u64,
    /// Frames that the kernel threw away before this process saw them: for want of room, or because its filter kept them out.
    pub frames_dropped: u64,
    /// System calls made on the data path.
    pub system_calls: u64,
}

/// What one reliable link has done beyond its device.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    pub packets_sent: u64,
    pub packets_retransmitted: u64,
    pub packets_delivered: u64,
    /// Of these, those that landed where they belong without a copy here.
    pub packets_landed: u64,
    pub duplicates_dropped: u64,
    pub acks_sent: u64,
    /// Trains of datagrams that came torn apart and incomplete; their packets are repeated.
    pub trains_broken: u64,
    /// Frames refused because they, or too many after them, have come before.
    pub replays_refused: u64,
    /// Frames refused because the tag did not verify.
    pub tags_refused: u64,
    /// Frames refused for any other reason (malformed, foreign channel, outside the window).
    pub malformed_refused: u64,
}
