//! The thread that writes the log: it takes all records that wait, writes them with one sync, and says up to which one they are on disk.
//! A disk that is full or broken is tried again until it takes them; nothing is told to anybody meanwhile. Called by `controller`.

use crate::error::Error;
use pulc_base::log;
use pulc_sched::Journal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Between two attempts to write to a disk that refuses.
const AGAIN: Duration = Duration::from_millis(500);
/// Records of one sync.
const BATCH: usize = 4096;

pub struct Disk {
    records: std::sync::mpsc::Sender<Vec<u8>>,
    sent: u64,
    pub written: watch::Receiver<u64>,
    failing: Arc<AtomicBool>,
}

impl Disk {
    /// # Errors
    /// When no thread can be had.
    pub fn start(journal: Journal) -> Result<Disk, Error> {
        let (records, queue) = std::sync::mpsc::channel();
        let (done, written) = watch::channel(0);
        let failing = Arc::new(AtomicBool::new(false));
        let flag = failing.clone();
        std::thread::Builder::new()
            .name("queue-log".to_owned())
            .spawn(move || write(journal, &queue, &done, &flag))
            .map_err(Error::io("cannot start the thread that writes the queue's log"))?;
        Ok(Disk { records, sent: 0, written, failing })
    }

    /// Hands over a record; returns its number.
    pub fn put(&mut self, body: Vec<u8>) -> u64 {
        // The thread ends only when this end is dropped.
        let _ = self.records.send(body);
        self.sent += 1;
        self.sent
    }

    /// Number of the last record handed over.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The disk takes nothing at the moment.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }
}

fn write(
    mut journal: Journal,
    queue: &std::sync::mpsc::Receiver<Vec<u8>>,
    done: &watch::Sender<u64>,
    failing: &AtomicBool,
) {
    let mut count = 0;
    while let Ok(first) = queue.recv() {
        let bodies: Vec<Vec<u8>> = std::iter::once(first).chain(queue.try_iter().take(BATCH)).collect();
        while let Err(error) = journal.append(&bodies) {
            if !failing.swap(true, Ordering::Relaxed) {
                let path = journal.path().display();
                log!(Error, "queue", "{path}: {} jobs wait for the disk: {error}", bodies.len());
            }
            if done.is_closed() {
                return;
            }
            std::thread::sleep(AGAIN);
        }
        failing.store(false, Ordering::Relaxed);
        count += bodies.len() as u64;
        if done.send(count).is_err() {
            return;
        }
    }
}
