//! What of this device can be set, with safe defaults. Read once at start-up by the handler.

use super::arena::Arena;
use super::layout::{CELL_PAYLOAD, CELLS, CELLS_BODY_MAX, CELLS_PAYLOAD_MAX};
use super::reading::PART_MAX;
use crate::board::SLOTS_MAX;
use crate::os::bell::Bell;
use crate::os::copy_kernel::COPY_KERNEL;
use pulc_base::param::{Fixed, Param};
use std::sync::Arc;

pub static POOL_BYTES: Param = Param {
    name: "shm_pool_bytes",
    default: 2 << 20,
    min: 64 << 10,
    max: 1 << 30,
    text: "memory of a process for frames that wait in shared memory, shared by all peers; a page for each slot comes on top",
};

pub static SLOT_BYTES: Param = Param {
    name: "shm_slot_bytes",
    default: 16 << 10,
    min: 4 << 10,
    max: 1 << 20,
    text: "longest piece of a message through the pool; longer messages are cut",
};

pub static ARENA_BYTES: Param = Param {
    name: "arena_bytes",
    default: 4 << 30,
    min: 1 << 20,
    max: 1 << 36,
    text: "address space for memory that job-mates of the node may read; taken from the machine when first written",
};

/// Obeyed by the preloaded allocator (`pulc run --alloc`).
pub static ALLOC_MIN_BYTES: Param = Param {
    name: "alloc_min_bytes",
    default: 64 << 10,
    min: 4 << 10,
    max: 1 << 40,
    text: "shortest block of an unmodified program that `pulc run --alloc` places in memory that job-mates may read",
};

/// Obeyed by the handler.
pub static REFERENCE_MIN_BYTES: Param = Param {
    name: "reference_min_bytes",
    default: 64 << 10,
    min: 16 << 10,
    max: 1 << 40,
    text: "shortest message that is read by its receiver where it lies, if it lies in memory that job-mates may read",
};

/// Obeyed by the handler. Never, unless calibration or somebody says otherwise.
pub static MEMORY_READ_MIN_BYTES: Param = Param {
    name: "memory_read_min_bytes",
    default: 1 << 40,
    min: 16 << 10,
    max: 1 << 40,
    text: "shortest message that its receiver reads in its sender's ordinary memory (process_vm_readv), where that is allowed",
};

/// Obeyed by the handler.
pub static PAST_CACHES_MIN_BYTES: Param = Param {
    name: "past_caches_min_bytes",
    default: 4 << 20,
    min: 64 << 10,
    max: 1 << 40,
    text: "shortest message that is copied into the program's memory past the caches: it would not stay there, and pushes out what is needed",
};

/// The rows of this device.
pub static PARAMS: &[&Param] = &[
    &POOL_BYTES,
    &SLOT_BYTES,
    &ARENA_BYTES,
    &REFERENCE_MIN_BYTES,
    &ALLOC_MIN_BYTES,
    &MEMORY_READ_MIN_BYTES,
    &PAST_CACHES_MIN_BYTES,
    &COPY_KERNEL,
];

/// How a [`super::Shm`] is made.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    pub pool_bytes: usize,
    /// A multiple of the page size.
    pub slot_bytes: usize,
    /// Memory out of which frames are sent without a copy.
    pub arena: Option<Arc<Arena>>,
    /// Passed on to peers, for a process that also sleeps in poll.
    pub bell: Option<Arc<Bell>>,
    /// Wakes peers that sleep in poll and whose bell has not come yet.
    pub courier: Option<Arc<dyn Courier>>,
}

/// Another way to a peer than its channel: slow, and good enough to wake it once.
pub trait Courier: Send + Sync + std::fmt::Debug {
    /// Wakes the local rank `slot` out of its poll. Must not block.
    fn wake(&self, slot: u32);
}

impl ShmConfig {
    /// From the parameter table.
    pub fn read() -> ShmConfig {
        ShmConfig {
            pool_bytes: POOL_BYTES.read().value as usize,
            slot_bytes: SLOT_BYTES.read().value as usize & !4095,
            arena: None,
            bell: None,
            courier: None,
        }
    }
}

/// What the layout of a channel allows.
pub const FIXED: &[Fixed] = &[
    Fixed { name: "channel_cells", value: CELLS as u64, text: "cells of 64 bytes in one direction of a channel" },
    Fixed { name: "cell_payload_bytes", value: CELL_PAYLOAD as u64, text: "bytes of a frame that one cell holds" },
    Fixed {
        name: "cells_body_max_bytes",
        value: CELLS_BODY_MAX as u64,
        text: "longest body that travels in cells; longer ones go through the pool while it has slots",
    },
    Fixed {
        name: "cells_payload_max_bytes",
        value: CELLS_PAYLOAD_MAX as u64,
        text: "longest frame that travels in cells while the pool has no slots; longer ones wait for a slot",
    },
    Fixed {
        name: "memory_part_max_bytes",
        value: PART_MAX as u64,
        text: "longest piece that a receiver reads at a time in its sender's ordinary memory",
    },
    Fixed { name: "node_ranks_max", value: SLOTS_MAX as u64, text: "processes of one job on one node" },
];

impl Default for ShmConfig {
    fn default() -> ShmConfig {
        ShmConfig {
            pool_bytes: POOL_BYTES.default as usize,
            slot_bytes: SLOT_BYTES.default as usize,
            arena: None,
            bell: None,
            courier: None,
        }
    }
}
