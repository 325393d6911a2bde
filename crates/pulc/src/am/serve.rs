//! A thread that runs the handlers of a bundle while the program computes. It sleeps on the doorbell of the process like any
//! thread that waits, and is stopped by whoever started it. Must never outlive its [`Server`].

use super::bundle::Inner;
use super::send;
use crate::Error;
use pulc_base::clock::{self, Nanos};
use pulc_handler::{Hand, Watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A bundle being served. Stops when dropped.
pub struct Server {
    inner: Arc<Inner>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Longest sleep in one piece; a word to stop wakes the thread before.
const NAP: Nanos = Nanos::from_ms(1000);

impl Server {
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<Server, Error> {
        let (stop, bundle) = (Arc::new(AtomicBool::new(false)), Arc::clone(inner));
        let thread = std::thread::Builder::new().name("pulc-am".into()).spawn({
            let stop = Arc::clone(&stop);
            move || serve(&bundle, &stop)
        });
        let thread = thread.map_err(|error| Error::System(format!("cannot start a thread: {error}")))?;
        Ok(Server { inner: Arc::clone(inner), stop, thread: Some(thread) })
    }

    /// Stops the thread; a handler that runs is waited for.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        // In a fork there is no such thread.
        if self.inner.process.check_fork().is_err() || thread.thread().id() == std::thread::current().id() {
            return;
        }
        // The lock orders the word before the thread's next look at it.
        self.inner.process.announce(&self.inner.process.lock());
        let _ = thread.join();
    }
}

fn serve(inner: &Inner, stop: &AtomicBool) {
    let stopped = || stop.load(Ordering::Relaxed) || inner.process.check_fork().is_err();
    while !stopped() {
        let guard = inner.process.lock();
        let nap = Some(clock::now() + NAP);
        let (_, guard) = inner.process.wait(guard, &mut Hand::empty(), nap, Watch::News, |engine, _| {
            (stop.load(Ordering::Relaxed) || send::table(engine).is_ready(inner.number)).then_some(())
        });
        if stopped() {
            return;
        }
        // A handler that panics has been cleaned up after; the others still want to be served.
        if catch_unwind(AssertUnwindSafe(|| drop(inner.run_queued(guard).1))).is_err() {
            pulc_base::log!(Error, "am", "a handler panicked in the serving thread; its request went back");
        }
    }
}
