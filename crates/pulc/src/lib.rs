#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod address;
pub mod am;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod machine;
mod memory;
pub mod params;
mod port;
pub mod rawdata;
mod receive;
mod spare;
mod table;
mod transfers;
mod waiting;

pub use address::{Address, From, Match};
pub use error::Error;
pub use machine::{Counters, Node, Pulc, Task};
pub use memory::{Block, alloc, alloc_address, free_address};
pub use port::{Envelope, Mode, Port, select};
pub use pulc_base::{JobId, NodeId, NodeIndex, Rank};
