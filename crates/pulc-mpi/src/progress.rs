//! A thread that makes progress while the program computes, where `PULC_PROGRESS=thread` asks for one: long messages move and nonblocking
//! collectives go on between a call that begins them and the one that waits. It waits like any thread of MPI, so it sleeps while nothing
//! happens; every message that comes meanwhile wakes it, which is why it is not there unasked. Called by `world`; must never hold the
//! engine while it sleeps.

use crate::request;
use crate::watch::For;
use pulc_handler::Process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

const VARIABLE: &str = "PULC_PROGRESS";

static HELPER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static STOP: AtomicBool = AtomicBool::new(false);

/// Starts the thread if it is wanted. A process that cannot have one goes on without.
pub(crate) fn start(process: &'static Process) {
    match std::env::var(VARIABLE).as_deref() {
        Ok("thread") => {}
        Ok("" | "calls") | Err(_) => return,
        Ok(other) => {
            pulc_base::log!(Warn, "mpi", "{VARIABLE}={other} is neither calls nor thread; progress is made in calls");
            return;
        }
    }
    match std::thread::Builder::new().name("pulc-progress".into()).spawn(move || help(process)) {
        Ok(helper) => *HELPER.lock().unwrap_or_else(PoisonError::into_inner) = Some(helper),
        Err(error) => pulc_base::log!(Warn, "mpi", "no thread for progress, it is made in calls: {error}"),
    }
}

fn help(process: &'static Process) {
    let guard = process.lock();
    let ((), _guard) = request::wait_until(process, guard, For::Own, |_| STOP.load(Ordering::Relaxed).then_some(()));
}

/// Ends it, before the engine is left alone.
pub(crate) fn stop(process: &Process) {
    let Some(helper) = HELPER.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    STOP.store(true, Ordering::Relaxed);
    // The lock orders the word before the thread's next look at it.
    process.announce(&process.lock());
    let _ = helper.join();
}
