//! See this crate's Cargo.toml for what it is; filled room by room.

pub mod node;
