//! This library's own functions: bundles, the threads that serve them, events. Each is a guard, a conversion, one call, a
//! mapping.

use super::{Handle, give, patience, take, thing_of};
use crate::guard::{self, Failed, guarded};
use crate::machine::{pulc, store};
use pulc::am::{Bundle, Event, Mode, Server};
use std::ffi::c_int;

/// As in `pulc_am.h`.
#[repr(C)]
pub struct CTally {
    pub requests: u64,
    pub replies: u64,
    pub acks: u64,
    pub handled: u64,
    pub returned: u64,
    pub again: u64,
    pub strays: u64,
}

const _: () = assert!(size_of::<CTally>() == 56);

pub extern "C" fn bundle_new(mode: c_int, bundle: *mut *mut Handle) -> c_int {
    guarded(|| {
        let mode = match mode {
            0 => Mode::Sequential,
            1 => Mode::Parallel,
            _ => return Err(Failed::new(guard::ARGUMENT, "the mode is neither PULC_AM_SEQ nor PULC_AM_PAR")),
        };
        give(bundle, Bundle::new(pulc()?, mode)?, "bundle")
    })
}

pub extern "C" fn bundle_free(bundle: *mut Handle) -> c_int {
    guarded(|| take::<Bundle>(bundle, "bundle").map(drop))
}

fn ran_into(ran: *mut usize, count: usize) -> Result<(), Failed> {
    if ran.is_null() { Ok(()) } else { store(ran, count, "ran") }
}

pub extern "C" fn poll(bundle: *mut Handle, ran: *mut usize) -> c_int {
    guarded(|| ran_into(ran, thing_of::<Bundle>(bundle, "bundle")?.poll()?))
}

pub extern "C" fn wait(bundle: *mut Handle, timeout_us: i64, ran: *mut usize) -> c_int {
    guarded(|| ran_into(ran, thing_of::<Bundle>(bundle, "bundle")?.wait(patience(timeout_us))?))
}

pub extern "C" fn serve(bundle: *mut Handle, server: *mut *mut Handle) -> c_int {
    guarded(|| {
        if server.is_null() {
            return Err(Failed::null("server"));
        }
        give(server, thing_of::<Bundle>(bundle, "bundle")?.serve()?, "server")
    })
}

pub extern "C" fn server_stop(server: *mut Handle) -> c_int {
    guarded(|| take::<Server>(server, "server").map(|server| server.stop()))
}

pub extern "C" fn tally(bundle: *mut Handle, tally: *mut CTally) -> c_int {
    guarded(|| {
        let now = thing_of::<Bundle>(bundle, "bundle")?.tally();
        let told = CTally {
            requests: now.requests,
            replies: now.replies,
            acks: now.acks,
            handled: now.handled,
            returned: now.returned,
            again: now.again,
            strays: now.strays,
        };
        store(tally, told, "tally")
    })
}

fn outcome_of(outcome: Option<bool>) -> c_int {
    match outcome {
        None => 0,
        Some(true) => 1,
        Some(false) => -1,
    }
}

pub extern "C" fn event_test(event: *mut Handle, outcome: *mut c_int) -> c_int {
    guarded(|| store(outcome, outcome_of(thing_of::<Event>(event, "event")?.outcome()), "outcome"))
}

pub extern "C" fn event_wait(bundle: *mut Handle, event: *mut Handle, timeout_us: i64, outcome: *mut c_int) -> c_int {
    guarded(|| {
        let (bundle, event) = (thing_of::<Bundle>(bundle, "bundle")?, thing_of::<Event>(event, "event")?);
        let went_well = bundle.wait_event(event, patience(timeout_us))?;
        if outcome.is_null() { Ok(()) } else { store(outcome, outcome_of(Some(went_well)), "outcome") }
    })
}

pub extern "C" fn event_free(event: *mut Handle) -> c_int {
    guarded(|| take::<Event>(event, "event").map(drop))
}
