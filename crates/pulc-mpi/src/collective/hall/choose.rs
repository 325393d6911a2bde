//! Which way a collective goes, by its size and how many take part. All members must choose alike: what decides is what all of them
//! know, and the one threshold is agreed on when the hall is opened.

/// What the members have agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub read_all_bytes: usize,
    pub block_bytes: usize,
}

impl Choice {
    /// Whether it costs less that everybody reads everything than that all are switched to once more.
    pub fn everybody_reads(&self, members: usize, bytes: usize) -> bool {
        members.saturating_sub(2).saturating_mul(bytes) <= self.read_all_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_members_always_read_each_other_and_many_only_what_is_short() {
        let choice = Choice { read_all_bytes: 16 << 10, block_bytes: 0 };
        assert!(choice.everybody_reads(1, 1 << 20) && choice.everybody_reads(2, 1 << 20));
        assert!(choice.everybody_reads(8, 2 << 10) && !choice.everybody_reads(8, 4 << 10));
        assert!(!choice.everybody_reads(usize::MAX, usize::MAX));
    }
}
