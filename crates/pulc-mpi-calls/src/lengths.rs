//! Lengths of arrays that no argument tells: they follow from the communicator. Called by the made bodies.

use pulc_mpi::error::{Class, Error, Result};

/// A length that another argument gives.
#[inline]
pub fn of(length: i64) -> Result<usize> {
    usize::try_from(length)
        .map_err(|_| Error::new(Class::COUNT, format!("a count is {length}; it must not be negative")))
}

/// Number of edges of a graph: `index` counts them up node by node.
pub fn edges(index: &[i32]) -> Result<usize> {
    of(index.last().map_or(0, |&last| i64::from(last)))
}
