#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod board;
mod channel;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
mod incoming;
mod kernel;
mod layout;
mod lock;
pub mod message;
mod outgoing;
mod parting;
mod ring;
mod spinning;

pub use board::Board;
pub use channel::{End, Flag, Summary, bar, create, summary};
pub use error::Error;
pub use incoming::Incoming;
pub use kernel::{Kernel, Wait};
pub use layout::{CHANNEL_BYTES, RING_BYTES, Side};
pub use outgoing::Outgoing;
pub use parting::Parting;
