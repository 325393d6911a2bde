//! Which way a collective goes, by its size and how many take part. All members must choose alike: what decides is what all of them
//! know, and the one threshold is agreed on when the hall is opened. `pulc info` prints the rows.

use pulc_base::param::Param;

pub static HALL_AFTER: Param = Param {
    name: "hall_after",
    default: 4,
    min: 0,
    max: 1 << 30,
    text: "blocking collectives on a communicator after which its members meet in shared memory; the same for all ranks of a job",
};

pub static HALLS_MAX: Param = Param {
    name: "halls_max",
    default: 256,
    min: 0,
    max: 4096,
    text: "communicators of one process whose members meet in shared memory; 0: none",
};

pub static HALL_MEMBERS_MAX: Param = Param {
    name: "hall_members_max",
    default: 256,
    min: 2,
    max: 1024,
    text: "members of a communicator on one node that meet in shared memory; the same for all ranks of a job",
};

pub static READ_ALL_BYTES: Param = Param {
    name: "hall_read_all_bytes",
    default: 16 << 10,
    min: 0,
    max: 1 << 30,
    text: "reductions: up to so many bytes of all others together every member reads them all; more are combined in shares",
};

pub static BLOCK_BYTES: Param = Param {
    name: "hall_block_bytes",
    default: 64 << 10,
    min: 0,
    max: 1 << 40,
    text: "gather, scatter, alltoall: longest block that goes through shared memory; longer ones are messages; the same for all ranks of a job",
};

/// The rows of MPI's collectives.
pub static PARAMS: &[&Param] =
    &[&HALL_AFTER, &HALLS_MAX, &HALL_MEMBERS_MAX, &READ_ALL_BYTES, &BLOCK_BYTES, &crate::trace::EVENTS_MAX];

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
