//! Names of ports elsewhere, and what a receive accepts. Plain values; nothing here communicates.

use pulc_base::Rank;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The port called `name` of process `rank`. Finding the port happens at the first send and is remembered inside, so keep
/// and reuse an address instead of making a new one for every message.
#[derive(Clone)]
pub struct Address {
    rank: Rank,
    name: Arc<str>,
    /// Number of the port in the lower half, in the upper half one more than the epoch it was found in; zero: not yet.
    found: Arc<AtomicU64>,
}

impl Address {
    pub fn new(rank: Rank, name: &str) -> Address {
        Address { rank, name: name.into(), found: Arc::new(AtomicU64::new(0)) }
    }

    pub fn rank(&self) -> Rank {
        self.rank
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The port's number, if it was found in this epoch.
    #[inline]
    pub(crate) fn number(&self, epoch: u32) -> Option<u32> {
        let found = self.found.load(Ordering::Relaxed);
        (found >> 32 == u64::from(epoch) + 1).then_some(found as u32)
    }

    pub(crate) fn remember(&self, number: u32, epoch: u32) {
        self.found.store((u64::from(epoch) + 1) << 32 | u64::from(number), Ordering::Relaxed);
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rank, self.name)
    }
}

/// Whose messages a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    Any,
    Rank(Rank),
}

/// Which tags a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    Any,
    Tag(u64),
}
