//! This library's own functions: requests. Each is a guard, a conversion, one call, a mapping. Without a bundle they do not wait.

use super::{AGAIN, Handle, Lent, give, take, thing_of, words_of};
use crate::guard::{self, Failed, guarded};
use crate::machine::store;
use crate::ports::bytes_of;
use pulc::am::{Bundle, Event, Opcode, Peer, Posted, Prepared, Words};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

fn bundle_of<'a>(bundle: *mut Handle) -> Result<Option<&'a Bundle>, Failed> {
    if bundle.is_null() { Ok(None) } else { thing_of(bundle, "bundle").map(Some) }
}

/// A short or medium request.
fn send(
    peer: *mut Handle,
    bundle: *mut Handle,
    opcode: Opcode,
    handler: u8,
    words: &Words,
    data: &[u8],
    told: *mut *mut Handle,
) -> Result<Posted, Failed> {
    let (peer, bundle) = (thing_of::<Peer>(peer, "peer")?, bundle_of(bundle)?);
    if told.is_null() {
        return Ok(peer.request_words(bundle, opcode, handler, words, None, data)?);
    }
    let event = Event::new(None);
    let posted = peer.request_words(bundle, opcode, handler, words, Some(&event), data)?;
    if posted == Posted::Done {
        give(told, event, "told")?;
    }
    Ok(posted)
}

/// The outcome of something that may have to be tried again.
fn outcome(body: impl FnOnce() -> Result<Posted, Failed>) -> c_int {
    let mut again = false;
    let code = guarded(|| body().map(|posted| again = posted == Posted::Again));
    if again { AGAIN } else { code }
}

pub extern "C" fn request(
    peer: *mut Handle,
    bundle: *mut Handle,
    handler: u8,
    args: *const u64,
    count: usize,
    told: *mut *mut Handle,
) -> c_int {
    outcome(|| send(peer, bundle, Opcode::Short, handler, &words_of(args, count)?, &[], told))
}

pub extern "C" fn request_medium(
    peer: *mut Handle,
    bundle: *mut Handle,
    handler: u8,
    args: *const u64,
    count: usize,
    data: *const c_void,
    bytes: usize,
    told: *mut *mut Handle,
) -> c_int {
    outcome(|| {
        let (words, data) = (words_of(args, count)?, bytes_of(data, bytes)?);
        send(peer, bundle, Opcode::Medium, handler, &words, data, told)
    })
}

pub extern "C" fn request_long(
    peer: *mut Handle,
    bundle: *mut Handle,
    handler: u8,
    args: *const u64,
    count: usize,
    offset: u64,
    data: *const c_void,
    bytes: usize,
    told: *mut *mut Handle,
) -> c_int {
    guarded(|| {
        let (peer, bundle) = (thing_of::<Peer>(peer, "peer")?, thing_of::<Bundle>(bundle, "bundle")?);
        let (words, data) = (words_of(args, count)?, bytes_of(data, bytes)?);
        if told.is_null() {
            return Ok(peer.request_long_words(bundle, handler, &words, offset, None, data)?);
        }
        let event = Event::new(None);
        peer.request_long_words(bundle, handler, &words, offset, Some(&event), data)?;
        give(told, event, "told")
    })
}

pub extern "C" fn post_long(
    peer: *mut Handle,
    bundle: *mut Handle,
    handler: u8,
    args: *const u64,
    count: usize,
    offset: u64,
    data: *const c_void,
    bytes: usize,
    left: *mut *mut Handle,
) -> c_int {
    guarded(|| {
        post(peer, bundle, (Opcode::Long, offset), handler, &words_of(args, count)?, Lent::new(data, bytes)?, left)
    })
}

pub extern "C" fn post_fetch(
    peer: *mut Handle,
    bundle: *mut Handle,
    handler: u8,
    args: *const u64,
    count: usize,
    data: *const c_void,
    bytes: usize,
    left: *mut *mut Handle,
) -> c_int {
    guarded(|| post(peer, bundle, (Opcode::Fetch, 0), handler, &words_of(args, count)?, Lent::new(data, bytes)?, left))
}

fn post(
    peer: *mut Handle,
    bundle: *mut Handle,
    (opcode, offset): (Opcode, u64),
    handler: u8,
    words: &Words,
    lent: Lent,
    left: *mut *mut Handle,
) -> Result<(), Failed> {
    let (peer, bundle) = (thing_of::<Peer>(peer, "peer")?, thing_of::<Bundle>(bundle, "bundle")?);
    // Without it the program could not know when its memory is its own again.
    if left.is_null() {
        return Err(Failed::null("left"));
    }
    give(left, peer.post_words(bundle, opcode, handler, words, offset, Arc::new(lent))?, "left")
}

pub extern "C" fn prepare(
    peer: *mut Handle,
    bundle: *mut Handle,
    max: usize,
    prepared: *mut *mut Handle,
    data: *mut *mut c_void,
) -> c_int {
    outcome(|| {
        let (peer, bundle) = (thing_of::<Peer>(peer, "peer")?, bundle_of(bundle)?);
        if prepared.is_null() || data.is_null() {
            return Err(Failed::null("prepared or data"));
        }
        let made: Option<Prepared<'static>> = match bundle {
            Some(bundle) => Some(peer.prepare(bundle, max)?),
            None => peer.try_prepare(max)?,
        };
        let Some(mut made) = made else { return Ok(Posted::Again) };
        store(data, made.bytes_mut().as_mut_ptr().cast(), "data")?;
        give(prepared, made, "prepared")?;
        Ok(Posted::Done)
    })
}

pub extern "C" fn commit(prepared: *mut Handle, handler: u8, args: *const u64, count: usize, bytes: usize) -> c_int {
    guarded(|| {
        let words = words_of(args, count)?;
        let mut prepared = take::<Prepared<'static>>(prepared, "prepared")?;
        if bytes > prepared.bytes_mut().len() {
            return Err(Failed::new(guard::ARGUMENT, "so many bytes were not prepared; the request is abandoned"));
        }
        Ok(prepared.commit_words(handler, &words, bytes)?)
    })
}

pub extern "C" fn abandon(prepared: *mut Handle) -> c_int {
    guarded(|| take::<Prepared<'static>>(prepared, "prepared").map(drop))
}
