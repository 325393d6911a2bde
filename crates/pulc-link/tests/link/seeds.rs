//! Cases drawn from seeds, one number a case: what fails prints its seed, and `PULC_SEED=…` runs that case alone. `PULC_SEEDS=…`
//! runs so many cases instead of the usual number, for long nights. Used by all tests here that draw.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The source of everything a case draws (splitmix64).
pub struct Draw(u64);

impl Draw {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// Of any magnitude up to `max`: as often below a thousandth of it as above.
    pub fn magnitude(&mut self, max: u64) -> u64 {
        let bits = self.within(1..65 - u64::from(max.leading_zeros()));
        self.within(0..1 << bits.min(63)).min(max)
    }

    pub fn coin(&mut self) -> bool {
        self.number() & 1 == 1
    }
}

/// Runs `case` with `usual` seeds, or with the one that the environment names.
pub fn each_seed(usual: u64, case: impl Fn(u64, &mut Draw)) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let seeds = match number("PULC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PULC_SEEDS").unwrap_or(usual),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed, &mut Draw(seed)))) {
            eprintln!("the case of seed {seed} failed; PULC_SEED={seed} runs it again");
            resume_unwind(panic);
        }
    }
}
