//! What is known about a message that was received. Plain data; the doors write it in their ABI's layout.

use crate::consts::{ANY_SOURCE, ANY_TAG, PROC_NULL};

/// A status, the same for every ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    pub source: i32,
    pub tag: i32,
    /// The class of the error; written to the program's status by completions of several requests only.
    pub error: i32,
    /// Length of what was received.
    pub bytes: u64,
    pub cancelled: bool,
}

impl Status {
    /// Of sends and of requests that are null or inactive.
    pub const EMPTY: Status = Status { source: ANY_SOURCE, tag: ANY_TAG, error: 0, bytes: 0, cancelled: false };
    /// Of a receive from nobody.
    pub const NOBODY: Status = Status { source: PROC_NULL, tag: ANY_TAG, error: 0, bytes: 0, cancelled: false };
}
