//! This library's own functions: one message to many ports, and ports that move. Each is a guard, a conversion, one call, a
//! mapping.

use crate::am::{give, patience, take, thing_of};
use crate::guard::{self, Failed, guarded};
use crate::machine::pulc;
use crate::ports::{bytes_of, check_buffer, port_of, text_of};
use crate::table::{AddressHandle, MembersHandle, PortHandle};
use pulc::{Address, Members, Port, Rank};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Sends with one set of members take turns: each leaves its outcomes in it.
type Shared = Mutex<Members>;

pub extern "C" fn members_new(
    addresses: *const *const AddressHandle,
    count: usize,
    members: *mut *mut MembersHandle,
) -> c_int {
    guarded(|| {
        check_buffer(addresses.cast(), count.saturating_mul(size_of::<usize>()))?;
        if members.is_null() {
            return Err(Failed::null("members"));
        }
        let handles = match count {
            0 => &[][..],
            // SAFETY: not null (checked above); the caller promises `count` handles.
            _ => unsafe { std::slice::from_raw_parts(addresses, count) },
        };
        let addresses: Vec<Address> =
            handles.iter().map(|handle| thing_of::<Address>(*handle, "address").cloned()).collect::<Result<_, _>>()?;
        give(members, Shared::new(Members::new(addresses)?), "members")
    })
}

pub extern "C" fn members_free(members: *mut MembersHandle) -> c_int {
    guarded(|| {
        drop(take::<Shared>(members.cast::<c_void>(), "members")?);
        Ok(())
    })
}

pub extern "C" fn send_many(
    port: *mut PortHandle,
    members: *mut MembersHandle,
    tag: u64,
    data: *const c_void,
    bytes: usize,
    timeout_us: i64,
    statuses: *mut c_int,
) -> c_int {
    guarded(|| {
        let port = port_of(port)?;
        let members = thing_of::<Shared>(members, "members")?;
        let data = bytes_of(data, bytes)?;
        // It holds outcomes only: whatever a panic left is written anew.
        let mut members = members.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = match timeout_us {
            ..0 => port.send_many(&mut members, tag, data),
            _ => port.send_many_timeout(&mut members, tag, data, Duration::from_micros(timeout_us.unsigned_abs())),
        };
        if !statuses.is_null() && matches!(sent, Ok(()) | Err(pulc::Error::SomeFailed { .. })) {
            for (index, (_, outcome)) in members.outcomes().enumerate() {
                let code = outcome.err().map_or(guard::OK, |error| Failed::from(error.clone()).code);
                // SAFETY: not null; the caller promises room for one status of each member.
                unsafe { statuses.add(index).write(code) };
            }
        }
        Ok(sent?)
    })
}

pub extern "C" fn port_transfer(port: *mut PortHandle, rank: u32, timeout_us: i64) -> c_int {
    guarded(|| {
        port_of(port)?;
        let place = port.cast::<Port>();
        // SAFETY: made by `open` or `port_adopt` with `Box::into_raw`; the caller uses it nowhere else during this call. The value
        // moves out here, and back below if it stays.
        let moving = unsafe { place.read() };
        match moving.transfer(Rank(rank), patience(timeout_us)) {
            Ok(()) => {
                // SAFETY: the memory of the Box, whose value is gone.
                drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<Port>>()) });
                Ok(())
            }
            Err((stays, error)) => {
                // SAFETY: the place that the value was moved out of.
                unsafe { place.write(stays) };
                Err(Failed::from(error))
            }
        }
    })
}

pub extern "C" fn port_adopt(rank: u32, name: *const c_char, timeout_us: i64, port: *mut *mut PortHandle) -> c_int {
    guarded(|| {
        let name = text_of(name, "name")?;
        if port.is_null() {
            return Err(Failed::null("port"));
        }
        give(port, pulc()?.adopt_port(Rank(rank), name, patience(timeout_us))?, "port")
    })
}
