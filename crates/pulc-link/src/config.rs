//! Sizes and limits of a link, and their rows in the parameter table. Made by the owner once per process; never changes
//! while a link lives.

use crate::rail;
use crate::wire::{FRAME_BYTES_MAX, OVERHEAD};
use pulc_base::param::{Fixed, Param};

/// Most packets a sender may have under way on one link; the width of the selective acknowledgement.
pub const PACKETS_UNDER_WAY_MAX: usize = 1024;

/// Rails one link can know.
pub const RAILS_MAX: usize = 8;

/// How a link behaves. Both ends of a link may differ in everything but `encrypt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Longest frame that every rail carries, in bytes, tag and header included.
    pub frame_max: usize,
    /// Rails that are up at the start: 0..rails.
    pub rails: u8,
    /// What this end lets the peer have under way before anything else is said, in bytes; see [`crate::credit_share`].
    pub window_bytes: u32,
    /// What this end may have under way before the peer has said anything, in bytes.
    pub first_window_bytes: u32,
    /// Bytes that `send` keeps (queued and unacknowledged) before it answers `Again`.
    pub retention_max_bytes: usize,
    /// Encrypt the packets too; the tag is there in any case.
    pub encrypt: bool,
    /// Longest frame that may leave as a train of datagrams, in bytes. Zero: the rails carry single frames only. What the peer
    /// sends is understood in any case.
    pub train_max_bytes: usize,
}

pub static RETENTION_MAX_BYTES: Param = Param {
    name: "link_retention_max_bytes",
    default: 1 << 20,
    min: 128 << 10,
    max: 64 << 20,
    text: "bytes one link keeps for packets not yet acknowledged",
};

pub static ENCRYPT: Param = Param {
    name: "link_encrypt",
    default: 0,
    min: 0,
    max: 1,
    text: "1: frames between nodes are encrypted, not only authenticated; the same for all ranks of a job",
};

pub static TRAIN_MAX_BYTES: Param = Param {
    name: "link_train_max_bytes",
    default: FRAME_BYTES_MAX as u64,
    min: 0,
    max: FRAME_BYTES_MAX as u64,
    text: "longest frame that leaves as a train of datagrams under one tag, where rails are all udp; 0: none",
};

/// This crate's rows.
pub static PARAMS: &[&Param] = &[&RETENTION_MAX_BYTES, &ENCRYPT, &TRAIN_MAX_BYTES];

/// What nobody sets.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "link_packets_under_way_max",
        value: PACKETS_UNDER_WAY_MAX as u64,
        text: "packets that one link may have under way",
    },
    Fixed { name: "link_rails_max", value: RAILS_MAX as u64, text: "rails of one link" },
    Fixed { name: "link_overhead_bytes", value: OVERHEAD as u64, text: "header and tag of a frame between nodes" },
    Fixed {
        name: "link_window_max_bytes",
        value: rail::WINDOW_MAX_BYTES as u64,
        text: "most that congestion control lets one rail have under way",
    },
    Fixed {
        name: "link_retransmit_min_us",
        value: rail::RETRANSMIT_MIN.0 / 1000,
        text: "shortest time after which something is asked for again",
    },
    Fixed {
        name: "link_probe_max_us",
        value: rail::PROBE_MAX.0 / 1000,
        text: "up to here these times double; beyond, they are a quarter of the silence",
    },
    Fixed {
        name: "link_silent_probes_max",
        value: rail::SILENT_PROBES_MAX as u64,
        text: "questions without an answer after which another rail takes over",
    },
];

impl Config {
    /// The parameters in force, for rails whose frames hold `frame_max` bytes. Reads the environment.
    pub fn from_params(frame_max: usize, rails: u8, window_bytes: u32) -> Config {
        Config {
            frame_max,
            rails,
            window_bytes,
            first_window_bytes: window_bytes,
            retention_max_bytes: RETENTION_MAX_BYTES.read().value as usize,
            encrypt: ENCRYPT.read().value == 1,
            train_max_bytes: TRAIN_MAX_BYTES.read().value as usize,
        }
    }

    /// Longest packet that fits a frame of one datagram, in bytes.
    pub fn packet_max(&self) -> usize {
        self.frame_max.saturating_sub(OVERHEAD)
    }

    /// Datagrams of the longest train; less than two: there are none.
    pub(crate) fn train_frames_max(&self) -> usize {
        self.train_max_bytes.min(FRAME_BYTES_MAX) / self.frame_max.max(1)
    }
}
