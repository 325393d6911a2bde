//! Filled room by room.

fn main() {}
