//! This library's own functions: rawdata channels. Each is a guard, a conversion, one call, a mapping.

use crate::guard::{self, Failed, guarded};
use crate::machine::{pulc, store};
use crate::ports::{bytes_of, bytes_of_mut, check_buffer};
use crate::table::{CBytes, CLanded, ChannelHandle};
use pulc::rawdata::{Buffer, Channel, select as select_channels};
use pulc::{Error, Rank};
use pulc_hal::os::foreign::ForeignBytes;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Messages that are handed on at a time.
const BATCH: usize = 64;

#[inline]
pub fn channel_of<'a>(channel: *mut ChannelHandle) -> Result<&'a Channel, Failed> {
    // SAFETY: null, or made by `open` of this table and not closed yet, as the caller promises.
    unsafe { channel.cast::<Channel>().as_ref() }.ok_or_else(|| Failed::null("channel"))
}

pub extern "C" fn open(rank: u32, number: u16, channel: *mut *mut ChannelHandle) -> c_int {
    guarded(|| {
        if channel.is_null() {
            return Err(Failed::null("channel"));
        }
        let opened = pulc()?.open_channel(Rank(rank), number)?;
        store(channel, Box::into_raw(Box::new(opened)).cast(), "channel")
    })
}

pub extern "C" fn close(channel: *mut ChannelHandle) -> c_int {
    guarded(|| {
        channel_of(channel)?;
        // SAFETY: made by `open` with `Box::into_raw`; the caller gives it back exactly once.
        drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
        Ok(())
    })
}

pub extern "C" fn send(channel: *mut ChannelHandle, data: *const c_void, bytes: usize, timeout_us: i64) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        let data = bytes_of(data, bytes)?;
        match timeout_us {
            ..0 => channel.send(data)?,
            _ => channel.send_timeout(data, Duration::from_micros(timeout_us.unsigned_abs()))?,
        }
        Ok(())
    })
}

pub extern "C" fn recv(
    channel: *mut ChannelHandle,
    buffer: *mut c_void,
    bytes: usize,
    timeout_us: i64,
    len: *mut usize,
) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        let buffer = bytes_of_mut(buffer, bytes)?;
        let received = match timeout_us {
            ..0 => channel.recv(buffer),
            0 => channel.try_recv(buffer).and_then(|len| len.ok_or(Error::Timeout)),
            _ => channel.recv_timeout(buffer, Duration::from_micros(timeout_us.unsigned_abs())),
        };
        let told = match &received {
            Ok(len) => Some(*len),
            Err(Error::BufferTooSmall { needed, .. }) => Some(*needed),
            Err(_) => None,
        };
        if let (Some(told), false) = (told, len.is_null()) {
            store(len, told, "len")?;
        }
        received?;
        Ok(())
    })
}

pub extern "C" fn send_batch(
    channel: *mut ChannelHandle,
    messages: *const CBytes,
    count: usize,
    timeout_us: i64,
    sent: *mut usize,
) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        check_buffer(messages.cast(), count.saturating_mul(size_of::<CBytes>()))?;
        if sent.is_null() {
            return Err(Failed::null("sent"));
        }
        let messages = match count {
            0 => &[][..],
            // SAFETY: not null; the caller promises `count` of them.
            _ => unsafe { std::slice::from_raw_parts(messages, count) },
        };
        let until = u64::try_from(timeout_us).ok().map(|us| Instant::now() + Duration::from_micros(us));
        let mut left = 0;
        let result = messages.chunks(BATCH).try_for_each(|chunk| {
            let now = send_some(channel, chunk, until)?;
            left += now;
            // What stopped it is met by the next call.
            if now < chunk.len() { Err(None) } else { Ok::<(), Option<Failed>>(()) }
        });
        store(sent, left, "sent")?;
        match result {
            Err(Some(failed)) if left == 0 => Err(failed),
            _ => Ok(()),
        }
    })
}

/// Sends at most [`BATCH`] messages; how many have left.
fn send_some(channel: &Channel, messages: &[CBytes], until: Option<Instant>) -> Result<usize, Failed> {
    let mut slices = [&[][..]; BATCH];
    for (slice, message) in slices.iter_mut().zip(messages) {
        *slice = bytes_of(message.data, message.bytes)?;
    }
    let slices = &slices[..messages.len().min(BATCH)];
    Ok(match until {
        None => channel.send_batch(slices)?,
        Some(until) => channel.send_batch_timeout(slices, until.saturating_duration_since(Instant::now()))?,
    })
}

pub extern "C" fn recv_batch(
    channel: *mut ChannelHandle,
    buffer: *mut c_void,
    bytes: usize,
    lens: *mut usize,
    count: usize,
    timeout_us: i64,
    received: *mut usize,
) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        let buffer = bytes_of_mut(buffer, bytes)?;
        check_buffer(lens.cast(), count.saturating_mul(size_of::<usize>()))?;
        if received.is_null() {
            return Err(Failed::null("received"));
        }
        let lens = match count {
            0 => &mut [][..],
            // SAFETY: not null, not absurdly long (checked above); the caller promises `count` lengths that nobody else touches.
            _ => unsafe { std::slice::from_raw_parts_mut(lens, count) },
        };
        let result = match timeout_us {
            ..0 => channel.recv_batch(buffer, lens),
            0 => channel.try_recv_batch(buffer, lens).and_then(|count| count.ok_or(Error::Timeout)),
            _ => channel.recv_batch_timeout(buffer, lens, Duration::from_micros(timeout_us.unsigned_abs())),
        };
        if let (Err(Error::BufferTooSmall { needed, .. }), Some(first)) = (&result, lens.first_mut()) {
            *first = *needed;
        }
        store(received, *result.as_ref().unwrap_or(&0), "received")?;
        result?;
        Ok(())
    })
}

pub extern "C" fn post(channel: *mut ChannelHandle, buffer: *mut c_void, bytes: usize, token: u64) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        check_buffer(buffer, bytes)?;
        let start = NonNull::new(buffer.cast::<u8>()).unwrap_or(NonNull::dangling());
        // SAFETY: not null, not absurdly long (checked above); the caller promises `bytes` bytes that nobody else touches
        // until the buffer has come back or the channel is closed.
        channel.post(Buffer::Foreign(unsafe { ForeignBytes::new(start, bytes) }), token)?;
        Ok(())
    })
}

pub extern "C" fn landed(channel: *mut ChannelHandle, timeout_us: i64, landed: *mut CLanded) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        if landed.is_null() {
            return Err(Failed::null("landed"));
        }
        let found = match timeout_us {
            ..0 => channel.landed()?,
            0 => channel.try_landed()?.ok_or(Error::Timeout)?,
            _ => channel.landed_timeout(Duration::from_micros(timeout_us.unsigned_abs()))?,
        };
        let buffer = found.buffer.as_ptr().cast_mut().cast::<c_void>();
        let (len, status) = match found.result {
            Ok(len) => (len, guard::OK),
            Err(Error::BufferTooSmall { needed, .. }) => (needed, guard::TRUNCATE),
            Err(error) => (0, Failed::from(error).code),
        };
        store(landed, CLanded { token: found.token, buffer, len: len as u64, status, reserved: 0 }, "landed")
    })
}

pub extern "C" fn select(
    channels: *const *mut ChannelHandle,
    count: usize,
    timeout_us: i64,
    index: *mut usize,
) -> c_int {
    guarded(|| {
        check_buffer(channels.cast(), count.saturating_mul(size_of::<usize>()))?;
        let handles = match count {
            0 => &[][..],
            // SAFETY: not null; the caller promises `count` handles.
            _ => unsafe { std::slice::from_raw_parts(channels, count) },
        };
        let channels: Vec<&Channel> = handles.iter().map(|handle| channel_of(*handle)).collect::<Result<_, _>>()?;
        let timeout = u64::try_from(timeout_us).ok().map(Duration::from_micros);
        store(index, select_channels(&channels, timeout)?, "index")
    })
}
