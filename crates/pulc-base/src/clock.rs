//! Monotonic time as plain nanoseconds, so that engines without a clock can be handed `now`. Wall-clock time is never
//! used for a timeout anywhere in PULC.

use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Nanoseconds since an arbitrary point of this process's life. Comparable only inside one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Nanos(pub u64);

/// Now, from the monotonic clock (about 20 ns a call).
pub fn now() -> Nanos {
    static START: OnceLock<Instant> = OnceLock::new();
    Nanos(START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

impl Nanos {
    pub const MAX: Nanos = Nanos(u64::MAX);

    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// Time from `earlier` to `self`, zero when the order is reversed.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    pub fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        self.since(rhs)
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Nanos {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}
