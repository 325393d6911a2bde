//! The event loop of a psid: one thread, made here and nowhere else. Called by the daemon, the embedded psid and `pulc join`.
//! Never panics for want of descriptors, as the loop itself would.

use crate::error::Error;
use tokio::runtime::{Builder, Runtime};

/// What the event loop, the first client's line and the first keeper need.
const DESCRIPTORS: usize = 16;

/// # Errors
/// When no descriptors or threads are to be had.
pub fn start() -> Result<Runtime, Error> {
    let failed = || Error::io("cannot start the event loop of psid");
    let null = std::fs::File::open("/dev/null").map_err(failed())?;
    let room: Result<Vec<_>, _> = (0..DESCRIPTORS).map(|_| null.try_clone()).collect();
    room.map_err(failed())?;
    Builder::new_current_thread().enable_all().build().map_err(failed())
}
