//! Names of ports elsewhere, and what a receive accepts. Plain values; nothing here communicates.

use pulc_base::Rank;
use std::fmt;
use std::sync::Arc;

/// The port called `name` of process `rank`. Finding the port happens at the first send and is remembered inside, so keep
/// and reuse an address instead of making a new one for every message.
#[derive(Clone)]
pub struct Address {
    rank: Rank,
    name: Arc<str>,
}

impl Address {
    pub fn new(rank: Rank, name: &str) -> Address {
        Address { rank, name: name.into() }
    }

    pub fn rank(&self) -> Rank {
        self.rank
    }

    pub fn name(&self) -> &str {
        &self.name
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
