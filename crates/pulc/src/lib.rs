#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod address;
pub mod am;
mod error;
mod finding;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod machine;
mod members;
mod memory;
pub mod params;
mod port;
pub mod rawdata;
mod receive;
mod select;
mod spare;
mod table;
mod transfer;
mod transfers;
mod waiting;

pub use address::{Address, From, Match};
pub use error::Error;
pub use machine::{Counters, Node, Pulc, Task};
pub use members::Members;
pub use memory::{Block, alloc, alloc_address, free_address};
pub use port::{Envelope, Mode, Port, select};
pub use pulc_base::{JobId, NodeId, NodeIndex, Rank};
pub use select::{Item, Readiness, Wakeup, select_items};
