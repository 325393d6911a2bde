//! This crate's rows of the parameter table.

use crate::am;
use crate::spare::SPARE_MAX_BYTES;
use crate::table::NAME_MAX;
use pulc_base::param::{Fixed, Param};

pub static PORT_LOOKUP_MS: Param = Param {
    name: "port_lookup_ms",
    default: 10_000,
    min: 1,
    max: 86_400_000,
    text: "how long a send waits for the receiver to open a port of that name",
};

pub static PORTS_MAX: Param =
    Param { name: "ports_max", default: 4096, min: 1, max: 65_535, text: "ports one process may have open" };

pub static LOOKUPS_PER_RANK: Param = Param {
    name: "lookups_per_rank",
    default: 256,
    min: 1,
    max: 65_536,
    text: "questions of one rank for ports that are not open yet; older ones are forgotten",
};

pub static DATAGRAM_MAX_BYTES: Param = Param {
    name: "datagram_max_bytes",
    default: 32 << 10,
    min: 64,
    max: 32 << 10,
    text: "longest message in datagram mode",
};

pub static DATAGRAM_BACKLOG_BYTES: Param = Param {
    name: "datagram_backlog_bytes",
    default: 1 << 20,
    min: 0,
    max: 1 << 40,
    text: "datagrams a port keeps until they are received; more are dropped and counted",
};

pub static RAW_POSTS_MAX: Param = Param {
    name: "raw_posts_max",
    default: 4096,
    min: 1,
    max: 1 << 24,
    text: "buffers that may be posted to one rawdata channel",
};

pub static AM_LOOKUP_MS: Param = Param {
    name: "am_lookup_ms",
    default: 10_000,
    min: 1,
    max: 86_400_000,
    text: "how long a mapping waits for its process to open an endpoint of that name",
};

pub static AM_CREDITS_MAX: Param = Param {
    name: "am_credits_max",
    default: 1024,
    min: 1,
    max: 32_766,
    text: "requests of one mapping that may be under way at a time; fewer are agreed on if the receiver allows fewer",
};

/// All of them.
pub static PARAMS: &[&Param] = &[
    &PORT_LOOKUP_MS,
    &PORTS_MAX,
    &LOOKUPS_PER_RANK,
    &DATAGRAM_MAX_BYTES,
    &DATAGRAM_BACKLOG_BYTES,
    &RAW_POSTS_MAX,
    &AM_LOOKUP_MS,
    &AM_CREDITS_MAX,
];

/// What nobody sets.
pub const FIXED: &[Fixed] = &[
    Fixed { name: "port_name_max_bytes", value: NAME_MAX as u64, text: "longest name of a port" },
    Fixed {
        name: "rawdata_channels_max",
        value: 1 << 16,
        text: "channels between two processes: their numbers have 16 bits",
    },
    Fixed {
        name: "am_medium_max_bytes",
        value: am::MEDIUM_MAX as u64,
        text: "longest payload of a medium request or reply",
    },
    Fixed { name: "am_words_max", value: am::WORDS_MAX as u64, text: "words of arguments of one active message" },
    Fixed {
        name: "am_endpoints_max",
        value: am::ENDPOINTS_MAX as u64,
        text: "endpoints, bundles or mappings of one process",
    },
    Fixed {
        name: "spare_max_bytes",
        value: SPARE_MAX_BYTES as u64,
        text: "memory of kept messages that is held to be used again, each for ports and rawdata",
    },
];
