//! The word that something goes on with a job's files, for those who wait. Not said more often than they need.

use super::{TICK, lock};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Says that something goes on, at most every [`TICK`].
#[derive(Clone)]
pub struct Ticker {
    last: Arc<Mutex<Instant>>,
    say: Arc<dyn Fn() + Send + Sync>,
}

impl Ticker {
    pub fn new(say: impl Fn() + Send + Sync + 'static) -> Ticker {
        Ticker { last: Arc::new(Mutex::new(Instant::now())), say: Arc::new(say) }
    }

    pub fn tick(&self) {
        let mut last = lock(&self.last);
        if last.elapsed() >= TICK {
            *last = Instant::now();
            (self.say)();
        }
    }
}
