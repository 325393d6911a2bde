//! What every function of this door is wrapped in: no panic crosses it, errors become codes, and the words of the last error
//! stay for the thread that caused it.

use pulc::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub const OK: c_int = 0;
pub const ATTACH: c_int = -1;
pub const NOT_ATTACHED: c_int = -2;
pub const FORKED: c_int = -3;
pub const RANK: c_int = -4;
pub const NAME: c_int = -5;
pub const TOO_MANY: c_int = -6;
pub const UNKNOWN_PORT: c_int = -7;
pub const TOO_LARGE: c_int = -8;
pub const TRUNCATE: c_int = -9;
pub const PEER_GONE: c_int = -10;
pub const TIMEOUT: c_int = -11;
pub const MEMORY: c_int = -12;
pub const DESCRIPTORS: c_int = -13;
pub const ARGUMENT: c_int = -14;
pub const VERSION: c_int = -15;
pub const SYSTEM: c_int = -16;
pub const INTERNAL: c_int = -17;
pub const TAG: c_int = -18;
pub const IN_HANDLER: c_int = -19;
pub const MEMBERS: c_int = -20;
pub const NOT_TAKEN: c_int = -21;

/// A failed call: its code and what to tell.
pub struct Failed {
    pub code: c_int,
    pub text: String,
}

impl Failed {
    pub fn new(code: c_int, text: &str) -> Failed {
        Failed { code, text: text.to_owned() }
    }

    pub fn null(what: &str) -> Failed {
        Failed { code: ARGUMENT, text: format!("{what} is a null pointer") }
    }
}

impl From<Error> for Failed {
    #[cold]
    fn from(error: Error) -> Failed {
        let code = match &error {
            Error::Attach(_) => ATTACH,
            Error::Forked { .. } => FORKED,
            Error::NoSuchRank { .. } => RANK,
            Error::BadName { .. } | Error::NameTaken { .. } | Error::ChannelTaken { .. } => NAME,
            Error::TooManyPorts { .. } | Error::TooManyPosts { .. } => TOO_MANY,
            Error::UnknownPort { .. } | Error::UnknownEndpoint { .. } => UNKNOWN_PORT,
            Error::MessageTooLarge { .. } => TOO_LARGE,
            Error::BufferTooSmall { .. } => TRUNCATE,
            Error::PeerGone { .. } => PEER_GONE,
            Error::Timeout => TIMEOUT,
            Error::NoMemory(_) => MEMORY,
            Error::NoDescriptors(_) => DESCRIPTORS,
            Error::BadSelect | Error::NoMembers | Error::BadOpcode | Error::BadDescriptor { .. } => ARGUMENT,
            Error::TagRefused { .. } => TAG,
            Error::InHandler => IN_HANDLER,
            Error::SomeFailed { .. } => MEMBERS,
            Error::NotTaken { .. } => NOT_TAKEN,
            _ => SYSTEM,
        };
        Failed { code, text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs a body of this door.
#[inline]
pub fn guarded(body: impl FnOnce() -> Result<(), Failed>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(failed)) => remember(failed),
        Err(_) if pulc::am::in_leaf_handler() => {
            remember(Failed::new(IN_HANDLER, "a leaf handler calls nothing of PULC but pulc_am_reply"))
        }
        Err(_) => remember(Failed::new(INTERNAL, "a defect in PULC (its words are on standard error)")),
    }
}

#[cold]
fn remember(failed: Failed) -> c_int {
    let text: Vec<u8> = failed.text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    // A thread that is ending has no last error any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    failed.code
}

/// The words of this thread's last error.
pub extern "C" fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What a code means.
pub fn meaning(code: c_int) -> &'static std::ffi::CStr {
    match code {
        OK => c"success",
        ATTACH => c"the job could not be joined",
        NOT_ATTACHED => c"pulc_attach has not been called",
        FORKED => c"this process is a fork of the one that attached",
        RANK => c"no such rank or node",
        NAME => c"bad or taken name",
        TOO_MANY => c"too many ports or posted buffers",
        UNKNOWN_PORT => c"the receiver has not opened a port or endpoint of that name in time",
        TOO_LARGE => c"message too large",
        TRUNCATE => c"buffer too small; the message is kept",
        PEER_GONE => c"the other process has ended",
        TIMEOUT => c"nothing happened in time",
        MEMORY => c"out of memory",
        DESCRIPTORS => c"out of file descriptors",
        ARGUMENT => c"bad argument",
        VERSION => c"an older PULC in this process lacks this function",
        SYSTEM => c"system error",
        INTERNAL => c"a defect in PULC",
        TAG => c"the endpoint has another tag",
        IN_HANDLER => c"handlers must not block",
        MEMBERS => c"some members did not get the message",
        NOT_TAKEN => c"the other process does not take the port",
        _ => c"no such error code",
    }
}
