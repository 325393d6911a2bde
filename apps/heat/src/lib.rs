//! Filled room by room.
