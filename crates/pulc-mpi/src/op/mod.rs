//! Reductions. Pure computation on memory that the caller vouches for.

pub mod wide;
