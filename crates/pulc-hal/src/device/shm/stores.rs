//! Which stores fill a slot: ordinary ones, or streaming ones that go past the caches. Two cores that share a cache are
//! twice as fast with ordinary stores; two cores that do not are twice as fast with streaming ones (measured in
//! `docs/adr/0002`), and a virtual machine does not tell which of them it has at the moment. So each pair finds out: now and
//! then a fill is timed, now and then some of the other kind are tried. Used by `pair` and by segments.

use crate::os::copy::Stores;

/// One fill in so many is timed.
const TIME_EVERY: u32 = 16;
/// One timed fill in so many is streaming where ordinary ones are chosen.
const TRY_OTHER_EVERY: u32 = 16;
/// Where streaming ones are chosen, ordinary ones are tried each time that so many bytes were filled, with so many bytes in a row, of which only
/// those behind the first ones are timed. A slot that was last filled past the caches has to come from memory, and an ordinary fill of it is
/// slow whatever the cores are: it says something once all of the pool has been filled with ordinary stores.
const TRIAL_EVERY_BYTES: usize = 64 << 20;
const TRIAL_BYTES: usize = 3 << 20;
const TRIAL_UNTIMED_BYTES: usize = 5 << 19;
/// Fills shorter than this are never timed, and always ordinary.
const BYTES_MIN: usize = 8192;
/// Streaming stores are chosen where ordinary ones take more than so many times as long. Near cores: 1.6 times, and twice as long for both ends
/// together with streaming ones, whose bytes the reader finds in memory; far cores: five times and more.
const WORTH: u64 = 3;
/// Samples of each kind of which the best one counts: preemption only ever makes a fill slower.
const SAMPLES: usize = 4;

/// The choice of one pair.
pub struct Chooser {
    now: Stores,
    fills: u32,
    /// Bytes filled since streaming stores were chosen or the last trial of ordinary ones began.
    since_trial: usize,
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
        Chooser { now: Stores::Ordinary, fills: 0, since_trial: 0, ordinary: unknown(), streaming: unknown() }
    }

    #[inline]
    pub fn choose(&mut self, bytes: usize) -> Choice {
        if bytes < BYTES_MIN {
            return Choice { stores: Stores::Ordinary, timed: false };
        }
        self.fills = self.fills.wrapping_add(1);
        let timed = self.fills.is_multiple_of(TIME_EVERY);
        if self.now == Stores::Streaming {
            return self.choose_among_streaming(bytes, timed);
        }
        let other = timed && (self.fills / TIME_EVERY).is_multiple_of(TRY_OTHER_EVERY);
        Choice { stores: if other { Stores::Streaming } else { Stores::Ordinary }, timed }
    }

    fn choose_among_streaming(&mut self, bytes: usize, timed: bool) -> Choice {
        if self.since_trial >= TRIAL_EVERY_BYTES {
            self.since_trial = 0;
        }
        let before = self.since_trial;
        self.since_trial += bytes;
        match before {
            0..TRIAL_UNTIMED_BYTES => Choice { stores: Stores::Ordinary, timed: false },
            TRIAL_UNTIMED_BYTES..TRIAL_BYTES => Choice { stores: Stores::Ordinary, timed: true },
            _ => Choice { stores: Stores::Streaming, timed },
        }
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
        let now = if streaming < ordinary / WORTH { Stores::Streaming } else { Stores::Ordinary };
        if now == Stores::Streaming && self.now == Stores::Ordinary {
            self.since_trial = TRIAL_BYTES;
        }
        self.now = now;
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

    /// Runs fills that take so many ticks per KiB and returns how many of the last 4096 are streaming ones.
    fn run(chooser: &mut Chooser, ordinary: u64, streaming: u64) -> usize {
        let mut count = 0;
        for fill in 0..16_384 {
            let choice = chooser.choose(16 << 10);
            count += usize::from(fill >= 12_288 && choice.stores == Stores::Streaming);
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
        assert!(run(&mut chooser, 100, 65) < 40, "near cores");
        assert!(run(&mut chooser, 600, 80) > 3_600, "far cores: few fills are trials");
        assert!(run(&mut chooser, 100, 65) < 40, "near again");
        assert!(run(&mut chooser, 190, 65) < 40, "no gain worth it");
    }

    /// As [`run`] with a pool of 126 slots, of which those that were last filled past the caches take four times as long with ordinary
    /// stores.
    fn run_in_pool(chooser: &mut Chooser, pool: &mut [Stores; 126], ordinary: u64, streaming: u64) -> usize {
        let mut count = 0;
        for fill in 0..16_384 {
            let choice = chooser.choose(16 << 10);
            count += usize::from(fill >= 12_288 && choice.stores == Stores::Streaming);
            let slot = &mut pool[fill % 126];
            let cost = match (choice.stores, *slot) {
                (Stores::Streaming, _) => streaming,
                (Stores::Ordinary, Stores::Ordinary) => ordinary,
                (Stores::Ordinary, Stores::Streaming) => 4 * ordinary,
            };
            *slot = choice.stores;
            if choice.timed {
                chooser.learn(choice.stores, 16 << 10, cost * 16);
            }
        }
        count
    }

    #[test]
    fn what_was_filled_past_the_caches_does_not_keep_the_choice_there() {
        let (mut chooser, mut pool) = (Chooser::new(), [Stores::Ordinary; 126]);
        assert!(run_in_pool(&mut chooser, &mut pool, 100, 65) < 40, "near cores");
        assert!(run_in_pool(&mut chooser, &mut pool, 600, 80) > 3_600, "far cores");
        let near_again = run_in_pool(&mut chooser, &mut pool, 100, 65);
        assert!(near_again < 40, "near again, though each slot comes from memory first");
    }

    #[test]
    fn short_fills_are_ordinary_and_never_timed() {
        let mut chooser = Chooser::new();
        for _ in 0..1000 {
            assert_eq!(chooser.choose(4000), Choice { stores: Stores::Ordinary, timed: false });
        }
    }
}
