//! This library's own functions: ports. Each is a guard, a conversion, one call, a mapping.

use crate::guard::{self, Failed, guarded};
use crate::machine::{pulc, store};
use crate::table::{AddressHandle, CEnvelope, PortHandle};
use pulc::{Address, Envelope, Error, From, Match, Mode, Port, Rank};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

const ANY_SOURCE: u32 = u32::MAX;

/// A C string as text.
pub fn text_of<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(Failed::null(what));
    }
    // SAFETY: not null; the caller of the C function promises a string that ends in NUL and lives during the call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failed::new(guard::NAME, "the name is not UTF-8"))
}

#[inline]
pub fn port_of<'a>(port: *mut PortHandle) -> Result<&'a Port, Failed> {
    // SAFETY: null, or made by `open` of this table and not closed yet, as the caller promises.
    unsafe { port.cast::<Port>().as_ref() }.ok_or_else(|| Failed::null("port"))
}

pub extern "C" fn open(name: *const c_char, mode: c_int, port: *mut *mut PortHandle) -> c_int {
    guarded(|| {
        let name = text_of(name, "name")?;
        let mode = match mode {
            0 => Mode::Ordered,
            1 => Mode::Datagram,
            _ => return Err(Failed::new(guard::ARGUMENT, "the mode is neither PULC_ORDERED nor PULC_DATAGRAM")),
        };
        if port.is_null() {
            return Err(Failed::null("port"));
        }
        let opened = pulc()?.open_port_with(name, mode)?;
        store(port, Box::into_raw(Box::new(opened)).cast(), "port")
    })
}

pub extern "C" fn close(port: *mut PortHandle) -> c_int {
    guarded(|| {
        port_of(port)?;
        // SAFETY: made by `open` with `Box::into_raw`; the caller gives it back exactly once.
        drop(unsafe { Box::from_raw(port.cast::<Port>()) });
        Ok(())
    })
}

pub extern "C" fn dropped(port: *mut PortHandle, dropped: *mut u64) -> c_int {
    guarded(|| store(dropped, port_of(port)?.dropped(), "dropped"))
}

pub extern "C" fn address_new(rank: u32, name: *const c_char, address: *mut *mut AddressHandle) -> c_int {
    guarded(|| {
        let name = text_of(name, "name")?;
        if address.is_null() {
            return Err(Failed::null("address"));
        }
        let made = Address::new(Rank(rank), name);
        store(address, Box::into_raw(Box::new(made)).cast(), "address")
    })
}

pub extern "C" fn address_free(address: *mut AddressHandle) -> c_int {
    guarded(|| {
        if address.is_null() {
            return Err(Failed::null("address"));
        }
        // SAFETY: made by `address_new` with `Box::into_raw`; the caller gives it back exactly once.
        drop(unsafe { Box::from_raw(address.cast::<Address>()) });
        Ok(())
    })
}

pub extern "C" fn send(
    port: *mut PortHandle,
    to: *const AddressHandle,
    tag: u64,
    data: *const c_void,
    bytes: usize,
    timeout_us: i64,
) -> c_int {
    guarded(|| {
        let port = port_of(port)?;
        // SAFETY: null, or made by `address_new` of this table and not freed yet, as the caller promises.
        let to = unsafe { to.cast::<Address>().as_ref() }.ok_or_else(|| Failed::null("to"))?;
        let data = bytes_of(data, bytes)?;
        match timeout_us {
            ..0 => port.send(to, tag, data)?,
            _ => port.send_timeout(to, tag, data, Duration::from_micros(timeout_us.unsigned_abs()))?,
        }
        Ok(())
    })
}

pub extern "C" fn recv(
    port: *mut PortHandle,
    src: u32,
    tag: *const u64,
    buffer: *mut c_void,
    bytes: usize,
    timeout_us: i64,
    envelope: *mut CEnvelope,
) -> c_int {
    guarded(|| {
        let port = port_of(port)?;
        let buffer = bytes_of_mut(buffer, bytes)?;
        let from = if src == ANY_SOURCE { From::Any } else { From::Rank(Rank(src)) };
        // SAFETY: null or a tag of the caller's, who promises that it is readable.
        let tag = unsafe { tag.as_ref() }.map_or(Match::Any, |tag| Match::Tag(*tag));
        let received = match timeout_us {
            ..0 => port.recv(from, tag, buffer),
            0 => port.try_recv(from, tag, buffer).and_then(|received| received.ok_or(Error::Timeout)),
            _ => port.recv_timeout(from, tag, buffer, Duration::from_micros(timeout_us.unsigned_abs())),
        };
        let told = match &received {
            Ok(Envelope { src, tag, len }) => Some((src.0, *tag, *len)),
            Err(Error::BufferTooSmall { needed, .. }) => Some((ANY_SOURCE, 0, *needed)),
            Err(_) => None,
        };
        if let (Some((src, tag, len)), false) = (told, envelope.is_null()) {
            store(envelope, CEnvelope { tag, len: len as u64, src, reserved: 0 }, "envelope")?;
        }
        received?;
        Ok(())
    })
}

pub extern "C" fn select(ports: *const *mut PortHandle, count: usize, timeout_us: i64, index: *mut usize) -> c_int {
    guarded(|| {
        check_buffer(ports.cast(), count.saturating_mul(size_of::<usize>()))?;
        let handles = match count {
            0 => &[][..],
            // SAFETY: not null; the caller promises `count` handles.
            _ => unsafe { std::slice::from_raw_parts(ports, count) },
        };
        let ports: Vec<&Port> = handles.iter().map(|handle| port_of(*handle)).collect::<Result<_, _>>()?;
        let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
        store(index, pulc::select(&ports, timeout)?, "index")
    })
}

/// The caller's message, for the time of one call.
#[inline]
pub fn bytes_of<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], Failed> {
    check_buffer(data, bytes)?;
    Ok(match bytes {
        0 => &[],
        // SAFETY: not null, not absurdly long (checked above); the caller promises `bytes` readable bytes that nobody
        // changes during the call.
        _ => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) },
    })
}

/// The caller's buffer, for the time of one call.
#[inline]
pub fn bytes_of_mut<'a>(buffer: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Failed> {
    check_buffer(buffer, bytes)?;
    Ok(match bytes {
        0 => &mut [],
        // SAFETY: not null, not absurdly long (checked above); the caller promises `bytes` writable bytes that nobody
        // else touches during the call.
        _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), bytes) },
    })
}

#[inline]
pub fn check_buffer(buffer: *const c_void, bytes: usize) -> Result<(), Failed> {
    if buffer.is_null() && bytes > 0 {
        return Err(Failed::null("buffer"));
    }
    if isize::try_from(bytes).is_err() {
        return Err(Failed::new(guard::ARGUMENT, "the length is larger than any memory"));
    }
    Ok(())
}
