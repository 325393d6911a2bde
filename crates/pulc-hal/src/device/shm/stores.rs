//! Which stores fill a slot: ordinary ones, or streaming ones that go past the caches. Two cores that share a cache are
//! twice as fast with ordinary stores; two cores that do not are twice as fast with streaming ones (measured in
//! `docs/adr/0002`), and a virtual machine does not tell which of them it has at the moment. So each pair finds out: now and
//! then a fill is timed, now and then one of the other kind is tried. Used by `pair`.

use crate::os::copy::Stores;

/// One fill in so many is timed.
const TIME_EVERY: u32 = 16;
/// One timed fill in so many is of the other kind.
const TRY_OTHER_EVERY: u32 = 16;
/// Fills shorter than this are never timed, and always ordinary.
const BYTES_MIN: usize = 8192;
/// Samples of each kind of which the best one counts: preemption only ever makes a fill slower.
const SAMPLES: usize = 4;

/// The choice of one pair.
pub struct Chooser {
    now: Stores,
    fills: u32,
    ordinary: Samples,
    streaming: Samples,
}

/// Ticks per KiB of the last few fills of one kind.
struct Samples {
    last: [u64; SAMPLES],
    next: usize,
}

/// What to do with one fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    pub stores: Stores,
    pub timed: bool,
}

impl Chooser {
    pub fn new() -> Chooser {
        let unknown = || Samples { last: [u64::MAX; SAMPLES], next: 0 };
        Chooser { now: Stores::Ordinary, fills: 0, ordinary: unknown(), streaming: unknown() }
    }

    #[inline]
    pub fn choose(&mut self, bytes: usize) -> Choice {
        if bytes < BYTES_MIN {
            return Choice { stores: Stores::Ordinary, timed: false };
        }
        self.fills = self.fills.wrapping_add(1);
        if !self.fills.is_multiple_of(TIME_EVERY) {
            return Choice { stores: self.now, timed: false };
        }
        let other = (self.fills / TIME_EVERY).is_multiple_of(TRY_OTHER_EVERY);
        let stores = match (self.now, other) {
            (Stores::Ordinary, false) | (Stores::Streaming, true) => Stores::Ordinary,
            _ => Stores::Streaming,
        };
        Choice { stores, timed: true }
    }

    /// What a timed fill took.
    pub fn learn(&mut self, stores: Stores, bytes: usize, ticks: u64) {
        let samples = match stores {
            Stores::Ordinary => &mut self.ordinary,
            Stores::Streaming => &mut self.streaming,
        };
        samples.last[samples.next] = ticks.saturating_mul(1024) / bytes.max(1) as u64;
        samples.next = (samples.next + 1) % SAMPLES;
        let (ordinary, streaming) = (self.ordinary.best(), self.streaming.best());
        // The reader gains from ordinary stores too where the cores share a cache: streaming must be twice as fast.
        let limit = ordinary / 2;
        self.now = if streaming < limit { Stores::Streaming } else { Stores::Ordinary };
    }
}

impl Samples {
    fn best(&self) -> u64 {
        self.last.into_iter().min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs fills that take so many ticks per KiB and returns the share of streaming ones among the last.
    fn run(chooser: &mut Chooser, ordinary: u64, streaming: u64) -> usize {
        let mut count = 0;
        for fill in 0..4096 {
            let choice = chooser.choose(16 << 10);
            count += usize::from(fill >= 3072 && choice.stores == Stores::Streaming);
            if choice.timed {
                let cost = if choice.stores == Stores::Ordinary { ordinary } else { streaming };
                // Every third one is preempted.
                let cost = if fill % 48 == 0 { cost * 100 } else { cost };
                chooser.learn(choice.stores, 16 << 10, cost * 16);
            }
        }
        count
    }

    #[test]
    fn the_faster_kind_wins_and_the_choice_follows_when_the_host_moves_a_core() {
        let mut chooser = Chooser::new();
        assert!(run(&mut chooser, 60, 150) < 20, "near cores");
        assert!(run(&mut chooser, 400, 150) > 1000, "far cores");
        assert!(run(&mut chooser, 60, 150) < 20, "near again");
        assert!(run(&mut chooser, 280, 150) < 20, "no gain worth it");
    }

    #[test]
    fn short_fills_are_ordinary_and_never_timed() {
        let mut chooser = Chooser::new();
        for _ in 0..1000 {
            assert_eq!(chooser.choose(4000), Choice { stores: Stores::Ordinary, timed: false });
        }
    }
}
