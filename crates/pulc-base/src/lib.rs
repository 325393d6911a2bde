//! Ground floor of PULC: ids, clock, parameter table, metrics, log, and the data a process gets when it is started.
//! Every crate may name this one; it names no other and contains no `unsafe`.
#![forbid(unsafe_code)]

pub mod boot;
pub mod clock;
pub mod ids;
pub mod log;
pub mod metrics;
pub mod param;
pub mod sieve;

pub use ids::{JobId, NodeId, NodeIndex, Proto, Rank};

/// Version of every protocol between PULC's own processes (daemons, keepers, ranks). Peers with another one are refused
/// with both numbers in the message.
pub const PROTOCOL_VERSION: u32 = 3;
