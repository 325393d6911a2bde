//! Socket addresses of IPv4 and IPv6, between the C library's form and that of the broker. Called by everything that takes or gives one.

use crate::kernel::option;
use libc::{c_int, sockaddr, socklen_t};
use pulc_sockets::message::Place;

/// Of the longest, an IPv6 address.
pub const BYTES: usize = 28;
const IPV4_BYTES: usize = 16;
/// Without the scope, which old programs leave out.
const IPV6_BYTES: usize = 24;

/// An address in the C library's form, if it is one of the two.
pub fn decode(bytes: &[u8]) -> Option<Place> {
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET if bytes.len() >= IPV4_BYTES => Some(Place::v4([bytes[4], bytes[5], bytes[6], bytes[7]], port)),
        libc::AF_INET6 if bytes.len() >= IPV6_BYTES => {
            let mut wide = [0; 16];
            wide.copy_from_slice(&bytes[8..24]);
            Some(Place { address: wide, port })
        }
        _ => None,
    }
}

/// As a socket of IPv4 or of IPv6 has it, and its length.
pub fn encode(place: &Place, is_v6: bool) -> ([u8; BYTES], usize) {
    let mut bytes = [0; BYTES];
    bytes[2..4].copy_from_slice(&place.port.to_be_bytes());
    if is_v6 {
        bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        bytes[8..24].copy_from_slice(&place.address);
        return (bytes, BYTES);
    }
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&place.as_v4().unwrap_or_default());
    (bytes, IPV4_BYTES)
}

/// Whether a socket is one of IPv6.
pub fn is_v6(fd: c_int) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6 as u64)
}

/// What a program has given.
///
/// # Safety
/// `who` points to `wide` readable bytes, or is null.
pub unsafe fn read(who: *const sockaddr, wide: socklen_t) -> Option<Place> {
    if who.is_null() {
        return None;
    }
    let mut bytes = [0; BYTES];
    let len = (wide as usize).min(BYTES);
    // SAFETY: the caller's promise, and room for as many.
    unsafe { std::ptr::copy_nonoverlapping(who.cast::<u8>(), bytes.as_mut_ptr(), len) };
    decode(&bytes[..len])
}

/// Gives a program an address, as much of it as there is room for, and says how long it is.
///
/// # Safety
/// `who` points to `wide` writable bytes, or is null.
pub unsafe fn write(place: &Place, is_v6: bool, who: *mut sockaddr, wide: &mut socklen_t) {
    let (bytes, len) = encode(place, is_v6);
    if !who.is_null() {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), who.cast::<u8>(), len.min(*wide as usize)) };
    }
    *wide = len as socklen_t;
}
