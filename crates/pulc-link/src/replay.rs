//! Which frame counters of the peer were seen before. Asked before the tag is verified, told after; so a forged frame
//! changes nothing.
//!
//! Source: RFC 4303, section 3.4.3 (the sliding window of IPsec), wider because rails may differ in delay.

const WORDS: usize = 32;
/// Counters older than the newest by this much are taken for replays.
const SPAN: u64 = WORDS as u64 * 64;

/// A sliding window over counters.
pub(crate) struct Replay {
    /// One more than the newest counter seen.
    next: u64,
    /// Bit `counter % SPAN` of the `SPAN` counters below `next`.
    seen: [u64; WORDS],
}

impl Replay {
    pub fn new() -> Replay {
        Replay { next: 0, seen: [0; WORDS] }
    }

    /// Whether this counter is new.
    pub fn is_fresh(&self, counter: u64) -> bool {
        if counter >= self.next {
            return counter != u64::MAX;
        }
        self.next - counter <= SPAN && self.seen[index(counter)] & bit(counter) == 0
    }

    /// The last 64 counters up to the newest seen: the first of them, and a bit for each one seen.
    pub fn latest(&self) -> (u64, u64) {
        let first = self.next.saturating_sub(64);
        let seen = (first..self.next).filter(|&counter| self.seen[index(counter)] & bit(counter) != 0);
        (first, seen.fold(0, |bits, counter| bits | 1 << (counter - first)))
    }

    /// Notes a fresh counter of a frame that verified. True if it is the newest so far.
    pub fn note(&mut self, counter: u64) -> bool {
        debug_assert!(self.is_fresh(counter), "a counter is noted once");
        let newest = counter >= self.next;
        if newest {
            if counter - self.next >= SPAN {
                self.seen = [0; WORDS];
            } else {
                (self.next..counter).for_each(|skipped| self.seen[index(skipped)] &= !bit(skipped));
            }
            self.next = counter + 1;
        }
        self.seen[index(counter)] |= bit(counter);
        newest
    }
}

fn index(counter: u64) -> usize {
    (counter % SPAN / 64) as usize
}

fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_fresh_once_in_whatever_order_it_comes() {
        let mut replay = Replay::new();
        for counter in [0, 5, 3, 1, 4, 2, 100, 99, 2500, 2499, 600] {
            assert!(replay.is_fresh(counter), "{counter}");
            replay.note(counter);
            assert!(!replay.is_fresh(counter), "{counter}");
        }
    }

    #[test]
    fn what_fell_out_of_the_window_counts_as_seen() {
        let mut replay = Replay::new();
        replay.note(10_000);
        assert!(!replay.is_fresh(10_000 - SPAN));
        assert!(replay.is_fresh(10_001 - SPAN));
        assert!(!replay.is_fresh(u64::MAX), "the counter could not be followed by another");
    }

    #[test]
    fn jumps_of_any_width_leave_no_stale_bits() {
        for jump in [1, 63, 64, 65, SPAN - 1, SPAN, SPAN + 1, 5 * SPAN] {
            let mut replay = Replay::new();
            (0..SPAN).for_each(|counter| _ = replay.note(counter));
            let newest = SPAN - 1 + jump;
            replay.note(newest);
            for skipped in (SPAN..newest).filter(|&counter| newest - counter < SPAN) {
                assert!(replay.is_fresh(skipped), "jump {jump}: {skipped}");
            }
        }
    }
}
