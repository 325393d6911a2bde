//! This library's own functions: the job as one machine. Each is a guard, a conversion, one call, a mapping.

use crate::guard::{self, Failed, guarded};
use crate::ports::text_of;
use crate::table::CCounters;
use pulc::{Pulc, Rank};
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

static PULC: OnceLock<Pulc> = OnceLock::new();

/// The membership, after attach.
#[inline]
pub fn pulc() -> Result<&'static Pulc, Failed> {
    PULC.get().ok_or_else(|| Failed::new(guard::NOT_ATTACHED, "pulc_attach has not been called"))
}

pub extern "C" fn attach() -> c_int {
    guarded(|| {
        let pulc = Pulc::attach()?;
        let _ = PULC.set(pulc);
        Ok(())
    })
}

/// Stores a result where the caller wants it.
pub fn store<T>(place: *mut T, value: T, what: &str) -> Result<(), Failed> {
    if place.is_null() {
        return Err(Failed::null(what));
    }
    // SAFETY: not null; the caller of the C function promises room for one value, aligned as C does.
    unsafe { place.write(value) };
    Ok(())
}

pub extern "C" fn rank(rank: *mut u32) -> c_int {
    guarded(|| store(rank, pulc()?.rank().0, "rank"))
}

pub extern "C" fn size(size: *mut u32) -> c_int {
    guarded(|| store(size, pulc()?.size(), "size"))
}

pub extern "C" fn node(node: *mut u32) -> c_int {
    guarded(|| store(node, pulc()?.node().0, "node"))
}

pub extern "C" fn job(job: *mut u64) -> c_int {
    guarded(|| store(job, pulc()?.job().0, "job"))
}

pub extern "C" fn node_count(count: *mut u32) -> c_int {
    guarded(|| store(count, pulc()?.nodes().len() as u32, "count"))
}

pub extern "C" fn node_of(rank: u32, node: *mut u32) -> c_int {
    guarded(|| {
        let pulc = pulc()?;
        let tasks = pulc.tasks();
        let task = tasks.get(rank as usize);
        let task = task.ok_or(pulc::Error::NoSuchRank { rank: Rank(rank), size: pulc.size() })?;
        store(node, task.node.0, "node")
    })
}

pub extern "C" fn node_name(node: u32, name: *mut c_char, bytes: usize) -> c_int {
    guarded(|| {
        let nodes = pulc()?.nodes();
        let found = nodes.get(node as usize).ok_or_else(|| Failed::new(guard::RANK, "no such node"))?;
        text_into(&found.name, name, bytes)
    })
}

/// Copies a text with its NUL to where the caller wants it.
pub fn text_into(text: &str, name: *mut c_char, bytes: usize) -> Result<(), Failed> {
    if name.is_null() {
        return Err(Failed::null("name"));
    }
    let text = text.as_bytes();
    if text.len() >= bytes {
        return Err(Failed::new(guard::TRUNCATE, &format!("the name needs {} bytes", text.len() + 1)));
    }
    // SAFETY: not null, and the caller promises `bytes` bytes, which hold the text and its NUL (checked above).
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len());
        name.add(text.len()).write(0);
    }
    Ok(())
}

pub extern "C" fn device_counters(counters: *mut CCounters, max: usize, count: *mut usize) -> c_int {
    guarded(|| {
        let all = pulc()?.counters();
        if counters.is_null() && max > 0 {
            return Err(Failed::null("counters"));
        }
        for (index, one) in all.iter().enumerate().take(max) {
            let mut device = [0; 16];
            device.iter_mut().zip(one.device.bytes()).take(15).for_each(|(to, from)| *to = from as c_char);
            let filled = CCounters {
                device,
                messages_sent: one.messages_sent,
                messages_received: one.messages_received,
                bytes_sent: one.bytes_sent,
                bytes_received: one.bytes_received,
                system_calls: one.frames.system_calls,
            };
            // SAFETY: the caller promises `max` entries and `index` is smaller.
            unsafe { counters.add(index).write(filled) };
        }
        store(count, all.len(), "count")
    })
}

pub extern "C" fn flush() -> c_int {
    guarded(|| {
        pulc()?.flush();
        Ok(())
    })
}

pub extern "C" fn abort(status: u8, message: *const c_char) {
    guarded(|| {
        let text = text_of(message, "message").unwrap_or("aborted");
        pulc()?.abort(status, text)
    });
    std::process::exit(i32::from(status));
}
