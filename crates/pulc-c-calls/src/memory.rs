//! This library's own functions: memory that job-mates read, loans and views. Each is a guard, a conversion, one call, a mapping.

use crate::guard::{self, Failed, guarded};
use crate::machine::store;
use crate::ports::bytes_of_mut;
use crate::raw::channel_of;
use crate::table::{ChannelHandle, LoanHandle, ViewHandle};
use pulc::rawdata::{Loan, View};
use std::ffi::{c_int, c_void};
use std::time::Duration;

pub extern "C" fn alloc(bytes: usize, memory: *mut *mut c_void) -> c_int {
    guarded(|| {
        if memory.is_null() {
            return Err(Failed::null("memory"));
        }
        store(memory, pulc::alloc_address(bytes)?.cast(), "memory")
    })
}

pub extern "C" fn free(memory: *mut c_void) -> c_int {
    guarded(|| {
        if !memory.is_null() && !pulc::free_address(memory.cast()) {
            return Err(Failed::new(guard::ARGUMENT, "no memory of pulc_alloc begins there"));
        }
        Ok(())
    })
}

pub extern "C" fn loan(
    channel: *mut ChannelHandle,
    bytes: usize,
    loan: *mut *mut LoanHandle,
    data: *mut *mut c_void,
) -> c_int {
    guarded(|| {
        if loan.is_null() || data.is_null() {
            return Err(Failed::null("loan or data"));
        }
        let mut made = channel_of(channel)?.loan(bytes)?;
        store(data, made.as_mut_ptr().cast(), "data")?;
        store(loan, Box::into_raw(Box::new(made)).cast(), "loan")
    })
}

/// The loan that a handle stands for, which it does no longer.
fn take_loan(loan: *mut LoanHandle) -> Result<Loan, Failed> {
    if loan.is_null() {
        return Err(Failed::null("loan"));
    }
    // SAFETY: made by `loan` with `Box::into_raw`; the caller gives it back exactly once, by sending or dropping it.
    Ok(*unsafe { Box::from_raw(loan.cast::<Loan>()) })
}

pub extern "C" fn send_loan(channel: *mut ChannelHandle, loan: *mut LoanHandle, timeout_us: i64) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        let loan = take_loan(loan)?;
        match timeout_us {
            ..0 => channel.send_loan(loan)?,
            _ => channel.send_loan_timeout(loan, Duration::from_micros(timeout_us.unsigned_abs()))?,
        }
        Ok(())
    })
}

pub extern "C" fn drop_loan(loan: *mut LoanHandle) -> c_int {
    guarded(|| take_loan(loan).map(drop))
}

fn view_of<'a>(view: *const ViewHandle) -> Result<&'a View, Failed> {
    // SAFETY: null, or made by `recv_view` and not dropped yet, as the caller promises.
    unsafe { view.cast::<View>().as_ref() }.ok_or_else(|| Failed::null("view"))
}

pub extern "C" fn recv_view(
    channel: *mut ChannelHandle,
    timeout_us: i64,
    view: *mut *mut ViewHandle,
    len: *mut usize,
) -> c_int {
    guarded(|| {
        let channel = channel_of(channel)?;
        if view.is_null() || len.is_null() {
            return Err(Failed::null("view or len"));
        }
        let received = match timeout_us {
            ..0 => channel.recv_view()?,
            _ => channel.recv_view_timeout(Duration::from_micros(timeout_us.unsigned_abs()))?,
        };
        store(len, received.len(), "len")?;
        store(view, Box::into_raw(Box::new(received)).cast(), "view")
    })
}

pub extern "C" fn view_copy(view: *const ViewHandle, offset: usize, buffer: *mut c_void, bytes: usize) -> c_int {
    guarded(|| {
        let view = view_of(view)?;
        let buffer = bytes_of_mut(buffer, bytes)?;
        if offset > view.len() || bytes > view.len() - offset {
            let text = format!("{bytes} bytes from {offset} lie outside a message of {}", view.len());
            return Err(Failed { code: guard::ARGUMENT, text });
        }
        view.copy_to(offset, buffer);
        Ok(())
    })
}

pub extern "C" fn view_data(view: *const ViewHandle) -> *const c_void {
    view_of(view).map_or(std::ptr::null(), |view| view.as_ptr().cast())
}

pub extern "C" fn view_drop(view: *mut ViewHandle) -> c_int {
    guarded(|| {
        view_of(view)?;
        // SAFETY: made by `recv_view` with `Box::into_raw`; the caller gives it back exactly once.
        drop(unsafe { Box::from_raw(view.cast::<View>()) });
        Ok(())
    })
}
