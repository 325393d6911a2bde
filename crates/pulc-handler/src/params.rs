//! This crate's rows of the parameter table. Read once, when the engine is made.

use crate::wire::{HEADER_MAX, MESSAGE_COST};
use pulc_base::param::{Fixed, Param};
use pulc_hal::device::shm::{MEMORY_READ_MIN_BYTES, PAST_CACHES_MIN_BYTES, REFERENCE_MIN_BYTES};

pub static EAGER_MAX_BYTES: Param = Param {
    name: "eager_max_bytes",
    default: 64 << 10,
    min: 0,
    max: 1 << 30,
    text: "longest message that is sent without asking the receiver for room first; the same for all ranks of a job",
};

pub static UNEXPECTED_MAX_BYTES: Param = Param {
    name: "unexpected_max_bytes",
    default: 64 << 20,
    min: 1 << 20,
    max: 1 << 40,
    text: "memory of one process for messages that nobody has asked for yet; the same for all ranks of a job",
};

pub static MESSAGE_MAX_BYTES: Param =
    Param { name: "message_max_bytes", default: 1 << 32, min: 1 << 10, max: 1 << 46, text: "longest message" };

pub static SPIN_US: Param = Param {
    name: "spin_us",
    default: 30,
    min: 0,
    max: 1_000_000,
    text: "how long a waiting process that has its core for itself polls before it sleeps: about the cost of a wake-up",
};

pub static ATTACH_TIMEOUT_MS: Param = Param {
    name: "attach_timeout_ms",
    default: 30_000,
    min: 1,
    max: 3_600_000,
    text: "how long a process waits for its keeper when it joins its job",
};

pub static LINGER_MS: Param = Param {
    name: "linger_ms",
    default: 5_000,
    min: 0,
    max: 600_000,
    text: "how long an ending process waits until other nodes have acknowledged what it sent",
};

pub static TRANSFERS_MAX: Param = Param {
    name: "transfers_max",
    default: 1 << 16,
    min: 16,
    max: 1 << 24,
    text: "messages in parts that one process may have under way to another; further ones wait; the same for all ranks of a job",
};

pub static ANSWERS_MAX: Param = Param {
    name: "answers_max",
    default: 1 << 16,
    min: 1 << 10,
    max: 1 << 24,
    text: "answers that wait for one process to take them; one that asks for more and takes none is given up",
};

/// All of them.
pub static PARAMS: &[&Param] = &[
    &EAGER_MAX_BYTES,
    &UNEXPECTED_MAX_BYTES,
    &MESSAGE_MAX_BYTES,
    &TRANSFERS_MAX,
    &ANSWERS_MAX,
    &SPIN_US,
    &ATTACH_TIMEOUT_MS,
    &LINGER_MS,
];

/// What nobody sets.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "peer_window_min_bytes",
        value: WINDOW_MIN_BYTES,
        text: "every peer may fill unexpected_max_bytes divided by the number of ranks, and not less than this",
    },
    Fixed { name: "peer_window_max_bytes", value: WINDOW_MAX_BYTES, text: "and not more than this" },
    Fixed { name: "message_cost_bytes", value: MESSAGE_COST, text: "what a kept message counts beside its bytes" },
    Fixed { name: "header_max_bytes", value: HEADER_MAX as u64, text: "longest header of a protocol" },
];

/// What the engine obeys, read from the table.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub eager_max_bytes: usize,
    pub message_max_bytes: usize,
    pub unexpected_max_bytes: usize,
    pub reference_min_bytes: usize,
    pub memory_read_min_bytes: usize,
    pub past_caches_min_bytes: u64,
    /// Share of `unexpected_max_bytes` that every peer may fill without asking.
    pub window_bytes: u64,
    pub transfers_max: usize,
    pub answers_max: usize,
    pub spin_us: u64,
    pub linger_ms: u64,
}

/// A peer's share of the memory for unexpected messages lies between these.
const WINDOW_MIN_BYTES: u64 = 32 << 10;
const WINDOW_MAX_BYTES: u64 = 4 << 20;

impl Limits {
    /// The values in force for a job of `size` processes. Reads the environment.
    pub fn read(size: usize) -> Limits {
        let unexpected = UNEXPECTED_MAX_BYTES.read().value;
        let window_bytes = (unexpected / size.max(1) as u64).clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES);
        Limits {
            eager_max_bytes: EAGER_MAX_BYTES.read().value as usize,
            message_max_bytes: MESSAGE_MAX_BYTES.read().value as usize,
            unexpected_max_bytes: unexpected as usize,
            reference_min_bytes: REFERENCE_MIN_BYTES.read().value as usize,
            memory_read_min_bytes: MEMORY_READ_MIN_BYTES.read().value as usize,
            past_caches_min_bytes: PAST_CACHES_MIN_BYTES.read().value,
            window_bytes,
            transfers_max: TRANSFERS_MAX.read().value as usize,
            answers_max: ANSWERS_MAX.read().value as usize,
            spin_us: SPIN_US.read().value,
            linger_ms: LINGER_MS.read().value,
        }
    }
}
