//! Numbers that look random and come again with the seed, for tests that make something up. Not for secrets.

/// xorshift64*. The seed must not be 0.
pub struct Chance(pub u64);

impl Chance {
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `limit`; 0 where the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.word() >> 16) % limit.max(1)
    }

    /// As [`Chance::below`], of things in memory.
    pub fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    /// One time in so many.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
