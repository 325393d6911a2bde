//! Messages that nobody waited for, in the order they came. Used by `table` (which fills them) and `receive` (which empties
//! them).

use pulc_handler::TransferId;

/// Bytes kept without an allocation.
pub(super) const SMALL_BYTES: usize = 40;

/// What a loan says of itself; nothing of it has been checked against the lender's memory.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    pub offset: u64,
    pub len: usize,
    pub id: u32,
}

pub(super) enum Kept {
    Small {
        bytes: [u8; SMALL_BYTES],
        len: u8,
        cost: u64,
    },
    Whole {
        bytes: Vec<u8>,
        cost: u64,
    },
    /// Comes in parts; complete when `done`.
    Coming {
        bytes: Vec<u8>,
        total: usize,
        cost: u64,
        transfer: u64,
        done: bool,
    },
    /// Lies in its sender's memory until it is given back.
    Lent {
        lent: Lent,
        cost: u64,
    },
    /// Its sender waits for a grant.
    Asked {
        total: usize,
        transfer: u64,
        id: TransferId,
    },
}

impl Kept {
    pub fn len(&self) -> usize {
        match self {
            Kept::Small { len, .. } => usize::from(*len),
            Kept::Whole { bytes, .. } => bytes.len(),
            Kept::Coming { total, .. } | Kept::Asked { total, .. } => *total,
            Kept::Lent { lent, .. } => lent.len,
        }
    }

    /// The bytes, if all of them are here.
    pub fn whole(&self) -> Option<&[u8]> {
        match self {
            Kept::Small { bytes, len, .. } => Some(&bytes[..usize::from(*len)]),
            Kept::Whole { bytes, .. } | Kept::Coming { bytes, done: true, .. } => Some(bytes),
            Kept::Coming { .. } | Kept::Lent { .. } | Kept::Asked { .. } => None,
        }
    }

    pub fn cost(&self) -> u64 {
        match self {
            Kept::Small { cost, .. }
            | Kept::Whole { cost, .. }
            | Kept::Lent { cost, .. }
            | Kept::Coming { cost, .. } => *cost,
            Kept::Asked { .. } => 0,
        }
    }

    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Kept::Whole { bytes, .. } | Kept::Coming { bytes, .. } => Some(bytes),
            Kept::Small { .. } | Kept::Lent { .. } | Kept::Asked { .. } => None,
        }
    }
}
