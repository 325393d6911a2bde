//! This library's own functions: waiting for several things and descriptors, and descriptors to wait for. Each is a guard, a
//! conversion, one call, a mapping.

use crate::am::{give, patience, take, thing_of};
use crate::guard::{self, Failed, guarded};
use crate::machine::{pulc, store};
use crate::ports::{check_buffer, port_of};
use crate::raw::channel_of;
use crate::requests::request_at;
use crate::table::{CItem, WakeupHandle};
use pulc::am::Bundle;
use pulc::{Item, Readiness, Wakeup};
use pulc_handler::Awaited;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const PORT: c_int = 1;
const CHANNEL: c_int = 2;
const BUNDLE: c_int = 3;
const FD: c_int = 4;
const REQUEST: c_int = 5;

const READABLE: u32 = 1;
const WRITABLE: u32 = 2;
const ENDED: u32 = 4;

/// The caller's array, for the time of one call.
fn items_of<'a>(items: *mut CItem, count: usize) -> Result<&'a mut [CItem], Failed> {
    check_buffer(items.cast_const().cast(), count.saturating_mul(size_of::<CItem>()))?;
    Ok(match count {
        0 => &mut [],
        // SAFETY: not null, not absurdly long (checked above); the caller promises `count` items that nobody else touches
        // during the call.
        _ => unsafe { std::slice::from_raw_parts_mut(items, count) },
    })
}

/// The caller's items that belong to another interface.
fn awaited_of(item: &CItem) -> Result<Option<Box<dyn Awaited>>, Failed> {
    if item.kind == REQUEST { request_at(item.object).map(Some) } else { Ok(None) }
}

fn item_of<'a>(item: &CItem, awaited: Option<&'a dyn Awaited>) -> Result<Item<'a>, Failed> {
    if let Some(awaited) = awaited {
        return Ok(Item::awaited(awaited));
    }
    Ok(match item.kind {
        PORT => Item::port(port_of(item.object)?),
        CHANNEL => Item::channel(channel_of(item.object)?),
        BUNDLE => Item::bundle(thing_of::<Bundle>(item.object, "object")?),
        FD if item.fd < 0 => return Err(Failed::from(pulc::Error::BadDescriptor { fd: item.fd })),
        FD => {
            // SAFETY: not negative; the caller promises to leave the descriptor open during the call, and one that is not open
            // is found out by the kernel.
            let fd = unsafe { BorrowedFd::borrow_raw(item.fd) };
            let (read, write) = (item.wanted & READABLE != 0, item.wanted & WRITABLE != 0);
            Item::fd(fd, Readiness { read, write, ended: false })
        }
        kind => return Err(Failed { code: guard::ARGUMENT, text: format!("{kind} is no kind of item") }),
    })
}

/// Runs a wait over the caller's items and stores what it found in them.
fn over(
    items: *mut CItem,
    count: usize,
    ready: *mut usize,
    wait: impl FnOnce(&mut [Item<'_>]) -> Result<usize, Failed>,
) -> Result<(), Failed> {
    let theirs = items_of(items, count)?;
    if ready.is_null() {
        return Err(Failed::null("ready"));
    }
    let awaited = theirs.iter().map(awaited_of).collect::<Result<Vec<_>, _>>()?;
    let mut ours =
        theirs.iter().zip(&awaited).map(|(item, own)| item_of(item, own.as_deref())).collect::<Result<Vec<_>, _>>()?;
    theirs.iter_mut().for_each(|item| item.ready = 0);
    let found = wait(&mut ours)?;
    for (theirs, ours) in theirs.iter_mut().zip(&ours) {
        let Readiness { read, write, ended } = ours.ready();
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        theirs.ready = flag(read, READABLE) | flag(write, WRITABLE) | flag(ended, ENDED);
    }
    store(ready, found, "ready")
}

pub extern "C" fn select_items(items: *mut CItem, count: usize, timeout_us: i64, ready: *mut usize) -> c_int {
    guarded(|| {
        let pulc = pulc()?;
        over(items, count, ready, |items| Ok(pulc::select_items(pulc, items, patience(timeout_us))?))
    })
}

pub extern "C" fn wakeup_new(wakeup: *mut *mut WakeupHandle) -> c_int {
    guarded(|| {
        if wakeup.is_null() {
            return Err(Failed::null("wakeup"));
        }
        give(wakeup, Wakeup::new(pulc()?)?, "wakeup")
    })
}

pub extern "C" fn wakeup_fd(wakeup: *const WakeupHandle, fd: *mut c_int) -> c_int {
    guarded(|| store(fd, thing_of::<Wakeup>(wakeup, "wakeup")?.as_fd().as_raw_fd(), "fd"))
}

pub extern "C" fn wakeup_arm(wakeup: *const WakeupHandle, items: *mut CItem, count: usize, ready: *mut usize) -> c_int {
    guarded(|| {
        let wakeup = thing_of::<Wakeup>(wakeup, "wakeup")?;
        over(items, count, ready, |items| Ok(wakeup.arm(items)?))
    })
}

pub extern "C" fn wakeup_free(wakeup: *mut WakeupHandle) -> c_int {
    guarded(|| {
        drop(take::<Wakeup>(wakeup.cast::<c_void>(), "wakeup")?);
        Ok(())
    })
}
