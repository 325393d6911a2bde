//! What the environment says: whether connections are promoted at all, after how many calls, and which. Read once, when the library is
//! loaded.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// `off`: everything stays on the kernel. `track`: the same, but connections are followed.
const SWITCH: &str = "PULC_SOCKETS";
/// Data calls before a connection is promoted: short ones are not worth it.
const AFTER: &str = "PULC_SOCKETS_AFTER";
/// Ports and ranges of them, with commas: others stay on the kernel.
const ONLY: &str = "PULC_SOCKETS_ONLY";

const AFTER_CALLS: u32 = 8;
const RANGES: usize = 16;

static IS_OFF: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU32 = AtomicU32::new(u32::MAX);
/// First port, last port and a mark that the place is used.
static PORTS: [AtomicU64; RANGES] = [const { AtomicU64::new(0) }; RANGES];

pub fn read() {
    let switch = std::env::var(SWITCH).unwrap_or_default();
    IS_OFF.store(switch == "off", Ordering::Relaxed);
    if switch == "off" || switch == "track" {
        return;
    }
    let after = std::env::var(AFTER).ok().and_then(|text| text.parse().ok());
    CALLS.store(after.unwrap_or(AFTER_CALLS), Ordering::Relaxed);
    let only = std::env::var(ONLY).unwrap_or_default();
    for (text, range) in only.split(',').filter(|text| !text.is_empty()).zip(&PORTS) {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        // What is no number admits nothing.
        let (first, last): (u16, u16) = (first.parse().unwrap_or(u16::MAX), last.parse().unwrap_or(0));
        range.store(1 << 32 | u64::from(first) << 16 | u64::from(last), Ordering::Relaxed);
    }
}

pub fn is_off() -> bool {
    IS_OFF.load(Ordering::Relaxed)
}

/// Data calls after which a connection asks for a channel.
#[inline]
pub fn after_calls() -> u32 {
    CALLS.load(Ordering::Relaxed)
}

/// Whether connections are promoted at all.
pub fn promotes() -> bool {
    after_calls() != u32::MAX
}

/// Whether connections of this port may be promoted.
pub fn includes(port: u16) -> bool {
    let mut any = false;
    for range in &PORTS {
        let range = range.load(Ordering::Relaxed);
        if range != 0 {
            any = true;
            if ((range >> 16) as u16..=range as u16).contains(&port) {
                return true;
            }
        }
    }
    !any
}
